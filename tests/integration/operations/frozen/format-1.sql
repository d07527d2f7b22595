--
-- PostgreSQL database dump
--


-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: perdure_frozen; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA perdure_frozen;


--
-- Name: amounts; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.amounts AS (
	steps bigint,
	tool_calls bigint,
	model_calls bigint,
	tokens bigint,
	cost bigint,
	ms bigint,
	unknown bigint,
	unpriced bigint
);


--
-- Name: pool; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.pool AS (
	id text,
	limits text,
	drawn perdure_frozen.amounts
);


--
-- Name: submission; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.submission AS (
	submission_id text,
	arrival bigint,
	kind text,
	at bigint,
	not_before bigint,
	actor text,
	digest text,
	body bytea,
	consumed_seq bigint,
	settled_seq bigint
);


--
-- Name: taker; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.taker AS (
	key text,
	operation text,
	state text,
	seq bigint,
	no bigint,
	session_id text,
	deleted boolean
);


--
-- Name: answer; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.answer AS (
	code text,
	no bigint,
	version bigint,
	fence bigint,
	inbox_head bigint,
	holder text,
	created boolean,
	pending bigint,
	submission perdure_frozen.submission,
	taker perdure_frozen.taker,
	pool perdure_frozen.pool,
	sqlstate text,
	message text,
	moment bigint
);


--
-- Name: blob; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.blob AS (
	digest text,
	media_type text,
	size bigint,
	data bytea
);


--
-- Name: entry; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.entry AS (
	seq bigint,
	number bigint,
	kind text,
	at bigint,
	salt bytea,
	body_digest bytea,
	body bytea,
	chain bytea
);


--
-- Name: listing; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.listing AS (
	status text,
	wake_at bigint,
	title text,
	folded text,
	labels text,
	agent text
);


--
-- Name: beginning; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.beginning AS (
	root text,
	parent text,
	parent_kind text,
	owner text,
	at bigint,
	entries perdure_frozen.entry[],
	checkpoint bytea,
	listing perdure_frozen.listing,
	blobs perdure_frozen.blob[]
);


--
-- Name: decision; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.decision AS (
	operation text,
	state text,
	seq bigint
);


--
-- Name: draw; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.draw AS (
	owner text,
	pool text,
	drawn perdure_frozen.amounts,
	used perdure_frozen.amounts,
	ends boolean
);


--
-- Name: edit; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.edit AS (
	submission_id text,
	body bytea
);


--
-- Name: effect; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.effect AS (
	effect_key bytea,
	seq bigint,
	state text
);


--
-- Name: mark; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.mark AS (
	submission_id text,
	seq bigint
);


--
-- Name: take; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.take AS (
	key text,
	operation text
);


--
-- Name: commit; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.commit AS (
	token bigint,
	no bigint,
	version bigint,
	fence bigint,
	holder text,
	at bigint,
	entries perdure_frozen.entry[],
	checkpoint bytea,
	consumed perdure_frozen.mark[],
	settled perdure_frozen.mark[],
	edited perdure_frozen.edit[],
	dropped text[],
	received perdure_frozen.submission[],
	redacted bigint[],
	erased text[],
	effects perdure_frozen.effect[],
	taken perdure_frozen.take[],
	decided perdure_frozen.decision[],
	blobs perdure_frozen.blob[],
	listing perdure_frozen.listing,
	claim text,
	force boolean,
	release boolean,
	progress boolean,
	inbox_head bigint,
	draws perdure_frozen.draw[]
);


--
-- Name: send; Type: TYPE; Schema: perdure_frozen; Owner: -
--

CREATE TYPE perdure_frozen.send AS (
	session_id text,
	submission perdure_frozen.submission,
	urgent boolean,
	patient boolean,
	owner text,
	blobs perdure_frozen.blob[],
	beginning perdure_frozen.beginning
);


--
-- Name: ack(bigint, text, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.ack(its_no bigint, its_consumer text, its_seq bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
    stands bigint;
BEGIN
    SELECT t.root, t.status INTO s FROM "perdure_frozen".sessions AS t WHERE t.no = its_no FOR KEY SHARE;
    IF NOT FOUND OR s.status = 'deleted' THEN
        RETURN 0;
    END IF;
    INSERT INTO "perdure_frozen".cursors AS k (root, no, consumer, seq) VALUES (s.root, its_no, its_consumer, its_seq)
    ON CONFLICT (root, no, consumer) DO UPDATE SET seq = greatest(k.seq, excluded.seq) RETURNING k.seq INTO stands;
    IF stands IS NULL THEN
        PERFORM "perdure_frozen".must(0, 1, 'the cursors');
    END IF;
    RETURN stands;
END
$$;


--
-- Name: alive(text, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.alive(runner text, moment bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (SELECT FROM "perdure_frozen".runners AS r WHERE r.id = runner AND r.expires > moment)
$$;


--
-- Name: all_there(bigint, text, bigint, text[], boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.all_there(changed bigint, its_root text, its_no bigint, names text[], waiting boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    missing text;
BEGIN
    IF changed = cardinality(names) THEN
        RETURN;
    END IF;
    SELECT n.name INTO missing FROM unnest(names) AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM "perdure_frozen".inbox AS i
        WHERE i.root = its_root AND i.no = its_no AND i.submission_id = n.name AND (NOT waiting OR i.consumed_seq IS NULL)
    ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'submission % is not %', quote_literal(missing), CASE WHEN waiting THEN 'waiting' ELSE 'there' END
            USING ERRCODE = 'PD001';
    END IF;
    PERFORM "perdure_frozen".must(changed, cardinality(names), 'the inbox');
END
$$;


--
-- Name: append(text, bigint, perdure_frozen.entry[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.append(its_root text, its_no bigint, entries perdure_frozen.entry[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed bigint;
BEGIN
    INSERT INTO "perdure_frozen".journal (root, no, seq, number, kind, at, salt, body_digest, body, chain)
    SELECT its_root, its_no, e.seq, e.number, e.kind, e.at, e.salt, e.body_digest, e.body, e.chain FROM unnest(entries) AS e;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(entries) THEN
        PERFORM "perdure_frozen".must(changed, cardinality(entries), 'the journal');
    END IF;
END
$$;


--
-- Name: begin_session(text, perdure_frozen.beginning); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.begin_session(its_id text, b perdure_frozen.beginning) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO "perdure_frozen".sessions (session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at,
        status, owner, title, folded, labels, created, updated, token, checkpoint)
    VALUES (its_id, b.root, b.parent, b.parent_kind, (b.listing).agent, b.entries[cardinality(b.entries)].seq, 0, NULL, 0, 0,
        (b.listing).wake_at, (b.listing).status, b.owner, (b.listing).title, (b.listing).folded, (b.listing).labels::jsonb, b.at, b.at,
        0, b.checkpoint)
    ON CONFLICT (session_id) DO NOTHING RETURNING no INTO made;
    IF made IS NULL THEN
        IF NOT EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.session_id = its_id) THEN
            PERFORM "perdure_frozen".must(0, 1, 'the sessions');
        END IF;
        RETURN NULL;
    END IF;
    PERFORM "perdure_frozen".append(b.root, made, b.entries);
    IF b.blobs IS NOT NULL THEN
        PERFORM "perdure_frozen".keep(b.root, b.blobs);
    END IF;
    RETURN made;
END
$$;


--
-- Name: bounded(perdure_frozen.amounts, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.bounded(a perdure_frozen.amounts, most bigint DEFAULT '9007199254740992'::bigint) RETURNS perdure_frozen.amounts
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT ROW(
        greatest(-most, least(most, a.steps)), greatest(-most, least(most, a.tool_calls)), greatest(-most, least(most, a.model_calls)),
        greatest(-most, least(most, a.tokens)), greatest(-most, least(most, a.cost)), greatest(-most, least(most, a.ms)),
        greatest(-most, least(most, a.unknown)), greatest(-most, least(most, a.unpriced))
    )::"perdure_frozen".amounts
$$;


--
-- Name: bury(bigint, bigint, bigint[], text[], bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.bury(its_no bigint, keep bigint, receipts bigint[], erased text[], tree bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
BEGIN
    SELECT t.root, t.status INTO s FROM "perdure_frozen".sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF tree <> (SELECT count(*) FROM "perdure_frozen".sessions AS t WHERE t.root = s.root) THEN
        RETURN false;
    END IF;
    IF s.status <> 'deleted' THEN
        UPDATE "perdure_frozen".sessions AS t
        SET status = 'deleted', holder = NULL, fence = t.fence + 1, wake_at = NULL, title = '', folded = '', labels = '{}', checkpoint = ''
        WHERE t.no = its_no;
        IF NOT FOUND THEN
            PERFORM "perdure_frozen".must(0, 1, 'the sessions');
        END IF;
    END IF;
    DELETE FROM "perdure_frozen".journal AS j
    WHERE j.root = s.root AND j.no = its_no AND j.seq > keep AND (keep = 0 OR j.kind <> 'redacted') AND j.seq <> ALL (receipts);
    UPDATE "perdure_frozen".inbox AS i SET body = NULL, consumed_seq = coalesce(i.consumed_seq, 0)
    WHERE i.root = s.root AND i.no = its_no AND (i.body IS NOT NULL OR i.consumed_seq IS NULL);
    DELETE FROM "perdure_frozen".effects AS e WHERE e.root = s.root AND e.no = its_no AND e.seq > keep AND e.seq <> ALL (receipts);
    DELETE FROM "perdure_frozen".cursors AS k WHERE k.root = s.root AND k.no = its_no;
    UPDATE "perdure_frozen".uniques AS u SET state = 'uncertain' WHERE u.no = its_no AND u.state = 'pending';
    PERFORM "perdure_frozen".erase(s.root, erased);
    DELETE FROM "perdure_frozen".blobs AS b
    WHERE b.root = s.root AND NOT EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.root = s.root AND t.status <> 'deleted');
    IF EXISTS (
            SELECT FROM "perdure_frozen".journal AS j
            WHERE j.root = s.root AND j.no = its_no AND j.seq > keep AND (keep = 0 OR j.kind <> 'redacted') AND j.seq <> ALL (receipts)
        )
        OR EXISTS (SELECT FROM "perdure_frozen".inbox AS i WHERE i.root = s.root AND i.no = its_no AND i.body IS NOT NULL)
        OR EXISTS (
            SELECT FROM "perdure_frozen".effects AS e WHERE e.root = s.root AND e.no = its_no AND e.seq > keep AND e.seq <> ALL (receipts)
        )
        OR EXISTS (SELECT FROM "perdure_frozen".cursors AS k WHERE k.root = s.root AND k.no = its_no) THEN
        RAISE EXCEPTION 'the database kept rows of a deleted session' USING ERRCODE = 'PD002';
    END IF;
    -- Last, since whatever came behind it would keep all of the owner's sessions from drawing.
    PERFORM "perdure_frozen".from_pool(its_no, NULL, true, true);
    RETURN true;
END
$$;


--
-- Name: claim(bigint, bigint, text, boolean, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.claim(its_token bigint, its_no bigint, runner text, force boolean, given bigint, OUT code text, OUT version bigint, OUT fence bigint, OUT inbox_head bigint, OUT holder text) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
BEGIN
    SELECT t.version, t.fence, t.inbox_head, t.holder, t.claims, t.status, t.token INTO s
    FROM "perdure_frozen".sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        code := 'none';
        RETURN;
    END IF;
    version := s.version;
    fence := s.fence;
    inbox_head := s.inbox_head;
    holder := s.holder;
    code := CASE WHEN s.status = 'deleted' THEN 'deleted' WHEN s.token = its_token THEN 'there'
        WHEN s.holder IS NOT NULL AND NOT force AND "perdure_frozen".alive(s.holder, coalesce(given, "perdure_frozen".now())) THEN 'held' ELSE 'done' END;
    IF code <> 'done' THEN
        RETURN;
    END IF;
    fence := s.fence + 1;
    holder := runner;
    UPDATE "perdure_frozen".sessions AS t SET holder = runner, fence = s.fence + 1, claims = s.claims + (s.holder IS NOT NULL)::int, token = its_token
    WHERE t.no = its_no;
    IF NOT FOUND THEN
        PERFORM "perdure_frozen".must(0, 1, 'the sessions');
    END IF;
END
$$;


--
-- Name: commit_alone(perdure_frozen.commit, bigint, boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.commit_alone(c perdure_frozen.commit, given bigint, again boolean) RETURNS SETOF perdure_frozen.answer
    LANGUAGE plpgsql
    AS $$
DECLARE
    a "perdure_frozen".answer;
    clock bigint := coalesce(given, "perdure_frozen".now());
BEGIN
    a := "perdure_frozen".commit_one(c, clock, true, again);
    a.moment := clock;
    RETURN NEXT a;
END
$$;


--
-- Name: commit_one(perdure_frozen.commit, bigint, boolean, boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.commit_one(c perdure_frozen.commit, moment bigint, wait boolean, again boolean) RETURNS perdure_frozen.answer
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
    a "perdure_frozen".answer;
    last "perdure_frozen".entry;
    known "perdure_frozen".submission;
    took record;
    drew record;
    decision "perdure_frozen".decision;
    changed bigint;
    after_holder text;
    after_claims bigint;
BEGIN
    a.no := c.no;
    IF c.erased IS NOT NULL THEN
        PERFORM "perdure_frozen".hold_tree(c.no);
    END IF;
    IF wait THEN
        SELECT t.root, t.version, t.fence, t.holder, t.claims, t.inbox_head, t.status, t.token INTO s
        FROM "perdure_frozen".sessions AS t WHERE t.no = c.no FOR NO KEY UPDATE;
    ELSE
        SELECT t.root, t.version, t.fence, t.holder, t.claims, t.inbox_head, t.status, t.token INTO s
        FROM "perdure_frozen".sessions AS t WHERE t.no = c.no FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.no = c.no) THEN
            a.code := 'busy';
            RETURN a;
        END IF;
    END IF;
    IF s.root IS NULL THEN
        a.code := 'none';
        RETURN a;
    END IF;
    a.version := s.version;
    a.fence := s.fence;
    a.holder := s.holder;
    a.inbox_head := s.inbox_head;
    IF s.status = 'deleted' THEN
        a.code := 'deleted';
        RETURN a;
    END IF;
    IF c.entries IS NOT NULL THEN
        last := c.entries[cardinality(c.entries)];
    END IF;
    IF again AND (s.token = c.token OR (s.version > c.version AND EXISTS (
        SELECT FROM "perdure_frozen".journal AS j WHERE j.root = s.root AND j.no = c.no AND j.seq = last.seq AND j.chain = last.chain
    ))) THEN
        a.code := 'there';
        a.version := coalesce(last.seq, c.version);
        a.fence := c.fence + (c.claim IS NOT NULL)::int;
        RETURN a;
    END IF;
    IF s.version <> c.version OR s.fence <> c.fence OR (c.claim IS NULL AND s.holder IS DISTINCT FROM c.holder) THEN
        a.code := 'stale';
        RETURN a;
    END IF;
    IF c.claim IS NOT NULL AND s.holder IS NOT NULL AND NOT c.force AND "perdure_frozen".alive(s.holder, moment) THEN
        a.code := 'held';
        RETURN a;
    END IF;
    IF c.inbox_head <> s.inbox_head THEN
        a.code := 'moved';
        RETURN a;
    END IF;
    IF c.received IS NOT NULL THEN
        SELECT i.submission_id, i.arrival, i.kind, i.at, i.not_before, i.actor, i.digest, i.body, i.consumed_seq, i.settled_seq
        INTO known
        FROM "perdure_frozen".inbox AS i JOIN unnest(c.received) AS r ON i.submission_id = r.submission_id
        WHERE i.root = s.root AND i.no = c.no LIMIT 1;
        IF FOUND THEN
            a.submission := known;
            a.code := 'already';
            RETURN a;
        END IF;
    END IF;
    IF c.taken IS NOT NULL THEN
        SELECT t.taker, t.fresh INTO took FROM "perdure_frozen".take_keys(c.no, c.taken) AS t;
        IF (took.taker).key IS NOT NULL THEN
            a.taker := took.taker;
            a.code := 'taken';
            RETURN a;
        END IF;
    END IF;
    IF c.draws IS NOT NULL OR (c.listing).status = 'halted' THEN
        SELECT p.code, p.stands INTO drew FROM "perdure_frozen".from_pool(c.no, c.draws, (c.listing).status = 'halted', wait) AS p;
        IF drew.code IS NOT NULL THEN
            a.pool := drew.stands;
            a.code := drew.code;
            IF c.taken IS NOT NULL THEN
                DELETE FROM "perdure_frozen".uniques AS u WHERE u.key = ANY (took.fresh);
            END IF;
            RETURN a;
        END IF;
    END IF;
    IF c.decided IS NOT NULL THEN
        FOREACH decision IN ARRAY c.decided LOOP
            IF decision.state IS NULL THEN
                DELETE FROM "perdure_frozen".uniques AS u WHERE u.no = c.no AND u.operation = decision.operation;
            ELSE
                UPDATE "perdure_frozen".uniques AS u SET state = decision.state, seq = decision.seq
                WHERE u.no = c.no AND u.operation = decision.operation;
            END IF;
        END LOOP;
    END IF;

    after_holder := CASE WHEN c.release THEN NULL WHEN c.claim IS NOT NULL THEN c.claim ELSE s.holder END;
    after_claims := CASE WHEN c.progress THEN 0 ELSE s.claims + (c.claim IS NOT NULL AND s.holder IS NOT NULL)::int END;
    a.code := 'done';
    a.version := coalesce(last.seq, s.version);
    a.fence := s.fence + (c.claim IS NOT NULL)::int;
    a.holder := after_holder;
    a.inbox_head := s.inbox_head + coalesce(cardinality(c.received), 0);
    IF c.blobs IS NOT NULL THEN
        PERFORM "perdure_frozen".keep(s.root, c.blobs);
    END IF;
    IF c.entries IS NOT NULL THEN
        PERFORM "perdure_frozen".append(s.root, c.no, c.entries);
    END IF;
    IF c.received IS NOT NULL OR c.edited IS NOT NULL OR c.dropped IS NOT NULL OR c.consumed IS NOT NULL OR c.settled IS NOT NULL THEN
        PERFORM "perdure_frozen".turn_over(s.root, c, s.inbox_head);
    END IF;
    IF c.redacted IS NOT NULL THEN
        UPDATE "perdure_frozen".journal AS j SET body = NULL, salt = NULL WHERE j.root = s.root AND j.no = c.no AND j.seq = ANY (c.redacted);
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, cardinality(c.redacted), 'the journal');
    END IF;
    IF c.erased IS NOT NULL THEN
        PERFORM "perdure_frozen".erase(s.root, c.erased);
    END IF;
    IF c.effects IS NOT NULL THEN
        INSERT INTO "perdure_frozen".effects (root, no, effect_key, seq, state)
        SELECT s.root, c.no, e.effect_key, e.seq, e.state FROM unnest(c.effects) AS e
        ON CONFLICT (root, no, effect_key, seq) DO UPDATE SET state = excluded.state;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, cardinality(c.effects), 'the effects');
    END IF;
    IF (c.listing).status IS NULL THEN
        UPDATE "perdure_frozen".sessions AS t
        SET version = a.version, fence = a.fence, holder = after_holder, claims = after_claims, inbox_head = a.inbox_head,
            token = c.token, checkpoint = CASE WHEN c.entries IS NULL THEN t.checkpoint ELSE c.checkpoint END
        WHERE t.no = c.no;
    ELSE
        UPDATE "perdure_frozen".sessions AS t
        SET version = a.version, fence = a.fence, holder = after_holder, claims = after_claims, inbox_head = a.inbox_head,
            token = c.token, checkpoint = CASE WHEN c.entries IS NULL THEN t.checkpoint ELSE c.checkpoint END,
            status = (c.listing).status, wake_at = (c.listing).wake_at, title = (c.listing).title, folded = (c.listing).folded,
            labels = (c.listing).labels::jsonb, agent = (c.listing).agent, updated = greatest(t.updated, c.at)
        WHERE t.no = c.no;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> 1 THEN
        PERFORM "perdure_frozen".must(changed, 1, 'the sessions');
    END IF;
    RETURN a;
END
$$;


--
-- Name: create_session(text, perdure_frozen.beginning, bigint, boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.create_session(its_id text, b perdure_frozen.beginning, parent_version bigint, again boolean, OUT code text, OUT no bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    known record;
    above record;
BEGIN
    FOR attempt IN 1..2 LOOP
        SELECT t.no, t.root, t.status INTO known FROM "perdure_frozen".sessions AS t WHERE t.session_id = its_id FOR KEY SHARE;
        IF FOUND THEN
            no := known.no;
            code := CASE WHEN known.status = 'deleted' THEN 'deleted' WHEN again AND EXISTS (
                SELECT FROM "perdure_frozen".journal AS j WHERE j.root = known.root AND j.no = known.no AND j.seq = 1 AND j.chain = b.entries[1].chain
            ) THEN 'there' ELSE 'taken' END;
            RETURN;
        END IF;
        IF b.parent IS NOT NULL THEN
            -- Neither a deletion of it comes between, nor a redaction.
            SELECT t.no, t.root, t.status INTO above FROM "perdure_frozen".sessions AS t WHERE t.session_id = b.parent FOR SHARE;
            IF NOT FOUND OR above.status = 'deleted' THEN
                code := CASE WHEN above.status IS NULL THEN 'orphan' ELSE 'orphaned' END;
                RETURN;
            END IF;
            IF EXISTS (
                SELECT FROM "perdure_frozen".journal AS j
                WHERE j.root = above.root AND j.no = above.no AND j.seq > parent_version AND j.kind = 'redacted'
            ) THEN
                code := 'redacted';
                RETURN;
            END IF;
        END IF;
        no := "perdure_frozen".begin_session(its_id, b);
        code := 'done';
        IF no IS NOT NULL THEN
            RETURN;
        END IF;
    END LOOP;
    PERFORM "perdure_frozen".must(0, 1, 'the sessions');
END
$$;


--
-- Name: effects_of(bigint, bytea, bytea, text, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.effects_of(its_no bigint, low bytea, high bytea, wanted text, after bigint) RETURNS SETOF perdure_frozen.effect
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN QUERY SELECT e.effect_key, e.seq, e.state FROM "perdure_frozen".effects AS e
    WHERE e.root = (SELECT t.root FROM "perdure_frozen".sessions AS t WHERE t.no = its_no) AND e.no = its_no AND e.effect_key >= low
        AND (high IS NULL OR e.effect_key < high) AND (wanted IS NULL OR e.state = wanted) AND e.seq > after
    ORDER BY e.seq, e.effect_key;
END
$$;


--
-- Name: entries(bigint, bigint, bigint, bigint, text[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.entries(its_no bigint, after bigint, before bigint, most bigint, kinds text[]) RETURNS SETOF perdure_frozen.entry
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN QUERY SELECT j.seq, j.number, j.kind, j.at, j.salt, j.body_digest, j.body, j.chain FROM "perdure_frozen".journal AS j
    WHERE j.root = (SELECT t.root FROM "perdure_frozen".sessions AS t WHERE t.no = its_no) AND j.no = its_no AND j.seq > after AND j.seq < before
        AND (kinds IS NULL OR j.kind = ANY (kinds))
    ORDER BY j.seq LIMIT most;
END
$$;


--
-- Name: erase(text, text[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.erase(its_root text, digests text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM "perdure_frozen".blobs AS b
    WHERE b.root = its_root AND b.digest = ANY (digests)
        AND NOT EXISTS (
            SELECT FROM "perdure_frozen".journal AS j WHERE j.root = its_root AND position(convert_to(b.digest, 'UTF8') IN j.body) > 0
        )
        AND NOT EXISTS (
            SELECT FROM "perdure_frozen".inbox AS i WHERE i.root = its_root AND position(convert_to(b.digest, 'UTF8') IN i.body) > 0
        );
END
$$;


--
-- Name: fits(jsonb, perdure_frozen.amounts, perdure_frozen.amounts); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.fits(limits jsonb, drawn perdure_frozen.amounts, more perdure_frozen.amounts) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT NOT EXISTS (
        SELECT FROM (VALUES
            ((limits->>'steps')::numeric, drawn.steps, more.steps),
            ((limits->>'tool_calls')::numeric, drawn.tool_calls, more.tool_calls),
            ((limits->>'model_calls')::numeric, drawn.model_calls, more.model_calls),
            ((limits->>'tokens')::numeric, drawn.tokens, more.tokens),
            ((limits->>'cost')::numeric, drawn.cost, more.cost),
            ((limits->>'seconds')::numeric * 1000, drawn.ms, more.ms)
        ) AS l (most, already, wanted)
        WHERE l.wanted > 0 AND l.already + l.wanted > l.most
    )
$$;


--
-- Name: from_pool(bigint, perdure_frozen.draw[], boolean, boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.from_pool(its_no bigint, draws perdure_frozen.draw[], releases boolean, wait boolean, OUT code text, OUT stands perdure_frozen.pool) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    zero CONSTANT "perdure_frozen".amounts := ROW(0, 0, 0, 0, 0, 0, 0, 0);
    d "perdure_frozen".draw;
    held "perdure_frozen".shares;
    share "perdure_frozen".shares;
    pool "perdure_frozen".pools;
    before "perdure_frozen".amounts;
    delta "perdure_frozen".amounts;
    its_owner text;
    ours boolean;
    changed bigint;
BEGIN
    SELECT h.no, h.owner, h.pool, h.drawn, h.used INTO held FROM "perdure_frozen".shares AS h WHERE h.no = its_no;
    share := held;
    its_owner := coalesce(draws[1].owner, held.owner);
    IF its_owner IS NULL THEN
        RETURN;
    END IF;
    IF wait THEN
        SELECT p.owner, p.id, p.limits, p.drawn INTO pool FROM "perdure_frozen".pools AS p WHERE p.owner = its_owner FOR NO KEY UPDATE;
    ELSE
        SELECT p.owner, p.id, p.limits, p.drawn INTO pool FROM "perdure_frozen".pools AS p WHERE p.owner = its_owner FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM "perdure_frozen".pools AS p WHERE p.owner = its_owner) THEN
            code := 'busy';
            RETURN;
        END IF;
    END IF;
    before := pool.drawn;
    FOREACH d IN ARRAY coalesce(draws, '{}') LOOP
        ours := coalesce(pool.id = d.pool, false);
        delta := "perdure_frozen".plus(
            CASE WHEN d.ends THEN d.used ELSE d.drawn END, CASE WHEN share.pool = d.pool THEN share.drawn ELSE zero END, -1
        );
        IF NOT d.ends AND greatest(delta.steps, delta.tool_calls, delta.model_calls, delta.tokens, delta.cost, delta.ms, delta.unknown,
            delta.unpriced) > 0 AND NOT (ours AND "perdure_frozen".fits(pool.limits, pool.drawn, delta)) THEN
            code := 'short';
            IF pool.owner IS NOT NULL THEN
                stands := ROW(pool.id, pool.limits::text, pool.drawn);
            END IF;
            RETURN;
        END IF;
        IF d.ends THEN
            share := NULL;
        ELSE
            share := ROW(its_no, d.owner, d.pool, d.drawn, d.used);
        END IF;
        IF ours THEN
            pool.drawn := "perdure_frozen".bounded("perdure_frozen".plus(pool.drawn, delta, 1));
        END IF;
    END LOOP;
    IF releases AND share.no IS NOT NULL THEN
        IF pool.id = share.pool THEN
            pool.drawn := "perdure_frozen".bounded("perdure_frozen".plus(pool.drawn, "perdure_frozen".plus(share.used, share.drawn, -1), 1));
        END IF;
        share := NULL;
    END IF;
    IF pool.drawn IS DISTINCT FROM before THEN
        UPDATE "perdure_frozen".pools AS p SET drawn = pool.drawn WHERE p.owner = its_owner;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, 1, 'the pools');
    END IF;
    -- A row of nulls and no row are not the same to IS DISTINCT.
    IF coalesce(share.no, held.no) IS NULL OR share IS NOT DISTINCT FROM held THEN
        RETURN;
    END IF;
    IF share.no IS NULL THEN
        DELETE FROM "perdure_frozen".shares AS h WHERE h.no = its_no;
    ELSIF held.no IS NULL THEN
        INSERT INTO "perdure_frozen".shares (no, owner, pool, drawn, used) VALUES (its_no, share.owner, share.pool, share.drawn, share.used);
    ELSE
        UPDATE "perdure_frozen".shares AS h SET owner = share.owner, pool = share.pool, drawn = share.drawn, used = share.used WHERE h.no = its_no;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM "perdure_frozen".must(changed, 1, 'the shares');
END
$$;


--
-- Name: heartbeat(text, text, bigint, bigint, text, text, bigint, bigint, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.heartbeat(its_id text, its_host text, its_pid bigint, its_start bigint, its_agents text, its_refused text, lease bigint, forgotten_after bigint, given bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    moment bigint := coalesce(given, "perdure_frozen".now());
    ends bigint;
BEGIN
    -- A text that is put in the place of an equal one is written anew; one that stays in its place is not.
    UPDATE "perdure_frozen".runners AS r SET host = its_host, pid = its_pid, agents = its_agents, expires = moment + lease,
        refused = CASE WHEN r.refused = its_refused THEN r.refused ELSE its_refused END
    WHERE r.id = its_id RETURNING r.expires INTO ends;
    IF ends IS NULL THEN
        DELETE FROM "perdure_frozen".runners AS r
        WHERE r.expires < moment - forgotten_after AND NOT EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.holder = r.id);
        INSERT INTO "perdure_frozen".runners AS r (id, host, pid, started, expires, agents, refused)
        VALUES (its_id, its_host, its_pid, its_start, moment + lease, its_agents, its_refused)
        ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, agents = excluded.agents, refused = excluded.refused,
            expires = excluded.expires
        RETURNING r.expires INTO ends;
    END IF;
    IF ends IS NULL THEN
        PERFORM "perdure_frozen".must(0, 1, 'the runners');
    END IF;
    RETURN ends;
END
$$;


--
-- Name: hold_tree(bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.hold_tree(its_no bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    its_root text := (SELECT o.root FROM "perdure_frozen".sessions AS o WHERE o.no = its_no);
    held bigint;
BEGIN
    LOOP
        PERFORM FROM "perdure_frozen".sessions AS t WHERE t.root = its_root ORDER BY t.no FOR NO KEY UPDATE;
        GET DIAGNOSTICS held = ROW_COUNT;
        -- One that began while this waited stands in no row that it saw.
        EXIT WHEN held = (SELECT count(*) FROM "perdure_frozen".sessions AS t WHERE t.root = its_root);
    END LOOP;
END
$$;


--
-- Name: keep(text, perdure_frozen.blob[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.keep(its_root text, blobs perdure_frozen.blob[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO "perdure_frozen".blobs (root, digest, media_type, size, data)
    SELECT DISTINCT ON (b.digest) its_root, b.digest, b.media_type, b.size, b.data FROM unnest(blobs) AS b ORDER BY b.digest
    ON CONFLICT (root, digest) DO NOTHING;
    IF EXISTS (
        SELECT FROM unnest(blobs) AS b
        WHERE NOT EXISTS (SELECT FROM "perdure_frozen".blobs AS k WHERE k.root = its_root AND k.digest = b.digest)
    ) THEN
        PERFORM "perdure_frozen".must(0, 1, 'the blobs');
    END IF;
END
$$;


--
-- Name: load(text, boolean, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.load(its_id text, hidden boolean, given bigint) RETURNS TABLE(no bigint, session_id text, root text, parent text, parent_kind text, agent text, version bigint, fence bigint, holder text, claims bigint, inbox_head bigint, wake_at bigint, status text, owner text, title text, labels text, created bigint, updated bigint, checkpoint bytea, chain bytea, number bigint, alive boolean, moment bigint, pool perdure_frozen.pool)
    LANGUAGE plpgsql STABLE ROWS 1
    AS $$
DECLARE
    clock bigint := coalesce(given, "perdure_frozen".now());
BEGIN
    RETURN QUERY SELECT s.no, s.session_id, s.root, s.parent, s.parent_kind, s.agent, s.version, s.fence, s.holder, s.claims, s.inbox_head,
        s.wake_at, s.status, s.owner, s.title, s.labels::text, s.created, s.updated, s.checkpoint, last.chain, last.number,
        s.holder IS NOT NULL AND EXISTS (SELECT FROM "perdure_frozen".runners AS r WHERE r.id = s.holder AND r.expires > clock), clock,
        (SELECT ROW(p.id, p.limits::text, p.drawn)::"perdure_frozen".pool FROM "perdure_frozen".pools AS p WHERE p.owner = s.owner AND s.owner <> '')
    FROM "perdure_frozen".sessions AS s
    -- The limit keeps it one look into the index, whatever the planner thinks of the tables.
    LEFT JOIN LATERAL (SELECT j.chain, j.number FROM "perdure_frozen".journal AS j WHERE j.root = s.root AND j.no = s.no AND j.seq = s.version LIMIT 1)
        AS last ON true
    WHERE s.session_id = its_id AND (hidden OR s.status <> 'deleted');
END
$$;


--
-- Name: must(bigint, bigint, text); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.must(changed bigint, wanted bigint, what text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF changed <> wanted THEN
        RAISE EXCEPTION 'the database left out a row of %', what USING ERRCODE = 'PD002';
    END IF;
END
$$;


--
-- Name: now(); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.now() RETURNS bigint
    LANGUAGE sql PARALLEL SAFE
    AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;


--
-- Name: plus(perdure_frozen.amounts, perdure_frozen.amounts, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.plus(a perdure_frozen.amounts, b perdure_frozen.amounts, sign bigint) RETURNS perdure_frozen.amounts
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT ROW(
        a.steps + sign * b.steps, a.tool_calls + sign * b.tool_calls, a.model_calls + sign * b.model_calls, a.tokens + sign * b.tokens,
        a.cost + sign * b.cost, a.ms + sign * b.ms, a.unknown + sign * b.unknown, a.unpriced + sign * b.unpriced
    )::"perdure_frozen".amounts
$$;


--
-- Name: put_blobs(text, perdure_frozen.blob[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.put_blobs(its_root text, blobs perdure_frozen.blob[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- Locked, so that who deletes the last session of the tree comes before or after.
    PERFORM FROM "perdure_frozen".sessions AS t WHERE t.root = its_root AND t.status <> 'deleted' LIMIT 1 FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM "perdure_frozen".keep(its_root, blobs);
    RETURN true;
END
$$;


--
-- Name: release(bigint, bigint, text, bigint, perdure_frozen.listing, bigint, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.release(its_token bigint, its_no bigint, runner text, its_fence bigint, l perdure_frozen.listing, its_head bigint, its_at bigint, OUT code text, OUT version bigint, OUT fence bigint, OUT inbox_head bigint, OUT holder text) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
BEGIN
    SELECT t.version, t.fence, t.inbox_head, t.holder, t.token INTO s FROM "perdure_frozen".sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        code := 'none';
        RETURN;
    END IF;
    version := s.version;
    fence := s.fence;
    inbox_head := s.inbox_head;
    holder := s.holder;
    code := CASE WHEN s.token = its_token THEN 'there' WHEN s.holder IS DISTINCT FROM runner OR s.fence <> its_fence THEN 'stale'
        WHEN s.inbox_head <> its_head THEN 'moved' ELSE 'done' END;
    IF code <> 'done' THEN
        RETURN;
    END IF;
    UPDATE "perdure_frozen".sessions AS t
    SET holder = NULL, token = its_token, status = l.status, wake_at = l.wake_at, title = l.title, folded = l.folded,
        labels = l.labels::jsonb, agent = l.agent, updated = greatest(t.updated, its_at)
    WHERE t.no = its_no;
    IF NOT FOUND THEN
        PERFORM "perdure_frozen".must(0, 1, 'the sessions');
    END IF;
END
$$;


--
-- Name: seek(bigint, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.seek(its_no bigint, wanted bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    s record;
    low bigint := 1;
    high bigint;
    middle bigint;
    found_number bigint;
    there bigint;
BEGIN
    SELECT t.root, t.status INTO s FROM "perdure_frozen".sessions AS t WHERE t.no = its_no;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT j.seq, j.number INTO high, there FROM "perdure_frozen".journal AS j WHERE j.root = s.root AND j.no = its_no ORDER BY j.seq DESC LIMIT 1;
    IF NOT FOUND OR there < wanted THEN
        RETURN NULL;
    END IF;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT j.number INTO found_number FROM "perdure_frozen".journal AS j WHERE j.root = s.root AND j.no = its_no AND j.seq = middle;
        IF NOT FOUND AND s.status <> 'deleted' THEN
            RAISE EXCEPTION 'entry % is missing', middle USING ERRCODE = 'PD003';
        END IF;
        -- Of a deleted session the beginning is left, and single entries behind it.
        IF FOUND AND found_number < wanted THEN
            low := middle + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END
$$;


--
-- Name: send_one(perdure_frozen.send, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.send_one(m perdure_frozen.send, moment bigint) RETURNS perdure_frozen.answer
    LANGUAGE plpgsql
    AS $$
DECLARE
    s record;
    above record;
    a "perdure_frozen".answer;
    r "perdure_frozen".submission;
    known "perdure_frozen".submission;
    changed bigint;
    pending_limit CONSTANT bigint := 1024;
    urgent_limit CONSTANT bigint := 1152;
    urgent_kinds CONSTANT text[] := ARRAY['answer', 'interrupt', 'outcome', 'result', 'withdraw'];
BEGIN
    r := m.submission;
    a.created := false;
    SELECT t.no, t.root, t.status, t.owner, t.parent, t.inbox_head INTO s
    FROM "perdure_frozen".sessions AS t WHERE t.session_id = m.session_id FOR NO KEY UPDATE SKIP LOCKED;
    IF s.no IS NULL THEN
        IF EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.session_id = m.session_id) THEN
            a.code := 'busy';
            RETURN a;
        END IF;
        IF (m.beginning).root IS NULL OR (m.owner IS NOT NULL AND m.owner <> (m.beginning).owner) THEN
            a.code := 'none';
            RETURN a;
        END IF;
        IF (m.beginning).parent IS NOT NULL THEN
            -- No deletion of it comes between.
            SELECT t.status INTO above FROM "perdure_frozen".sessions AS t WHERE t.session_id = (m.beginning).parent FOR SHARE SKIP LOCKED;
            IF NOT FOUND AND EXISTS (SELECT FROM "perdure_frozen".sessions AS t WHERE t.session_id = (m.beginning).parent) THEN
                a.code := 'busy';
                RETURN a;
            END IF;
            IF above.status IS NULL OR above.status = 'deleted' THEN
                a.code := CASE WHEN above.status IS NULL THEN 'none' ELSE 'deleted' END;
                RETURN a;
            END IF;
        END IF;
        a.no := "perdure_frozen".begin_session(m.session_id, m.beginning);
        IF a.no IS NULL THEN
            a.code := 'busy';
            RETURN a;
        END IF;
        a.created := true;
        SELECT t.no, t.root, t.status, t.owner, t.parent, t.inbox_head INTO s FROM "perdure_frozen".sessions AS t WHERE t.no = a.no;
    END IF;
    a.no := s.no;
    IF (m.owner IS NOT NULL AND m.owner <> s.owner) OR ((m.beginning).parent IS NOT NULL AND (m.beginning).parent IS DISTINCT FROM s.parent) THEN
        a.code := 'none';
        RETURN a;
    END IF;
    IF s.status = 'deleted' THEN
        a.code := 'deleted';
        RETURN a;
    END IF;
    SELECT i.submission_id, i.arrival, i.kind, i.at, i.not_before, i.actor, i.digest, i.body, i.consumed_seq, i.settled_seq
    INTO known
    FROM "perdure_frozen".inbox AS i WHERE i.root = s.root AND i.no = s.no AND i.submission_id = r.submission_id;
    IF FOUND THEN
        a.submission := known;
        a.code := CASE WHEN (a.submission).digest = r.digest THEN 'duplicate' ELSE 'conflict' END;
        RETURN a;
    END IF;
    IF s.status = 'archived' OR (s.status = 'halted' AND NOT m.patient) THEN
        a.code := s.status;
        RETURN a;
    END IF;
    SELECT count(*) INTO a.pending FROM "perdure_frozen".inbox AS i WHERE i.root = s.root AND i.no = s.no AND i.consumed_seq IS NULL;
    IF a.pending >= (CASE WHEN r.kind = ANY (urgent_kinds) THEN urgent_limit ELSE pending_limit END) THEN
        a.code := 'full';
        RETURN a;
    END IF;
    a.code := 'done';
    a.inbox_head := s.inbox_head + 1;
    IF m.blobs IS NOT NULL THEN
        PERFORM "perdure_frozen".keep(s.root, m.blobs);
    END IF;
    INSERT INTO "perdure_frozen".inbox (root, no, submission_id, arrival, kind, at, not_before, actor, digest, body)
    VALUES (s.root, s.no, r.submission_id, a.inbox_head, r.kind, r.at, r.not_before, r.actor, r.digest, r.body);
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM "perdure_frozen".must(changed, 1, 'the inbox');
    UPDATE "perdure_frozen".sessions AS t
    SET inbox_head = a.inbox_head, updated = greatest(t.updated, r.at), status = CASE t.status WHEN 'idle' THEN 'queued' ELSE t.status END,
        wake_at = CASE WHEN t.status IN ('stuck', 'halted') OR (t.status = 'waiting' AND NOT m.urgent) THEN t.wake_at
            ELSE least(t.wake_at, coalesce(r.not_before, moment)) END
    WHERE t.no = s.no;
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM "perdure_frozen".must(changed, 1, 'the sessions');
    RETURN a;
END
$$;


--
-- Name: stays_open(); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.stays_open() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    SET CONSTRAINTS "perdure_frozen".stays_open DEFERRED;
    UPDATE "perdure_frozen".lent SET asked = statement_timestamp() WHERE transaction = pg_current_xact_id();
    IF FOUND AND NEW.asked = statement_timestamp() THEN
        RAISE EXCEPTION 'a function that works in a commit may not end its transaction' USING ERRCODE = 'PD004';
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: take_keys(bigint, perdure_frozen.take[]); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.take_keys(its_no bigint, taken perdure_frozen.take[], OUT taker perdure_frozen.taker, OUT fresh text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    t "perdure_frozen".take;
BEGIN
    fresh := '{}';
    -- In the order of the keys, so that two that want the same ones do not wait for each other.
    FOR t IN SELECT u.key, u.operation FROM unnest(taken) AS u ORDER BY u.key COLLATE "C" LOOP
        LOOP
            INSERT INTO "perdure_frozen".uniques (key, no, operation, state, seq) VALUES (t.key, its_no, t.operation, 'pending', 0)
            ON CONFLICT (key) DO NOTHING;
            IF FOUND THEN
                fresh := fresh || t.key;
                EXIT;
            END IF;
            -- A session whose row somebody removed counts as deleted: without it this would look for ever.
            SELECT u.key, u.operation, u.state, u.seq, u.no, coalesce(s.session_id, ''), coalesce(s.status = 'deleted', true) INTO taker
            FROM "perdure_frozen".uniques AS u LEFT JOIN "perdure_frozen".sessions AS s USING (no) WHERE u.key = t.key;
            -- Whoever had it may have let it go just now.
            EXIT WHEN FOUND;
        END LOOP;
        IF (taker.no, taker.operation) <> (its_no, t.operation) THEN
            DELETE FROM "perdure_frozen".uniques AS u WHERE u.key = ANY (fresh);
            RETURN;
        END IF;
        taker := NULL;
    END LOOP;
END
$$;


--
-- Name: turn_over(text, perdure_frozen.commit, bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.turn_over(its_root text, c perdure_frozen.commit, head bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed bigint;
BEGIN
    IF c.received IS NOT NULL THEN
        INSERT INTO "perdure_frozen".inbox (root, no, submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq)
        SELECT its_root, c.no, r.submission_id, head + r.place, r.kind, r.at, r.not_before, r.actor, r.digest, NULL, r.consumed_seq,
            r.settled_seq
        FROM unnest(c.received) WITH ORDINALITY
            AS r (submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq, place);
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, cardinality(c.received), 'the inbox');
    END IF;
    IF c.edited IS NOT NULL THEN
        UPDATE "perdure_frozen".inbox AS i SET body = e.body FROM unnest(c.edited) AS e
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = e.submission_id AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".all_there(changed, its_root, c.no, ARRAY (SELECT e.submission_id FROM unnest(c.edited) AS e), true);
    END IF;
    IF c.dropped IS NOT NULL THEN
        PERFORM "perdure_frozen".all_there(-1, its_root, c.no, c.dropped, true) WHERE EXISTS (
            SELECT FROM unnest(c.dropped) AS n (name) WHERE NOT EXISTS (
                SELECT FROM "perdure_frozen".inbox AS i
                WHERE i.root = its_root AND i.no = c.no AND i.submission_id = n.name AND i.consumed_seq IS NULL
            )
        );
        DELETE FROM "perdure_frozen".inbox AS i
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = ANY (c.dropped) AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, cardinality(c.dropped), 'the inbox');
    END IF;
    IF c.consumed IS NOT NULL THEN
        PERFORM "perdure_frozen".all_there(-1, its_root, c.no, ARRAY (SELECT m.submission_id FROM unnest(c.consumed) AS m), true) WHERE EXISTS (
            SELECT FROM unnest(c.consumed) AS m WHERE NOT EXISTS (
                SELECT FROM "perdure_frozen".inbox AS i
                WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id AND i.consumed_seq IS NULL
            )
        );
        UPDATE "perdure_frozen".inbox AS i SET consumed_seq = m.seq, body = NULL FROM unnest(c.consumed) AS m
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".must(changed, cardinality(c.consumed), 'the inbox');
    END IF;
    IF c.settled IS NOT NULL THEN
        UPDATE "perdure_frozen".inbox AS i SET settled_seq = m.seq FROM unnest(c.settled) AS m
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM "perdure_frozen".all_there(changed, its_root, c.no, ARRAY (SELECT m.submission_id FROM unnest(c.settled) AS m), false);
    END IF;
END
$$;


--
-- Name: waiting(bigint); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.waiting(its_no bigint) RETURNS SETOF perdure_frozen.submission
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN QUERY SELECT i.submission_id, i.arrival, i.kind, i.at, i.not_before, i.actor, i.digest, i.body, i.consumed_seq, i.settled_seq
    FROM "perdure_frozen".inbox AS i
    WHERE i.root = (SELECT t.root FROM "perdure_frozen".sessions AS t WHERE t.no = its_no) AND i.no = its_no AND i.consumed_seq IS NULL
    ORDER BY i.arrival;
END
$$;


--
-- Name: write(perdure_frozen.commit[], perdure_frozen.send[], boolean[], bigint, boolean); Type: FUNCTION; Schema: perdure_frozen; Owner: -
--

CREATE FUNCTION perdure_frozen.write(commits perdure_frozen.commit[], sends perdure_frozen.send[], commit_here boolean[], given bigint, again boolean) RETURNS SETOF perdure_frozen.answer
    LANGUAGE plpgsql
    AS $$
DECLARE
    c "perdure_frozen".commit;
    m "perdure_frozen".send;
    a "perdure_frozen".answer;
    nothing "perdure_frozen".answer;
    is_commit boolean;
    next_commit int := 0;
    next_send int := 0;
    alone boolean := cardinality(commit_here) = 1;
    busy_numbers bigint[] := '{}';
    busy_ids text[] := '{}';
    clock bigint := coalesce(given, "perdure_frozen".now());
BEGIN
    FOREACH is_commit IN ARRAY commit_here LOOP
        a := nothing;
        IF is_commit THEN
            next_commit := next_commit + 1;
            c := commits[next_commit];
        ELSE
            next_send := next_send + 1;
            m := sends[next_send];
        END IF;
        IF alone AND is_commit THEN
            a := "perdure_frozen".commit_one(c, clock, false, again);
        ELSIF alone THEN
            a := "perdure_frozen".send_one(m, clock);
        ELSIF is_commit AND c.no = ANY (busy_numbers) THEN
            a.code := 'busy';
        ELSIF NOT is_commit AND (m.session_id = ANY (busy_ids) OR (busy_numbers <> '{}' AND EXISTS (
            SELECT FROM "perdure_frozen".sessions AS t WHERE t.session_id = m.session_id AND t.no = ANY (busy_numbers)
        ))) THEN
            a.code := 'busy';
        ELSE
            BEGIN
                IF is_commit THEN
                    a := "perdure_frozen".commit_one(c, clock, false, again);
                ELSE
                    a := "perdure_frozen".send_one(m, clock);
                END IF;
            EXCEPTION WHEN OTHERS THEN
                a := nothing;
                a.code := 'error';
                a.sqlstate := SQLSTATE;
                a.message := SQLERRM;
            END;
        END IF;
        IF a.code = 'busy' OR a.sqlstate IN ('40001', '40P01', '55P03') THEN
            IF is_commit THEN
                busy_numbers := busy_numbers || c.no;
            ELSE
                busy_ids := busy_ids || m.session_id;
                busy_numbers := busy_numbers || ARRAY (SELECT t.no FROM "perdure_frozen".sessions AS t WHERE t.session_id = m.session_id);
            END IF;
        END IF;
        a.moment := clock;
        RETURN NEXT a;
    END LOOP;
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: blobs; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.blobs (
    root text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    media_type text NOT NULL,
    size bigint NOT NULL,
    data bytea
);


--
-- Name: cursors; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.cursors (
    root text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    consumer text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL
);


--
-- Name: effects; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.effects (
    root text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    effect_key bytea NOT NULL,
    seq bigint NOT NULL,
    state text NOT NULL
);


--
-- Name: inbox; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.inbox (
    root text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    submission_id text NOT NULL COLLATE pg_catalog."C",
    arrival bigint NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    not_before bigint,
    actor text NOT NULL,
    digest text NOT NULL,
    body bytea,
    consumed_seq bigint,
    settled_seq bigint
);


--
-- Name: journal; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.journal (
    root text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    seq bigint NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    salt bytea,
    body_digest bytea NOT NULL,
    body bytea,
    chain bytea NOT NULL
);


--
-- Name: lent; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.lent (
    transaction xid8 NOT NULL,
    asked timestamp with time zone
);


--
-- Name: meta; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL
);


--
-- Name: pools; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.pools (
    owner text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL,
    limits jsonb NOT NULL,
    drawn perdure_frozen.amounts NOT NULL
)
WITH (fillfactor='50');


--
-- Name: runners; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.runners (
    id text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL,
    pid bigint NOT NULL,
    started bigint NOT NULL,
    expires bigint NOT NULL,
    agents text NOT NULL,
    refused text NOT NULL
)
WITH (fillfactor='50');


--
-- Name: sessions; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.sessions (
    no bigint NOT NULL,
    session_id text NOT NULL COLLATE pg_catalog."C",
    root text NOT NULL COLLATE pg_catalog."C",
    parent text,
    parent_kind text,
    agent text NOT NULL,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    holder text COLLATE pg_catalog."C",
    claims bigint NOT NULL,
    inbox_head bigint NOT NULL,
    wake_at bigint,
    status text NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL,
    folded text NOT NULL COLLATE pg_catalog."C",
    labels jsonb NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    token bigint NOT NULL,
    checkpoint bytea NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');


--
-- Name: sessions_no_seq; Type: SEQUENCE; Schema: perdure_frozen; Owner: -
--

ALTER TABLE perdure_frozen.sessions ALTER COLUMN no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME perdure_frozen.sessions_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: shares; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.shares (
    no bigint NOT NULL,
    owner text NOT NULL,
    pool text NOT NULL,
    drawn perdure_frozen.amounts NOT NULL,
    used perdure_frozen.amounts NOT NULL
)
WITH (fillfactor='50');


--
-- Name: uniques; Type: TABLE; Schema: perdure_frozen; Owner: -
--

CREATE TABLE perdure_frozen.uniques (
    key text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    operation text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    seq bigint NOT NULL
);


--
-- Data for Name: blobs; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.blobs VALUES ('done', '1310446a0dea8ef16a8250a1ffdcdb7f75e41a17cf3d9338ece255e12ddbf2b8', 'application/json', 1716, '\x7b22617070726f7665223a7b2266756e6374696f6e223a6e756c6c2c2272756c6573223a7b22726566756e64223a2261736b227d2c2274696d656f7574223a6e756c6c7d2c2261726368697665223a32303030302c22636f6d70616374696f6e223a7b2262797465735f7065725f746f6b656e223a342e302c2267756964616e6365223a2265383231316265303865303136393435373531323435373863313437353131343363303962373962306531623030616433353164376635346564343135396432222c227468726573686f6c64223a3235303030307d2c2266696e697368223a7b22616e737765725f74696d656f7574223a6e756c6c2c22656e64696e67223a22616e73776572222c226f6e5f73696c656e6365223a6e756c6c2c2272657061697273223a6e756c6c7d2c22666f726d6174223a312c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c226c696d697473223a7b226368696c6472656e223a31362c22636f7374223a6e756c6c2c226465707468223a342c2268616e646f666673223a31302c226d6f64656c5f63616c6c73223a6e756c6c2c227265706f727473223a35302c227365636f6e6473223a6e756c6c2c227374657073223a35302c22737472696374223a66616c73652c22746f6b656e73223a6e756c6c2c22746f6f6c5f63616c6c73223a6e756c6c7d2c226d656d6f7279223a6e756c6c2c226d6964646c6577617265223a5b5d2c226d6f64656c223a2266756e6374696f6e222c226e616d65223a22636c65726b222c226f7574707574223a6e756c6c2c2273657373696f6e5f6c696d697473223a7b7d2c2273657474696e6773223a7b7d2c22746f6f6c73223a5b7b226465736372697074696f6e223a224c6f6f6b2e222c226469726563746f7279223a6e756c6c2c22656666656374223a2270757265222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a226c6f6f6b222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a225061792e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a5b2263656e7473225d2c226e616d65223a22706179222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a22526566756e642e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a22726566756e64222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d5d7d');
INSERT INTO perdure_frozen.blobs VALUES ('done', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 'application/json', 2, '\x7b7d');
INSERT INTO perdure_frozen.blobs VALUES ('done', '9c0a0176d68afd76d7cf76021af043591f35dc71627ef4a51012540310e69e23', 'application/json', 1029, '\x5b7b226465736372697074696f6e223a224c6f6f6b2e222c226e616d65223a226c6f6f6b222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225061792e222c226e616d65223a22706179222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a22526566756e642e222c226e616d65223a22726566756e64222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225265616420616e792070617274206f66206120746f6f6c20726573756c74206f66207768696368206f6e6c7920616e2065786365727074207761732073686f776e2e2052657475726e7320746578742c206f66667365742c20656e6420616e6420746f74616c2c20696e20636861726163746572732e222c226e616d65223a22726561645f726573756c74222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2268616e646c65223a7b226465736372697074696f6e223a2277686174207468652065786365727074206e616d65732c20737563682061732031322e30222c2274797065223a22737472696e67227d2c226c656e677468223a7b2264656661756c74223a31303030302c226465736372697074696f6e223a22686f77206d616e79206368617261637465727320746f20726561642c206174206d6f7374203130303030222c226d696e696d756d223a312c2274797065223a22696e7465676572227d2c226f6666736574223a7b2264656661756c74223a302c226465736372697074696f6e223a227468652066697273742063686172616374657220746f2072656164222c226d696e696d756d223a302c2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2268616e646c65225d2c2274797065223a226f626a656374227d7d5d');
INSERT INTO perdure_frozen.blobs VALUES ('done', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 'text/plain', 0, '\x');
INSERT INTO perdure_frozen.blobs VALUES ('large', '10815f73156ecd614321b58c188b5e20701c40b193db6e9a1b1fd97e23b90af2', 'application/json', 43923, '\x7b22636f6e74656e74223a226b65657020302031203220332034203520362037203820392031302031312031322031332031342031352031362031372031382031392032302032312032322032332032342032352032362032372032382032392033302033312033322033332033342033352033362033372033382033392034302034312034322034332034342034352034362034372034382034392035302035312035322035332035342035352035362035372035382035392036302036312036322036332036342036352036362036372036382036392037302037312037322037332037342037352037362037372037382037392038302038312038322038332038342038352038362038372038382038392039302039312039322039332039342039352039362039372039382039392031303020313031203130322031303320313034203130352031303620313037203130382031303920313130203131312031313220313133203131342031313520313136203131372031313820313139203132302031323120313232203132332031323420313235203132362031323720313238203132392031333020313331203133322031333320313334203133352031333620313337203133382031333920313430203134312031343220313433203134342031343520313436203134372031343820313439203135302031353120313532203135332031353420313535203135362031353720313538203135392031363020313631203136322031363320313634203136352031363620313637203136382031363920313730203137312031373220313733203137342031373520313736203137372031373820313739203138302031383120313832203138332031383420313835203138362031383720313838203138392031393020313931203139322031393320313934203139352031393620313937203139382031393920323030203230312032303220323033203230342032303520323036203230372032303820323039203231302032313120323132203231332032313420323135203231362032313720323138203231392032323020323231203232322032323320323234203232352032323620323237203232382032323920323330203233312032333220323333203233342032333520323336203233372032333820323339203234302032343120323432203234332032343420323435203234362032343720323438203234392032353020323531203235322032353320323534203235352032353620323537203235382032353920323630203236312032363220323633203236342032363520323636203236372032363820323639203237302032373120323732203237332032373420323735203237362032373720323738203237392032383020323831203238322032383320323834203238352032383620323837203238382032383920323930203239312032393220323933203239342032393520323936203239372032393820323939203330302033303120333032203330332033303420333035203330362033303720333038203330392033313020333131203331322033313320333134203331352033313620333137203331382033313920333230203332312033323220333233203332342033323520333236203332372033323820333239203333302033333120333332203333332033333420333335203333362033333720333338203333392033343020333431203334322033343320333434203334352033343620333437203334382033343920333530203335312033353220333533203335342033353520333536203335372033353820333539203336302033363120333632203336332033363420333635203336362033363720333638203336392033373020333731203337322033373320333734203337352033373620333737203337382033373920333830203338312033383220333833203338342033383520333836203338372033383820333839203339302033393120333932203339332033393420333935203339362033393720333938203339392034303020343031203430322034303320343034203430352034303620343037203430382034303920343130203431312034313220343133203431342034313520343136203431372034313820343139203432302034323120343232203432332034323420343235203432362034323720343238203432392034333020343331203433322034333320343334203433352034333620343337203433382034333920343430203434312034343220343433203434342034343520343436203434372034343820343439203435302034353120343532203435332034353420343535203435362034353720343538203435392034363020343631203436322034363320343634203436352034363620343637203436382034363920343730203437312034373220343733203437342034373520343736203437372034373820343739203438302034383120343832203438332034383420343835203438362034383720343838203438392034393020343931203439322034393320343934203439352034393620343937203439382034393920353030203530312035303220353033203530342035303520353036203530372035303820353039203531302035313120353132203531332035313420353135203531362035313720353138203531392035323020353231203532322035323320353234203532352035323620353237203532382035323920353330203533312035333220353333203533342035333520353336203533372035333820353339203534302035343120353432203534332035343420353435203534362035343720353438203534392035353020353531203535322035353320353534203535352035353620353537203535382035353920353630203536312035363220353633203536342035363520353636203536372035363820353639203537302035373120353732203537332035373420353735203537362035373720353738203537392035383020353831203538322035383320353834203538352035383620353837203538382035383920353930203539312035393220353933203539342035393520353936203539372035393820353939203630302036303120363032203630332036303420363035203630362036303720363038203630392036313020363131203631322036313320363134203631352036313620363137203631382036313920363230203632312036323220363233203632342036323520363236203632372036323820363239203633302036333120363332203633332036333420363335203633362036333720363338203633392036343020363431203634322036343320363434203634352036343620363437203634382036343920363530203635312036353220363533203635342036353520363536203635372036353820363539203636302036363120363632203636332036363420363635203636362036363720363638203636392036373020363731203637322036373320363734203637352036373620363737203637382036373920363830203638312036383220363833203638342036383520363836203638372036383820363839203639302036393120363932203639332036393420363935203639362036393720363938203639392037303020373031203730322037303320373034203730352037303620373037203730382037303920373130203731312037313220373133203731342037313520373136203731372037313820373139203732302037323120373232203732332037323420373235203732362037323720373238203732392037333020373331203733322037333320373334203733352037333620373337203733382037333920373430203734312037343220373433203734342037343520373436203734372037343820373439203735302037353120373532203735332037353420373535203735362037353720373538203735392037363020373631203736322037363320373634203736352037363620373637203736382037363920373730203737312037373220373733203737342037373520373736203737372037373820373739203738302037383120373832203738332037383420373835203738362037383720373838203738392037393020373931203739322037393320373934203739352037393620373937203739382037393920383030203830312038303220383033203830342038303520383036203830372038303820383039203831302038313120383132203831332038313420383135203831362038313720383138203831392038323020383231203832322038323320383234203832352038323620383237203832382038323920383330203833312038333220383333203833342038333520383336203833372038333820383339203834302038343120383432203834332038343420383435203834362038343720383438203834392038353020383531203835322038353320383534203835352038353620383537203835382038353920383630203836312038363220383633203836342038363520383636203836372038363820383639203837302038373120383732203837332038373420383735203837362038373720383738203837392038383020383831203838322038383320383834203838352038383620383837203838382038383920383930203839312038393220383933203839342038393520383936203839372038393820383939203930302039303120393032203930332039303420393035203930362039303720393038203930392039313020393131203931322039313320393134203931352039313620393137203931382039313920393230203932312039323220393233203932342039323520393236203932372039323820393239203933302039333120393332203933332039333420393335203933362039333720393338203933392039343020393431203934322039343320393434203934352039343620393437203934382039343920393530203935312039353220393533203935342039353520393536203935372039353820393539203936302039363120393632203936332039363420393635203936362039363720393638203936392039373020393731203937322039373320393734203937352039373620393737203937382039373920393830203938312039383220393833203938342039383520393836203938372039383820393839203939302039393120393932203939332039393420393935203939362039393720393938203939392031303030203130303120313030322031303033203130303420313030352031303036203130303720313030382031303039203130313020313031312031303132203130313320313031342031303135203130313620313031372031303138203130313920313032302031303231203130323220313032332031303234203130323520313032362031303237203130323820313032392031303330203130333120313033322031303333203130333420313033352031303336203130333720313033382031303339203130343020313034312031303432203130343320313034342031303435203130343620313034372031303438203130343920313035302031303531203130353220313035332031303534203130353520313035362031303537203130353820313035392031303630203130363120313036322031303633203130363420313036352031303636203130363720313036382031303639203130373020313037312031303732203130373320313037342031303735203130373620313037372031303738203130373920313038302031303831203130383220313038332031303834203130383520313038362031303837203130383820313038392031303930203130393120313039322031303933203130393420313039352031303936203130393720313039382031303939203131303020313130312031313032203131303320313130342031313035203131303620313130372031313038203131303920313131302031313131203131313220313131332031313134203131313520313131362031313137203131313820313131392031313230203131323120313132322031313233203131323420313132352031313236203131323720313132382031313239203131333020313133312031313332203131333320313133342031313335203131333620313133372031313338203131333920313134302031313431203131343220313134332031313434203131343520313134362031313437203131343820313134392031313530203131353120313135322031313533203131353420313135352031313536203131353720313135382031313539203131363020313136312031313632203131363320313136342031313635203131363620313136372031313638203131363920313137302031313731203131373220313137332031313734203131373520313137362031313737203131373820313137392031313830203131383120313138322031313833203131383420313138352031313836203131383720313138382031313839203131393020313139312031313932203131393320313139342031313935203131393620313139372031313938203131393920313230302031323031203132303220313230332031323034203132303520313230362031323037203132303820313230392031323130203132313120313231322031323133203132313420313231352031323136203132313720313231382031323139203132323020313232312031323232203132323320313232342031323235203132323620313232372031323238203132323920313233302031323331203132333220313233332031323334203132333520313233362031323337203132333820313233392031323430203132343120313234322031323433203132343420313234352031323436203132343720313234382031323439203132353020313235312031323532203132353320313235342031323535203132353620313235372031323538203132353920313236302031323631203132363220313236332031323634203132363520313236362031323637203132363820313236392031323730203132373120313237322031323733203132373420313237352031323736203132373720313237382031323739203132383020313238312031323832203132383320313238342031323835203132383620313238372031323838203132383920313239302031323931203132393220313239332031323934203132393520313239362031323937203132393820313239392031333030203133303120313330322031333033203133303420313330352031333036203133303720313330382031333039203133313020313331312031333132203133313320313331342031333135203133313620313331372031333138203133313920313332302031333231203133323220313332332031333234203133323520313332362031333237203133323820313332392031333330203133333120313333322031333333203133333420313333352031333336203133333720313333382031333339203133343020313334312031333432203133343320313334342031333435203133343620313334372031333438203133343920313335302031333531203133353220313335332031333534203133353520313335362031333537203133353820313335392031333630203133363120313336322031333633203133363420313336352031333636203133363720313336382031333639203133373020313337312031333732203133373320313337342031333735203133373620313337372031333738203133373920313338302031333831203133383220313338332031333834203133383520313338362031333837203133383820313338392031333930203133393120313339322031333933203133393420313339352031333936203133393720313339382031333939203134303020313430312031343032203134303320313430342031343035203134303620313430372031343038203134303920313431302031343131203134313220313431332031343134203134313520313431362031343137203134313820313431392031343230203134323120313432322031343233203134323420313432352031343236203134323720313432382031343239203134333020313433312031343332203134333320313433342031343335203134333620313433372031343338203134333920313434302031343431203134343220313434332031343434203134343520313434362031343437203134343820313434392031343530203134353120313435322031343533203134353420313435352031343536203134353720313435382031343539203134363020313436312031343632203134363320313436342031343635203134363620313436372031343638203134363920313437302031343731203134373220313437332031343734203134373520313437362031343737203134373820313437392031343830203134383120313438322031343833203134383420313438352031343836203134383720313438382031343839203134393020313439312031343932203134393320313439342031343935203134393620313439372031343938203134393920313530302031353031203135303220313530332031353034203135303520313530362031353037203135303820313530392031353130203135313120313531322031353133203135313420313531352031353136203135313720313531382031353139203135323020313532312031353232203135323320313532342031353235203135323620313532372031353238203135323920313533302031353331203135333220313533332031353334203135333520313533362031353337203135333820313533392031353430203135343120313534322031353433203135343420313534352031353436203135343720313534382031353439203135353020313535312031353532203135353320313535342031353535203135353620313535372031353538203135353920313536302031353631203135363220313536332031353634203135363520313536362031353637203135363820313536392031353730203135373120313537322031353733203135373420313537352031353736203135373720313537382031353739203135383020313538312031353832203135383320313538342031353835203135383620313538372031353838203135383920313539302031353931203135393220313539332031353934203135393520313539362031353937203135393820313539392031363030203136303120313630322031363033203136303420313630352031363036203136303720313630382031363039203136313020313631312031363132203136313320313631342031363135203136313620313631372031363138203136313920313632302031363231203136323220313632332031363234203136323520313632362031363237203136323820313632392031363330203136333120313633322031363333203136333420313633352031363336203136333720313633382031363339203136343020313634312031363432203136343320313634342031363435203136343620313634372031363438203136343920313635302031363531203136353220313635332031363534203136353520313635362031363537203136353820313635392031363630203136363120313636322031363633203136363420313636352031363636203136363720313636382031363639203136373020313637312031363732203136373320313637342031363735203136373620313637372031363738203136373920313638302031363831203136383220313638332031363834203136383520313638362031363837203136383820313638392031363930203136393120313639322031363933203136393420313639352031363936203136393720313639382031363939203137303020313730312031373032203137303320313730342031373035203137303620313730372031373038203137303920313731302031373131203137313220313731332031373134203137313520313731362031373137203137313820313731392031373230203137323120313732322031373233203137323420313732352031373236203137323720313732382031373239203137333020313733312031373332203137333320313733342031373335203137333620313733372031373338203137333920313734302031373431203137343220313734332031373434203137343520313734362031373437203137343820313734392031373530203137353120313735322031373533203137353420313735352031373536203137353720313735382031373539203137363020313736312031373632203137363320313736342031373635203137363620313736372031373638203137363920313737302031373731203137373220313737332031373734203137373520313737362031373737203137373820313737392031373830203137383120313738322031373833203137383420313738352031373836203137383720313738382031373839203137393020313739312031373932203137393320313739342031373935203137393620313739372031373938203137393920313830302031383031203138303220313830332031383034203138303520313830362031383037203138303820313830392031383130203138313120313831322031383133203138313420313831352031383136203138313720313831382031383139203138323020313832312031383232203138323320313832342031383235203138323620313832372031383238203138323920313833302031383331203138333220313833332031383334203138333520313833362031383337203138333820313833392031383430203138343120313834322031383433203138343420313834352031383436203138343720313834382031383439203138353020313835312031383532203138353320313835342031383535203138353620313835372031383538203138353920313836302031383631203138363220313836332031383634203138363520313836362031383637203138363820313836392031383730203138373120313837322031383733203138373420313837352031383736203138373720313837382031383739203138383020313838312031383832203138383320313838342031383835203138383620313838372031383838203138383920313839302031383931203138393220313839332031383934203138393520313839362031383937203138393820313839392031393030203139303120313930322031393033203139303420313930352031393036203139303720313930382031393039203139313020313931312031393132203139313320313931342031393135203139313620313931372031393138203139313920313932302031393231203139323220313932332031393234203139323520313932362031393237203139323820313932392031393330203139333120313933322031393333203139333420313933352031393336203139333720313933382031393339203139343020313934312031393432203139343320313934342031393435203139343620313934372031393438203139343920313935302031393531203139353220313935332031393534203139353520313935362031393537203139353820313935392031393630203139363120313936322031393633203139363420313936352031393636203139363720313936382031393639203139373020313937312031393732203139373320313937342031393735203139373620313937372031393738203139373920313938302031393831203139383220313938332031393834203139383520313938362031393837203139383820313938392031393930203139393120313939322031393933203139393420313939352031393936203139393720313939382031393939203230303020323030312032303032203230303320323030342032303035203230303620323030372032303038203230303920323031302032303131203230313220323031332032303134203230313520323031362032303137203230313820323031392032303230203230323120323032322032303233203230323420323032352032303236203230323720323032382032303239203230333020323033312032303332203230333320323033342032303335203230333620323033372032303338203230333920323034302032303431203230343220323034332032303434203230343520323034362032303437203230343820323034392032303530203230353120323035322032303533203230353420323035352032303536203230353720323035382032303539203230363020323036312032303632203230363320323036342032303635203230363620323036372032303638203230363920323037302032303731203230373220323037332032303734203230373520323037362032303737203230373820323037392032303830203230383120323038322032303833203230383420323038352032303836203230383720323038382032303839203230393020323039312032303932203230393320323039342032303935203230393620323039372032303938203230393920323130302032313031203231303220323130332032313034203231303520323130362032313037203231303820323130392032313130203231313120323131322032313133203231313420323131352032313136203231313720323131382032313139203231323020323132312032313232203231323320323132342032313235203231323620323132372032313238203231323920323133302032313331203231333220323133332032313334203231333520323133362032313337203231333820323133392032313430203231343120323134322032313433203231343420323134352032313436203231343720323134382032313439203231353020323135312032313532203231353320323135342032313535203231353620323135372032313538203231353920323136302032313631203231363220323136332032313634203231363520323136362032313637203231363820323136392032313730203231373120323137322032313733203231373420323137352032313736203231373720323137382032313739203231383020323138312032313832203231383320323138342032313835203231383620323138372032313838203231383920323139302032313931203231393220323139332032313934203231393520323139362032313937203231393820323139392032323030203232303120323230322032323033203232303420323230352032323036203232303720323230382032323039203232313020323231312032323132203232313320323231342032323135203232313620323231372032323138203232313920323232302032323231203232323220323232332032323234203232323520323232362032323237203232323820323232392032323330203232333120323233322032323333203232333420323233352032323336203232333720323233382032323339203232343020323234312032323432203232343320323234342032323435203232343620323234372032323438203232343920323235302032323531203232353220323235332032323534203232353520323235362032323537203232353820323235392032323630203232363120323236322032323633203232363420323236352032323636203232363720323236382032323639203232373020323237312032323732203232373320323237342032323735203232373620323237372032323738203232373920323238302032323831203232383220323238332032323834203232383520323238362032323837203232383820323238392032323930203232393120323239322032323933203232393420323239352032323936203232393720323239382032323939203233303020323330312032333032203233303320323330342032333035203233303620323330372032333038203233303920323331302032333131203233313220323331332032333134203233313520323331362032333137203233313820323331392032333230203233323120323332322032333233203233323420323332352032333236203233323720323332382032333239203233333020323333312032333332203233333320323333342032333335203233333620323333372032333338203233333920323334302032333431203233343220323334332032333434203233343520323334362032333437203233343820323334392032333530203233353120323335322032333533203233353420323335352032333536203233353720323335382032333539203233363020323336312032333632203233363320323336342032333635203233363620323336372032333638203233363920323337302032333731203233373220323337332032333734203233373520323337362032333737203233373820323337392032333830203233383120323338322032333833203233383420323338352032333836203233383720323338382032333839203233393020323339312032333932203233393320323339342032333935203233393620323339372032333938203233393920323430302032343031203234303220323430332032343034203234303520323430362032343037203234303820323430392032343130203234313120323431322032343133203234313420323431352032343136203234313720323431382032343139203234323020323432312032343232203234323320323432342032343235203234323620323432372032343238203234323920323433302032343331203234333220323433332032343334203234333520323433362032343337203234333820323433392032343430203234343120323434322032343433203234343420323434352032343436203234343720323434382032343439203234353020323435312032343532203234353320323435342032343535203234353620323435372032343538203234353920323436302032343631203234363220323436332032343634203234363520323436362032343637203234363820323436392032343730203234373120323437322032343733203234373420323437352032343736203234373720323437382032343739203234383020323438312032343832203234383320323438342032343835203234383620323438372032343838203234383920323439302032343931203234393220323439332032343934203234393520323439362032343937203234393820323439392032353030203235303120323530322032353033203235303420323530352032353036203235303720323530382032353039203235313020323531312032353132203235313320323531342032353135203235313620323531372032353138203235313920323532302032353231203235323220323532332032353234203235323520323532362032353237203235323820323532392032353330203235333120323533322032353333203235333420323533352032353336203235333720323533382032353339203235343020323534312032353432203235343320323534342032353435203235343620323534372032353438203235343920323535302032353531203235353220323535332032353534203235353520323535362032353537203235353820323535392032353630203235363120323536322032353633203235363420323536352032353636203235363720323536382032353639203235373020323537312032353732203235373320323537342032353735203235373620323537372032353738203235373920323538302032353831203235383220323538332032353834203235383520323538362032353837203235383820323538392032353930203235393120323539322032353933203235393420323539352032353936203235393720323539382032353939203236303020323630312032363032203236303320323630342032363035203236303620323630372032363038203236303920323631302032363131203236313220323631332032363134203236313520323631362032363137203236313820323631392032363230203236323120323632322032363233203236323420323632352032363236203236323720323632382032363239203236333020323633312032363332203236333320323633342032363335203236333620323633372032363338203236333920323634302032363431203236343220323634332032363434203236343520323634362032363437203236343820323634392032363530203236353120323635322032363533203236353420323635352032363536203236353720323635382032363539203236363020323636312032363632203236363320323636342032363635203236363620323636372032363638203236363920323637302032363731203236373220323637332032363734203236373520323637362032363737203236373820323637392032363830203236383120323638322032363833203236383420323638352032363836203236383720323638382032363839203236393020323639312032363932203236393320323639342032363935203236393620323639372032363938203236393920323730302032373031203237303220323730332032373034203237303520323730362032373037203237303820323730392032373130203237313120323731322032373133203237313420323731352032373136203237313720323731382032373139203237323020323732312032373232203237323320323732342032373235203237323620323732372032373238203237323920323733302032373331203237333220323733332032373334203237333520323733362032373337203237333820323733392032373430203237343120323734322032373433203237343420323734352032373436203237343720323734382032373439203237353020323735312032373532203237353320323735342032373535203237353620323735372032373538203237353920323736302032373631203237363220323736332032373634203237363520323736362032373637203237363820323736392032373730203237373120323737322032373733203237373420323737352032373736203237373720323737382032373739203237383020323738312032373832203237383320323738342032373835203237383620323738372032373838203237383920323739302032373931203237393220323739332032373934203237393520323739362032373937203237393820323739392032383030203238303120323830322032383033203238303420323830352032383036203238303720323830382032383039203238313020323831312032383132203238313320323831342032383135203238313620323831372032383138203238313920323832302032383231203238323220323832332032383234203238323520323832362032383237203238323820323832392032383330203238333120323833322032383333203238333420323833352032383336203238333720323833382032383339203238343020323834312032383432203238343320323834342032383435203238343620323834372032383438203238343920323835302032383531203238353220323835332032383534203238353520323835362032383537203238353820323835392032383630203238363120323836322032383633203238363420323836352032383636203238363720323836382032383639203238373020323837312032383732203238373320323837342032383735203238373620323837372032383738203238373920323838302032383831203238383220323838332032383834203238383520323838362032383837203238383820323838392032383930203238393120323839322032383933203238393420323839352032383936203238393720323839382032383939203239303020323930312032393032203239303320323930342032393035203239303620323930372032393038203239303920323931302032393131203239313220323931332032393134203239313520323931362032393137203239313820323931392032393230203239323120323932322032393233203239323420323932352032393236203239323720323932382032393239203239333020323933312032393332203239333320323933342032393335203239333620323933372032393338203239333920323934302032393431203239343220323934332032393434203239343520323934362032393437203239343820323934392032393530203239353120323935322032393533203239353420323935352032393536203239353720323935382032393539203239363020323936312032393632203239363320323936342032393635203239363620323936372032393638203239363920323937302032393731203239373220323937332032393734203239373520323937362032393737203239373820323937392032393830203239383120323938322032393833203239383420323938352032393836203239383720323938382032393839203239393020323939312032393932203239393320323939342032393935203239393620323939372032393938203239393920333030302033303031203330303220333030332033303034203330303520333030362033303037203330303820333030392033303130203330313120333031322033303133203330313420333031352033303136203330313720333031382033303139203330323020333032312033303232203330323320333032342033303235203330323620333032372033303238203330323920333033302033303331203330333220333033332033303334203330333520333033362033303337203330333820333033392033303430203330343120333034322033303433203330343420333034352033303436203330343720333034382033303439203330353020333035312033303532203330353320333035342033303535203330353620333035372033303538203330353920333036302033303631203330363220333036332033303634203330363520333036362033303637203330363820333036392033303730203330373120333037322033303733203330373420333037352033303736203330373720333037382033303739203330383020333038312033303832203330383320333038342033303835203330383620333038372033303838203330383920333039302033303931203330393220333039332033303934203330393520333039362033303937203330393820333039392033313030203331303120333130322033313033203331303420333130352033313036203331303720333130382033313039203331313020333131312033313132203331313320333131342033313135203331313620333131372033313138203331313920333132302033313231203331323220333132332033313234203331323520333132362033313237203331323820333132392033313330203331333120333133322033313333203331333420333133352033313336203331333720333133382033313339203331343020333134312033313432203331343320333134342033313435203331343620333134372033313438203331343920333135302033313531203331353220333135332033313534203331353520333135362033313537203331353820333135392033313630203331363120333136322033313633203331363420333136352033313636203331363720333136382033313639203331373020333137312033313732203331373320333137342033313735203331373620333137372033313738203331373920333138302033313831203331383220333138332033313834203331383520333138362033313837203331383820333138392033313930203331393120333139322033313933203331393420333139352033313936203331393720333139382033313939203332303020333230312033323032203332303320333230342033323035203332303620333230372033323038203332303920333231302033323131203332313220333231332033323134203332313520333231362033323137203332313820333231392033323230203332323120333232322033323233203332323420333232352033323236203332323720333232382033323239203332333020333233312033323332203332333320333233342033323335203332333620333233372033323338203332333920333234302033323431203332343220333234332033323434203332343520333234362033323437203332343820333234392033323530203332353120333235322033323533203332353420333235352033323536203332353720333235382033323539203332363020333236312033323632203332363320333236342033323635203332363620333236372033323638203332363920333237302033323731203332373220333237332033323734203332373520333237362033323737203332373820333237392033323830203332383120333238322033323833203332383420333238352033323836203332383720333238382033323839203332393020333239312033323932203332393320333239342033323935203332393620333239372033323938203332393920333330302033333031203333303220333330332033333034203333303520333330362033333037203333303820333330392033333130203333313120333331322033333133203333313420333331352033333136203333313720333331382033333139203333323020333332312033333232203333323320333332342033333235203333323620333332372033333238203333323920333333302033333331203333333220333333332033333334203333333520333333362033333337203333333820333333392033333430203333343120333334322033333433203333343420333334352033333436203333343720333334382033333439203333353020333335312033333532203333353320333335342033333535203333353620333335372033333538203333353920333336302033333631203333363220333336332033333634203333363520333336362033333637203333363820333336392033333730203333373120333337322033333733203333373420333337352033333736203333373720333337382033333739203333383020333338312033333832203333383320333338342033333835203333383620333338372033333838203333383920333339302033333931203333393220333339332033333934203333393520333339362033333937203333393820333339392033343030203334303120333430322033343033203334303420333430352033343036203334303720333430382033343039203334313020333431312033343132203334313320333431342033343135203334313620333431372033343138203334313920333432302033343231203334323220333432332033343234203334323520333432362033343237203334323820333432392033343330203334333120333433322033343333203334333420333433352033343336203334333720333433382033343339203334343020333434312033343432203334343320333434342033343435203334343620333434372033343438203334343920333435302033343531203334353220333435332033343534203334353520333435362033343537203334353820333435392033343630203334363120333436322033343633203334363420333436352033343636203334363720333436382033343639203334373020333437312033343732203334373320333437342033343735203334373620333437372033343738203334373920333438302033343831203334383220333438332033343834203334383520333438362033343837203334383820333438392033343930203334393120333439322033343933203334393420333439352033343936203334393720333439382033343939203335303020333530312033353032203335303320333530342033353035203335303620333530372033353038203335303920333531302033353131203335313220333531332033353134203335313520333531362033353137203335313820333531392033353230203335323120333532322033353233203335323420333532352033353236203335323720333532382033353239203335333020333533312033353332203335333320333533342033353335203335333620333533372033353338203335333920333534302033353431203335343220333534332033353434203335343520333534362033353437203335343820333534392033353530203335353120333535322033353533203335353420333535352033353536203335353720333535382033353539203335363020333536312033353632203335363320333536342033353635203335363620333536372033353638203335363920333537302033353731203335373220333537332033353734203335373520333537362033353737203335373820333537392033353830203335383120333538322033353833203335383420333538352033353836203335383720333538382033353839203335393020333539312033353932203335393320333539342033353935203335393620333539372033353938203335393920333630302033363031203336303220333630332033363034203336303520333630362033363037203336303820333630392033363130203336313120333631322033363133203336313420333631352033363136203336313720333631382033363139203336323020333632312033363232203336323320333632342033363235203336323620333632372033363238203336323920333633302033363331203336333220333633332033363334203336333520333633362033363337203336333820333633392033363430203336343120333634322033363433203336343420333634352033363436203336343720333634382033363439203336353020333635312033363532203336353320333635342033363535203336353620333635372033363538203336353920333636302033363631203336363220333636332033363634203336363520333636362033363637203336363820333636392033363730203336373120333637322033363733203336373420333637352033363736203336373720333637382033363739203336383020333638312033363832203336383320333638342033363835203336383620333638372033363838203336383920333639302033363931203336393220333639332033363934203336393520333639362033363937203336393820333639392033373030203337303120333730322033373033203337303420333730352033373036203337303720333730382033373039203337313020333731312033373132203337313320333731342033373135203337313620333731372033373138203337313920333732302033373231203337323220333732332033373234203337323520333732362033373237203337323820333732392033373330203337333120333733322033373333203337333420333733352033373336203337333720333733382033373339203337343020333734312033373432203337343320333734342033373435203337343620333734372033373438203337343920333735302033373531203337353220333735332033373534203337353520333735362033373537203337353820333735392033373630203337363120333736322033373633203337363420333736352033373636203337363720333736382033373639203337373020333737312033373732203337373320333737342033373735203337373620333737372033373738203337373920333738302033373831203337383220333738332033373834203337383520333738362033373837203337383820333738392033373930203337393120333739322033373933203337393420333739352033373936203337393720333739382033373939203338303020333830312033383032203338303320333830342033383035203338303620333830372033383038203338303920333831302033383131203338313220333831332033383134203338313520333831362033383137203338313820333831392033383230203338323120333832322033383233203338323420333832352033383236203338323720333832382033383239203338333020333833312033383332203338333320333833342033383335203338333620333833372033383338203338333920333834302033383431203338343220333834332033383434203338343520333834362033383437203338343820333834392033383530203338353120333835322033383533203338353420333835352033383536203338353720333835382033383539203338363020333836312033383632203338363320333836342033383635203338363620333836372033383638203338363920333837302033383731203338373220333837332033383734203338373520333837362033383737203338373820333837392033383830203338383120333838322033383833203338383420333838352033383836203338383720333838382033383839203338393020333839312033383932203338393320333839342033383935203338393620333839372033383938203338393920333930302033393031203339303220333930332033393034203339303520333930362033393037203339303820333930392033393130203339313120333931322033393133203339313420333931352033393136203339313720333931382033393139203339323020333932312033393232203339323320333932342033393235203339323620333932372033393238203339323920333933302033393331203339333220333933332033393334203339333520333933362033393337203339333820333933392033393430203339343120333934322033393433203339343420333934352033393436203339343720333934382033393439203339353020333935312033393532203339353320333935342033393535203339353620333935372033393538203339353920333936302033393631203339363220333936332033393634203339363520333936362033393637203339363820333936392033393730203339373120333937322033393733203339373420333937352033393736203339373720333937382033393739203339383020333938312033393832203339383320333938342033393835203339383620333938372033393838203339383920333939302033393931203339393220333939332033393934203339393520333939362033393937203339393820333939392034303030203430303120343030322034303033203430303420343030352034303036203430303720343030382034303039203430313020343031312034303132203430313320343031342034303135203430313620343031372034303138203430313920343032302034303231203430323220343032332034303234203430323520343032362034303237203430323820343032392034303330203430333120343033322034303333203430333420343033352034303336203430333720343033382034303339203430343020343034312034303432203430343320343034342034303435203430343620343034372034303438203430343920343035302034303531203430353220343035332034303534203430353520343035362034303537203430353820343035392034303630203430363120343036322034303633203430363420343036352034303636203430363720343036382034303639203430373020343037312034303732203430373320343037342034303735203430373620343037372034303738203430373920343038302034303831203430383220343038332034303834203430383520343038362034303837203430383820343038392034303930203430393120343039322034303933203430393420343039352034303936203430393720343039382034303939203431303020343130312034313032203431303320343130342034313035203431303620343130372034313038203431303920343131302034313131203431313220343131332034313134203431313520343131362034313137203431313820343131392034313230203431323120343132322034313233203431323420343132352034313236203431323720343132382034313239203431333020343133312034313332203431333320343133342034313335203431333620343133372034313338203431333920343134302034313431203431343220343134332034313434203431343520343134362034313437203431343820343134392034313530203431353120343135322034313533203431353420343135352034313536203431353720343135382034313539203431363020343136312034313632203431363320343136342034313635203431363620343136372034313638203431363920343137302034313731203431373220343137332034313734203431373520343137362034313737203431373820343137392034313830203431383120343138322034313833203431383420343138352034313836203431383720343138382034313839203431393020343139312034313932203431393320343139342034313935203431393620343139372034313938203431393920343230302034323031203432303220343230332034323034203432303520343230362034323037203432303820343230392034323130203432313120343231322034323133203432313420343231352034323136203432313720343231382034323139203432323020343232312034323232203432323320343232342034323235203432323620343232372034323238203432323920343233302034323331203432333220343233332034323334203432333520343233362034323337203432333820343233392034323430203432343120343234322034323433203432343420343234352034323436203432343720343234382034323439203432353020343235312034323532203432353320343235342034323535203432353620343235372034323538203432353920343236302034323631203432363220343236332034323634203432363520343236362034323637203432363820343236392034323730203432373120343237322034323733203432373420343237352034323736203432373720343237382034323739203432383020343238312034323832203432383320343238342034323835203432383620343238372034323838203432383920343239302034323931203432393220343239332034323934203432393520343239362034323937203432393820343239392034333030203433303120343330322034333033203433303420343330352034333036203433303720343330382034333039203433313020343331312034333132203433313320343331342034333135203433313620343331372034333138203433313920343332302034333231203433323220343332332034333234203433323520343332362034333237203433323820343332392034333330203433333120343333322034333333203433333420343333352034333336203433333720343333382034333339203433343020343334312034333432203433343320343334342034333435203433343620343334372034333438203433343920343335302034333531203433353220343335332034333534203433353520343335362034333537203433353820343335392034333630203433363120343336322034333633203433363420343336352034333636203433363720343336382034333639203433373020343337312034333732203433373320343337342034333735203433373620343337372034333738203433373920343338302034333831203433383220343338332034333834203433383520343338362034333837203433383820343338392034333930203433393120343339322034333933203433393420343339352034333936203433393720343339382034333939203434303020343430312034343032203434303320343430342034343035203434303620343430372034343038203434303920343431302034343131203434313220343431332034343134203434313520343431362034343137203434313820343431392034343230203434323120343432322034343233203434323420343432352034343236203434323720343432382034343239203434333020343433312034343332203434333320343433342034343335203434333620343433372034343338203434333920343434302034343431203434343220343434332034343434203434343520343434362034343437203434343820343434392034343530203434353120343435322034343533203434353420343435352034343536203434353720343435382034343539203434363020343436312034343632203434363320343436342034343635203434363620343436372034343638203434363920343437302034343731203434373220343437332034343734203434373520343437362034343737203434373820343437392034343830203434383120343438322034343833203434383420343438352034343836203434383720343438382034343839203434393020343439312034343932203434393320343439342034343935203434393620343439372034343938203434393920343530302034353031203435303220343530332034353034203435303520343530362034353037203435303820343530392034353130203435313120343531322034353133203435313420343531352034353136203435313720343531382034353139203435323020343532312034353232203435323320343532342034353235203435323620343532372034353238203435323920343533302034353331203435333220343533332034353334203435333520343533362034353337203435333820343533392034353430203435343120343534322034353433203435343420343534352034353436203435343720343534382034353439203435353020343535312034353532203435353320343535342034353535203435353620343535372034353538203435353920343536302034353631203435363220343536332034353634203435363520343536362034353637203435363820343536392034353730203435373120343537322034353733203435373420343537352034353736203435373720343537382034353739203435383020343538312034353832203435383320343538342034353835203435383620343538372034353838203435383920343539302034353931203435393220343539332034353934203435393520343539362034353937203435393820343539392034363030203436303120343630322034363033203436303420343630352034363036203436303720343630382034363039203436313020343631312034363132203436313320343631342034363135203436313620343631372034363138203436313920343632302034363231203436323220343632332034363234203436323520343632362034363237203436323820343632392034363330203436333120343633322034363333203436333420343633352034363336203436333720343633382034363339203436343020343634312034363432203436343320343634342034363435203436343620343634372034363438203436343920343635302034363531203436353220343635332034363534203436353520343635362034363537203436353820343635392034363630203436363120343636322034363633203436363420343636352034363636203436363720343636382034363639203436373020343637312034363732203436373320343637342034363735203436373620343637372034363738203436373920343638302034363831203436383220343638332034363834203436383520343638362034363837203436383820343638392034363930203436393120343639322034363933203436393420343639352034363936203436393720343639382034363939203437303020343730312034373032203437303320343730342034373035203437303620343730372034373038203437303920343731302034373131203437313220343731332034373134203437313520343731362034373137203437313820343731392034373230203437323120343732322034373233203437323420343732352034373236203437323720343732382034373239203437333020343733312034373332203437333320343733342034373335203437333620343733372034373338203437333920343734302034373431203437343220343734332034373434203437343520343734362034373437203437343820343734392034373530203437353120343735322034373533203437353420343735352034373536203437353720343735382034373539203437363020343736312034373632203437363320343736342034373635203437363620343736372034373638203437363920343737302034373731203437373220343737332034373734203437373520343737362034373737203437373820343737392034373830203437383120343738322034373833203437383420343738352034373836203437383720343738382034373839203437393020343739312034373932203437393320343739342034373935203437393620343739372034373938203437393920343830302034383031203438303220343830332034383034203438303520343830362034383037203438303820343830392034383130203438313120343831322034383133203438313420343831352034383136203438313720343831382034383139203438323020343832312034383232203438323320343832342034383235203438323620343832372034383238203438323920343833302034383331203438333220343833332034383334203438333520343833362034383337203438333820343833392034383430203438343120343834322034383433203438343420343834352034383436203438343720343834382034383439203438353020343835312034383532203438353320343835342034383535203438353620343835372034383538203438353920343836302034383631203438363220343836332034383634203438363520343836362034383637203438363820343836392034383730203438373120343837322034383733203438373420343837352034383736203438373720343837382034383739203438383020343838312034383832203438383320343838342034383835203438383620343838372034383838203438383920343839302034383931203438393220343839332034383934203438393520343839362034383937203438393820343839392034393030203439303120343930322034393033203439303420343930352034393036203439303720343930382034393039203439313020343931312034393132203439313320343931342034393135203439313620343931372034393138203439313920343932302034393231203439323220343932332034393234203439323520343932362034393237203439323820343932392034393330203439333120343933322034393333203439333420343933352034393336203439333720343933382034393339203439343020343934312034393432203439343320343934342034393435203439343620343934372034393438203439343920343935302034393531203439353220343935332034393534203439353520343935362034393537203439353820343935392034393630203439363120343936322034393633203439363420343936352034393636203439363720343936382034393639203439373020343937312034393732203439373320343937342034393735203439373620343937372034393738203439373920343938302034393831203439383220343938332034393834203439383520343938362034393837203439383820343938392034393930203439393120343939322034393933203439393420343939352034393936203439393720343939382034393939203530303020353030312035303032203530303320353030342035303035203530303620353030372035303038203530303920353031302035303131203530313220353031332035303134203530313520353031362035303137203530313820353031392035303230203530323120353032322035303233203530323420353032352035303236203530323720353032382035303239203530333020353033312035303332203530333320353033342035303335203530333620353033372035303338203530333920353034302035303431203530343220353034332035303434203530343520353034362035303437203530343820353034392035303530203530353120353035322035303533203530353420353035352035303536203530353720353035382035303539203530363020353036312035303632203530363320353036342035303635203530363620353036372035303638203530363920353037302035303731203530373220353037332035303734203530373520353037362035303737203530373820353037392035303830203530383120353038322035303833203530383420353038352035303836203530383720353038382035303839203530393020353039312035303932203530393320353039342035303935203530393620353039372035303938203530393920353130302035313031203531303220353130332035313034203531303520353130362035313037203531303820353130392035313130203531313120353131322035313133203531313420353131352035313136203531313720353131382035313139203531323020353132312035313232203531323320353132342035313235203531323620353132372035313238203531323920353133302035313331203531333220353133332035313334203531333520353133362035313337203531333820353133392035313430203531343120353134322035313433203531343420353134352035313436203531343720353134382035313439203531353020353135312035313532203531353320353135342035313535203531353620353135372035313538203531353920353136302035313631203531363220353136332035313634203531363520353136362035313637203531363820353136392035313730203531373120353137322035313733203531373420353137352035313736203531373720353137382035313739203531383020353138312035313832203531383320353138342035313835203531383620353138372035313838203531383920353139302035313931203531393220353139332035313934203531393520353139362035313937203531393820353139392035323030203532303120353230322035323033203532303420353230352035323036203532303720353230382035323039203532313020353231312035323132203532313320353231342035323135203532313620353231372035323138203532313920353232302035323231203532323220353232332035323234203532323520353232362035323237203532323820353232392035323330203532333120353233322035323333203532333420353233352035323336203532333720353233382035323339203532343020353234312035323432203532343320353234342035323435203532343620353234372035323438203532343920353235302035323531203532353220353235332035323534203532353520353235362035323537203532353820353235392035323630203532363120353236322035323633203532363420353236352035323636203532363720353236382035323639203532373020353237312035323732203532373320353237342035323735203532373620353237372035323738203532373920353238302035323831203532383220353238332035323834203532383520353238362035323837203532383820353238392035323930203532393120353239322035323933203532393420353239352035323936203532393720353239382035323939203533303020353330312035333032203533303320353330342035333035203533303620353330372035333038203533303920353331302035333131203533313220353331332035333134203533313520353331362035333137203533313820353331392035333230203533323120353332322035333233203533323420353332352035333236203533323720353332382035333239203533333020353333312035333332203533333320353333342035333335203533333620353333372035333338203533333920353334302035333431203533343220353334332035333434203533343520353334362035333437203533343820353334392035333530203533353120353335322035333533203533353420353335352035333536203533353720353335382035333539203533363020353336312035333632203533363320353336342035333635203533363620353336372035333638203533363920353337302035333731203533373220353337332035333734203533373520353337362035333737203533373820353337392035333830203533383120353338322035333833203533383420353338352035333836203533383720353338382035333839203533393020353339312035333932203533393320353339342035333935203533393620353339372035333938203533393920353430302035343031203534303220353430332035343034203534303520353430362035343037203534303820353430392035343130203534313120353431322035343133203534313420353431352035343136203534313720353431382035343139203534323020353432312035343232203534323320353432342035343235203534323620353432372035343238203534323920353433302035343331203534333220353433332035343334203534333520353433362035343337203534333820353433392035343430203534343120353434322035343433203534343420353434352035343436203534343720353434382035343439203534353020353435312035343532203534353320353435342035343535203534353620353435372035343538203534353920353436302035343631203534363220353436332035343634203534363520353436362035343637203534363820353436392035343730203534373120353437322035343733203534373420353437352035343736203534373720353437382035343739203534383020353438312035343832203534383320353438342035343835203534383620353438372035343838203534383920353439302035343931203534393220353439332035343934203534393520353439362035343937203534393820353439392035353030203535303120353530322035353033203535303420353530352035353036203535303720353530382035353039203535313020353531312035353132203535313320353531342035353135203535313620353531372035353138203535313920353532302035353231203535323220353532332035353234203535323520353532362035353237203535323820353532392035353330203535333120353533322035353333203535333420353533352035353336203535333720353533382035353339203535343020353534312035353432203535343320353534342035353435203535343620353534372035353438203535343920353535302035353531203535353220353535332035353534203535353520353535362035353537203535353820353535392035353630203535363120353536322035353633203535363420353536352035353636203535363720353536382035353639203535373020353537312035353732203535373320353537342035353735203535373620353537372035353738203535373920353538302035353831203535383220353538332035353834203535383520353538362035353837203535383820353538392035353930203535393120353539322035353933203535393420353539352035353936203535393720353539382035353939203536303020353630312035363032203536303320353630342035363035203536303620353630372035363038203536303920353631302035363131203536313220353631332035363134203536313520353631362035363137203536313820353631392035363230203536323120353632322035363233203536323420353632352035363236203536323720353632382035363239203536333020353633312035363332203536333320353633342035363335203536333620353633372035363338203536333920353634302035363431203536343220353634332035363434203536343520353634362035363437203536343820353634392035363530203536353120353635322035363533203536353420353635352035363536203536353720353635382035363539203536363020353636312035363632203536363320353636342035363635203536363620353636372035363638203536363920353637302035363731203536373220353637332035363734203536373520353637362035363737203536373820353637392035363830203536383120353638322035363833203536383420353638352035363836203536383720353638382035363839203536393020353639312035363932203536393320353639342035363935203536393620353639372035363938203536393920353730302035373031203537303220353730332035373034203537303520353730362035373037203537303820353730392035373130203537313120353731322035373133203537313420353731352035373136203537313720353731382035373139203537323020353732312035373232203537323320353732342035373235203537323620353732372035373238203537323920353733302035373331203537333220353733332035373334203537333520353733362035373337203537333820353733392035373430203537343120353734322035373433203537343420353734352035373436203537343720353734382035373439203537353020353735312035373532203537353320353735342035373535203537353620353735372035373538203537353920353736302035373631203537363220353736332035373634203537363520353736362035373637203537363820353736392035373730203537373120353737322035373733203537373420353737352035373736203537373720353737382035373739203537383020353738312035373832203537383320353738342035373835203537383620353738372035373838203537383920353739302035373931203537393220353739332035373934203537393520353739362035373937203537393820353739392035383030203538303120353830322035383033203538303420353830352035383036203538303720353830382035383039203538313020353831312035383132203538313320353831342035383135203538313620353831372035383138203538313920353832302035383231203538323220353832332035383234203538323520353832362035383237203538323820353832392035383330203538333120353833322035383333203538333420353833352035383336203538333720353833382035383339203538343020353834312035383432203538343320353834342035383435203538343620353834372035383438203538343920353835302035383531203538353220353835332035383534203538353520353835362035383537203538353820353835392035383630203538363120353836322035383633203538363420353836352035383636203538363720353836382035383639203538373020353837312035383732203538373320353837342035383735203538373620353837372035383738203538373920353838302035383831203538383220353838332035383834203538383520353838362035383837203538383820353838392035383930203538393120353839322035383933203538393420353839352035383936203538393720353839382035383939203539303020353930312035393032203539303320353930342035393035203539303620353930372035393038203539303920353931302035393131203539313220353931332035393134203539313520353931362035393137203539313820353931392035393230203539323120353932322035393233203539323420353932352035393236203539323720353932382035393239203539333020353933312035393332203539333320353933342035393335203539333620353933372035393338203539333920353934302035393431203539343220353934332035393434203539343520353934362035393437203539343820353934392035393530203539353120353935322035393533203539353420353935352035393536203539353720353935382035393539203539363020353936312035393632203539363320353936342035393635203539363620353936372035393638203539363920353937302035393731203539373220353937332035393734203539373520353937362035393737203539373820353937392035393830203539383120353938322035393833203539383420353938352035393836203539383720353938382035393839203539393020353939312035393932203539393320353939342035393935203539393620353939372035393938203539393920363030302036303031203630303220363030332036303034203630303520363030362036303037203630303820363030392036303130203630313120363031322036303133203630313420363031352036303136203630313720363031382036303139203630323020363032312036303232203630323320363032342036303235203630323620363032372036303238203630323920363033302036303331203630333220363033332036303334203630333520363033362036303337203630333820363033392036303430203630343120363034322036303433203630343420363034352036303436203630343720363034382036303439203630353020363035312036303532203630353320363035342036303535203630353620363035372036303538203630353920363036302036303631203630363220363036332036303634203630363520363036362036303637203630363820363036392036303730203630373120363037322036303733203630373420363037352036303736203630373720363037382036303739203630383020363038312036303832203630383320363038342036303835203630383620363038372036303838203630383920363039302036303931203630393220363039332036303934203630393520363039362036303937203630393820363039392036313030203631303120363130322036313033203631303420363130352036313036203631303720363130382036313039203631313020363131312036313132203631313320363131342036313135203631313620363131372036313138203631313920363132302036313231203631323220363132332036313234203631323520363132362036313237203631323820363132392036313330203631333120363133322036313333203631333420363133352036313336203631333720363133382036313339203631343020363134312036313432203631343320363134342036313435203631343620363134372036313438203631343920363135302036313531203631353220363135332036313534203631353520363135362036313537203631353820363135392036313630203631363120363136322036313633203631363420363136352036313636203631363720363136382036313639203631373020363137312036313732203631373320363137342036313735203631373620363137372036313738203631373920363138302036313831203631383220363138332036313834203631383520363138362036313837203631383820363138392036313930203631393120363139322036313933203631393420363139352036313936203631393720363139382036313939203632303020363230312036323032203632303320363230342036323035203632303620363230372036323038203632303920363231302036323131203632313220363231332036323134203632313520363231362036323137203632313820363231392036323230203632323120363232322036323233203632323420363232352036323236203632323720363232382036323239203632333020363233312036323332203632333320363233342036323335203632333620363233372036323338203632333920363234302036323431203632343220363234332036323434203632343520363234362036323437203632343820363234392036323530203632353120363235322036323533203632353420363235352036323536203632353720363235382036323539203632363020363236312036323632203632363320363236342036323635203632363620363236372036323638203632363920363237302036323731203632373220363237332036323734203632373520363237362036323737203632373820363237392036323830203632383120363238322036323833203632383420363238352036323836203632383720363238382036323839203632393020363239312036323932203632393320363239342036323935203632393620363239372036323938203632393920363330302036333031203633303220363330332036333034203633303520363330362036333037203633303820363330392036333130203633313120363331322036333133203633313420363331352036333136203633313720363331382036333139203633323020363332312036333232203633323320363332342036333235203633323620363332372036333238203633323920363333302036333331203633333220363333332036333334203633333520363333362036333337203633333820363333392036333430203633343120363334322036333433203633343420363334352036333436203633343720363334382036333439203633353020363335312036333532203633353320363335342036333535203633353620363335372036333538203633353920363336302036333631203633363220363336332036333634203633363520363336362036333637203633363820363336392036333730203633373120363337322036333733203633373420363337352036333736203633373720363337382036333739203633383020363338312036333832203633383320363338342036333835203633383620363338372036333838203633383920363339302036333931203633393220363339332036333934203633393520363339362036333937203633393820363339392036343030203634303120363430322036343033203634303420363430352036343036203634303720363430382036343039203634313020363431312036343132203634313320363431342036343135203634313620363431372036343138203634313920363432302036343231203634323220363432332036343234203634323520363432362036343237203634323820363432392036343330203634333120363433322036343333203634333420363433352036343336203634333720363433382036343339203634343020363434312036343432203634343320363434342036343435203634343620363434372036343438203634343920363435302036343531203634353220363435332036343534203634353520363435362036343537203634353820363435392036343630203634363120363436322036343633203634363420363436352036343636203634363720363436382036343639203634373020363437312036343732203634373320363437342036343735203634373620363437372036343738203634373920363438302036343831203634383220363438332036343834203634383520363438362036343837203634383820363438392036343930203634393120363439322036343933203634393420363439352036343936203634393720363439382036343939203635303020363530312036353032203635303320363530342036353035203635303620363530372036353038203635303920363531302036353131203635313220363531332036353134203635313520363531362036353137203635313820363531392036353230203635323120363532322036353233203635323420363532352036353236203635323720363532382036353239203635333020363533312036353332203635333320363533342036353335203635333620363533372036353338203635333920363534302036353431203635343220363534332036353434203635343520363534362036353437203635343820363534392036353530203635353120363535322036353533203635353420363535352036353536203635353720363535382036353539203635363020363536312036353632203635363320363536342036353635203635363620363536372036353638203635363920363537302036353731203635373220363537332036353734203635373520363537362036353737203635373820363537392036353830203635383120363538322036353833203635383420363538352036353836203635383720363538382036353839203635393020363539312036353932203635393320363539342036353935203635393620363539372036353938203635393920363630302036363031203636303220363630332036363034203636303520363630362036363037203636303820363630392036363130203636313120363631322036363133203636313420363631352036363136203636313720363631382036363139203636323020363632312036363232203636323320363632342036363235203636323620363632372036363238203636323920363633302036363331203636333220363633332036363334203636333520363633362036363337203636333820363633392036363430203636343120363634322036363433203636343420363634352036363436203636343720363634382036363439203636353020363635312036363532203636353320363635342036363535203636353620363635372036363538203636353920363636302036363631203636363220363636332036363634203636363520363636362036363637203636363820363636392036363730203636373120363637322036363733203636373420363637352036363736203636373720363637382036363739203636383020363638312036363832203636383320363638342036363835203636383620363638372036363838203636383920363639302036363931203636393220363639332036363934203636393520363639362036363937203636393820363639392036373030203637303120363730322036373033203637303420363730352036373036203637303720363730382036373039203637313020363731312036373132203637313320363731342036373135203637313620363731372036373138203637313920363732302036373231203637323220363732332036373234203637323520363732362036373237203637323820363732392036373330203637333120363733322036373333203637333420363733352036373336203637333720363733382036373339203637343020363734312036373432203637343320363734342036373435203637343620363734372036373438203637343920363735302036373531203637353220363735332036373534203637353520363735362036373537203637353820363735392036373630203637363120363736322036373633203637363420363736352036373636203637363720363736382036373639203637373020363737312036373732203637373320363737342036373735203637373620363737372036373738203637373920363738302036373831203637383220363738332036373834203637383520363738362036373837203637383820363738392036373930203637393120363739322036373933203637393420363739352036373936203637393720363739382036373939203638303020363830312036383032203638303320363830342036383035203638303620363830372036383038203638303920363831302036383131203638313220363831332036383134203638313520363831362036383137203638313820363831392036383230203638323120363832322036383233203638323420363832352036383236203638323720363832382036383239203638333020363833312036383332203638333320363833342036383335203638333620363833372036383338203638333920363834302036383431203638343220363834332036383434203638343520363834362036383437203638343820363834392036383530203638353120363835322036383533203638353420363835352036383536203638353720363835382036383539203638363020363836312036383632203638363320363836342036383635203638363620363836372036383638203638363920363837302036383731203638373220363837332036383734203638373520363837362036383737203638373820363837392036383830203638383120363838322036383833203638383420363838352036383836203638383720363838382036383839203638393020363839312036383932203638393320363839342036383935203638393620363839372036383938203638393920363930302036393031203639303220363930332036393034203639303520363930362036393037203639303820363930392036393130203639313120363931322036393133203639313420363931352036393136203639313720363931382036393139203639323020363932312036393232203639323320363932342036393235203639323620363932372036393238203639323920363933302036393331203639333220363933332036393334203639333520363933362036393337203639333820363933392036393430203639343120363934322036393433203639343420363934352036393436203639343720363934382036393439203639353020363935312036393532203639353320363935342036393535203639353620363935372036393538203639353920363936302036393631203639363220363936332036393634203639363520363936362036393637203639363820363936392036393730203639373120363937322036393733203639373420363937352036393736203639373720363937382036393739203639383020363938312036393832203639383320363938342036393835203639383620363938372036393838203639383920363939302036393931203639393220363939332036393934203639393520363939362036393937203639393820363939392037303030203730303120373030322037303033203730303420373030352037303036203730303720373030382037303039203730313020373031312037303132203730313320373031342037303135203730313620373031372037303138203730313920373032302037303231203730323220373032332037303234203730323520373032362037303237203730323820373032392037303330203730333120373033322037303333203730333420373033352037303336203730333720373033382037303339203730343020373034312037303432203730343320373034342037303435203730343620373034372037303438203730343920373035302037303531203730353220373035332037303534203730353520373035362037303537203730353820373035392037303630203730363120373036322037303633203730363420373036352037303636203730363720373036382037303639203730373020373037312037303732203730373320373037342037303735203730373620373037372037303738203730373920373038302037303831203730383220373038332037303834203730383520373038362037303837203730383820373038392037303930203730393120373039322037303933203730393420373039352037303936203730393720373039382037303939203731303020373130312037313032203731303320373130342037313035203731303620373130372037313038203731303920373131302037313131203731313220373131332037313134203731313520373131362037313137203731313820373131392037313230203731323120373132322037313233203731323420373132352037313236203731323720373132382037313239203731333020373133312037313332203731333320373133342037313335203731333620373133372037313338203731333920373134302037313431203731343220373134332037313434203731343520373134362037313437203731343820373134392037313530203731353120373135322037313533203731353420373135352037313536203731353720373135382037313539203731363020373136312037313632203731363320373136342037313635203731363620373136372037313638203731363920373137302037313731203731373220373137332037313734203731373520373137362037313737203731373820373137392037313830203731383120373138322037313833203731383420373138352037313836203731383720373138382037313839203731393020373139312037313932203731393320373139342037313935203731393620373139372037313938203731393920373230302037323031203732303220373230332037323034203732303520373230362037323037203732303820373230392037323130203732313120373231322037323133203732313420373231352037323136203732313720373231382037323139203732323020373232312037323232203732323320373232342037323235203732323620373232372037323238203732323920373233302037323331203732333220373233332037323334203732333520373233362037323337203732333820373233392037323430203732343120373234322037323433203732343420373234352037323436203732343720373234382037323439203732353020373235312037323532203732353320373235342037323535203732353620373235372037323538203732353920373236302037323631203732363220373236332037323634203732363520373236362037323637203732363820373236392037323730203732373120373237322037323733203732373420373237352037323736203732373720373237382037323739203732383020373238312037323832203732383320373238342037323835203732383620373238372037323838203732383920373239302037323931203732393220373239332037323934203732393520373239362037323937203732393820373239392037333030203733303120373330322037333033203733303420373330352037333036203733303720373330382037333039203733313020373331312037333132203733313320373331342037333135203733313620373331372037333138203733313920373332302037333231203733323220373332332037333234203733323520373332362037333237203733323820373332392037333330203733333120373333322037333333203733333420373333352037333336203733333720373333382037333339203733343020373334312037333432203733343320373334342037333435203733343620373334372037333438203733343920373335302037333531203733353220373335332037333534203733353520373335362037333537203733353820373335392037333630203733363120373336322037333633203733363420373336352037333636203733363720373336382037333639203733373020373337312037333732203733373320373337342037333735203733373620373337372037333738203733373920373338302037333831203733383220373338332037333834203733383520373338362037333837203733383820373338392037333930203733393120373339322037333933203733393420373339352037333936203733393720373339382037333939203734303020373430312037343032203734303320373430342037343035203734303620373430372037343038203734303920373431302037343131203734313220373431332037343134203734313520373431362037343137203734313820373431392037343230203734323120373432322037343233203734323420373432352037343236203734323720373432382037343239203734333020373433312037343332203734333320373433342037343335203734333620373433372037343338203734333920373434302037343431203734343220373434332037343434203734343520373434362037343437203734343820373434392037343530203734353120373435322037343533203734353420373435352037343536203734353720373435382037343539203734363020373436312037343632203734363320373436342037343635203734363620373436372037343638203734363920373437302037343731203734373220373437332037343734203734373520373437362037343737203734373820373437392037343830203734383120373438322037343833203734383420373438352037343836203734383720373438382037343839203734393020373439312037343932203734393320373439342037343935203734393620373439372037343938203734393920373530302037353031203735303220373530332037353034203735303520373530362037353037203735303820373530392037353130203735313120373531322037353133203735313420373531352037353136203735313720373531382037353139203735323020373532312037353232203735323320373532342037353235203735323620373532372037353238203735323920373533302037353331203735333220373533332037353334203735333520373533362037353337203735333820373533392037353430203735343120373534322037353433203735343420373534352037353436203735343720373534382037353439203735353020373535312037353532203735353320373535342037353535203735353620373535372037353538203735353920373536302037353631203735363220373536332037353634203735363520373536362037353637203735363820373536392037353730203735373120373537322037353733203735373420373537352037353736203735373720373537382037353739203735383020373538312037353832203735383320373538342037353835203735383620373538372037353838203735383920373539302037353931203735393220373539332037353934203735393520373539362037353937203735393820373539392037363030203736303120373630322037363033203736303420373630352037363036203736303720373630382037363039203736313020373631312037363132203736313320373631342037363135203736313620373631372037363138203736313920373632302037363231203736323220373632332037363234203736323520373632362037363237203736323820373632392037363330203736333120373633322037363333203736333420373633352037363336203736333720373633382037363339203736343020373634312037363432203736343320373634342037363435203736343620373634372037363438203736343920373635302037363531203736353220373635332037363534203736353520373635362037363537203736353820373635392037363630203736363120373636322037363633203736363420373636352037363636203736363720373636382037363639203736373020373637312037363732203736373320373637342037363735203736373620373637372037363738203736373920373638302037363831203736383220373638332037363834203736383520373638362037363837203736383820373638392037363930203736393120373639322037363933203736393420373639352037363936203736393720373639382037363939203737303020373730312037373032203737303320373730342037373035203737303620373730372037373038203737303920373731302037373131203737313220373731332037373134203737313520373731362037373137203737313820373731392037373230203737323120373732322037373233203737323420373732352037373236203737323720373732382037373239203737333020373733312037373332203737333320373733342037373335203737333620373733372037373338203737333920373734302037373431203737343220373734332037373434203737343520373734362037373437203737343820373734392037373530203737353120373735322037373533203737353420373735352037373536203737353720373735382037373539203737363020373736312037373632203737363320373736342037373635203737363620373736372037373638203737363920373737302037373731203737373220373737332037373734203737373520373737362037373737203737373820373737392037373830203737383120373738322037373833203737383420373738352037373836203737383720373738382037373839203737393020373739312037373932203737393320373739342037373935203737393620373739372037373938203737393920373830302037383031203738303220373830332037383034203738303520373830362037383037203738303820373830392037383130203738313120373831322037383133203738313420373831352037383136203738313720373831382037383139203738323020373832312037383232203738323320373832342037383235203738323620373832372037383238203738323920373833302037383331203738333220373833332037383334203738333520373833362037383337203738333820373833392037383430203738343120373834322037383433203738343420373834352037383436203738343720373834382037383439203738353020373835312037383532203738353320373835342037383535203738353620373835372037383538203738353920373836302037383631203738363220373836332037383634203738363520373836362037383637203738363820373836392037383730203738373120373837322037383733203738373420373837352037383736203738373720373837382037383739203738383020373838312037383832203738383320373838342037383835203738383620373838372037383838203738383920373839302037383931203738393220373839332037383934203738393520373839362037383937203738393820373839392037393030203739303120373930322037393033203739303420373930352037393036203739303720373930382037393039203739313020373931312037393132203739313320373931342037393135203739313620373931372037393138203739313920373932302037393231203739323220373932332037393234203739323520373932362037393237203739323820373932392037393330203739333120373933322037393333203739333420373933352037393336203739333720373933382037393339203739343020373934312037393432203739343320373934342037393435203739343620373934372037393438203739343920373935302037393531203739353220373935332037393534203739353520373935362037393537203739353820373935392037393630203739363120373936322037393633203739363420373936352037393636203739363720373936382037393639203739373020373937312037393732203739373320373937342037393735203739373620373937372037393738203739373920373938302037393831203739383220373938332037393834203739383520373938362037393837203739383820373938392037393930203739393120373939322037393933203739393420373939352037393936203739393720373939382037393939203830303020383030312038303032203830303320383030342038303035203830303620383030372038303038203830303920383031302038303131203830313220383031332038303134203830313520383031362038303137203830313820383031392038303230203830323120383032322038303233203830323420383032352038303236203830323720383032382038303239203830333020383033312038303332203830333320383033342038303335203830333620383033372038303338203830333920383034302038303431203830343220383034332038303434203830343520383034362038303437203830343820383034392038303530203830353120383035322038303533203830353420383035352038303536203830353720383035382038303539203830363020383036312038303632203830363320383036342038303635203830363620383036372038303638203830363920383037302038303731203830373220383037332038303734203830373520383037362038303737203830373820383037392038303830203830383120383038322038303833203830383420383038352038303836203830383720383038382038303839203830393020383039312038303932203830393320383039342038303935203830393620383039372038303938203830393920383130302038313031203831303220383130332038313034203831303520383130362038313037203831303820383130392038313130203831313120383131322038313133203831313420383131352038313136203831313720383131382038313139203831323020383132312038313232203831323320383132342038313235203831323620383132372038313238203831323920383133302038313331203831333220383133332038313334203831333520383133362038313337203831333820383133392038313430203831343120383134322038313433203831343420383134352038313436203831343720383134382038313439203831353020383135312038313532203831353320383135342038313535203831353620383135372038313538203831353920383136302038313631203831363220383136332038313634203831363520383136362038313637203831363820383136392038313730203831373120383137322038313733203831373420383137352038313736203831373720383137382038313739203831383020383138312038313832203831383320383138342038313835203831383620383138372038313838203831383920383139302038313931203831393220383139332038313934203831393520383139362038313937203831393820383139392038323030203832303120383230322038323033203832303420383230352038323036203832303720383230382038323039203832313020383231312038323132203832313320383231342038323135203832313620383231372038323138203832313920383232302038323231203832323220383232332038323234203832323520383232362038323237203832323820383232392038323330203832333120383233322038323333203832333420383233352038323336203832333720383233382038323339203832343020383234312038323432203832343320383234342038323435203832343620383234372038323438203832343920383235302038323531203832353220383235332038323534203832353520383235362038323537203832353820383235392038323630203832363120383236322038323633203832363420383236352038323636203832363720383236382038323639203832373020383237312038323732203832373320383237342038323735203832373620383237372038323738203832373920383238302038323831203832383220383238332038323834203832383520383238362038323837203832383820383238392038323930203832393120383239322038323933203832393420383239352038323936203832393720383239382038323939203833303020383330312038333032203833303320383330342038333035203833303620383330372038333038203833303920383331302038333131203833313220383331332038333134203833313520383331362038333137203833313820383331392038333230203833323120383332322038333233203833323420383332352038333236203833323720383332382038333239203833333020383333312038333332203833333320383333342038333335203833333620383333372038333338203833333920383334302038333431203833343220383334332038333434203833343520383334362038333437203833343820383334392038333530203833353120383335322038333533203833353420383335352038333536203833353720383335382038333539203833363020383336312038333632203833363320383336342038333635203833363620383336372038333638203833363920383337302038333731203833373220383337332038333734203833373520383337362038333737203833373820383337392038333830203833383120383338322038333833203833383420383338352038333836203833383720383338382038333839203833393020383339312038333932203833393320383339342038333935203833393620383339372038333938203833393920383430302038343031203834303220383430332038343034203834303520383430362038343037203834303820383430392038343130203834313120383431322038343133203834313420383431352038343136203834313720383431382038343139203834323020383432312038343232203834323320383432342038343235203834323620383432372038343238203834323920383433302038343331203834333220383433332038343334203834333520383433362038343337203834333820383433392038343430203834343120383434322038343433203834343420383434352038343436203834343720383434382038343439203834353020383435312038343532203834353320383435342038343535203834353620383435372038343538203834353920383436302038343631203834363220383436332038343634203834363520383436362038343637203834363820383436392038343730203834373120383437322038343733203834373420383437352038343736203834373720383437382038343739203834383020383438312038343832203834383320383438342038343835203834383620383438372038343838203834383920383439302038343931203834393220383439332038343934203834393520383439362038343937203834393820383439392038353030203835303120383530322038353033203835303420383530352038353036203835303720383530382038353039203835313020383531312038353132203835313320383531342038353135203835313620383531372038353138203835313920383532302038353231203835323220383532332038353234203835323520383532362038353237203835323820383532392038353330203835333120383533322038353333203835333420383533352038353336203835333720383533382038353339203835343020383534312038353432203835343320383534342038353435203835343620383534372038353438203835343920383535302038353531203835353220383535332038353534203835353520383535362038353537203835353820383535392038353630203835363120383536322038353633203835363420383536352038353636203835363720383536382038353639203835373020383537312038353732203835373320383537342038353735203835373620383537372038353738203835373920383538302038353831203835383220383538332038353834203835383520383538362038353837203835383820383538392038353930203835393120383539322038353933203835393420383539352038353936203835393720383539382038353939203836303020383630312038363032203836303320383630342038363035203836303620383630372038363038203836303920383631302038363131203836313220383631332038363134203836313520383631362038363137203836313820383631392038363230203836323120383632322038363233203836323420383632352038363236203836323720383632382038363239203836333020383633312038363332203836333320383633342038363335203836333620383633372038363338203836333920383634302038363431203836343220383634332038363434203836343520383634362038363437203836343820383634392038363530203836353120383635322038363533203836353420383635352038363536203836353720383635382038363539203836363020383636312038363632203836363320383636342038363635203836363620383636372038363638203836363920383637302038363731203836373220383637332038363734203836373520383637362038363737203836373820383637392038363830203836383120383638322038363833203836383420383638352038363836203836383720383638382038363839203836393020383639312038363932203836393320383639342038363935203836393620383639372038363938203836393920383730302038373031203837303220383730332038373034203837303520383730362038373037203837303820383730392038373130203837313120383731322038373133203837313420383731352038373136203837313720383731382038373139203837323020383732312038373232203837323320383732342038373235203837323620383732372038373238203837323920383733302038373331203837333220383733332038373334203837333520383733362038373337203837333820383733392038373430203837343120383734322038373433203837343420383734352038373436203837343720383734382038373439203837353020383735312038373532203837353320383735342038373535203837353620383735372038373538203837353920383736302038373631203837363220383736332038373634203837363520383736362038373637203837363820383736392038373730203837373120383737322038373733203837373420383737352038373736203837373720383737382038373739203837383020383738312038373832203837383320383738342038373835203837383620383738372038373838203837383920383739302038373931203837393220383739332038373934203837393520383739362038373937203837393820383739392038383030203838303120383830322038383033203838303420383830352038383036203838303720383830382038383039203838313020383831312038383132203838313320383831342038383135203838313620383831372038383138203838313920383832302038383231203838323220383832332038383234203838323520383832362038383237203838323820383832392038383330203838333120383833322038383333203838333420383833352038383336203838333720383833382038383339203838343020383834312038383432203838343320383834342038383435203838343620383834372038383438203838343920383835302038383531203838353220383835332038383534203838353520383835362038383537203838353820383835392038383630203838363120383836322038383633203838363420383836352038383636203838363720383836382038383639203838373020383837312038383732203838373320383837342038383735203838373620383837372038383738203838373920383838302038383831203838383220383838332038383834203838383520383838362038383837203838383820383838392038383930203838393120383839322038383933203838393420383839352038383936203838393720383839382038383939203839303020383930312038393032203839303320383930342038393035203839303620383930372038393038203839303920383931302038393131203839313220383931332038393134203839313520383931362038393137203839313820383931392038393230203839323120383932322038393233203839323420383932352038393236203839323720383932382038393239203839333020383933312038393332203839333320383933342038393335203839333620383933372038393338203839333920383934302038393431203839343220383934332038393434203839343520383934362038393437203839343820383934392038393530203839353120383935322038393533203839353420383935352038393536203839353720383935382038393539203839363020383936312038393632203839363320383936342038393635203839363620383936372038393638203839363920383937302038393731203839373220383937332038393734203839373520383937362038393737203839373820383937392038393830203839383120383938322038393833203839383420383938352038393836203839383720383938382038393839203839393020383939312038393932203839393320383939342038393935203839393620383939372038393938203839393920222c2274797065223a2274657874227d');
INSERT INTO perdure_frozen.blobs VALUES ('large', '1310446a0dea8ef16a8250a1ffdcdb7f75e41a17cf3d9338ece255e12ddbf2b8', 'application/json', 1716, '\x7b22617070726f7665223a7b2266756e6374696f6e223a6e756c6c2c2272756c6573223a7b22726566756e64223a2261736b227d2c2274696d656f7574223a6e756c6c7d2c2261726368697665223a32303030302c22636f6d70616374696f6e223a7b2262797465735f7065725f746f6b656e223a342e302c2267756964616e6365223a2265383231316265303865303136393435373531323435373863313437353131343363303962373962306531623030616433353164376635346564343135396432222c227468726573686f6c64223a3235303030307d2c2266696e697368223a7b22616e737765725f74696d656f7574223a6e756c6c2c22656e64696e67223a22616e73776572222c226f6e5f73696c656e6365223a6e756c6c2c2272657061697273223a6e756c6c7d2c22666f726d6174223a312c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c226c696d697473223a7b226368696c6472656e223a31362c22636f7374223a6e756c6c2c226465707468223a342c2268616e646f666673223a31302c226d6f64656c5f63616c6c73223a6e756c6c2c227265706f727473223a35302c227365636f6e6473223a6e756c6c2c227374657073223a35302c22737472696374223a66616c73652c22746f6b656e73223a6e756c6c2c22746f6f6c5f63616c6c73223a6e756c6c7d2c226d656d6f7279223a6e756c6c2c226d6964646c6577617265223a5b5d2c226d6f64656c223a2266756e6374696f6e222c226e616d65223a22636c65726b222c226f7574707574223a6e756c6c2c2273657373696f6e5f6c696d697473223a7b7d2c2273657474696e6773223a7b7d2c22746f6f6c73223a5b7b226465736372697074696f6e223a224c6f6f6b2e222c226469726563746f7279223a6e756c6c2c22656666656374223a2270757265222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a226c6f6f6b222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a225061792e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a5b2263656e7473225d2c226e616d65223a22706179222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a22526566756e642e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a22726566756e64222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d5d7d');
INSERT INTO perdure_frozen.blobs VALUES ('large', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 'application/json', 2, '\x7b7d');
INSERT INTO perdure_frozen.blobs VALUES ('large', '9c0a0176d68afd76d7cf76021af043591f35dc71627ef4a51012540310e69e23', 'application/json', 1029, '\x5b7b226465736372697074696f6e223a224c6f6f6b2e222c226e616d65223a226c6f6f6b222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225061792e222c226e616d65223a22706179222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a22526566756e642e222c226e616d65223a22726566756e64222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225265616420616e792070617274206f66206120746f6f6c20726573756c74206f66207768696368206f6e6c7920616e2065786365727074207761732073686f776e2e2052657475726e7320746578742c206f66667365742c20656e6420616e6420746f74616c2c20696e20636861726163746572732e222c226e616d65223a22726561645f726573756c74222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2268616e646c65223a7b226465736372697074696f6e223a2277686174207468652065786365727074206e616d65732c20737563682061732031322e30222c2274797065223a22737472696e67227d2c226c656e677468223a7b2264656661756c74223a31303030302c226465736372697074696f6e223a22686f77206d616e79206368617261637465727320746f20726561642c206174206d6f7374203130303030222c226d696e696d756d223a312c2274797065223a22696e7465676572227d2c226f6666736574223a7b2264656661756c74223a302c226465736372697074696f6e223a227468652066697273742063686172616374657220746f2072656164222c226d696e696d756d223a302c2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2268616e646c65225d2c2274797065223a226f626a656374227d7d5d');
INSERT INTO perdure_frozen.blobs VALUES ('large', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 'text/plain', 0, '\x');
INSERT INTO perdure_frozen.blobs VALUES ('asking', '1310446a0dea8ef16a8250a1ffdcdb7f75e41a17cf3d9338ece255e12ddbf2b8', 'application/json', 1716, '\x7b22617070726f7665223a7b2266756e6374696f6e223a6e756c6c2c2272756c6573223a7b22726566756e64223a2261736b227d2c2274696d656f7574223a6e756c6c7d2c2261726368697665223a32303030302c22636f6d70616374696f6e223a7b2262797465735f7065725f746f6b656e223a342e302c2267756964616e6365223a2265383231316265303865303136393435373531323435373863313437353131343363303962373962306531623030616433353164376635346564343135396432222c227468726573686f6c64223a3235303030307d2c2266696e697368223a7b22616e737765725f74696d656f7574223a6e756c6c2c22656e64696e67223a22616e73776572222c226f6e5f73696c656e6365223a6e756c6c2c2272657061697273223a6e756c6c7d2c22666f726d6174223a312c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c226c696d697473223a7b226368696c6472656e223a31362c22636f7374223a6e756c6c2c226465707468223a342c2268616e646f666673223a31302c226d6f64656c5f63616c6c73223a6e756c6c2c227265706f727473223a35302c227365636f6e6473223a6e756c6c2c227374657073223a35302c22737472696374223a66616c73652c22746f6b656e73223a6e756c6c2c22746f6f6c5f63616c6c73223a6e756c6c7d2c226d656d6f7279223a6e756c6c2c226d6964646c6577617265223a5b5d2c226d6f64656c223a2266756e6374696f6e222c226e616d65223a22636c65726b222c226f7574707574223a6e756c6c2c2273657373696f6e5f6c696d697473223a7b7d2c2273657474696e6773223a7b7d2c22746f6f6c73223a5b7b226465736372697074696f6e223a224c6f6f6b2e222c226469726563746f7279223a6e756c6c2c22656666656374223a2270757265222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a226c6f6f6b222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a225061792e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a5b2263656e7473225d2c226e616d65223a22706179222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a22526566756e642e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a22726566756e64222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d5d7d');
INSERT INTO perdure_frozen.blobs VALUES ('asking', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 'application/json', 2, '\x7b7d');
INSERT INTO perdure_frozen.blobs VALUES ('asking', '9c0a0176d68afd76d7cf76021af043591f35dc71627ef4a51012540310e69e23', 'application/json', 1029, '\x5b7b226465736372697074696f6e223a224c6f6f6b2e222c226e616d65223a226c6f6f6b222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225061792e222c226e616d65223a22706179222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a22526566756e642e222c226e616d65223a22726566756e64222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225265616420616e792070617274206f66206120746f6f6c20726573756c74206f66207768696368206f6e6c7920616e2065786365727074207761732073686f776e2e2052657475726e7320746578742c206f66667365742c20656e6420616e6420746f74616c2c20696e20636861726163746572732e222c226e616d65223a22726561645f726573756c74222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2268616e646c65223a7b226465736372697074696f6e223a2277686174207468652065786365727074206e616d65732c20737563682061732031322e30222c2274797065223a22737472696e67227d2c226c656e677468223a7b2264656661756c74223a31303030302c226465736372697074696f6e223a22686f77206d616e79206368617261637465727320746f20726561642c206174206d6f7374203130303030222c226d696e696d756d223a312c2274797065223a22696e7465676572227d2c226f6666736574223a7b2264656661756c74223a302c226465736372697074696f6e223a227468652066697273742063686172616374657220746f2072656164222c226d696e696d756d223a302c2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2268616e646c65225d2c2274797065223a226f626a656374227d7d5d');
INSERT INTO perdure_frozen.blobs VALUES ('asking', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 'text/plain', 0, '\x');
INSERT INTO perdure_frozen.blobs VALUES ('cut', '1310446a0dea8ef16a8250a1ffdcdb7f75e41a17cf3d9338ece255e12ddbf2b8', 'application/json', 1716, '\x7b22617070726f7665223a7b2266756e6374696f6e223a6e756c6c2c2272756c6573223a7b22726566756e64223a2261736b227d2c2274696d656f7574223a6e756c6c7d2c2261726368697665223a32303030302c22636f6d70616374696f6e223a7b2262797465735f7065725f746f6b656e223a342e302c2267756964616e6365223a2265383231316265303865303136393435373531323435373863313437353131343363303962373962306531623030616433353164376635346564343135396432222c227468726573686f6c64223a3235303030307d2c2266696e697368223a7b22616e737765725f74696d656f7574223a6e756c6c2c22656e64696e67223a22616e73776572222c226f6e5f73696c656e6365223a6e756c6c2c2272657061697273223a6e756c6c7d2c22666f726d6174223a312c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c226c696d697473223a7b226368696c6472656e223a31362c22636f7374223a6e756c6c2c226465707468223a342c2268616e646f666673223a31302c226d6f64656c5f63616c6c73223a6e756c6c2c227265706f727473223a35302c227365636f6e6473223a6e756c6c2c227374657073223a35302c22737472696374223a66616c73652c22746f6b656e73223a6e756c6c2c22746f6f6c5f63616c6c73223a6e756c6c7d2c226d656d6f7279223a6e756c6c2c226d6964646c6577617265223a5b5d2c226d6f64656c223a2266756e6374696f6e222c226e616d65223a22636c65726b222c226f7574707574223a6e756c6c2c2273657373696f6e5f6c696d697473223a7b7d2c2273657474696e6773223a7b7d2c22746f6f6c73223a5b7b226465736372697074696f6e223a224c6f6f6b2e222c226469726563746f7279223a6e756c6c2c22656666656374223a2270757265222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a226c6f6f6b222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a225061792e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a5b2263656e7473225d2c226e616d65223a22706179222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d2c7b226465736372697074696f6e223a22526566756e642e222c226469726563746f7279223a6e756c6c2c22656666656374223a2265787465726e616c222c226578636c7573697665223a66616c73652c226775617264223a2261736b222c226b6579223a6e756c6c2c226e616d65223a22726566756e64222c226f6e5f756e6365727461696e223a227265706f7274222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d2c227265636f6e63696c65223a6e756c6c2c22726573756d61626c65223a66616c73652c2274696d656f7574223a6e756c6c2c22756e69717565223a6e756c6c2c2276657273696f6e223a6e756c6c7d5d7d');
INSERT INTO perdure_frozen.blobs VALUES ('cut', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 'application/json', 2, '\x7b7d');
INSERT INTO perdure_frozen.blobs VALUES ('cut', '9c0a0176d68afd76d7cf76021af043591f35dc71627ef4a51012540310e69e23', 'application/json', 1029, '\x5b7b226465736372697074696f6e223a224c6f6f6b2e222c226e616d65223a226c6f6f6b222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2277686174223a7b2274797065223a22737472696e67227d7d2c227265717569726564223a5b2277686174225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225061792e222c226e616d65223a22706179222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a22526566756e642e222c226e616d65223a22726566756e64222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2263656e7473223a7b2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2263656e7473225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225265616420616e792070617274206f66206120746f6f6c20726573756c74206f66207768696368206f6e6c7920616e2065786365727074207761732073686f776e2e2052657475726e7320746578742c206f66667365742c20656e6420616e6420746f74616c2c20696e20636861726163746572732e222c226e616d65223a22726561645f726573756c74222c22706172616d6574657273223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b2268616e646c65223a7b226465736372697074696f6e223a2277686174207468652065786365727074206e616d65732c20737563682061732031322e30222c2274797065223a22737472696e67227d2c226c656e677468223a7b2264656661756c74223a31303030302c226465736372697074696f6e223a22686f77206d616e79206368617261637465727320746f20726561642c206174206d6f7374203130303030222c226d696e696d756d223a312c2274797065223a22696e7465676572227d2c226f6666736574223a7b2264656661756c74223a302c226465736372697074696f6e223a227468652066697273742063686172616374657220746f2072656164222c226d696e696d756d223a302c2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2268616e646c65225d2c2274797065223a226f626a656374227d7d5d');
INSERT INTO perdure_frozen.blobs VALUES ('cut', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 'text/plain', 0, '\x');


--
-- Data for Name: cursors; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--



--
-- Data for Name: effects; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--



--
-- Data for Name: inbox; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.inbox VALUES ('done', 1, 'm', 1, 'message', 1796091941467, NULL, '', '54e38a723be738bd0531c0ca35f3824a910a21310dde900f1b9a13ab782206bb', NULL, 2, 7);
INSERT INTO perdure_frozen.inbox VALUES ('large', 2, 'm', 1, 'message', 1796091941488, NULL, '', 'cd5c6bbda407dae33d2469783ce2e6d4d4507966b64f368e1d72888a1cf4538b', NULL, 2, 7);
INSERT INTO perdure_frozen.inbox VALUES ('asking', 4, 'm', 1, 'message', 1796091941516, NULL, '', '35d351f5e1c80b0d32e250588432d3ba72d11dc7d2f3ccf0c187faa726e95912', NULL, 2, NULL);
INSERT INTO perdure_frozen.inbox VALUES ('queued', 5, 'm', 1, 'message', 1796091941533, NULL, '', '077cbd22b122b8b591b8abbec5f1c496412db9b81d51e489c3c2a6db223e2ba0', '\x7b227061727473223a5b7b22636f6e74656e74223a226c6f6f6b206c61746572222c2274797065223a2274657874227d5d7d', NULL, NULL);
INSERT INTO perdure_frozen.inbox VALUES ('cut', 6, 'm', 1, 'message', 1796091941537, NULL, '', '94d0a986b4799d33ea6203f7f76e43f8bd37f1ffcba03782cfdf7f02b253d799', NULL, 2, NULL);


--
-- Data for Name: journal; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.journal VALUES ('done', 1, 1, 0, 'session_created', 1796091941467, '\xf88a6452508e3eef188f128c78fd814b', '\x26a2d7a71141db80b4d9184ea81384c770d086c69fe7e5f91e1e131d76b0d038', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a22646f6e65222c2273657373696f6e5f6964223a22646f6e65227d', '\xba70abe436d83507e854d83bcc6c86d5d13fd377303ed14ab80742edd4a83ba1');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 2, 0, 'turn_started', 1796091941478, '\xf653c0c7f4ab0d6aefb06573d1d9d225', '\xb7678cc1cb3bf2b853c103ccde3ee07c7a97fb23d7d33527778ba188d5a10daa', '\x7b226167656e74223a22636c65726b222c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226c696d697473223a7b7d2c22726f757465223a2266756e6374696f6e222c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d7d', '\x1e5e7cc22120d15a1c28b62188b713c5eaf2354d0dd6a6a30828b86957852a38');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 3, 1, 'message', 1796091941478, '\xbc3bb5703b2c297739d6c5b409144229', '\x52fc41d8454fd667fbe9f7cdc44fcea1e0320fdc37d20c648fd0f230a33095cc', '\x7b2264656c69766572223a227475726e222c22646967657374223a2265636366346462323665336230353633656536646264623661366261663230326335653335623765306137323238313961343136653361386432623337613561222c227061727473223a5b7b22636f6e74656e74223a226c6f6f6b2c20706c65617365222c2274797065223a2274657874227d5d2c227265766973696f6e223a2263363161396434663965303337646563646465633230313634393937636133663133666534356539326261623939363830323863616161373263663135636361222c22726f6c65223a2275736572222c227375626d697373696f6e223a226d227d', '\xf037ccd7bde23fde04226bb1e8d888a107e3869a553b3dff70e1d2423d901c23');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 4, 1, 'operation_started', 1796091941478, '\xb511091d941a7749b7fece0a7f89887e', '\x128e79f8eeeb05dba584283a5c106c272bbed71ad7c9e8f51c1eeeab907dfbb4', '\x7b22617474656d7074223a312c2266656e6365223a312c226f7065726174696f6e223a2274322e302e30222c22706c616e223a7b22617267756d656e7473223a2261646235313933333539383566613461396339666134336431646464653138613232313934323736353537643133373466326638666533326438646461666638222c226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c2272657175657374223a7b22636f6e74657874223a2263363161396434663965303337646563646465633230313634393937636133663133666534356539326261623939363830323863616161373263663135636361222c22646967657374223a2261646235313933333539383566613461396339666134336431646464653138613232313934323736353537643133373466326638666533326438646461666638222c2265706f6368223a302c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c22726f757465223a2266756e6374696f6e222c2273657474696e6773223a2234343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22746f6f6c73223a2239633061303137366436386166643736643763663736303231616630343335393166333564633731363237656634613531303132353430333130653639653233227d7d', '\x4fef6682a2c85070e1d276a4defdfac6923507b5612fdbae189af1dda28b6cd8');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 5, 1, 'operation_ended', 1796091941481, '\x15192a34cbadf4afb2722135ec7fec49', '\x30e2aa9032cc1294838939c52dec1c86c87888b457873f37d0ba71490c99fa3c', '\x7b22617474656d7074223a312c22646967657374223a2230326665316132396564663366643662326566363463633931636636326233323063313165303466363464316366623961326537306262323131313762633164222c2266696e697368223a2273746f70222c2267726f7570223a2266756e6374696f6e222c226f7065726174696f6e223a2274322e302e30222c227061727473223a5b7b22636f6e74656e74223a22646f6e653a206c6f6f6b2c20706c65617365222c2274797065223a2274657874227d5d2c22737461747573223a22737563636565646564227d', '\x7037eb406c581e922b0e5b2b9cb1ed3b1d0ba5ac9e47f1038b33d938c27d55c2');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 6, 2, 'message', 1796091941481, '\x87c9ba191c98af4ba62ff588ca9b5ab7', '\x84a9dc026c8e4028282dea6efc01715368e947f8961f79376e204e2efb0778e3', '\x7b22646967657374223a2230326665316132396564663366643662326566363463633931636636326233323063313165303466363464316366623961326537306262323131313762633164222c2272656365697074223a352c227265766973696f6e223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c22726f6c65223a22617373697374616e74227d', '\xd398b4663289a0de0d5f19e49295d94001e17d4659796434aae854352c7fa302');
INSERT INTO perdure_frozen.journal VALUES ('done', 1, 7, 2, 'turn_completed', 1796091941481, '\x2993024d5b817e11bc5b3324e486517b', '\xbde0ecdb8191ee36b58267660b15d9ea508245d70f5e0fb98fa40565f7f85be2', '\x7b226f7574707574223a362c227374657073223a312c227375626d697373696f6e223a226d222c227475726e223a227432222c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d7d', '\xa7e238737ab00e22996ca91b0c484294c8d89398ecc680bab976da988570a249');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 1, 0, 'session_created', 1796091941488, '\x957526e9a660fbe4e313d6803b7c8c6a', '\x3233ea3713fafe586344d2b3c5cd4d76ea8e2c1eb657c923d46effd2de2b1988', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a226c61726765222c2273657373696f6e5f6964223a226c61726765227d', '\x1a77d1d77ebd8e56bf6dd358b4bf4520ae7954ada76944da1b5e26a346fadb60');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 2, 0, 'turn_started', 1796091941498, '\x7cc2c942de2ffba34ee7ab891960d23f', '\xdb6b1f0040a5bfc1547df3f2ef5c847cb4f81a6eef8868c1e0a9df81c29598bb', '\x7b226167656e74223a22636c65726b222c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226c696d697473223a7b7d2c22726f757465223a2266756e6374696f6e222c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d7d', '\x9f4de149fb157fedebd3feed25f344d8542dfd42885538cc00cd71b18a6876ca');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 3, 1, 'message', 1796091941498, '\x235ebe85e3ae9d93341b772d3acd2d5b', '\x7124f0166b41dd843896b032342090b5b1da6e10e2a9610955494dcdb85fbc4e', '\x7b2264656c69766572223a227475726e222c22646967657374223a2230376238363564356237363635336265653966666434353263616536643964616265323237393363636331353163623434363035313537313637366565396232222c227061727473223a5b7b22646967657374223a2231303831356637333135366563643631343332316235386331383862356532303730316334306231393364623665396131623166643937653233623930616632222c2273697a65223a34333932332c2274797065223a2273746f726564227d5d2c227265766973696f6e223a2262663733333337376565666333343364386166633234633530623737316361333432656264383334633436323930346332373761316432303831363531633436222c22726f6c65223a2275736572222c227375626d697373696f6e223a226d227d', '\xc57a3b5e41a1a51542c3815840f1a60c5b185b708b8f96983962906beef14fd7');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 4, 1, 'operation_started', 1796091941498, '\xfe62f21ab7b77be0d86c7afc35d05685', '\xe844144c7e4e7bdf7e6302dbedfce3a61566b2b02adfaf1472543a751cd7ec97', '\x7b22617474656d7074223a312c2266656e6365223a312c226f7065726174696f6e223a2274322e302e30222c22706c616e223a7b22617267756d656e7473223a2262313466623762393636613236363432636562636433343731643664376562376563396238373836373165643331623061653531323433303731663432353061222c226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c2272657175657374223a7b22636f6e74657874223a2262663733333337376565666333343364386166633234633530623737316361333432656264383334633436323930346332373761316432303831363531633436222c22646967657374223a2262313466623762393636613236363432636562636433343731643664376562376563396238373836373165643331623061653531323433303731663432353061222c2265706f6368223a302c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c22726f757465223a2266756e6374696f6e222c2273657474696e6773223a2234343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22746f6f6c73223a2239633061303137366436386166643736643763663736303231616630343335393166333564633731363237656634613531303132353430333130653639653233227d7d', '\xf6b9eb5d9ea1eb9b61b120eca9e03facde0e2e7d412636ec0dc86bcb7b6f75f6');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 5, 1, 'operation_ended', 1796091941505, '\x95dd5d0893d41596267692e4c74cc0e2', '\xa861b9cd782f9f9d8942c223f75cba2f11b2752e7170e0ee5d087bae06f286c6', '\x7b22617474656d7074223a312c22646967657374223a2234316464663438643531323463653565663739336161336362386535326430623936303132306562666630613733653434373238353764306133623939646639222c2266696e697368223a2273746f70222c2267726f7570223a2266756e6374696f6e222c226f7065726174696f6e223a2274322e302e30222c227061727473223a5b7b22636f6e74656e74223a22646f6e653a206b656570203020312032203320342035203620372038203920313020313120313220313320313420222c2274797065223a2274657874227d5d2c22737461747573223a22737563636565646564227d', '\x216e0ddcdbbe681b9719074d5e338077d27e69b849fd77aee91e7c653abaf1a9');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 6, 2, 'message', 1796091941505, '\xead03edce146174fa68e3d443b9cdd4c', '\x5c77ba697a679e94a5704e96b94c5435e45d8b277a10ffb80e488152b4a05ccc', '\x7b22646967657374223a2234316464663438643531323463653565663739336161336362386535326430623936303132306562666630613733653434373238353764306133623939646639222c2272656365697074223a352c227265766973696f6e223a2238666364306637363638666265626532383431386631343865643833373135616430346161646462636132653339393562303836656535616236623361636265222c22726f6c65223a22617373697374616e74227d', '\x290a703a926520628f89b4e54f5ab2a91a2a7f33cafd17aa25b1fed2bcd0d271');
INSERT INTO perdure_frozen.journal VALUES ('large', 2, 7, 2, 'turn_completed', 1796091941505, '\x168372945fa9afd05f144b4531ba18e7', '\x969bfeb4beeedd78ebedf446b468af6f29214b66681a3cfc49cc4ad91d70b84e', '\x7b226f7574707574223a362c227374657073223a312c227375626d697373696f6e223a226d222c227475726e223a227432222c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d7d', '\x05e2993e695b097cd977c51e9ad419a380b011455e265960ce4ad7394ed0af7c');
INSERT INTO perdure_frozen.journal VALUES ('done', 3, 1, 0, 'session_created', 1796091941513, '\xb0f326a9b2ecab484c69d9ec75feada7', '\x2a9ea657656ec3464b9bda2383db992c984da7470d33b0ae685c0391244a8bcf', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a22646f6e65222c2273657373696f6e5f6964223a22666f726b222c227469746c65223a22616e6f7468657220776179227d', '\x72bbb5e7fdd585c4b060fbc695aac0520fbca9cf815bf2cc549f81323347d0ab');
INSERT INTO perdure_frozen.journal VALUES ('done', 3, 2, 2, 'forked', 1796091941513, '\x4e8304ad67fe6e11ea6f9ad8c8f05830', '\x577a85a7b72aafb46dc19ee8ad4a08c4f3d1ba0a20df74c2ad3cd86f2a372204', '\x7b22636861696e223a2261376532333837333761623030653232393936636139316230633438343239346338643839333938656363363830626162393736646139383835373061323439222c22637574223a322c226578616374223a5b5b302c325d5d2c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c22706965636573223a5b5b22646f6e65222c312c335d5d2c227265766973696f6e223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c22726f757465223a2266756e6374696f6e222c2273657373696f6e223a22646f6e65222c227461696c223a322c2276657273696f6e223a377d', '\x0c427a7bd15cb98f5b8aafb3a56afa5eccc8ffa6ac5473a7b00f8e528f8f3e5f');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 1, 0, 'session_created', 1796091941516, '\xcddd2f09aca17629f9224c2009f672db', '\xb5770910cd40f2bb948bdc20f84aacd6359fc90407740b85ef8d43a9f15997fe', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a2261736b696e67222c2273657373696f6e5f6964223a2261736b696e67227d', '\x566f278fc39689da74d12dc0979edf9919319d83af9843d2a6e0e0e18d652344');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 2, 0, 'turn_started', 1796091941525, '\x746a059c26f79114fd3ebe56c634f560', '\x98f8564bb29fb43dea11e812d4408bc6a692a212b90b75359af0b5d699ff1052', '\x7b226167656e74223a22636c65726b222c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226c696d697473223a7b7d2c22726f757465223a2266756e6374696f6e222c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d7d', '\x3acbfeead4402f28d0698610faa3162689cb678ac884c0c4468cfc806472f6f9');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 3, 1, 'message', 1796091941525, '\xf72fed7b7271b72b1dd93ecaaea94177', '\xf0e406da037f49e34897a04b4ee35e3c51740e5836f77551a73a40c82cbe67c3', '\x7b2264656c69766572223a227475726e222c22646967657374223a2239616532326634633235323638613730653034623763643332396637353039326438396537376233393761643435663536376438636535386465656337613034222c227061727473223a5b7b22636f6e74656e74223a22726566756e64206974222c2274797065223a2274657874227d5d2c227265766973696f6e223a2263376334643332653136646261613366363265366236303138653838393738613766356361656534663935616336353238356438643365363761326162313432222c22726f6c65223a2275736572222c227375626d697373696f6e223a226d227d', '\xdd2f962d060726085d0201e57e5c9980deeabd796bf40a1399239b2faeae8af0');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 4, 1, 'operation_started', 1796091941525, '\xd91b825591d258d496a770c8fce92968', '\x17a75a0e57d33267b6558a4792c5cb43bbc21c02c936ef5a4d88887c6d6bfb9d', '\x7b22617474656d7074223a312c2266656e6365223a312c226f7065726174696f6e223a2274322e302e30222c22706c616e223a7b22617267756d656e7473223a2263383465386465373133623162373863663632386563373962623739333934323139363836666434346532626335333661393938656331636230663266303331222c226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c2272657175657374223a7b22636f6e74657874223a2263376334643332653136646261613366363265366236303138653838393738613766356361656534663935616336353238356438643365363761326162313432222c22646967657374223a2263383465386465373133623162373863663632386563373962623739333934323139363836666434346532626335333661393938656331636230663266303331222c2265706f6368223a302c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c22726f757465223a2266756e6374696f6e222c2273657474696e6773223a2234343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22746f6f6c73223a2239633061303137366436386166643736643763663736303231616630343335393166333564633731363237656634613531303132353430333130653639653233227d7d', '\x1a4a120f19660d7ed01323c8d544f019be20583f3ca5ae24ac1c0f3679e7ce2b');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 5, 1, 'operation_ended', 1796091941526, '\x81d125532c2f86037ae63c438a8f9d61', '\x2eb130eab29a0c768df45d20af6bd1705b4d3be1c413b0d317335769765a8474', '\x7b22617474656d7074223a312c22646967657374223a2239313065323462666532326231653133363466636463356537613337396136336561613437313230316132396133663031643466646434323862356133653235222c2266696e697368223a22746f6f6c5f63616c6c73222c2267726f7570223a2266756e6374696f6e222c226f7065726174696f6e223a2274322e302e30222c227061727473223a5b7b22617267756d656e7473223a7b2263656e7473223a357d2c226964223a2263616c6c5f726566756e64222c226e616d65223a22726566756e64222c2274797065223a22746f6f6c5f63616c6c227d5d2c22737461747573223a22737563636565646564227d', '\xf0708b2f392386e73c0e15c289e9feb7c01e74849cd8ceba592513252f56d0e6');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 6, 2, 'message', 1796091941526, '\x0ec9a5316d5ec886ee0a1c462dc35474', '\xfbfcec5ee6b42a183997a8a008f7d4d0742df9341a24c5a2e04494927d65b0f0', '\x7b22646967657374223a2239313065323462666532326231653133363466636463356537613337396136336561613437313230316132396133663031643466646434323862356133653235222c2272656365697074223a352c227265766973696f6e223a2239366532376230623438643930316131326231623434656264373730623432363234386330643636313162623138636634343938656630663738323862393133222c22726f6c65223a22617373697374616e74227d', '\x9a2299a207df266f9116505d8bd9bb48d44f6940e52bee30d7a18811bd16fd67');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 7, 2, 'operation_planned', 1796091941528, '\x0e476c98f58b066568bdea30164bf578', '\xb0d76ae9023d432f7e0cfa93e0b469cc99aea3c6caccdfdd59a5941e7c4dad35', '\x7b226f7065726174696f6e223a2274322e302e31222c22706c616e223a7b22617267756d656e7473223a223431336239653036303866356261623630323533386663353735323232336133222c2263616c6c223a2263616c6c5f726566756e64222c22656666656374223a2265787465726e616c222c226566666563745f6b6579223a2234313362396530363038663562616236303235333866633537353232323361333463363362613830626431613064363430383836316230323862373561323632222c226b696e64223a22746f6f6c222c226e616d65223a22726566756e64227d7d', '\x2b60430b23f4c726c4706bbfbcb8eab22e3e315c2561a372eba0e8de0f77bb10');
INSERT INTO perdure_frozen.journal VALUES ('asking', 4, 8, 2, 'request_opened', 1796091941528, '\x61930704b67831fc200163e9ad3f0a22', '\x39252204121c08a635dbf234f57825a8c6de21d5a59f884fea9a86541bb0a24b', '\x7b22617267756d656e7473223a223431336239653036303866356261623630323533386663353735323232336133222c2263616c6c223a2263616c6c5f726566756e64222c226e616d65223a22726566756e64222c226f7065726174696f6e223a2274322e302e31222c2272657175657374223a22617070726f76616c222c22726571756573745f6964223a2239623738356462383363323338383566227d', '\xea2b91c13b7c827a857f973362c00dc88bbf986030e864a84d876a9f1dec80f6');
INSERT INTO perdure_frozen.journal VALUES ('queued', 5, 1, 0, 'session_created', 1796091941533, '\x2e78faac1d5425dbfcf2dcef0a0e8c89', '\x98502d4b3a5cdc22b844b98f2b82d923c262de5f151e2327d8acbd829dc202dc', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a22717565756564222c2273657373696f6e5f6964223a22717565756564227d', '\x8197b7b525b09f1a1ab4112d1ac18eae5bd7ac682b392682025dab4bfd7e99a2');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 1, 0, 'session_created', 1796091941537, '\x97e61bcd753731307ba5eeb2b866a37a', '\x438c2f0746a7def3ce89d0441ed0b45b13f107985c0a693612792fc006d6206e', '\x7b226167656e74223a22636c65726b222c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a22637574222c2273657373696f6e5f6964223a22637574227d', '\xf67cc358ce4a898f7dc0f472b86bf31ef24e8750f874d2704f7df12652ba7adc');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 2, 0, 'turn_started', 1796091941543, '\xf3a61aade785a98589763120f52c3957', '\x3e370c80233339cbc146c18b5ce07b72d617b03953d93dbfc6157b74510f2c9d', '\x7b226167656e74223a22636c65726b222c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226c696d697473223a7b7d2c22726f757465223a2266756e6374696f6e222c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d7d', '\x0983f6b39ea1c2551887034c872802f3a94e1d9fe694ecee1f597f78bc053727');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 3, 1, 'message', 1796091941543, '\x6933fbae435b1dd25764cbe88173b5e9', '\xfe29e20ef0ff5eb186a1ab8d8ef3ffee31f1f86b74ebc29dd99ad1a6fedff412', '\x7b2264656c69766572223a227475726e222c22646967657374223a2236313762663366346432363561386332306465333834366333383135613233396161626665653438613538353631323333323566656137623164623530356138222c227061727473223a5b7b22636f6e74656e74223a22706179206e6f77222c2274797065223a2274657874227d5d2c227265766973696f6e223a2231623934323538663435643966336565383538393837306233633662326264373834663437343137626163656635653337383633333632326634623261626337222c22726f6c65223a2275736572222c227375626d697373696f6e223a226d227d', '\xc1ca6335889a9cd3fba666353f90dd1681b528647373d9c91220f89855bdfec6');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 4, 1, 'operation_started', 1796091941543, '\x502356f41d472a5186b0327b07e0f521', '\x1639970d31936625c00efec30f43031cac2518c16e7e2f683ac777451131eb64', '\x7b22617474656d7074223a312c2266656e6365223a312c226f7065726174696f6e223a2274322e302e30222c22706c616e223a7b22617267756d656e7473223a2233653931393365313130346563383038316166663432373963323438366566343363643966613533623264383231656530323339656163333037663163306261222c226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c2272657175657374223a7b22636f6e74657874223a2231623934323538663435643966336565383538393837306233633662326264373834663437343137626163656635653337383633333632326634623261626337222c22646967657374223a2233653931393365313130346563383038316166663432373963323438366566343363643966613533623264383231656530323339656163333037663163306261222c2265706f6368223a302c22696e737472756374696f6e73223a2265336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c22726f757465223a2266756e6374696f6e222c2273657474696e6773223a2234343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22746f6f6c73223a2239633061303137366436386166643736643763663736303231616630343335393166333564633731363237656634613531303132353430333130653639653233227d7d', '\x5e992924b983a153df51ac6157996f2f3839a6c0cb227c4b501cf98e37ce7f8d');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 5, 1, 'operation_ended', 1796091941543, '\x8d9d752a3a536fd272eedff030292f2a', '\x474625cb9adb489b79c4250fb44ca477b2a9a20b07f2ff657c98492e7ad11f96', '\x7b22617474656d7074223a312c22646967657374223a2231623861396233613965366235616439366163356630653266633238366638633961376166313438303035303165366339393032613937646137323935343733222c2266696e697368223a22746f6f6c5f63616c6c73222c2267726f7570223a2266756e6374696f6e222c226f7065726174696f6e223a2274322e302e30222c227061727473223a5b7b22617267756d656e7473223a7b2263656e7473223a357d2c226964223a2263616c6c5f706179222c226e616d65223a22706179222c2274797065223a22746f6f6c5f63616c6c227d5d2c22737461747573223a22737563636565646564227d', '\x8c3647544d3d9a1518c71791fb24abf9f9dcaac4287d3785c5928cfd323a60f3');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 6, 2, 'message', 1796091941543, '\x504f7b8eea8362f02cde25de816c7bb5', '\x3fcf5c70de8f8980be9fb3dcff820102eb33301440d0bcb01406d070a449dc7b', '\x7b22646967657374223a2231623861396233613965366235616439366163356630653266633238366638633961376166313438303035303165366339393032613937646137323935343733222c2272656365697074223a352c227265766973696f6e223a2266326263636332643933313236656433313661303338306361333538383965386431383461613366626531363239623436393862356539373861303831376163222c22726f6c65223a22617373697374616e74227d', '\xbcb042ac9e60413978e08c0676e5dbe91601a22f6ba67d972b9e238b1fef6627');
INSERT INTO perdure_frozen.journal VALUES ('cut', 6, 7, 2, 'operation_started', 1796091941543, '\x5c83f71f9e64b9f472755d33daa94de5', '\x9e387dd87be7d9f28a2348246f87fcec5a0e402ae56495a8b6c8f04d572c5ea7', '\x7b22617474656d7074223a312c2266656e6365223a312c226f7065726174696f6e223a2274322e302e31222c22706c616e223a7b22617267756d656e7473223a223431336239653036303866356261623630323533386663353735323232336133222c2263616c6c223a2263616c6c5f706179222c22656666656374223a2265787465726e616c222c226566666563745f6b6579223a2231616533353932663832343863336638373962353661666533663263653661616434356261383938343334373936643335633536353638343339376662336536222c226b696e64223a22746f6f6c222c226e616d65223a22706179227d7d', '\x9ea2438b7c1d45d88c751686ecf9158e3108c6a9dc0e0a0fa8bde9f1ff2ace81');


--
-- Data for Name: lent; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--



--
-- Data for Name: meta; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.meta VALUES ('store_id', '\x3736353036343661306566623036663032366537633338343861633762653066');
INSERT INTO perdure_frozen.meta VALUES ('secret', '\xee2f5d8e8b5762b81c7ba3cc700c30f63b05fb55489870af61ffab0aa1337fa8');
INSERT INTO perdure_frozen.meta VALUES ('format', '\x31');


--
-- Data for Name: pools; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.pools VALUES ('acme', '2b1069ea1318440481bbbfaaa7fa56d2', '{"tokens": 1000000}', '(0,0,0,0,0,0,0,0)');


--
-- Data for Name: runners; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.runners VALUES ('837acd3f5a2b459f98f616e1c7fec450', 'here', 14312, 1796091941457, 1796091951463, '["clerk"]', '[]');


--
-- Data for Name: sessions; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--

INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (1, 'done', 'done', NULL, NULL, 'clerk', 7, 1, NULL, 0, 1, NULL, 'idle', '', 'look, please', 'look, please', '{}', 1796091941467, 1796091941481, 426923004678256791, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313438312c22636f6e74657874223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c2263726561746564223a313739363039313934313436372c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c226e756d626572223a322c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c227265766973696f6e223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c22726f6f74223a22646f6e65222c22726f757465223a2266756e6374696f6e222c2273657373696f6e5f6964223a22646f6e65222c227469746c65223a226c6f6f6b2c20706c65617365222c227475726e73223a312c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d2c2276657273696f6e223a377d');
INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (2, 'large', 'large', NULL, NULL, 'clerk', 7, 1, NULL, 0, 1, NULL, 'idle', '', '', '', '{}', 1796091941488, 1796091941505, 3005470385245431289, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313530352c22636f6e74657874223a2238666364306637363638666265626532383431386631343865643833373135616430346161646462636132653339393562303836656535616236623361636265222c2263726561746564223a313739363039313934313438382c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c226e756d626572223a322c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c227265766973696f6e223a2238666364306637363638666265626532383431386631343865643833373135616430346161646462636132653339393562303836656535616236623361636265222c22726f6f74223a226c61726765222c22726f757465223a2266756e6374696f6e222c2273657373696f6e5f6964223a226c61726765222c227475726e73223a312c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d2c2276657273696f6e223a377d');
INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (3, 'fork', 'done', 'done', 'fork', 'clerk', 2, 0, NULL, 0, 0, NULL, 'idle', '', 'another way', 'another way', '{}', 1796091941513, 1796091941513, 0, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313531332c22636f6e74657874223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c2263726561746564223a313739363039313934313531332c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c226e756d626572223a322c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c227265766973696f6e223a2265626566393965336462353564663034303838323964336633666137643063343561303130396231336464623663346261323739303064663962353231393235222c22726f6f74223a22646f6e65222c22726f757465223a2266756e6374696f6e222c2273657373696f6e5f6964223a22666f726b222c227469746c65223a22616e6f7468657220776179222c227472616e736372697074223a7b2262617365223a322c22636f756e74223a322c227461696c223a327d2c2276657273696f6e223a327d');
INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (4, 'asking', 'asking', NULL, NULL, 'clerk', 8, 1, NULL, 0, 1, NULL, 'waiting', '', 'refund it', 'refund it', '{}', 1796091941516, 1796091941528, 927896829319022549, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313532382c22636f6e74657874223a2239366532376230623438643930316131326231623434656264373730623432363234386330643636313162623138636634343938656630663738323862393133222c2263726561746564223a313739363039313934313531362c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c226e756d626572223a322c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c227265766973696f6e223a2239366532376230623438643930316131326231623434656264373730623432363234386330643636313162623138636634343938656630663738323862393133222c22726f6f74223a2261736b696e67222c22726f757465223a2266756e6374696f6e222c2273657373696f6e5f6964223a2261736b696e67222c227469746c65223a22726566756e64206974222c227475726e223a7b226167656e74223a22636c65726b222c22616e73776572223a352c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226964223a227432222c226c696d697473223a7b7d2c226f7065726174696f6e73223a5b5b2274322e302e30222c7b226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c22656e646564222c312c312c302c302c302c22222c302c22222c352c2239313065323462666532326231653133363466636463356537613337396136336561613437313230316132396133663031643466646434323862356133653235222c302c66616c73655d2c5b2274322e302e31222c7b22617267756d656e7473223a223431336239653036303866356261623630323533386663353735323232336133222c2263616c6c223a2263616c6c5f726566756e64222c22656666656374223a2265787465726e616c222c226566666563745f6b6579223a2234313362396530363038663562616236303235333866633537353232323361333463363362613830626431613064363430383836316230323862373561323632222c226b696e64223a22746f6f6c222c226e616d65223a22726566756e64227d2c22706c616e6e6564222c302c302c302c302c302c2239623738356462383363323338383566222c302c2264656e79222c302c22222c302c66616c73655d5d2c226f7264696e616c223a322c226f7574707574223a362c2273746172746564223a313739363039313934313532352c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d2c22746f6f6c5f63616c6c73223a312c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d7d2c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d2c2276657273696f6e223a387d');
INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (5, 'queued', 'queued', NULL, NULL, 'clerk', 1, 0, NULL, 0, 1, 1796091941533, 'queued', '', '', '', '{}', 1796091941533, 1796091941533, 0, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313533332c2263726561746564223a313739363039313934313533332c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c22726f6f74223a22717565756564222c2273657373696f6e5f6964223a22717565756564222c2276657273696f6e223a317d');
INSERT INTO perdure_frozen.sessions OVERRIDING SYSTEM VALUE VALUES (6, 'cut', 'cut', NULL, NULL, 'clerk', 7, 1, '837acd3f5a2b459f98f616e1c7fec450', 0, 1, NULL, 'running', '', 'pay now', 'pay now', '{}', 1796091941537, 1796091941543, 3852154124399308504, '\x7b226167656e74223a22636c65726b222c226174223a313739363039313934313534332c22636f6e74657874223a2266326263636332643933313236656433313661303338306361333538383965386431383461613366626531363239623436393862356539373861303831376163222c2263726561746564223a313739363039313934313533372c226964656e74697479223a7b7d2c226d65746164617461223a7b7d2c226e756d626572223a322c226f776e6572223a2266756e6374696f6e222c226f776e65725f67726f7570223a2266756e6374696f6e222c227265766973696f6e223a2266326263636332643933313236656433313661303338306361333538383965386431383461613366626531363239623436393862356539373861303831376163222c22726f6f74223a22637574222c22726f757465223a2266756e6374696f6e222c2273657373696f6e5f6964223a22637574222c227469746c65223a22706179206e6f77222c227475726e223a7b226167656e74223a22636c65726b222c22616e73776572223a352c22646566696e6974696f6e223a2231333130343436613064656138656631366138323530613166666463646237663735653431613137636633643933333865636532353565313264646266326238222c226964223a227432222c226c696d697473223a7b7d2c226f7065726174696f6e73223a5b5b2274322e302e30222c7b226b696e64223a226d6f64656c222c226e616d65223a2266756e6374696f6e227d2c22656e646564222c312c312c302c302c302c22222c302c22222c352c2231623861396233613965366235616439366163356630653266633238366638633961376166313438303035303165366339393032613937646137323935343733222c302c66616c73655d2c5b2274322e302e31222c7b22617267756d656e7473223a223431336239653036303866356261623630323533386663353735323232336133222c2263616c6c223a2263616c6c5f706179222c22656666656374223a2265787465726e616c222c226566666563745f6b6579223a2231616533353932663832343863336638373962353661666533663263653661616434356261383938343334373936643335633536353638343339376662336536222c226b696e64223a22746f6f6c222c226e616d65223a22706179227d2c2273746172746564222c312c312c302c302c302c22222c302c22222c302c22222c302c66616c73655d5d2c226f7264696e616c223a322c226f7574707574223a362c2273746172746564223a313739363039313934313534332c227375626d697373696f6e223a226d222c227465726d73223a7b2261726368697665223a32303030307d2c22746f6f6c5f63616c6c73223a312c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d7d2c227573616765223a7b2263616c6c73223a312c22756e6b6e6f776e5f63616c6c73223a317d2c2276657273696f6e223a377d');


--
-- Data for Name: shares; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--



--
-- Data for Name: uniques; Type: TABLE DATA; Schema: perdure_frozen; Owner: -
--



--
-- Name: sessions_no_seq; Type: SEQUENCE SET; Schema: perdure_frozen; Owner: -
--

SELECT pg_catalog.setval('perdure_frozen.sessions_no_seq', 6, true);


--
-- Name: blobs blobs_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (root, digest);


--
-- Name: cursors cursors_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (root, no, consumer);


--
-- Name: effects effects_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.effects
    ADD CONSTRAINT effects_pkey PRIMARY KEY (root, no, effect_key, seq);


--
-- Name: inbox inbox_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (root, no, submission_id);


--
-- Name: journal journal_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (root, no, seq);


--
-- Name: lent lent_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.lent
    ADD CONSTRAINT lent_pkey PRIMARY KEY (transaction);


--
-- Name: meta meta_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);


--
-- Name: pools pools_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.pools
    ADD CONSTRAINT pools_pkey PRIMARY KEY (owner);


--
-- Name: runners runners_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.runners
    ADD CONSTRAINT runners_pkey PRIMARY KEY (id);


--
-- Name: sessions sessions_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (no);


--
-- Name: sessions sessions_session_id_key; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.sessions
    ADD CONSTRAINT sessions_session_id_key UNIQUE (session_id);


--
-- Name: shares shares_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.shares
    ADD CONSTRAINT shares_pkey PRIMARY KEY (no);


--
-- Name: uniques uniques_pkey; Type: CONSTRAINT; Schema: perdure_frozen; Owner: -
--

ALTER TABLE ONLY perdure_frozen.uniques
    ADD CONSTRAINT uniques_pkey PRIMARY KEY (key);


--
-- Name: blobs_outside; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX blobs_outside ON perdure_frozen.blobs USING btree (digest) WHERE (data IS NULL);


--
-- Name: effects_uncertain; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX effects_uncertain ON perdure_frozen.effects USING btree (no) WHERE (state = 'uncertain'::text);


--
-- Name: inbox_waiting; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX inbox_waiting ON perdure_frozen.inbox USING btree (root, no, arrival) WHERE (consumed_seq IS NULL);


--
-- Name: sessions_due; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_due ON perdure_frozen.sessions USING btree (wake_at) WHERE ((holder IS NULL) AND (wake_at IS NOT NULL));


--
-- Name: sessions_held; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_held ON perdure_frozen.sessions USING btree (holder) WHERE (holder IS NOT NULL);


--
-- Name: sessions_listed; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_listed ON perdure_frozen.sessions USING btree (updated, no, owner, status, agent, parent_kind);


--
-- Name: sessions_owned; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_owned ON perdure_frozen.sessions USING btree (owner, updated, no);


--
-- Name: sessions_parked; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_parked ON perdure_frozen.sessions USING btree (status) WHERE (status = ANY (ARRAY['halted'::text, 'stuck'::text, 'waiting'::text]));


--
-- Name: sessions_tree; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX sessions_tree ON perdure_frozen.sessions USING btree (root);


--
-- Name: uniques_of; Type: INDEX; Schema: perdure_frozen; Owner: -
--

CREATE INDEX uniques_of ON perdure_frozen.uniques USING btree (no, operation);


--
-- Name: lent stays_open; Type: TRIGGER; Schema: perdure_frozen; Owner: -
--

CREATE CONSTRAINT TRIGGER stays_open AFTER INSERT OR UPDATE ON perdure_frozen.lent DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION perdure_frozen.stays_open();


--
-- PostgreSQL database dump complete
--


