-- Every statement that runs against a store after it was made. Python names them and binds values; it never builds one.

-- name: begin
-- A write transaction, from its first statement on.
BEGIN IMMEDIATE;

-- name: commit
-- Make the batch durable.
COMMIT;

-- name: rollback
-- Forget the batch.
ROLLBACK;

-- name: member
-- One write of the batch begins.
SAVEPOINT member;

-- name: member_done
-- It is part of the batch.
RELEASE member;

-- name: member_undo
-- It is not.
ROLLBACK TO member;

-- name: within
-- A user's statements begin.
SAVEPOINT within;

-- name: within_done
-- They are part of the write.
RELEASE within;

-- name: within_undo
-- They are not.
ROLLBACK TO within;

-- name: data_version
-- Changes whenever another connection committed.
PRAGMA data_version;

-- name: truncate_log
-- Move the write-ahead log into the file and cut it to nothing, so that it keeps no deleted content.
PRAGMA wal_checkpoint(TRUNCATE);

-- name: layout
-- The columns of all tables, and the indexes by their names.
SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'
UNION ALL SELECT name FROM sqlite_schema WHERE type = 'index';

-- name: meta_get
-- A fact about the store.
SELECT value FROM meta WHERE key = :key;

-- name: meta_put
-- Write a fact about a new store.
INSERT INTO meta (key, value) VALUES (:key, :value);

-- name: meta_first
-- Write a fact about the store, unless it is known.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: head
-- What a write is compared with.
SELECT root, version, fence, holder, claims, inbox_head, status FROM sessions WHERE no = ?;

-- name: session_by_id
-- A whole session row by its public id.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    CAST(labels AS BLOB), created, updated, checkpoint
FROM sessions WHERE session_id = :session_id;

-- name: load
-- A session's row, the chain behind its last entry, and that entry's number.
SELECT s.no, s.session_id, s.root, s.parent, s.parent_kind, s.agent, s.version, s.fence, s.holder, s.claims, s.inbox_head, s.wake_at,
    s.status, s.owner, s.title, CAST(s.labels AS BLOB), s.created, s.updated, s.checkpoint, j.chain, j.number
FROM sessions AS s LEFT JOIN journal AS j ON j.no = s.no AND j.seq = s.version
WHERE s.session_id = :session_id AND (:hidden OR s.status <> 'deleted');

-- name: buried
-- Whether a session was deleted.
SELECT 1 FROM sessions WHERE session_id = :session_id AND status = 'deleted';

-- name: session_create
-- A new session's row.
INSERT INTO sessions (session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner,
    title, labels, created, updated, checkpoint)
VALUES (:session_id, :root, :parent, :parent_kind, :agent, :version, 0, NULL, 0, 0, :wake_at, :status, :owner,
    :title, :labels, :at, :at, :checkpoint);

-- name: session_adopt
-- A session's row as it was elsewhere.
INSERT INTO sessions (session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner,
    title, labels, created, updated, checkpoint)
VALUES (:session_id, :root, :parent, :parent_kind, :agent, :version, :fence, NULL, :claims, :inbox_head, :wake_at, :status, :owner,
    :title, :labels, :created, :updated, :checkpoint);

-- name: tree
-- The sessions of a tree.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    CAST(labels AS BLOB), created, updated, checkpoint
FROM sessions WHERE root = :root ORDER BY no;

-- name: tree_lives
-- A row if a session of a tree is there.
SELECT 1 FROM sessions WHERE root = :root AND status <> 'deleted' LIMIT 1;

-- name: tree_size
-- How many sessions a tree has.
SELECT count(*) FROM sessions WHERE root = :root;

-- name: redacted_since
-- Whether content of a session was redacted behind an entry.
SELECT EXISTS (
    SELECT 1 FROM journal WHERE no = (SELECT no FROM sessions WHERE session_id = :session_id) AND seq > :version AND kind = 'redacted'
);

-- name: advance
-- A commit with entries: columns without an index only.
UPDATE sessions SET version = ?, fence = ?, claims = ?, checkpoint = ? WHERE no = ?;

-- name: advance_bare
-- A commit without entries.
UPDATE sessions SET fence = :fence, claims = :claims WHERE no = :no;

-- name: hold
-- A claim or a release.
UPDATE sessions SET holder = :holder, fence = :fence, claims = :claims WHERE no = :no;

-- name: list
-- The catalogue's columns.
UPDATE sessions SET status = :status, wake_at = :wake_at, title = :title, labels = :labels, agent = :agent, updated = max(updated, :at)
WHERE no = :no;

-- name: arrive
-- A submission came: somebody must look, and the list shows it.
UPDATE sessions SET inbox_head = :arrival, wake_at = :wake_at, status = iif(status = 'idle', 'queued', status), updated = max(updated, :at)
WHERE no = :no;

-- name: receive
-- A submission came in already consumed.
UPDATE sessions SET inbox_head = :arrival WHERE no = :no;

-- name: entry_add
-- Append a fact.
INSERT INTO journal (no, seq, number, kind, at, salt, body_digest, body, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: entry_chain
-- The chain at an entry.
SELECT chain FROM journal WHERE no = :no AND seq = :seq;

-- name: entry_number
-- How many messages there are up to an entry.
SELECT number FROM journal WHERE no = :no AND seq = :seq;

-- name: entry_last
-- The last entry of a session.
SELECT seq, number FROM journal WHERE no = :no ORDER BY seq DESC LIMIT 1;

-- name: entry_redact
-- A fact loses its content; its digest keeps the chain whole.
UPDATE journal SET body = NULL, salt = NULL WHERE no = :no AND seq = :seq;

-- name: entries
-- Facts in their order.
SELECT seq, number, kind, at, salt, body_digest, body, chain FROM journal
WHERE no = :no AND seq > :after AND seq < :before
ORDER BY seq LIMIT :limit;

-- name: entries_newest_first
-- Facts, the last one first.
SELECT seq, number, kind, at, salt, body_digest, body, chain FROM journal
WHERE no = :no AND seq > :after AND seq < :before
ORDER BY seq DESC LIMIT :limit;

-- name: entries_of_kinds
-- Facts of some kinds in their order.
SELECT seq, number, kind, at, salt, body_digest, body, chain FROM journal
WHERE no = :no AND seq > :after AND seq < :before AND kind IN (SELECT value FROM json_each(:kinds))
ORDER BY seq LIMIT :limit;

-- name: entries_of_kinds_newest_first
-- Facts of some kinds, the last one first.
SELECT seq, number, kind, at, salt, body_digest, body, chain FROM journal
WHERE no = :no AND seq > :after AND seq < :before AND kind IN (SELECT value FROM json_each(:kinds))
ORDER BY seq DESC LIMIT :limit;

-- name: inbox_add
-- A submission's row.
INSERT INTO inbox (no, submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq)
VALUES (:no, :submission_id, :arrival, :kind, :at, :not_before, :actor, :digest, :body, :consumed_seq, :settled_seq);

-- name: inbox_one
-- One submission.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq
FROM inbox WHERE no = :no AND submission_id = :submission_id;

-- name: inbox_waiting
-- What nobody consumed, by arrival.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq
FROM inbox WHERE no = :no AND consumed_seq IS NULL ORDER BY arrival;

-- name: inbox_count
-- How many wait.
SELECT count(*) FROM inbox WHERE no = :no AND consumed_seq IS NULL;

-- name: inbox_edit
-- Another content for a waiting row.
UPDATE inbox SET body = :body WHERE no = :no AND submission_id = :submission_id AND consumed_seq IS NULL;

-- name: inbox_drop
-- A waiting row goes, without a receipt.
DELETE FROM inbox WHERE no = :no AND submission_id = :submission_id AND consumed_seq IS NULL;

-- name: inbox_consume
-- A waiting row becomes a receipt.
UPDATE inbox SET consumed_seq = :seq, body = NULL WHERE no = :no AND submission_id = :submission_id AND consumed_seq IS NULL;

-- name: inbox_settle
-- What the row asked for is finished.
UPDATE inbox SET settled_seq = :seq WHERE no = :no AND submission_id = :submission_id;

-- name: inbox_page
-- Submissions by id, consumed or not.
SELECT submission_id, arrival, kind, at, not_before, actor, digest, body, consumed_seq, settled_seq
FROM inbox WHERE no = :no AND submission_id > :after ORDER BY submission_id LIMIT :limit;

-- name: effect_put
-- An effect, or its new state.
INSERT INTO effects (no, effect_key, seq, state) VALUES (:no, :effect_key, :seq, :state)
ON CONFLICT (no, effect_key, seq) DO UPDATE SET state = excluded.state;

-- name: effects
-- Effects whose key lies in [low, high), by age.
SELECT effect_key, seq, state FROM effects
WHERE no = :no AND effect_key >= :low AND (:high IS NULL OR effect_key < :high) AND (:state IS NULL OR state = :state) AND seq > :after
ORDER BY seq, effect_key;

-- name: unique_one
-- Who took a key.
SELECT u.key, u.operation, u.state, u.seq, u.no, s.session_id, s.status = 'deleted'
FROM uniques AS u JOIN sessions AS s USING (no) WHERE u.key = :key;

-- name: uniques
-- What a session's operations took.
SELECT u.key, u.operation, u.state, u.seq, u.no, s.session_id, s.status = 'deleted'
FROM uniques AS u JOIN sessions AS s USING (no) WHERE u.no = :no ORDER BY u.operation, u.key;

-- name: unique_take
-- An operation takes a key.
INSERT INTO uniques (key, no, operation, state, seq) VALUES (:key, :no, :operation, :state, :seq) ON CONFLICT (key) DO NOTHING;

-- name: unique_decide
-- What became of the operation that took it.
UPDATE uniques SET state = :state, seq = :seq WHERE no = :no AND operation = :operation;

-- name: unique_free
-- It did not happen, and may.
DELETE FROM uniques WHERE no = :no AND operation = :operation;

-- name: uniques_free
-- What a session took that was deleted can be taken by others.
DELETE FROM uniques WHERE no = :no AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.no = :no AND s.status = 'deleted');

-- name: bury_uniques
-- Nobody learns any more what became of it.
UPDATE uniques SET state = 'uncertain' WHERE no = :no AND state = 'pending';

-- name: blob_known
-- Whether a tree holds a content.
SELECT 1 FROM blobs WHERE root = :root AND digest = :digest;

-- name: blob_put
-- Content, stored once.
INSERT INTO blobs (root, digest, media_type, size, data) VALUES (:root, :digest, :media_type, :size, :data);

-- name: blob_get
-- Content by digest.
SELECT digest, media_type, data, size FROM blobs WHERE root = :root AND digest = :digest;

-- name: blob_erase
-- Content that nothing in its tree refers to any more goes.
DELETE FROM blobs WHERE root = :root AND digest = :digest
    AND NOT EXISTS (
        SELECT 1 FROM journal JOIN sessions USING (no) WHERE root = :root AND instr(journal.body, CAST(:digest AS BLOB))
    )
    AND NOT EXISTS (
        SELECT 1 FROM inbox JOIN sessions USING (no) WHERE root = :root AND instr(inbox.body, CAST(:digest AS BLOB))
    );

-- name: vacuum
-- Write the file anew.
VACUUM;

-- name: blobs_outside
-- Which of these stand outside of the database.
SELECT DISTINCT digest FROM blobs WHERE data IS NULL AND digest IN (SELECT value FROM json_each(:digests));

-- name: blobs
-- What a tree holds.
SELECT digest FROM blobs WHERE root = :root ORDER BY digest;

-- name: cursor_get
-- Where a consumer stands.
SELECT seq FROM cursors WHERE no = :no AND consumer = :consumer;

-- name: cursor_put
-- Move a consumer to a place.
INSERT INTO cursors (no, consumer, seq) VALUES (:no, :consumer, :seq) ON CONFLICT (no, consumer) DO UPDATE SET seq = excluded.seq;

-- name: cursors
-- All consumers of a session.
SELECT consumer, seq FROM cursors WHERE no = :no ORDER BY consumer;

-- name: news
-- Sessions with entries that a consumer has not acknowledged.
SELECT s.no, s.session_id, s.version, coalesce(c.seq, 0)
FROM sessions AS s LEFT JOIN cursors AS c ON c.no = s.no AND c.consumer = :consumer
WHERE s.no > :after AND s.no <= :last AND s.version > coalesce(c.seq, 0) AND s.status <> 'deleted'
ORDER BY s.no LIMIT :limit;

-- name: cursors_forget
-- A consumer goes.
DELETE FROM cursors WHERE consumer = :consumer;

-- name: cursors_left
-- Whether anything of a consumer is left.
SELECT EXISTS (SELECT 1 FROM cursors WHERE consumer = :consumer);

-- name: heads
-- Sessions by number, deleted or not.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    CAST(labels AS BLOB), created, updated, checkpoint
FROM sessions WHERE no > :after ORDER BY no LIMIT :limit;

-- name: strays
-- Numbers that rows are of, and that no session has.
SELECT no FROM journal WHERE no NOT IN (SELECT no FROM sessions)
UNION SELECT no FROM inbox WHERE no NOT IN (SELECT no FROM sessions)
UNION SELECT no FROM effects WHERE no NOT IN (SELECT no FROM sessions)
ORDER BY no LIMIT :limit;

-- name: sessions_updated
-- The numbers of a page of the list, newest change first. What leaves most rows out comes first, and functions in Python see what is left.
SELECT no FROM sessions
WHERE (updated, no) < (:updated, :no) AND updated >= :since AND updated < :until
    AND (:words IS NULL OR ((title LIKE :like ESCAPE '\' OR length(title) <> length(CAST(title AS BLOB)))
        AND holds_words(CAST(title AS BLOB), :words)))
    AND (:labels IS NULL OR (instr(labels, :label) AND holds_labels(CAST(labels AS BLOB), :labels)))
    AND (:owner IS NULL OR owner = :owner)
    AND (:agent IS NULL OR agent = :agent)
    AND (:children OR parent_kind IS NOT 'child')
    AND iif(:statuses IS NULL, status <> 'deleted' AND (:archived OR status <> 'archived'), status IN (SELECT value FROM json_each(:statuses)))
ORDER BY updated DESC, no DESC LIMIT :limit;

-- name: sessions_created
-- The numbers of a page of the list, the latest made first.
SELECT no FROM sessions
WHERE no < :no AND +updated >= :since AND +updated < :until
    AND (:words IS NULL OR ((title LIKE :like ESCAPE '\' OR length(title) <> length(CAST(title AS BLOB)))
        AND holds_words(CAST(title AS BLOB), :words)))
    AND (:labels IS NULL OR (instr(labels, :label) AND holds_labels(CAST(labels AS BLOB), :labels)))
    AND (:owner IS NULL OR owner = :owner)
    AND (:agent IS NULL OR agent = :agent)
    AND (:children OR parent_kind IS NOT 'child')
    AND iif(:statuses IS NULL, status <> 'deleted' AND (:archived OR status <> 'archived'), status IN (SELECT value FROM json_each(:statuses)))
ORDER BY no DESC LIMIT :limit;

-- name: session_by_no
-- A whole session row.
SELECT no, session_id, root, parent, parent_kind, agent, version, fence, holder, claims, inbox_head, wake_at, status, owner, title,
    CAST(labels AS BLOB), created, updated, checkpoint
FROM sessions WHERE no = :no;

-- name: session_broken
-- What is left of a session row that can't be read.
SELECT CAST(session_id AS BLOB), CAST(owner AS BLOB), CAST(title AS BLOB) FROM sessions WHERE no = :no;

-- name: runnable
-- Sessions of dead holders, then free ones that are due, oldest first.
SELECT session_id FROM (
    SELECT * FROM (
        SELECT session_id, wake_at AS due, no, holder FROM sessions
        WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at <= :now AND NOT :left
            AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
        ORDER BY wake_at, no LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT session_id, coalesce(wake_at, updated) AS due, no, holder FROM sessions
        WHERE holder IS NOT NULL AND holder NOT IN (SELECT value FROM json_each(:alive))
            AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))
        ORDER BY due, no LIMIT :limit
    )
)
ORDER BY holder IS NULL, due, no LIMIT :limit;

-- name: figures
-- How the sessions are, counted up to a limit; whatever is stored, it reads no more than that.
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM sessions WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at <= :now LIMIT :limit)),
    (SELECT min(wake_at) FROM sessions WHERE holder IS NULL AND wake_at IS NOT NULL),
    (SELECT count(*) FROM (
        SELECT 1 FROM sessions WHERE holder IS NOT NULL AND holder NOT IN (SELECT value FROM json_each(:alive)) LIMIT :limit
    )),
    (SELECT count(*) FROM (SELECT 1 FROM inbox WHERE consumed_seq IS NULL LIMIT :limit)),
    (SELECT min(since) FROM (SELECT coalesce(not_before, at) AS since FROM inbox WHERE consumed_seq IS NULL LIMIT :limit)),
    (SELECT count(*) FROM (SELECT 1 FROM effects WHERE state = 'uncertain' LIMIT :limit));

-- name: figures_working
-- How many sessions are worked on or wait for it, among those that somebody holds and those that are due first.
SELECT status, count(*) FROM (
    SELECT * FROM (SELECT status FROM sessions WHERE holder IS NOT NULL LIMIT :limit)
    UNION ALL
    SELECT * FROM (SELECT status FROM sessions WHERE holder IS NULL AND wake_at IS NOT NULL ORDER BY wake_at LIMIT :limit)
) WHERE status IN ('queued', 'running') GROUP BY status;

-- name: figures_parked
-- How many sessions stand like this, of the statuses in which nobody works.
SELECT count(*) FROM (SELECT 1 FROM sessions WHERE status = :status AND status IN ('halted', 'stuck', 'waiting') LIMIT :limit);

-- name: next_wake
-- When the next session that nobody holds is due.
SELECT min(wake_at) FROM sessions WHERE holder IS NULL AND wake_at IS NOT NULL AND wake_at > :after;

-- name: runner_put
-- Register or renew a runner.
INSERT INTO runners (id, host, pid, started, expires, agents, refused) VALUES (:id, :host, :pid, :started, :expires, :agents, :refused)
ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, expires = excluded.expires, agents = excluded.agents,
    refused = excluded.refused;

-- name: runner_one
-- When a runner's lease ends.
SELECT expires FROM runners WHERE id = :id;

-- name: runners
-- All runners.
SELECT id, host, pid, started, expires, agents, refused FROM runners ORDER BY id;

-- name: runners_living
-- Whose lease runs; what they say of themselves may be long, and is not read.
SELECT id FROM runners WHERE expires > :now ORDER BY id;

-- name: runners_forget
-- Runners that have been gone for long and hold nothing.
DELETE FROM runners WHERE expires < :before AND NOT EXISTS (SELECT 1 FROM sessions WHERE holder = runners.id);

-- name: runner_ended
-- A runner's process has ended before its lease.
UPDATE runners SET expires = :now WHERE id = :id;

-- name: runner_retire
-- A runner goes.
DELETE FROM runners WHERE id = :id;

-- name: bury
-- What is left of a deleted session's row; the fence shuts its holder out.
UPDATE sessions SET status = 'deleted', holder = NULL, fence = fence + 1, wake_at = NULL, title = '', labels = '{}', checkpoint = x''
WHERE no = :no;

-- name: bury_journal
-- Its facts go.
DELETE FROM journal WHERE no = :no AND seq > :keep AND (:keep = 0 OR kind <> 'redacted')
    AND seq NOT IN (SELECT value FROM json_each(:receipts));

-- name: bury_inbox
-- Its submissions stay as receipts without content, and none waits.
UPDATE inbox SET body = NULL, consumed_seq = coalesce(consumed_seq, 0) WHERE no = :no;

-- name: bury_effects
-- Its effects go.
DELETE FROM effects WHERE no = :no AND seq > :keep AND seq NOT IN (SELECT value FROM json_each(:receipts));

-- name: bury_cursors
-- Its consumers go.
DELETE FROM cursors WHERE no = :no;

-- name: bury_left
-- Whether anything of it is left.
SELECT EXISTS (SELECT 1 FROM journal WHERE no = :no AND seq > :keep AND (:keep = 0 OR kind <> 'redacted')
    AND seq NOT IN (SELECT value FROM json_each(:receipts))) OR EXISTS (SELECT 1 FROM inbox WHERE no = :no AND body IS NOT NULL)
    OR EXISTS (SELECT 1 FROM effects WHERE no = :no AND seq > :keep AND seq NOT IN (SELECT value FROM json_each(:receipts))) OR EXISTS (SELECT 1 FROM cursors WHERE no = :no);

-- name: bury_blobs
-- A tree's content goes with the last of its sessions.
DELETE FROM blobs WHERE root = :root AND NOT EXISTS (SELECT 1 FROM sessions WHERE root = :root AND status <> 'deleted');

-- name: pool_get
-- An owner's pool.
SELECT id, limits, drawn FROM pools WHERE owner = :owner;

-- name: pools
-- Owners' pools in the order of their names.
SELECT owner, id, limits, drawn FROM pools WHERE owner > :after ORDER BY owner LIMIT :limit;

-- name: pool_put
-- Write an owner's pool.
INSERT INTO pools (owner, id, limits, drawn) VALUES (:owner, :id, :limits, :drawn)
ON CONFLICT (owner) DO UPDATE SET id = excluded.id, limits = excluded.limits, drawn = excluded.drawn;

-- name: pool_remove
-- An owner has no pool any more.
DELETE FROM pools WHERE owner = :owner;

-- name: share_get
-- What a session holds of its owner's pool.
SELECT owner, pool, drawn, used FROM shares WHERE no = :no;

-- name: share_put
-- Write what a session holds.
INSERT INTO shares (no, owner, pool, drawn, used) VALUES (:no, :owner, :pool, :drawn, :used)
ON CONFLICT (no) DO UPDATE SET owner = excluded.owner, pool = excluded.pool, drawn = excluded.drawn, used = excluded.used;

-- name: share_remove
-- A session holds nothing any more.
DELETE FROM shares WHERE no = :no;
