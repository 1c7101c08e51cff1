"""The tables of a ledger, and how a ledger of an earlier version is brought up to date."""

from __future__ import annotations

LEDGER_VERSION = 3

_SCHEMA = """
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
    released INTEGER,                              -- pixels of the release; NULL: as many as the source has
    UNIQUE (stream, item, pixels, plan)
)"""
_ADDED_IN_VERSION_2 = """
CREATE TABLE forms (form BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;  -- keyed digests of common forms
CREATE INDEX by_form_content ON forms (content);
CREATE INDEX by_pixels ON releases (pixels);
CREATE INDEX by_file ON releases (file, content) WHERE file IS NOT NULL
"""
_ADDED_IN_VERSION_3 = """
CREATE TABLE runs (
    stream BLOB PRIMARY KEY,                       -- a run is known by the identity of its key
    is_owners INTEGER NOT NULL,
    began INTEGER NOT NULL,
    target TEXT,                                   -- where it writes, and its state folder; NULL if not recorded
    state TEXT,
    voided INTEGER,                                -- when the owner voided it, and why
    because TEXT
) WITHOUT ROWID;
CREATE TABLE merged (                              -- ledgers whose entries were added to this one
    id BLOB PRIMARY KEY, key BLOB NOT NULL         -- the key, wrapped under this ledger's own
) WITHOUT ROWID;
CREATE TABLE marks (                               -- keyed digests of parts of coarse fingerprints
    mark BLOB, content BLOB, PRIMARY KEY (mark, content)
) WITHOUT ROWID;
CREATE INDEX by_mark_content ON marks (content);
CREATE INDEX by_content ON releases (content, voided, stream, session)
"""
_FROM_VERSION_1 = """
DROP INDEX by_pixels;
DROP INDEX by_file;
ALTER TABLE releases ADD COLUMN content BLOB NOT NULL DEFAULT x'';
ALTER TABLE releases ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
UPDATE releases SET content = pixels;
INSERT INTO meta VALUES ('session', 0)
"""
_FROM_VERSION_2 = """
DROP INDEX IF EXISTS by_content;
ALTER TABLE releases ADD COLUMN voided INTEGER NOT NULL DEFAULT 0;
ALTER TABLE releases ADD COLUMN released INTEGER
"""
_RUNS_OF_VERSION_2 = """
INSERT INTO runs (stream, is_owners, began) SELECT stream, MAX(item = x''), MIN(time) FROM releases GROUP BY stream;
UPDATE meta SET value = 3 WHERE name = 'version'
"""

NEW = (_SCHEMA, _ADDED_IN_VERSION_2, _ADDED_IN_VERSION_3)
UPGRADES = {  # by the version to start from: what to run, in this order
    1: (_FROM_VERSION_1, _ADDED_IN_VERSION_2, _FROM_VERSION_2, _ADDED_IN_VERSION_3, _RUNS_OF_VERSION_2),
    2: (_FROM_VERSION_2, _ADDED_IN_VERSION_3, _RUNS_OF_VERSION_2),
}
