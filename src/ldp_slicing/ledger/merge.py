"""Merging: the entries of another ledger are added to this one, under the key that they were made with.

Digests cannot be made again under another key without the sources. So the other ledger's key is kept as well, wrapped
under this ledger's own key (RFC 3394), and every question is asked under each key. The other ledger is only read.
Merging it again later adds what it has gained meanwhile.

Proof: docs/proofs.md, 13.2. Tests: tests/ledger/test_ledger_merge.py.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.keywrap import aes_key_wrap

from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger.database import wrapping_key
from ldp_slicing.ledger.ledger import Ledger

_COLUMNS = "pixels, file, stream, item, done, claims, time, content, session, voided, released"
_STRANGERS = """
SELECT 1 FROM releases JOIN other.releases AS theirs USING (id)
WHERE (releases.stream, releases.pixels) <> (theirs.stream, theirs.pixels) LIMIT 1
"""
# Sources that both know, as two copies of one ledger do, under contents that differ.
_SAME_SOURCES = """
SELECT DISTINCT mine.content, theirs.content FROM releases AS mine JOIN other.releases AS theirs USING (pixels)
WHERE mine.content <> theirs.content
UNION SELECT mine.content, theirs.content FROM forms AS mine JOIN other.forms AS theirs USING (form)
WHERE mine.content <> theirs.content
"""
_MERGE = f"""
INSERT OR IGNORE INTO plans (digest, epsilon, dependents, about)
    SELECT digest, epsilon, dependents, about FROM other.plans;
UPDATE releases SET done = MAX(releases.done, theirs.done), claims = MAX(releases.claims, theirs.claims) + 1,
    session = MAX(releases.session, theirs.session), voided = MAX(releases.voided, theirs.voided)
    FROM other.releases AS theirs WHERE theirs.id = releases.id;
INSERT INTO releases (id, plan, {_COLUMNS})
    SELECT theirs.id, ours.id, {", ".join(f"theirs.{column}" for column in _COLUMNS.split(", "))}
    FROM other.releases AS theirs JOIN other.plans AS plans ON plans.id = theirs.plan
    JOIN plans AS ours ON ours.digest = plans.digest
    WHERE theirs.id NOT IN (SELECT id FROM releases)
    ON CONFLICT (stream, item, pixels, plan) DO UPDATE SET done = MAX(done, excluded.done), claims = claims + 1;
INSERT INTO runs SELECT * FROM other.runs WHERE TRUE ON CONFLICT (stream) DO UPDATE
    SET voided = COALESCE(voided, excluded.voided), because = COALESCE(because, excluded.because);
INSERT OR IGNORE INTO forms SELECT * FROM other.forms;
INSERT OR IGNORE INTO marks SELECT * FROM other.marks;
INSERT OR IGNORE INTO meta SELECT * FROM other.meta WHERE name = 'rebuilt';
UPDATE meta SET value = MAX(value, (SELECT value FROM other.meta WHERE name = 'session')) WHERE name = 'session'
"""  # noqa: S608


def merge(ledger: Ledger, other_path: Path) -> int:
    """Add the entries of another ledger. Return how many are new."""
    if other_path.exists() and other_path.samefile(ledger.path):
        raise LedgerError(f"{other_path} is this ledger itself: name another one")
    if not other_path.exists():
        raise LedgerError(f"there is no ledger {other_path}: name the file of the ledger to add")
    with closing(Ledger(other_path, must_exist=True)) as other, ledger.attached(other.path) as run:
        if run(_STRANGERS).fetchone() is not None:
            raise LedgerError(
                f"{other_path} and {ledger.path} give one number to two releases, so they cannot be merged: keep both, "
                "and use each for the runs that were begun with it"
            )
        (before,) = run("SELECT COUNT(*) FROM releases").fetchone()
        same_sources = run(_SAME_SOURCES).fetchall()
        for statement in _MERGE.split(";"):
            run(statement)
        ledger.unite(same_sources)
        wrapping = wrapping_key(ledger.keys[ledger.identity])
        for identity, key in other.keys.items():
            if identity not in ledger.keys:
                run("INSERT INTO merged VALUES (?, ?)", (bytes.fromhex(identity), aes_key_wrap(wrapping, key)))
        (after,) = run("SELECT COUNT(*) FROM releases").fetchone()
    ledger.load_keys()
    return int(after - before)
