-- The tables of a store in one SQLite file, format 1. docs/decisions/sqlite-layout.md says why they look like this.
-- A step's commit writes the journal's last leaf, the index's leaf and un-indexed columns of one session row, and nothing else.

-- Facts about the store itself.
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- Processes that can hold sessions.
CREATE TABLE runners (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    agents TEXT NOT NULL,
    refused TEXT NOT NULL
) WITHOUT ROWID;

-- The heads. What every commit changes has no index; the checkpoint stands last, so that the rest is read without it.
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    root TEXT NOT NULL,
    parent TEXT,
    parent_kind TEXT,
    agent TEXT NOT NULL,
    version INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    holder TEXT,
    claims INTEGER NOT NULL,
    inbox_head INTEGER NOT NULL,
    wake_at INTEGER,
    status TEXT NOT NULL,
    owner TEXT NOT NULL,
    title TEXT NOT NULL,
    labels TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    checkpoint BLOB NOT NULL
);

-- One index serves every list: its order is the list's, and its other columns filter before a row, with its checkpoint, is read.
CREATE INDEX sessions_listed ON sessions (updated, owner, status, agent, parent_kind, title, labels);
CREATE INDEX sessions_due ON sessions (wake_at) WHERE holder IS NULL AND wake_at IS NOT NULL;
CREATE INDEX sessions_held ON sessions (holder) WHERE holder IS NOT NULL;
CREATE INDEX sessions_tree ON sessions (root);
CREATE INDEX sessions_parked ON sessions (status) WHERE status IN ('halted', 'stuck', 'waiting');

-- The facts, in the order in which they arrived, whosever they are.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    salt BLOB,
    body_digest BLOB NOT NULL,
    body BLOB,
    chain BLOB NOT NULL,
    UNIQUE (no, seq)
);

-- What all turns of an owner's sessions may use together, and what they drew of it. Few owners have one.
CREATE TABLE pools (
    owner TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    limits TEXT NOT NULL,
    drawn TEXT NOT NULL
) WITHOUT ROWID;

-- What a session's turn holds of its owner's pool, and what it used of that.
CREATE TABLE shares (
    no INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    pool TEXT NOT NULL,
    drawn TEXT NOT NULL,
    used TEXT NOT NULL
);

-- Submissions: what waits, and the receipts of what was consumed.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY,
    no INTEGER NOT NULL,
    submission_id TEXT NOT NULL,
    arrival INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    not_before INTEGER,
    actor TEXT NOT NULL,
    digest TEXT NOT NULL,
    body BLOB,
    consumed_seq INTEGER,
    settled_seq INTEGER,
    UNIQUE (no, submission_id)
);

CREATE INDEX inbox_waiting ON inbox (no, arrival) WHERE consumed_seq IS NULL;

-- Executed and uncertain effects, by key.
CREATE TABLE effects (
    no INTEGER NOT NULL,
    effect_key BLOB NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (no, effect_key, seq)
) WITHOUT ROWID;

CREATE INDEX effects_uncertain ON effects (no) WHERE state = 'uncertain';

-- What only one operation of the whole store may do, and which one took it. The rows of deleted sessions stay.
CREATE TABLE uniques (
    key TEXT PRIMARY KEY,
    no INTEGER NOT NULL,
    operation TEXT NOT NULL,
    state TEXT NOT NULL,
    seq INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX uniques_of ON uniques (no, operation);

-- Content by digest, once for a tree of sessions; without data it stands outside of the database.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    root TEXT NOT NULL,
    digest TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    data BLOB,
    UNIQUE (root, digest)
);

-- Whether content that stands outside of the database (its data is null) is still wanted.
CREATE INDEX blobs_outside ON blobs (digest) WHERE data IS NULL;

-- How far each consumer has read.
CREATE TABLE cursors (
    no INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (no, consumer)
) WITHOUT ROWID;
