-- Every statement that runs against a store after it was made. Python names them and binds values; it never builds one.
-- `perdure` is the schema's name here; another one takes its place when the file is read.

-- name: write
-- Many commits and submissions, one answer each.
SELECT * FROM perdure.write($1::perdure.commit[], $2::perdure.send[], $3::boolean[], $4::bigint, $5::boolean);

-- name: commit_alone
-- One commit in a transaction of its own.
SELECT * FROM perdure.commit_alone($1::perdure.commit, $2::bigint, $3::boolean);

-- name: compare
-- What is changed from here on is changed only to see whether it may be.
SAVEPOINT compare;

-- name: compare_done
-- Nothing was.
RELEASE SAVEPOINT compare;

-- name: compare_undo
-- It may, later.
ROLLBACK TO SAVEPOINT compare;

-- name: within
-- A user's statements begin, and can't end the transaction.
INSERT INTO perdure.lent (transaction) VALUES (pg_current_xact_id());
SAVEPOINT within;

-- name: within_ended
-- We can.
DELETE FROM perdure.lent WHERE transaction = pg_current_xact_id() RETURNING true;

-- name: within_done
-- They are part of the commit.
RELEASE SAVEPOINT within;

-- name: within_undo
-- They are not.
ROLLBACK TO SAVEPOINT within;

-- name: within_untimed
-- How long what follows may take is not theirs to say.
SET LOCAL statement_timeout = 0;

-- name: within_over
-- Nothing of theirs is put off to the end, or set any longer.
SET CONSTRAINTS ALL IMMEDIATE;
RESET SESSION AUTHORIZATION;
RESET ROLE;
RESET ALL;

-- name: traces
-- Which transaction this is, and what it did to the store's tables: how many there are, rows that were written, and locks beyond those
-- of whoever reads. From now on a statement of it, or a rest, may take no longer than $3 (ms), if that is given.
WITH ours AS MATERIALIZED (
    SELECT c.oid, c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[]) AND c.relkind IN ('r', 'p')
)
SELECT pg_current_xact_id()::text,
    (SELECT count(*) FROM ours),
    (
        SELECT coalesce(sum(
            pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)
        ), 0)::bigint FROM ours
    ),
    (
        SELECT count(*) FROM pg_catalog.pg_locks AS l JOIN ours AS o ON o.oid = l.relation
        WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid()
            AND (o.relname = 'meta' OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
    ),
    CASE WHEN $3::text IS NOT NULL THEN set_config('statement_timeout', $3::text, true) END,
    CASE WHEN $3::text IS NOT NULL THEN set_config('idle_in_transaction_session_timeout', $3::text, true) END;

-- name: begin
-- A transaction that somebody else's statements share.
BEGIN;

-- name: commit
-- Make it durable.
COMMIT;

-- name: rollback
-- Forget it.
ROLLBACK;

-- name: transaction
-- Which transaction this is.
SELECT pg_current_xact_id()::text;

-- name: create
-- A session without a submission.
SELECT code, no FROM perdure.create_session($1::text, $2::perdure.beginning, $3::bigint, $4::boolean);

-- name: claim
-- Become the holder.
SELECT code, version, fence, inbox_head, holder FROM perdure.claim($1::bigint, $2::bigint, $3::text, $4::boolean, $5::bigint);

-- name: release
-- Let a session go.
SELECT code, version, fence, inbox_head, holder
FROM perdure.release($1::bigint, $2::bigint, $3::text, $4::bigint, $5::perdure.listing, $6::bigint, $7::bigint);

-- name: heartbeat
-- Register or renew a runner.
SELECT perdure.heartbeat($1::text, $2::text, $3::bigint, $4::bigint, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint);

-- name: retire
-- A runner goes.
DELETE FROM perdure.runners WHERE id = $1::text;

-- name: retired
-- Whether it is gone.
SELECT NOT EXISTS (SELECT FROM perdure.runners WHERE id = $1::text);

-- name: runners_end
-- These runners' process ends before their leases.
UPDATE perdure.runners SET expires = least(expires, coalesce($2::bigint, perdure.now())) WHERE id = ANY ($1::text[]);

-- name: put_blob
-- Content ahead of its commit.
SELECT perdure.put_blobs($1::text, ARRAY[$2::perdure.blob]);

-- name: ack
-- Move a consumer forward.
SELECT perdure.ack($1::bigint, $2::text, $3::bigint);

-- name: forget
-- A consumer goes.
DELETE FROM perdure.cursors WHERE consumer = $1::text;

-- name: free
-- What a session took that was deleted can be taken by others.
WITH freed AS (
    DELETE FROM perdure.uniques WHERE no = $1::bigint
        AND EXISTS (SELECT FROM perdure.sessions AS s WHERE s.no = $1::bigint AND s.status = 'deleted')
    RETURNING 1
)
SELECT count(*) FROM freed;

-- name: forgotten
-- Whether nothing of a consumer is left.
SELECT NOT EXISTS (SELECT FROM perdure.cursors WHERE consumer = $1::text);

-- name: bury_lock
-- What it would wait for.
SELECT FROM perdure.sessions WHERE no = $1::bigint FOR NO KEY UPDATE;

-- name: hold_tree
-- The same, where content goes that others of its tree may be about to refer to.
SELECT perdure.hold_tree($1::bigint);

-- name: bury
-- Destroy a session's content.
SELECT perdure.bury($1::bigint, $2::bigint, $3::bigint[], $4::text[], $5::bigint);

-- name: mark
-- A transaction that is younger than all that was committed before.
SELECT pg_current_xact_id()::xid::text;

-- name: older
-- Whether anybody in this database may still see what was there before that one.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND greatest(age(backend_xmin), age(backend_xid)) > age($1::text::xid)
);

-- name: vacuum
-- Write the tables anew, without what was deleted.
VACUUM (FULL) perdure.sessions, perdure.journal, perdure.inbox, perdure.effects, perdure.blobs, perdure.cursors, perdure.runners,
    perdure.uniques, perdure.pools, perdure.shares;

-- name: adopt
-- A session's row as it was elsewhere.
INSERT INTO perdure.sessions (session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status,
    owner, title, folded, labels, created, updated, token, checkpoint)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::bigint, NULL, $8::bigint, $9::bigint, $10::bigint, $11::text,
    $12::text, $13::text, $14::text, $15::text::jsonb, $16::bigint, $17::bigint, $19::bigint, $18::bytea)
ON CONFLICT (session_id) DO NOTHING RETURNING no;

-- name: adopted
-- The session that has an id, and whether it is the one that was taken over.
SELECT no, status, token = $2::bigint FROM perdure.sessions WHERE session_id = $1::text;

-- name: adopt_entries
-- Its facts.
SELECT perdure.append($1::text, $2::bigint, $3::perdure.entry[]);

-- name: adopt_submissions
-- Its submissions.
INSERT INTO perdure.inbox (root, no, submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq)
SELECT $1::text, $2::bigint, r.submission_id, r.arrival, r.kind, r.at, r.not_before, r.actor, r.digest, r.body, r.consumed_seq, r.settled_seq
FROM unnest($3::perdure.submission[]) AS r;

-- name: adopt_effects
-- Its effects.
INSERT INTO perdure.effects (root, no, effect_key, seq, state)
SELECT $1::text, $2::bigint, e.effect_key, e.seq, e.state FROM unnest($3::perdure.effect[]) AS e;

-- name: unique_take
-- An operation takes a key; one that another transaction is taking is waited for.
INSERT INTO perdure.uniques (key, no, operation, state, seq) VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::bigint)
ON CONFLICT (key) DO NOTHING;

-- name: unique_one
-- Who took a key.
SELECT u.key, u.operation, u.state, u.seq, u.no, s.session_id, s.status = 'deleted'
FROM perdure.uniques AS u JOIN perdure.sessions AS s USING (no) WHERE u.key = $1::text;

-- name: uniques
-- What a session's operations took.
SELECT u.key, u.operation, u.state, u.seq, u.no, s.session_id, s.status = 'deleted'
FROM perdure.uniques AS u JOIN perdure.sessions AS s USING (no) WHERE u.no = $1::bigint ORDER BY u.operation, u.key;

-- name: pool_get
-- An owner's pool.
SELECT id, limits::text, drawn FROM perdure.pools WHERE owner = $1::text;

-- name: pool_lock
-- An owner's pool, for whoever draws from it or changes it next.
SELECT id, limits::text, drawn FROM perdure.pools WHERE owner = $1::text FOR UPDATE;

-- name: pool_maker
-- One maker of an owner's pool at a time, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('perdure pools'), hashtext($1::text));

-- name: pools
-- Owners' pools in the order of their names.
SELECT owner, id, limits::text, drawn FROM perdure.pools WHERE owner > $1::text ORDER BY owner LIMIT $2::bigint;

-- name: pool_put
-- Write an owner's pool.
INSERT INTO perdure.pools (owner, id, limits, drawn) VALUES ($1::text, $2::text, $3::text::jsonb, $4::perdure.amounts)
ON CONFLICT (owner) DO UPDATE SET id = excluded.id, limits = excluded.limits, drawn = excluded.drawn RETURNING true;

-- name: pool_remove
-- An owner has no pool any more.
DELETE FROM perdure.pools WHERE owner = $1::text RETURNING true;

-- name: share_get
-- What a session holds of its owner's pool.
SELECT owner, pool, drawn, used FROM perdure.shares WHERE no = $1::bigint;

-- name: adopt_blobs
-- Its content.
SELECT perdure.keep($1::text, $2::perdure.blob[]);

-- name: load
-- A session's row, and what goes with it.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title, labels,
    created, updated, checkpoint, chain, number, alive, moment, pool
FROM perdure.load($1::text, $2::boolean, $3::bigint);

-- name: buried
-- Whether a session was deleted.
SELECT EXISTS (SELECT FROM perdure.sessions WHERE session_id = $1::text AND status = 'deleted');

-- name: tree
-- The sessions of a tree.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    labels::text, created, updated, checkpoint
FROM perdure.sessions WHERE root = $1::text ORDER BY no;

-- name: heads
-- Sessions by number, deleted or not.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    labels::text, created, updated, checkpoint
FROM perdure.sessions WHERE no > $1::bigint ORDER BY no LIMIT $2::bigint;

-- name: strays
-- Numbers that rows are of, and that no session has.
SELECT no FROM (
    SELECT no FROM perdure.journal UNION SELECT no FROM perdure.inbox UNION SELECT no FROM perdure.effects
) AS named
WHERE NOT EXISTS (SELECT FROM perdure.sessions AS s WHERE s.no = named.no)
ORDER BY no LIMIT $1::bigint;

-- name: runners
-- All runners, and whether their leases run.
SELECT id, host, pid, started, expires, agents, refused, expires > coalesce($1::bigint, perdure.now()) FROM perdure.runners ORDER BY id;

-- name: runnable
-- Sessions of dead holders, then free ones that are due, oldest first. The moment is taken once, so that an index can be asked for it.
WITH clock AS MATERIALIZED (SELECT coalesce($1::bigint, perdure.now()) AS moment)
SELECT session_id FROM (
    (
        SELECT session_id, wake_at AS due, no, holder FROM perdure.sessions
        WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at <= (SELECT moment FROM clock) AND NOT $4::boolean
            AND ($2::text[] IS NULL OR agent = ANY ($2::text[]))
        ORDER BY wake_at, no LIMIT $3::bigint
    )
    UNION ALL
    (
        SELECT session_id, coalesce(wake_at, updated) AS due, no, holder FROM perdure.sessions AS s
        WHERE holder IS NOT NULL AND ($2::text[] IS NULL OR agent = ANY ($2::text[]))
            AND NOT EXISTS (SELECT FROM perdure.runners AS r WHERE r.id = s.holder AND r.expires > (SELECT moment FROM clock))
        ORDER BY due, no LIMIT $3::bigint
    )
) AS waiting
ORDER BY holder IS NULL, due, no LIMIT $3::bigint;

-- name: figures
-- How the sessions are, counted up to a limit; whatever is stored, it reads no more than that. The orders make it use the indexes.
WITH clock AS MATERIALIZED (SELECT coalesce($1::bigint, perdure.now()) AS moment)
SELECT moment,
    (SELECT count(*) FROM (
        SELECT FROM perdure.sessions WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at <= (SELECT moment FROM clock) LIMIT $2::bigint
    ) AS due),
    (SELECT min(wake_at) FROM perdure.sessions WHERE holder IS NULL AND wake_at IS NOT NULL),
    (SELECT count(*) FROM (
        SELECT FROM perdure.sessions AS s
        WHERE holder IS NOT NULL
            AND NOT EXISTS (SELECT FROM perdure.runners AS r WHERE r.id = s.holder AND r.expires > (SELECT moment FROM clock))
        LIMIT $2::bigint
    ) AS held),
    pending.rows, pending.since,
    (SELECT count(*) FROM (SELECT FROM perdure.effects WHERE state = 'uncertain' ORDER BY no LIMIT $2::bigint) AS uncertain)
FROM clock CROSS JOIN (
    SELECT count(*) AS rows, min(coalesce(not_before, at)) AS since
    FROM (
        SELECT not_before, at FROM perdure.inbox WHERE consumed_seq IS NULL ORDER BY root, no, arrival LIMIT $2::bigint
    ) AS waiting
) AS pending;

-- name: figures_working
-- How many sessions are worked on or wait for it, among those that somebody holds and those that are due first.
SELECT status, count(*) FROM (
    (SELECT status FROM perdure.sessions WHERE holder IS NOT NULL LIMIT $1::bigint)
    UNION ALL
    (SELECT status FROM perdure.sessions WHERE holder IS NULL AND wake_at IS NOT NULL ORDER BY wake_at LIMIT $1::bigint)
) AS looked
WHERE status IN ('queued', 'running') GROUP BY status;

-- name: figures_parked
-- How many sessions have each of the statuses in which nobody works.
SELECT status, (SELECT count(*) FROM (
    SELECT FROM perdure.sessions AS s
    WHERE s.status = wanted.status AND s.status IN ('halted', 'stuck', 'waiting') LIMIT $2::bigint
) AS found)
FROM unnest($1::text[]) AS wanted (status);

-- name: next_wake
-- When the next session that nobody holds is due.
SELECT min(wake_at) FROM perdure.sessions WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at > $1::bigint;

-- name: inbox_waiting
-- What nobody consumed, by arrival.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq FROM perdure.waiting($1::bigint);

-- name: inbox_one
-- One submission.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq FROM perdure.inbox
WHERE root = (SELECT root FROM perdure.sessions WHERE no = $1::bigint) AND no = $1::bigint AND submission_id = $2::text;

-- name: inbox_page
-- Submissions by id, consumed or not.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq FROM perdure.inbox
WHERE root = (SELECT root FROM perdure.sessions WHERE no = $1::bigint) AND no = $1::bigint AND submission_id > $2::text
ORDER BY submission_id LIMIT $3::bigint;

-- name: entries
-- Facts in their order.
SELECT seq, number, kind, at, salt, body_digest, body, chain
FROM perdure.entries($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::text[]);

-- name: entries_newest_first
-- Facts, the last one first.
SELECT seq, number, kind, at, salt, body_digest, body, chain FROM perdure.journal
WHERE root = (SELECT root FROM perdure.sessions WHERE no = $1::bigint) AND no = $1::bigint AND seq > $2::bigint AND seq < $3::bigint
    AND ($5::text[] IS NULL OR kind = ANY ($5::text[]))
ORDER BY seq DESC LIMIT $4::bigint;

-- name: seek
-- For each number the first entry with so many messages up to it.
SELECT perdure.seek($1::bigint, w.number) FROM unnest($2::bigint[]) WITH ORDINALITY AS w (number, place) ORDER BY w.place;

-- name: effects
-- Effects whose key lies in [low, high), by age.
SELECT effect_key, seq, state FROM perdure.effects_of($1::bigint, $2::bytea, $3::bytea, $4::text, $5::bigint);

-- name: sessions_updated
-- A page of the list, newest change first.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    labels::text, created, updated, checkpoint
FROM perdure.sessions
WHERE (updated, no) < ($11::bigint, $1::bigint) AND updated >= $2::bigint AND updated < $3::bigint
    AND ($4::text IS NULL OR owner = $4::text)
    AND ($5::text IS NULL OR agent = $5::text)
    AND ($12::boolean OR parent_kind IS DISTINCT FROM 'child')
    AND CASE WHEN $7::text[] IS NULL THEN status <> 'deleted' AND ($6::boolean OR status <> 'archived') ELSE status = ANY ($7::text[]) END
    AND ($8::text[] IS NULL OR folded LIKE ALL ($8::text[]))
    AND ($9::text IS NULL OR labels @> $9::text::jsonb)
ORDER BY updated DESC, no DESC LIMIT $10::bigint;

-- name: sessions_created
-- A page of the list, the latest made first.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    labels::text, created, updated, checkpoint
FROM perdure.sessions
WHERE no < $1::bigint AND updated >= $2::bigint AND updated < $3::bigint
    AND ($4::text IS NULL OR owner = $4::text)
    AND ($5::text IS NULL OR agent = $5::text)
    AND ($11::boolean OR parent_kind IS DISTINCT FROM 'child')
    AND CASE WHEN $7::text[] IS NULL THEN status <> 'deleted' AND ($6::boolean OR status <> 'archived') ELSE status = ANY ($7::text[]) END
    AND ($8::text[] IS NULL OR folded LIKE ALL ($8::text[]))
    AND ($9::text IS NULL OR labels @> $9::text::jsonb)
ORDER BY no DESC LIMIT $10::bigint;

-- name: blob_get
-- Content by digest.
SELECT digest, media_type, data, size FROM perdure.blobs WHERE root = $1::text AND digest = $2::text;

-- name: blobs_outside
-- Which of these stand outside of the database.
SELECT DISTINCT digest FROM perdure.blobs WHERE data IS NULL AND digest = ANY ($1::text[]);

-- name: blobs
-- What a tree holds.
SELECT digest FROM perdure.blobs WHERE root = $1::text ORDER BY digest;

-- name: cursor_get
-- Where a consumer stands.
SELECT seq FROM perdure.cursors
WHERE root = (SELECT root FROM perdure.sessions WHERE no = $1::bigint) AND no = $1::bigint AND consumer = $2::text;

-- name: cursors
-- All consumers of a session.
SELECT consumer, seq FROM perdure.cursors
WHERE root = (SELECT root FROM perdure.sessions WHERE no = $1::bigint) AND no = $1::bigint ORDER BY consumer;

-- name: news
-- Sessions with entries that a consumer has not acknowledged.
SELECT s.no, s.session_id, s.version, coalesce(k.seq, 0)
FROM perdure.sessions AS s LEFT JOIN perdure.cursors AS k ON k.root = s.root AND k.no = s.no AND k.consumer = $1::text
WHERE s.no > $2::bigint AND s.no <= $3::bigint AND s.version > coalesce(k.seq, 0) AND s.status <> 'deleted'
ORDER BY s.no LIMIT $4::bigint;

-- name: listen
-- Hear what other processes announce.
LISTEN "perdure.";

-- name: announce
-- Tell other processes which sessions changed; nobody waits for a disk. A lost notice costs a poll.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text);

-- name: meta_first
-- Write a fact about the store, unless it is known.
INSERT INTO perdure.meta (key, value) VALUES ($1::text, $2::bytea) ON CONFLICT (key) DO NOTHING;

-- name: snapshot
-- Changes whenever anybody committed anything.
SELECT pg_current_snapshot()::text;

-- name: moment
-- The store's time.
SELECT perdure.now();

-- name: meta
-- The facts about the store.
SELECT key, value FROM perdure.meta;

-- name: meta_put
-- Write a fact about the store.
INSERT INTO perdure.meta (key, value) VALUES ($1::text, $2::bytea) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: maker
-- One maker or mender of a schema at a time, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('perdure'), hashtext($1::text));

-- name: schema_there
-- Whether there is a schema of this name.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text);

-- name: schema_make
-- A place of its own.
CREATE SCHEMA perdure;

-- name: found
-- What is in the schema: tables and types with their columns, indexes by what they are of (a partitioned table's have other names), functions.
WITH tables AS (
    SELECT c.oid, c.relname::text AS name FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p', 'c', 'v', 'm') AND NOT c.relispartition
)
SELECT t.name FROM tables AS t
UNION ALL
SELECT t.name || '.' || a.attname FROM tables AS t JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.oid
WHERE a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT CASE WHEN i.indisunique THEN 'unique ' ELSE '' END || t.name || ' ('
    || (SELECT string_agg(a.attname::text, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = i.indexrelid) || ')'
FROM tables AS t JOIN pg_catalog.pg_index AS i ON i.indrelid = t.oid WHERE i.indisvalid
UNION ALL
SELECT f.proname::text || '()' FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
WHERE n.nspname = $1::text;

-- name: types
-- The numbers of the schema's types and of arrays of them.
SELECT t.typname::text, t.oid::bigint, t.typarray::bigint FROM pg_catalog.pg_type AS t
JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE n.nspname = $1::text AND t.typtype = 'c';

-- name: rights
-- Whether this server, this session and this role let us write; and what they let us use.
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
    coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text), true),
    coalesce((
        SELECT bool_and(has_table_privilege(c.oid, 'SELECT')) FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p')
    ), true),
    coalesce((
        SELECT bool_and(has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p') AND c.relname <> 'meta'
    ), true);
