"""The tables of a ledger."""

from __future__ import annotations

LEDGER_VERSION = 4  # no earlier one was in a released version

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE plans (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
    epsilon REAL NOT NULL, dependents INTEGER NOT NULL, about TEXT NOT NULL
);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY,
    pixels BLOB NOT NULL,                          -- keyed digest of the source's pixels
    file BLOB,                                     -- keyed digest of the bytes they were decoded from
    stream BLOB NOT NULL,                          -- identity of the run key or owner's key behind the noise
    item BLOB NOT NULL,                            -- keyed digest of the item's name, empty for an owner's key
    plan INTEGER NOT NULL REFERENCES plans,
    done INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 1,             -- how often this very release was approved
    time INTEGER NOT NULL,
    content BLOB NOT NULL,                         -- one of the digests of pixels that hold the same values
    session INTEGER NOT NULL DEFAULT 0,            -- the last session in which its source was seen
    voided INTEGER NOT NULL DEFAULT 0,             -- 1 if destroyed before anybody received it, by the owner's word
    released INTEGER NOT NULL,                     -- pixels of the release
    UNIQUE (stream, item, pixels, plan)
);
CREATE TABLE forms (form BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;  -- keyed digests of common forms
CREATE TABLE runs (
    stream BLOB PRIMARY KEY,                       -- a run is known by the identity of its key
    is_owners INTEGER NOT NULL,
    began INTEGER NOT NULL,
    target TEXT NOT NULL,                          -- where it writes, and its state folder
    state TEXT NOT NULL,
    voided INTEGER,                                -- when the owner voided it, and why
    because TEXT
) WITHOUT ROWID;
CREATE TABLE merged (                              -- ledgers whose entries were added to this one
    id BLOB PRIMARY KEY, key BLOB NOT NULL         -- the key, wrapped under this ledger's own
) WITHOUT ROWID;
CREATE TABLE marks (                               -- keyed digests of parts of coarse fingerprints
    mark BLOB, content BLOB, PRIMARY KEY (mark, content)
) WITHOUT ROWID;
CREATE INDEX by_form_content ON forms (content);
CREATE INDEX by_pixels ON releases (pixels);
CREATE INDEX by_file ON releases (file, content) WHERE file IS NOT NULL;
CREATE INDEX by_mark_content ON marks (content);
CREATE INDEX by_content ON releases (content, voided, stream, session)
"""
