-- The tables of a store in PostgreSQL, format 1. docs/decisions/postgres-commit.md says why they look like this.
-- `meta`, `runners` and `sessions` are whole; every other key is led by `root`, so that a tree of sessions lies on one shard or partition.
-- Texts are compared by bytes. `perdure` is the schema's name here; another one takes its place when the files are read.

-- Facts about the store itself.
CREATE TABLE perdure.meta (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- Processes that can hold sessions.
CREATE TABLE perdure.runners (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    started bigint NOT NULL,
    expires bigint NOT NULL,
    agents text NOT NULL,
    refused text NOT NULL
) WITH (fillfactor = 50);

-- The heads. What every commit changes has no index, and pages are left half empty, so that a step's commit is a HOT update.
-- `folded` is the title as it is searched; `token` names the last change, to know it again when its answer was lost.
CREATE TABLE perdure.sessions (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL UNIQUE,
    root text COLLATE "C" NOT NULL,
    parent text,
    parent_kind text,
    agent text NOT NULL,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    holder text COLLATE "C",
    claims bigint NOT NULL,
    inbox_head bigint NOT NULL,
    wake_at bigint,
    status text NOT NULL,
    owner text COLLATE "C" NOT NULL,
    title text NOT NULL,
    folded text COLLATE "C" NOT NULL,
    labels jsonb NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    token bigint NOT NULL,
    checkpoint bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX sessions_listed ON perdure.sessions (updated, no, owner, status, agent, parent_kind);
CREATE INDEX sessions_owned ON perdure.sessions (owner, updated, no);
CREATE INDEX sessions_due ON perdure.sessions (wake_at) WHERE holder IS NULL AND wake_at IS NOT NULL;
CREATE INDEX sessions_held ON perdure.sessions (holder) WHERE holder IS NOT NULL;
CREATE INDEX sessions_tree ON perdure.sessions (root);
CREATE INDEX sessions_parked ON perdure.sessions (status) WHERE status IN ('halted', 'stuck', 'waiting');

-- The facts.
CREATE TABLE perdure.journal (
    root text COLLATE "C" NOT NULL,
    no bigint NOT NULL,
    seq bigint NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    salt bytea,
    body_digest bytea NOT NULL,
    body bytea,
    chain bytea NOT NULL,
    PRIMARY KEY (root, no, seq)
);

-- Submissions: what waits, and the receipts of what was consumed.
CREATE TABLE perdure.inbox (
    root text COLLATE "C" NOT NULL,
    no bigint NOT NULL,
    submission_id text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    not_before bigint,
    actor text NOT NULL,
    digest text NOT NULL,
    body bytea,
    consumed_seq bigint,
    settled_seq bigint,
    PRIMARY KEY (root, no, submission_id)
);

CREATE INDEX inbox_waiting ON perdure.inbox (root, no, arrival) WHERE consumed_seq IS NULL;

-- Executed and uncertain effects, by key.
CREATE TABLE perdure.effects (
    root text COLLATE "C" NOT NULL,
    no bigint NOT NULL,
    effect_key bytea NOT NULL,
    seq bigint NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (root, no, effect_key, seq)
);

CREATE INDEX effects_uncertain ON perdure.effects (no) WHERE state = 'uncertain';

-- What only one operation of the whole store may do, and which one took it. The rows of deleted sessions stay.
CREATE TABLE perdure.uniques (
    key text COLLATE "C" PRIMARY KEY,
    no bigint NOT NULL,
    operation text COLLATE "C" NOT NULL,
    state text NOT NULL,
    seq bigint NOT NULL
);

CREATE INDEX uniques_of ON perdure.uniques (no, operation);

-- How much of what can be limited.
CREATE TYPE perdure.amounts AS (
    steps bigint, tool_calls bigint, model_calls bigint, tokens bigint, cost bigint, ms bigint, unknown bigint, unpriced bigint
);

-- What all turns of an owner's sessions may use together, and what they drew of it. Few owners have one.
CREATE TABLE perdure.pools (
    owner text COLLATE "C" PRIMARY KEY,
    id text NOT NULL,
    limits jsonb NOT NULL,
    drawn perdure.amounts NOT NULL
) WITH (fillfactor = 50);

-- What a session's turn holds of its owner's pool, and what it used of that.
CREATE TABLE perdure.shares (
    no bigint PRIMARY KEY,
    owner text NOT NULL,
    pool text NOT NULL,
    drawn perdure.amounts NOT NULL,
    used perdure.amounts NOT NULL
) WITH (fillfactor = 50);

-- Content by digest, once for a tree of sessions; without data it stands outside of the database.
CREATE TABLE perdure.blobs (
    root text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    media_type text NOT NULL,
    size bigint NOT NULL,
    data bytea,
    PRIMARY KEY (root, digest)
);

CREATE INDEX blobs_outside ON perdure.blobs (digest) WHERE data IS NULL;

-- How far each consumer has read.
CREATE TABLE perdure.cursors (
    root text COLLATE "C" NOT NULL,
    no bigint NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (root, no, consumer)
);

-- The transactions in which a user's function works; each row goes before its transaction ends.
CREATE TABLE perdure.lent (
    transaction xid8 PRIMARY KEY,
    asked timestamptz
);
