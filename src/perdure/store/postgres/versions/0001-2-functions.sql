-- What one round trip can do. A function's plans are kept by the server, so that nothing needs a prepared statement of ours, and a block
-- with an EXCEPTION clause is a savepoint, so that many commits share one statement and one that fails undoes itself alone.
-- Errors of our own: PD001 the caller's mistake, PD002 the database left something out, PD003 a row is missing.

CREATE TYPE perdure.entry AS (
    seq bigint, number bigint, kind text, at bigint, salt bytea, body_digest bytea, body bytea, chain bytea
);
CREATE TYPE perdure.submission AS (
    submission_id text, arrival bigint, kind text, at bigint, not_before bigint, actor text, digest text, body bytea,
    consumed_seq bigint, settled_seq bigint
);
CREATE TYPE perdure.mark AS (submission_id text, seq bigint);
CREATE TYPE perdure.edit AS (submission_id text, body bytea);
CREATE TYPE perdure.effect AS (effect_key bytea, seq bigint, state text);
CREATE TYPE perdure.blob AS (digest text, media_type text, size bigint, data bytea);
CREATE TYPE perdure.listing AS (status text, wake_at bigint, title text, folded text, labels text, agent text);
CREATE TYPE perdure.take AS (key text, operation text);
CREATE TYPE perdure.decision AS (operation text, state text, seq bigint);
CREATE TYPE perdure.draw AS (owner text, pool text, drawn perdure.amounts, used perdure.amounts, ends boolean);
CREATE TYPE perdure.commit AS (
    token bigint, no bigint, version bigint, fence bigint, holder text, at bigint, entries perdure.entry[], checkpoint bytea,
    consumed perdure.mark[], settled perdure.mark[], edited perdure.edit[], dropped text[], received perdure.submission[],
    redacted bigint[], erased text[], effects perdure.effect[], taken perdure.take[], decided perdure.decision[], blobs perdure.blob[],
    listing perdure.listing, claim text, force boolean, release boolean, progress boolean, inbox_head bigint, draws perdure.draw[]
);
CREATE TYPE perdure.beginning AS (
    root text, parent text, parent_kind text, owner text, at bigint, entries perdure.entry[], checkpoint bytea,
    listing perdure.listing, blobs perdure.blob[]
);
CREATE TYPE perdure.send AS (
    session_id text, submission perdure.submission, urgent boolean, patient boolean, owner text, blobs perdure.blob[],
    beginning perdure.beginning
);

-- Who took a key, and an owner's pool, as they are read.
CREATE TYPE perdure.taker AS (key text, operation text, state text, seq bigint, no bigint, session_id text, deleted boolean);
CREATE TYPE perdure.pool AS (id text, limits text, drawn perdure.amounts);

-- What a write says. `sqlstate` and `message` are those of an error that undid this member alone.
CREATE TYPE perdure.answer AS (
    code text, no bigint, version bigint, fence bigint, inbox_head bigint, holder text, created boolean, pending bigint,
    submission perdure.submission, taker perdure.taker, pool perdure.pool, sqlstate text, message text, moment bigint
);

-- The store's time (ms): the database's clock, whatever those of its clients say.
CREATE FUNCTION perdure.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Whether a runner's lease runs.
CREATE FUNCTION perdure.alive(runner text, moment bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM perdure.runners AS r WHERE r.id = runner AND r.expires > moment)
$$;

-- A statement that should have changed so many rows.
CREATE FUNCTION perdure.must(changed bigint, wanted bigint, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changed <> wanted THEN
        RAISE EXCEPTION 'the database left out a row of %', what USING ERRCODE = 'PD002';
    END IF;
END
$$;

-- Append facts.
CREATE FUNCTION perdure.append(its_root text, its_no bigint, entries perdure.entry[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    INSERT INTO perdure.journal (root, no, seq, number, kind, at, salt, body_digest, body, chain)
    SELECT its_root, its_no, e.seq, e.number, e.kind, e.at, e.salt, e.body_digest, e.body, e.chain FROM unnest(entries) AS e;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(entries) THEN
        PERFORM perdure.must(changed, cardinality(entries), 'the journal');
    END IF;
END
$$;

-- Keep content, once for its tree.
CREATE FUNCTION perdure.keep(its_root text, blobs perdure.blob[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO perdure.blobs (root, digest, media_type, size, data)
    SELECT DISTINCT ON (b.digest) its_root, b.digest, b.media_type, b.size, b.data FROM unnest(blobs) AS b ORDER BY b.digest
    ON CONFLICT (root, digest) DO NOTHING;
    IF EXISTS (
        SELECT FROM unnest(blobs) AS b
        WHERE NOT EXISTS (SELECT FROM perdure.blobs AS k WHERE k.root = its_root AND k.digest = b.digest)
    ) THEN
        PERFORM perdure.must(0, 1, 'the blobs');
    END IF;
END
$$;

-- Lock the rows of a session's tree, in one order, so that no two that do it wait for each other. Whoever found content there, and refers
-- to it in what isn't committed yet, is waited for; whoever looks for it later waits.
CREATE FUNCTION perdure.hold_tree(its_no bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    its_root text := (SELECT o.root FROM perdure.sessions AS o WHERE o.no = its_no);
    held bigint;
BEGIN
    LOOP
        PERFORM FROM perdure.sessions AS t WHERE t.root = its_root ORDER BY t.no FOR NO KEY UPDATE;
        GET DIAGNOSTICS held = ROW_COUNT;
        -- One that began while this waited stands in no row that it saw.
        EXIT WHEN held = (SELECT count(*) FROM perdure.sessions AS t WHERE t.root = its_root);
    END LOOP;
END
$$;

-- Content that nothing in its tree, which is held, refers to any more goes.
CREATE FUNCTION perdure.erase(its_root text, digests text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM perdure.blobs AS b
    WHERE b.root = its_root AND b.digest = ANY (digests)
        AND NOT EXISTS (
            SELECT FROM perdure.journal AS j WHERE j.root = its_root AND position(convert_to(b.digest, 'UTF8') IN j.body) > 0
        )
        AND NOT EXISTS (
            SELECT FROM perdure.inbox AS i WHERE i.root = its_root AND position(convert_to(b.digest, 'UTF8') IN i.body) > 0
        );
END
$$;

-- Whether all the rows that a commit names were there to be changed.
CREATE FUNCTION perdure.all_there(changed bigint, its_root text, its_no bigint, names text[], waiting boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    IF changed = cardinality(names) THEN
        RETURN;
    END IF;
    SELECT n.name INTO missing FROM unnest(names) AS n (name)
    WHERE NOT EXISTS (
        SELECT FROM perdure.inbox AS i
        WHERE i.root = its_root AND i.no = its_no AND i.submission_id = n.name AND (NOT waiting OR i.consumed_seq IS NULL)
    ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'submission % is not %', quote_literal(missing), CASE WHEN waiting THEN 'waiting' ELSE 'there' END
            USING ERRCODE = 'PD001';
    END IF;
    PERFORM perdure.must(changed, cardinality(names), 'the inbox');
END
$$;

-- The rows of the inbox that a commit changes. Those that it drops or consumes are looked at before they are changed.
CREATE FUNCTION perdure.turn_over(its_root text, c perdure.commit, head bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    IF c.received IS NOT NULL THEN
        INSERT INTO perdure.inbox (root, no, submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq)
        SELECT its_root, c.no, r.submission_id, head + r.place, r.kind, r.at, r.not_before, r.actor, r.digest, NULL, r.consumed_seq,
            r.settled_seq
        FROM unnest(c.received) WITH ORDINALITY
            AS r (submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq, place);
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, cardinality(c.received), 'the inbox');
    END IF;
    IF c.edited IS NOT NULL THEN
        UPDATE perdure.inbox AS i SET body = e.body FROM unnest(c.edited) AS e
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = e.submission_id AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.all_there(changed, its_root, c.no, ARRAY (SELECT e.submission_id FROM unnest(c.edited) AS e), true);
    END IF;
    IF c.dropped IS NOT NULL THEN
        PERFORM perdure.all_there(-1, its_root, c.no, c.dropped, true) WHERE EXISTS (
            SELECT FROM unnest(c.dropped) AS n (name) WHERE NOT EXISTS (
                SELECT FROM perdure.inbox AS i
                WHERE i.root = its_root AND i.no = c.no AND i.submission_id = n.name AND i.consumed_seq IS NULL
            )
        );
        DELETE FROM perdure.inbox AS i
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = ANY (c.dropped) AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, cardinality(c.dropped), 'the inbox');
    END IF;
    IF c.consumed IS NOT NULL THEN
        PERFORM perdure.all_there(-1, its_root, c.no, ARRAY (SELECT m.submission_id FROM unnest(c.consumed) AS m), true) WHERE EXISTS (
            SELECT FROM unnest(c.consumed) AS m WHERE NOT EXISTS (
                SELECT FROM perdure.inbox AS i
                WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id AND i.consumed_seq IS NULL
            )
        );
        UPDATE perdure.inbox AS i SET consumed_seq = m.seq, body = NULL FROM unnest(c.consumed) AS m
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id AND i.consumed_seq IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, cardinality(c.consumed), 'the inbox');
    END IF;
    IF c.settled IS NOT NULL THEN
        UPDATE perdure.inbox AS i SET settled_seq = m.seq FROM unnest(c.settled) AS m
        WHERE i.root = its_root AND i.no = c.no AND i.submission_id = m.submission_id;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.all_there(changed, its_root, c.no, ARRAY (SELECT m.submission_id FROM unnest(c.settled) AS m), false);
    END IF;
END
$$;

-- The sum, or with `sign` -1 the difference.
CREATE FUNCTION perdure.plus(a perdure.amounts, b perdure.amounts, sign bigint) RETURNS perdure.amounts LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(
        a.steps + sign * b.steps, a.tool_calls + sign * b.tool_calls, a.model_calls + sign * b.model_calls, a.tokens + sign * b.tokens,
        a.cost + sign * b.cost, a.ms + sign * b.ms, a.unknown + sign * b.unknown, a.unpriced + sign * b.unpriced
    )::perdure.amounts
$$;

-- Amounts that JSON can hold.
CREATE FUNCTION perdure.bounded(a perdure.amounts, most bigint DEFAULT 9007199254740992) RETURNS perdure.amounts LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(
        greatest(-most, least(most, a.steps)), greatest(-most, least(most, a.tool_calls)), greatest(-most, least(most, a.model_calls)),
        greatest(-most, least(most, a.tokens)), greatest(-most, least(most, a.cost)), greatest(-most, least(most, a.ms)),
        greatest(-most, least(most, a.unknown)), greatest(-most, least(most, a.unpriced))
    )::perdure.amounts
$$;

-- Whether a pool of these limits, of which so much was drawn, has so much more. What is given back always fits.
CREATE FUNCTION perdure.fits(limits jsonb, drawn perdure.amounts, more perdure.amounts) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
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

-- What a session draws from its owner's pool and gives back; with `releases` whatever it holds goes back, or counts as used. Without a code
-- it is written; else nothing is: there is not so much left, but what `stands` (`short`), or somebody else has locked the pool (`busy`), which is
-- waited for only with `wait`. The session's row is locked before, and the pool's from here on.
-- `store/pools.py` says the same of the other stores.
CREATE FUNCTION perdure.from_pool(
    its_no bigint, draws perdure.draw[], releases boolean, wait boolean, OUT code text, OUT stands perdure.pool
) LANGUAGE plpgsql AS $$
DECLARE
    zero CONSTANT perdure.amounts := ROW(0, 0, 0, 0, 0, 0, 0, 0);
    d perdure.draw;
    held perdure.shares;
    share perdure.shares;
    pool perdure.pools;
    before perdure.amounts;
    delta perdure.amounts;
    its_owner text;
    ours boolean;
    changed bigint;
BEGIN
    SELECT h.no, h.owner, h.pool, h.drawn, h.used INTO held FROM perdure.shares AS h WHERE h.no = its_no;
    share := held;
    its_owner := coalesce(draws[1].owner, held.owner);
    IF its_owner IS NULL THEN
        RETURN;
    END IF;
    IF wait THEN
        SELECT p.owner, p.id, p.limits, p.drawn INTO pool FROM perdure.pools AS p WHERE p.owner = its_owner FOR NO KEY UPDATE;
    ELSE
        SELECT p.owner, p.id, p.limits, p.drawn INTO pool FROM perdure.pools AS p WHERE p.owner = its_owner FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM perdure.pools AS p WHERE p.owner = its_owner) THEN
            code := 'busy';
            RETURN;
        END IF;
    END IF;
    before := pool.drawn;
    FOREACH d IN ARRAY coalesce(draws, '{}') LOOP
        ours := coalesce(pool.id = d.pool, false);
        delta := perdure.plus(
            CASE WHEN d.ends THEN d.used ELSE d.drawn END, CASE WHEN share.pool = d.pool THEN share.drawn ELSE zero END, -1
        );
        IF NOT d.ends AND greatest(delta.steps, delta.tool_calls, delta.model_calls, delta.tokens, delta.cost, delta.ms, delta.unknown,
            delta.unpriced) > 0 AND NOT (ours AND perdure.fits(pool.limits, pool.drawn, delta)) THEN
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
            pool.drawn := perdure.bounded(perdure.plus(pool.drawn, delta, 1));
        END IF;
    END LOOP;
    IF releases AND share.no IS NOT NULL THEN
        IF pool.id = share.pool THEN
            pool.drawn := perdure.bounded(perdure.plus(pool.drawn, perdure.plus(share.used, share.drawn, -1), 1));
        END IF;
        share := NULL;
    END IF;
    IF pool.drawn IS DISTINCT FROM before THEN
        UPDATE perdure.pools AS p SET drawn = pool.drawn WHERE p.owner = its_owner;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, 1, 'the pools');
    END IF;
    -- A row of nulls and no row are not the same to IS DISTINCT.
    IF coalesce(share.no, held.no) IS NULL OR share IS NOT DISTINCT FROM held THEN
        RETURN;
    END IF;
    IF share.no IS NULL THEN
        DELETE FROM perdure.shares AS h WHERE h.no = its_no;
    ELSIF held.no IS NULL THEN
        INSERT INTO perdure.shares (no, owner, pool, drawn, used) VALUES (its_no, share.owner, share.pool, share.drawn, share.used);
    ELSE
        UPDATE perdure.shares AS h SET owner = share.owner, pool = share.pool, drawn = share.drawn, used = share.used WHERE h.no = its_no;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM perdure.must(changed, 1, 'the shares');
END
$$;

-- Take what only one operation of the store may do; one that another transaction is taking is waited for. Returns who has one already, and
-- then nothing was taken; `fresh` are the keys that nobody had before.
CREATE FUNCTION perdure.take_keys(its_no bigint, taken perdure.take[], OUT taker perdure.taker, OUT fresh text[]) LANGUAGE plpgsql AS $$
DECLARE
    t perdure.take;
BEGIN
    fresh := '{}';
    -- In the order of the keys, so that two that want the same ones do not wait for each other.
    FOR t IN SELECT u.key, u.operation FROM unnest(taken) AS u ORDER BY u.key COLLATE "C" LOOP
        LOOP
            INSERT INTO perdure.uniques (key, no, operation, state, seq) VALUES (t.key, its_no, t.operation, 'pending', 0)
            ON CONFLICT (key) DO NOTHING;
            IF FOUND THEN
                fresh := fresh || t.key;
                EXIT;
            END IF;
            -- A session whose row somebody removed counts as deleted: without it this would look for ever.
            SELECT u.key, u.operation, u.state, u.seq, u.no, coalesce(s.session_id, ''), coalesce(s.status = 'deleted', true) INTO taker
            FROM perdure.uniques AS u LEFT JOIN perdure.sessions AS s USING (no) WHERE u.key = t.key;
            -- Whoever had it may have let it go just now.
            EXIT WHEN FOUND;
        END LOOP;
        IF (taker.no, taker.operation) <> (its_no, t.operation) THEN
            DELETE FROM perdure.uniques AS u WHERE u.key = ANY (fresh);
            RETURN;
        END IF;
        taker := NULL;
    END LOOP;
END
$$;

-- One commit, if the session is where the commit says; the only place where a session's facts are written. A row that somebody else
-- has locked is not waited for unless `wait`: the answer is `busy`, and the others of the statement go on.
-- `again`: it was sent before, and the answer was lost. One that is there, by its token or by the chain of its last entry, is not made
-- twice: `there`.
CREATE FUNCTION perdure.commit_one(c perdure.commit, moment bigint, wait boolean, again boolean) RETURNS perdure.answer LANGUAGE plpgsql AS $$
DECLARE
    s record;
    a perdure.answer;
    last perdure.entry;
    known perdure.submission;
    took record;
    drew record;
    decision perdure.decision;
    changed bigint;
    after_holder text;
    after_claims bigint;
BEGIN
    a.no := c.no;
    IF c.erased IS NOT NULL THEN
        PERFORM perdure.hold_tree(c.no);
    END IF;
    IF wait THEN
        SELECT t.root, t.version, t.fence, t.holder, t.claims, t.inbox_head, t.status, t.token INTO s
        FROM perdure.sessions AS t WHERE t.no = c.no FOR NO KEY UPDATE;
    ELSE
        SELECT t.root, t.version, t.fence, t.holder, t.claims, t.inbox_head, t.status, t.token INTO s
        FROM perdure.sessions AS t WHERE t.no = c.no FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM perdure.sessions AS t WHERE t.no = c.no) THEN
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
        SELECT FROM perdure.journal AS j WHERE j.root = s.root AND j.no = c.no AND j.seq = last.seq AND j.chain = last.chain
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
    IF c.claim IS NOT NULL AND s.holder IS NOT NULL AND NOT c.force AND perdure.alive(s.holder, moment) THEN
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
        FROM perdure.inbox AS i JOIN unnest(c.received) AS r ON i.submission_id = r.submission_id
        WHERE i.root = s.root AND i.no = c.no LIMIT 1;
        IF FOUND THEN
            a.submission := known;
            a.code := 'already';
            RETURN a;
        END IF;
    END IF;
    IF c.taken IS NOT NULL THEN
        SELECT t.taker, t.fresh INTO took FROM perdure.take_keys(c.no, c.taken) AS t;
        IF (took.taker).key IS NOT NULL THEN
            a.taker := took.taker;
            a.code := 'taken';
            RETURN a;
        END IF;
    END IF;
    IF c.draws IS NOT NULL OR (c.listing).status = 'halted' THEN
        SELECT p.code, p.stands INTO drew FROM perdure.from_pool(c.no, c.draws, (c.listing).status = 'halted', wait) AS p;
        IF drew.code IS NOT NULL THEN
            a.pool := drew.stands;
            a.code := drew.code;
            IF c.taken IS NOT NULL THEN
                DELETE FROM perdure.uniques AS u WHERE u.key = ANY (took.fresh);
            END IF;
            RETURN a;
        END IF;
    END IF;
    IF c.decided IS NOT NULL THEN
        FOREACH decision IN ARRAY c.decided LOOP
            IF decision.state IS NULL THEN
                DELETE FROM perdure.uniques AS u WHERE u.no = c.no AND u.operation = decision.operation;
            ELSE
                UPDATE perdure.uniques AS u SET state = decision.state, seq = decision.seq
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
        PERFORM perdure.keep(s.root, c.blobs);
    END IF;
    IF c.entries IS NOT NULL THEN
        PERFORM perdure.append(s.root, c.no, c.entries);
    END IF;
    IF c.received IS NOT NULL OR c.edited IS NOT NULL OR c.dropped IS NOT NULL OR c.consumed IS NOT NULL OR c.settled IS NOT NULL THEN
        PERFORM perdure.turn_over(s.root, c, s.inbox_head);
    END IF;
    IF c.redacted IS NOT NULL THEN
        UPDATE perdure.journal AS j SET body = NULL, salt = NULL WHERE j.root = s.root AND j.no = c.no AND j.seq = ANY (c.redacted);
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, cardinality(c.redacted), 'the journal');
    END IF;
    IF c.erased IS NOT NULL THEN
        PERFORM perdure.erase(s.root, c.erased);
    END IF;
    IF c.effects IS NOT NULL THEN
        INSERT INTO perdure.effects (root, no, effect_key, seq, state)
        SELECT s.root, c.no, e.effect_key, e.seq, e.state FROM unnest(c.effects) AS e
        ON CONFLICT (root, no, effect_key, seq) DO UPDATE SET state = excluded.state;
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM perdure.must(changed, cardinality(c.effects), 'the effects');
    END IF;
    IF (c.listing).status IS NULL THEN
        UPDATE perdure.sessions AS t
        SET version = a.version, fence = a.fence, holder = after_holder, claims = after_claims, inbox_head = a.inbox_head,
            token = c.token, checkpoint = CASE WHEN c.entries IS NULL THEN t.checkpoint ELSE c.checkpoint END
        WHERE t.no = c.no;
    ELSE
        UPDATE perdure.sessions AS t
        SET version = a.version, fence = a.fence, holder = after_holder, claims = after_claims, inbox_head = a.inbox_head,
            token = c.token, checkpoint = CASE WHEN c.entries IS NULL THEN t.checkpoint ELSE c.checkpoint END,
            status = (c.listing).status, wake_at = (c.listing).wake_at, title = (c.listing).title, folded = (c.listing).folded,
            labels = (c.listing).labels::jsonb, agent = (c.listing).agent, updated = greatest(t.updated, c.at)
        WHERE t.no = c.no;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> 1 THEN
        PERFORM perdure.must(changed, 1, 'the sessions');
    END IF;
    RETURN a;
END
$$;

-- A new session; NULL if another one of this id has just come.
CREATE FUNCTION perdure.begin_session(its_id text, b perdure.beginning) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO perdure.sessions (session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at,
        status, owner, title, folded, labels, created, updated, token, checkpoint)
    VALUES (its_id, b.root, b.parent, b.parent_kind, (b.listing).agent, b.entries[cardinality(b.entries)].seq, 0, NULL, 0, 0,
        (b.listing).wake_at, (b.listing).status, b.owner, (b.listing).title, (b.listing).folded, (b.listing).labels::jsonb, b.at, b.at,
        0, b.checkpoint)
    ON CONFLICT (session_id) DO NOTHING RETURNING no INTO made;
    IF made IS NULL THEN
        IF NOT EXISTS (SELECT FROM perdure.sessions AS t WHERE t.session_id = its_id) THEN
            PERFORM perdure.must(0, 1, 'the sessions');
        END IF;
        RETURN NULL;
    END IF;
    PERFORM perdure.append(b.root, made, b.entries);
    IF b.blobs IS NOT NULL THEN
        PERFORM perdure.keep(b.root, b.blobs);
    END IF;
    RETURN made;
END
$$;

-- One submission. Rows that somebody else has locked are answered `busy`, as in `commit_one`.
CREATE FUNCTION perdure.send_one(m perdure.send, moment bigint) RETURNS perdure.answer LANGUAGE plpgsql AS $$
DECLARE
    s record;
    above record;
    a perdure.answer;
    r perdure.submission;
    known perdure.submission;
    changed bigint;
    pending_limit CONSTANT bigint := 1024;
    urgent_limit CONSTANT bigint := 1152;
    urgent_kinds CONSTANT text[] := ARRAY['answer', 'interrupt', 'outcome', 'result', 'withdraw'];
BEGIN
    r := m.submission;
    a.created := false;
    SELECT t.no, t.root, t.status, t.owner, t.parent, t.inbox_head INTO s
    FROM perdure.sessions AS t WHERE t.session_id = m.session_id FOR NO KEY UPDATE SKIP LOCKED;
    IF s.no IS NULL THEN
        IF EXISTS (SELECT FROM perdure.sessions AS t WHERE t.session_id = m.session_id) THEN
            a.code := 'busy';
            RETURN a;
        END IF;
        IF (m.beginning).root IS NULL OR (m.owner IS NOT NULL AND m.owner <> (m.beginning).owner) THEN
            a.code := 'none';
            RETURN a;
        END IF;
        IF (m.beginning).parent IS NOT NULL THEN
            -- No deletion of it comes between.
            SELECT t.status INTO above FROM perdure.sessions AS t WHERE t.session_id = (m.beginning).parent FOR SHARE SKIP LOCKED;
            IF NOT FOUND AND EXISTS (SELECT FROM perdure.sessions AS t WHERE t.session_id = (m.beginning).parent) THEN
                a.code := 'busy';
                RETURN a;
            END IF;
            IF above.status IS NULL OR above.status = 'deleted' THEN
                a.code := CASE WHEN above.status IS NULL THEN 'none' ELSE 'deleted' END;
                RETURN a;
            END IF;
        END IF;
        a.no := perdure.begin_session(m.session_id, m.beginning);
        IF a.no IS NULL THEN
            a.code := 'busy';
            RETURN a;
        END IF;
        a.created := true;
        SELECT t.no, t.root, t.status, t.owner, t.parent, t.inbox_head INTO s FROM perdure.sessions AS t WHERE t.no = a.no;
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
    FROM perdure.inbox AS i WHERE i.root = s.root AND i.no = s.no AND i.submission_id = r.submission_id;
    IF FOUND THEN
        a.submission := known;
        a.code := CASE WHEN (a.submission).digest = r.digest THEN 'duplicate' ELSE 'conflict' END;
        RETURN a;
    END IF;
    IF s.status = 'archived' OR (s.status = 'halted' AND NOT m.patient) THEN
        a.code := s.status;
        RETURN a;
    END IF;
    SELECT count(*) INTO a.pending FROM perdure.inbox AS i WHERE i.root = s.root AND i.no = s.no AND i.consumed_seq IS NULL;
    IF a.pending >= (CASE WHEN r.kind = ANY (urgent_kinds) THEN urgent_limit ELSE pending_limit END) THEN
        a.code := 'full';
        RETURN a;
    END IF;
    a.code := 'done';
    a.inbox_head := s.inbox_head + 1;
    IF m.blobs IS NOT NULL THEN
        PERFORM perdure.keep(s.root, m.blobs);
    END IF;
    INSERT INTO perdure.inbox (root, no, submission_id, arrival, kind, at, not_before, actor, digest, body)
    VALUES (s.root, s.no, r.submission_id, a.inbox_head, r.kind, r.at, r.not_before, r.actor, r.digest, r.body);
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM perdure.must(changed, 1, 'the inbox');
    UPDATE perdure.sessions AS t
    SET inbox_head = a.inbox_head, updated = greatest(t.updated, r.at), status = CASE t.status WHEN 'idle' THEN 'queued' ELSE t.status END,
        wake_at = CASE WHEN t.status IN ('stuck', 'halted') OR (t.status = 'waiting' AND NOT m.urgent) THEN t.wake_at
            ELSE least(t.wake_at, coalesce(r.not_before, moment)) END
    WHERE t.no = s.no;
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM perdure.must(changed, 1, 'the sessions');
    RETURN a;
END
$$;

-- Many commits and submissions at once: one statement, one transaction, and one answer each, in the order in which they were put; for each
-- place `commit_here` says whether it is a commit. One alone has no savepoint.
-- After one that is to be tried again, the later ones of the same session are busy, so that none overtakes another.
CREATE FUNCTION perdure.write(commits perdure.commit[], sends perdure.send[], commit_here boolean[], given bigint, again boolean)
RETURNS SETOF perdure.answer LANGUAGE plpgsql AS $$
DECLARE
    c perdure.commit;
    m perdure.send;
    a perdure.answer;
    nothing perdure.answer;
    is_commit boolean;
    next_commit int := 0;
    next_send int := 0;
    alone boolean := cardinality(commit_here) = 1;
    busy_numbers bigint[] := '{}';
    busy_ids text[] := '{}';
    clock bigint := coalesce(given, perdure.now());
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
            a := perdure.commit_one(c, clock, false, again);
        ELSIF alone THEN
            a := perdure.send_one(m, clock);
        ELSIF is_commit AND c.no = ANY (busy_numbers) THEN
            a.code := 'busy';
        ELSIF NOT is_commit AND (m.session_id = ANY (busy_ids) OR (busy_numbers <> '{}' AND EXISTS (
            SELECT FROM perdure.sessions AS t WHERE t.session_id = m.session_id AND t.no = ANY (busy_numbers)
        ))) THEN
            a.code := 'busy';
        ELSE
            BEGIN
                IF is_commit THEN
                    a := perdure.commit_one(c, clock, false, again);
                ELSE
                    a := perdure.send_one(m, clock);
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
                busy_numbers := busy_numbers || ARRAY (SELECT t.no FROM perdure.sessions AS t WHERE t.session_id = m.session_id);
            END IF;
        END IF;
        a.moment := clock;
        RETURN NEXT a;
    END LOOP;
END
$$;

-- One commit that has a transaction of its own, and waits for the row.
CREATE FUNCTION perdure.commit_alone(c perdure.commit, given bigint, again boolean)
RETURNS SETOF perdure.answer LANGUAGE plpgsql AS $$
DECLARE
    a perdure.answer;
    clock bigint := coalesce(given, perdure.now());
BEGIN
    a := perdure.commit_one(c, clock, true, again);
    a.moment := clock;
    RETURN NEXT a;
END
$$;

-- A session without a submission; sent `again`, one that begins with the same entry is the one that was made.
CREATE FUNCTION perdure.create_session(
    its_id text, b perdure.beginning, parent_version bigint, again boolean, OUT code text, OUT no bigint
) LANGUAGE plpgsql AS $$
DECLARE
    known record;
    above record;
BEGIN
    FOR attempt IN 1..2 LOOP
        SELECT t.no, t.root, t.status INTO known FROM perdure.sessions AS t WHERE t.session_id = its_id FOR KEY SHARE;
        IF FOUND THEN
            no := known.no;
            code := CASE WHEN known.status = 'deleted' THEN 'deleted' WHEN again AND EXISTS (
                SELECT FROM perdure.journal AS j WHERE j.root = known.root AND j.no = known.no AND j.seq = 1 AND j.chain = b.entries[1].chain
            ) THEN 'there' ELSE 'taken' END;
            RETURN;
        END IF;
        IF b.parent IS NOT NULL THEN
            -- Neither a deletion of it comes between, nor a redaction.
            SELECT t.no, t.root, t.status INTO above FROM perdure.sessions AS t WHERE t.session_id = b.parent FOR SHARE;
            IF NOT FOUND OR above.status = 'deleted' THEN
                code := CASE WHEN above.status IS NULL THEN 'orphan' ELSE 'orphaned' END;
                RETURN;
            END IF;
            IF EXISTS (
                SELECT FROM perdure.journal AS j
                WHERE j.root = above.root AND j.no = above.no AND j.seq > parent_version AND j.kind = 'redacted'
            ) THEN
                code := 'redacted';
                RETURN;
            END IF;
        END IF;
        no := perdure.begin_session(its_id, b);
        code := 'done';
        IF no IS NOT NULL THEN
            RETURN;
        END IF;
    END LOOP;
    PERFORM perdure.must(0, 1, 'the sessions');
END
$$;

-- Become the holder outside a commit.
CREATE FUNCTION perdure.claim(
    its_token bigint, its_no bigint, runner text, force boolean, given bigint,
    OUT code text, OUT version bigint, OUT fence bigint, OUT inbox_head bigint, OUT holder text
) LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    SELECT t.version, t.fence, t.inbox_head, t.holder, t.claims, t.status, t.token INTO s
    FROM perdure.sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        code := 'none';
        RETURN;
    END IF;
    version := s.version;
    fence := s.fence;
    inbox_head := s.inbox_head;
    holder := s.holder;
    code := CASE WHEN s.status = 'deleted' THEN 'deleted' WHEN s.token = its_token THEN 'there'
        WHEN s.holder IS NOT NULL AND NOT force AND perdure.alive(s.holder, coalesce(given, perdure.now())) THEN 'held' ELSE 'done' END;
    IF code <> 'done' THEN
        RETURN;
    END IF;
    fence := s.fence + 1;
    holder := runner;
    UPDATE perdure.sessions AS t SET holder = runner, fence = s.fence + 1, claims = s.claims + (s.holder IS NOT NULL)::int, token = its_token
    WHERE t.no = its_no;
    IF NOT FOUND THEN
        PERFORM perdure.must(0, 1, 'the sessions');
    END IF;
END
$$;

-- Let a held session go, unless something arrived that whoever holds it doesn't know.
CREATE FUNCTION perdure.release(
    its_token bigint, its_no bigint, runner text, its_fence bigint, l perdure.listing, its_head bigint, its_at bigint,
    OUT code text, OUT version bigint, OUT fence bigint, OUT inbox_head bigint, OUT holder text
) LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    SELECT t.version, t.fence, t.inbox_head, t.holder, t.token INTO s FROM perdure.sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
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
    UPDATE perdure.sessions AS t
    SET holder = NULL, token = its_token, status = l.status, wake_at = l.wake_at, title = l.title, folded = l.folded,
        labels = l.labels::jsonb, agent = l.agent, updated = greatest(t.updated, its_at)
    WHERE t.no = its_no;
    IF NOT FOUND THEN
        PERFORM perdure.must(0, 1, 'the sessions');
    END IF;
END
$$;

-- Register or renew a runner; returns when its lease ends. A new one clears away those that have long been dead and hold nothing.
CREATE FUNCTION perdure.heartbeat(
    its_id text, its_host text, its_pid bigint, its_start bigint, its_agents text, its_refused text, lease bigint, forgotten_after bigint,
    given bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := coalesce(given, perdure.now());
    ends bigint;
BEGIN
    -- A text that is put in the place of an equal one is written anew; one that stays in its place is not.
    UPDATE perdure.runners AS r SET host = its_host, pid = its_pid, agents = its_agents, expires = moment + lease,
        refused = CASE WHEN r.refused = its_refused THEN r.refused ELSE its_refused END
    WHERE r.id = its_id RETURNING r.expires INTO ends;
    IF ends IS NULL THEN
        DELETE FROM perdure.runners AS r
        WHERE r.expires < moment - forgotten_after AND NOT EXISTS (SELECT FROM perdure.sessions AS t WHERE t.holder = r.id);
        INSERT INTO perdure.runners AS r (id, host, pid, started, expires, agents, refused)
        VALUES (its_id, its_host, its_pid, its_start, moment + lease, its_agents, its_refused)
        ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, agents = excluded.agents, refused = excluded.refused,
            expires = excluded.expires
        RETURNING r.expires INTO ends;
    END IF;
    IF ends IS NULL THEN
        PERFORM perdure.must(0, 1, 'the runners');
    END IF;
    RETURN ends;
END
$$;

-- Content ahead of the commit that refers to it.
CREATE FUNCTION perdure.put_blobs(its_root text, blobs perdure.blob[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- Locked, so that who deletes the last session of the tree comes before or after.
    PERFORM FROM perdure.sessions AS t WHERE t.root = its_root AND t.status <> 'deleted' LIMIT 1 FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM perdure.keep(its_root, blobs);
    RETURN true;
END
$$;

-- Move a consumer forward, never back; returns where it stands, and 0 where there is no session.
CREATE FUNCTION perdure.ack(its_no bigint, its_consumer text, its_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    s record;
    stands bigint;
BEGIN
    SELECT t.root, t.status INTO s FROM perdure.sessions AS t WHERE t.no = its_no FOR KEY SHARE;
    IF NOT FOUND OR s.status = 'deleted' THEN
        RETURN 0;
    END IF;
    INSERT INTO perdure.cursors AS k (root, no, consumer, seq) VALUES (s.root, its_no, its_consumer, its_seq)
    ON CONFLICT (root, no, consumer) DO UPDATE SET seq = greatest(k.seq, excluded.seq) RETURNING k.seq INTO stands;
    IF stands IS NULL THEN
        PERFORM perdure.must(0, 1, 'the cursors');
    END IF;
    RETURN stands;
END
$$;

-- What whoever takes up a session asks for stands in functions, too: making a plan for it would cost several times what it takes.

-- A session's row, the chain behind its last entry and that entry's number, whether its holder lives, the time, and its owner's pool.
CREATE FUNCTION perdure.load(its_id text, hidden boolean, given bigint) RETURNS TABLE (
    no bigint, session_id text, root text, parent text, parent_kind text, agent text, version bigint, fence bigint, holder text,
    claims bigint, inbox_head bigint, wake_at bigint, status text, owner text, title text, labels text, created bigint, updated bigint,
    checkpoint bytea, chain bytea, number bigint, alive boolean, moment bigint, pool perdure.pool
) LANGUAGE plpgsql STABLE ROWS 1 AS $$
DECLARE
    clock bigint := coalesce(given, perdure.now());
BEGIN
    RETURN QUERY SELECT s.no, s.session_id, s.root, s.parent, s.parent_kind, s.agent, s.version, s.fence, s.holder, s.claims, s.inbox_head,
        s.wake_at, s.status, s.owner, s.title, s.labels::text, s.created, s.updated, s.checkpoint, last.chain, last.number,
        s.holder IS NOT NULL AND EXISTS (SELECT FROM perdure.runners AS r WHERE r.id = s.holder AND r.expires > clock), clock,
        (SELECT ROW(p.id, p.limits::text, p.drawn)::perdure.pool FROM perdure.pools AS p WHERE p.owner = s.owner AND s.owner <> '')
    FROM perdure.sessions AS s
    -- The limit keeps it one look into the index, whatever the planner thinks of the tables.
    LEFT JOIN LATERAL (SELECT j.chain, j.number FROM perdure.journal AS j WHERE j.root = s.root AND j.no = s.no AND j.seq = s.version LIMIT 1)
        AS last ON true
    WHERE s.session_id = its_id AND (hidden OR s.status <> 'deleted');
END
$$;

-- What nobody consumed, by arrival.
CREATE FUNCTION perdure.waiting(its_no bigint) RETURNS SETOF perdure.submission LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT i.submission_id, i.arrival, i.kind, i.at, i.not_before, i.actor, i.digest, i.body, i.consumed_seq, i.settled_seq
    FROM perdure.inbox AS i
    WHERE i.root = (SELECT t.root FROM perdure.sessions AS t WHERE t.no = its_no) AND i.no = its_no AND i.consumed_seq IS NULL
    ORDER BY i.arrival;
END
$$;

-- Facts in their order, of these kinds or of any.
CREATE FUNCTION perdure.entries(its_no bigint, after bigint, before bigint, most bigint, kinds text[]) RETURNS SETOF perdure.entry
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT j.seq, j.number, j.kind, j.at, j.salt, j.body_digest, j.body, j.chain FROM perdure.journal AS j
    WHERE j.root = (SELECT t.root FROM perdure.sessions AS t WHERE t.no = its_no) AND j.no = its_no AND j.seq > after AND j.seq < before
        AND (kinds IS NULL OR j.kind = ANY (kinds))
    ORDER BY j.seq LIMIT most;
END
$$;

-- Effects whose key lies in [low, high), by age.
CREATE FUNCTION perdure.effects_of(its_no bigint, low bytea, high bytea, wanted text, after bigint) RETURNS SETOF perdure.effect
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT e.effect_key, e.seq, e.state FROM perdure.effects AS e
    WHERE e.root = (SELECT t.root FROM perdure.sessions AS t WHERE t.no = its_no) AND e.no = its_no AND e.effect_key >= low
        AND (high IS NULL OR e.effect_key < high) AND (wanted IS NULL OR e.state = wanted) AND e.seq > after
    ORDER BY e.seq, e.effect_key;
END
$$;

-- The first entry up to and with which there are so many messages: a search over the key.
CREATE FUNCTION perdure.seek(its_no bigint, wanted bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    s record;
    low bigint := 1;
    high bigint;
    middle bigint;
    found_number bigint;
    there bigint;
BEGIN
    SELECT t.root, t.status INTO s FROM perdure.sessions AS t WHERE t.no = its_no;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT j.seq, j.number INTO high, there FROM perdure.journal AS j WHERE j.root = s.root AND j.no = its_no ORDER BY j.seq DESC LIMIT 1;
    IF NOT FOUND OR there < wanted THEN
        RETURN NULL;
    END IF;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT j.number INTO found_number FROM perdure.journal AS j WHERE j.root = s.root AND j.no = its_no AND j.seq = middle;
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

-- Destroy a session's content, but for what its forks still read; what is left is a tombstone. The fence shuts its holder out.
-- False: its tree has others than the `tree` sessions that were looked at. NULL: there is no such session.
CREATE FUNCTION perdure.bury(its_no bigint, keep bigint, receipts bigint[], erased text[], tree bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    SELECT t.root, t.status INTO s FROM perdure.sessions AS t WHERE t.no = its_no FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF tree <> (SELECT count(*) FROM perdure.sessions AS t WHERE t.root = s.root) THEN
        RETURN false;
    END IF;
    IF s.status <> 'deleted' THEN
        UPDATE perdure.sessions AS t
        SET status = 'deleted', holder = NULL, fence = t.fence + 1, wake_at = NULL, title = '', folded = '', labels = '{}', checkpoint = ''
        WHERE t.no = its_no;
        IF NOT FOUND THEN
            PERFORM perdure.must(0, 1, 'the sessions');
        END IF;
    END IF;
    DELETE FROM perdure.journal AS j
    WHERE j.root = s.root AND j.no = its_no AND j.seq > keep AND (keep = 0 OR j.kind <> 'redacted') AND j.seq <> ALL (receipts);
    UPDATE perdure.inbox AS i SET body = NULL, consumed_seq = coalesce(i.consumed_seq, 0)
    WHERE i.root = s.root AND i.no = its_no AND (i.body IS NOT NULL OR i.consumed_seq IS NULL);
    DELETE FROM perdure.effects AS e WHERE e.root = s.root AND e.no = its_no AND e.seq > keep AND e.seq <> ALL (receipts);
    DELETE FROM perdure.cursors AS k WHERE k.root = s.root AND k.no = its_no;
    UPDATE perdure.uniques AS u SET state = 'uncertain' WHERE u.no = its_no AND u.state = 'pending';
    PERFORM perdure.erase(s.root, erased);
    DELETE FROM perdure.blobs AS b
    WHERE b.root = s.root AND NOT EXISTS (SELECT FROM perdure.sessions AS t WHERE t.root = s.root AND t.status <> 'deleted');
    IF EXISTS (
            SELECT FROM perdure.journal AS j
            WHERE j.root = s.root AND j.no = its_no AND j.seq > keep AND (keep = 0 OR j.kind <> 'redacted') AND j.seq <> ALL (receipts)
        )
        OR EXISTS (SELECT FROM perdure.inbox AS i WHERE i.root = s.root AND i.no = its_no AND i.body IS NOT NULL)
        OR EXISTS (
            SELECT FROM perdure.effects AS e WHERE e.root = s.root AND e.no = its_no AND e.seq > keep AND e.seq <> ALL (receipts)
        )
        OR EXISTS (SELECT FROM perdure.cursors AS k WHERE k.root = s.root AND k.no = its_no) THEN
        RAISE EXCEPTION 'the database kept rows of a deleted session' USING ERRCODE = 'PD002';
    END IF;
    -- Last, since whatever came behind it would keep all of the owner's sessions from drawing.
    PERFORM perdure.from_pool(its_no, NULL, true, true);
    RETURN true;
END
$$;

-- A user's function may have what was put off until the end done at once, but may not end the transaction. What the first does puts this
-- off again, until a later statement; at the end, there is none.
CREATE FUNCTION perdure.stays_open() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SET CONSTRAINTS perdure.stays_open DEFERRED;
    UPDATE perdure.lent SET asked = statement_timestamp() WHERE transaction = pg_current_xact_id();
    IF FOUND AND NEW.asked = statement_timestamp() THEN
        RAISE EXCEPTION 'a function that works in a commit may not end its transaction' USING ERRCODE = 'PD004';
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER stays_open AFTER INSERT OR UPDATE ON perdure.lent DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION perdure.stays_open();
