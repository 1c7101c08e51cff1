"""Questions about the releases of a run that the ledger answers, as SQL joins between the two databases.

The run's database is locked for the run's own process, so the ledger is attached to it, for reading only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Ledger, Selection, Spent, add_up, spent_query

# Per asked source: its content, the contents of every other frame of its files, and what was spent on all of these.
# The contents of each file are looked up once, however many equal images it holds.
_SPENT_PER_SOURCE = """
CREATE TEMP TABLE own (unit INTEGER, file BLOB, content BLOB, PRIMARY KEY (unit, file, content));
INSERT OR IGNORE INTO own SELECT unit, known.file, known.content
    FROM asked CROSS JOIN ledger.releases AS known ON known.id = asked.number;
CREATE TEMP TABLE in_files (file BLOB, content BLOB, PRIMARY KEY (file, content)) WITHOUT ROWID;
INSERT OR IGNORE INTO in_files SELECT others.file, others.content
    FROM (SELECT DISTINCT file FROM own WHERE file IS NOT NULL) AS files
    CROSS JOIN ledger.releases AS others INDEXED BY by_file ON others.file = files.file AND others.file IS NOT NULL;
CREATE TEMP TABLE held (unit INTEGER, content BLOB, PRIMARY KEY (unit, content)) WITHOUT ROWID;
INSERT OR IGNORE INTO held SELECT unit, content FROM own;
INSERT OR IGNORE INTO held SELECT unit, in_files.content
    FROM (SELECT DISTINCT unit, file FROM own WHERE file IS NOT NULL) AS files
    CROSS JOIN in_files ON in_files.file = files.file;
CREATE TEMP TABLE totals (
    content BLOB PRIMARY KEY, times, epsilon, source, image, kept_times, kept, kept_source
) WITHOUT ROWID;
INSERT INTO totals SELECT mine.content, COUNT(*), SUM(epsilon), SUM(epsilon * dependents), SUM(epsilon * released),
    SUM(1 - voided), SUM(epsilon * (1 - voided)), SUM(epsilon * dependents * (1 - voided))
    FROM (SELECT DISTINCT content FROM held) AS mine
    CROSS JOIN ledger.releases AS every INDEXED BY by_content ON every.content = mine.content
    CROSS JOIN ledger.plans AS plans ON plans.id = plan GROUP BY mine.content;
CREATE TEMP TABLE added AS SELECT unit, SUM(times) AS times, SUM(epsilon) AS epsilon, SUM(source) AS source,
    SUM(image) AS image, SUM(kept_times) AS kept_times, SUM(kept) AS kept, SUM(kept_source) AS kept_source
    FROM held CROSS JOIN totals ON totals.content = held.content GROUP BY unit
"""
# The entries that the run has not copied yet, and what they need to be recognised by.
_COPY = """
CREATE TEMP TABLE uncopied AS SELECT known.* FROM main.ledger_entries CROSS JOIN ledger.releases AS known
    ON known.id = number WHERE number NOT IN (SELECT id FROM main.copied_releases) GROUP BY number;
INSERT INTO main.copied_releases SELECT uncopied.id, pixels, file, stream, item, plans.digest, time, content, released
    FROM uncopied JOIN ledger.plans AS plans ON plans.id = plan;
INSERT OR IGNORE INTO main.copied_plans SELECT digest, epsilon, dependents, about FROM ledger.plans
    WHERE digest IN (SELECT plan FROM main.copied_releases);
INSERT OR IGNORE INTO main.copied_forms SELECT form, content FROM ledger.forms
    WHERE content IN (SELECT content FROM uncopied);
INSERT OR IGNORE INTO main.copied_marks SELECT mark, content FROM ledger.marks
    WHERE content IN (SELECT content FROM uncopied);
INSERT OR IGNORE INTO main.copied_merged SELECT id, key FROM ledger.merged;
DROP TABLE uncopied
"""
_CANDIDATES = "SELECT unit FROM added ORDER BY {} DESC LIMIT 4"  # more than one: SQLite sums in floating point


class LedgerJoin:
    """The ledger as seen from a run's database. ``asked`` is SQL for (unit, number, stream) of releases.

    A unit is a source; the releases of one video share a unit. ``number`` is the release's number in the ledger.
    A ledger that lacks one of them, or has it from another stream, is older than the run and is refused.
    """

    def __init__(self, database: sqlite3.Connection, ledger: Ledger) -> None:
        self._database, self._path = database, ledger.path
        try:
            database.execute("ATTACH ? AS ledger", (f"{ledger.path.absolute().as_uri()}?mode=ro",))
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def check_knows(self, asked: Selection) -> None:
        """Refuse a ledger that does not know these releases: it was replaced by an older one."""
        with self._asked(asked):
            pass

    def most_spent(self, asked: Selection) -> list[Spent]:
        """Return what was spent on the sources that have most: most releases, or the largest eps of either kind.

        Most is meant both with and without voided releases.

        SQLite finds candidates in floating point; what is returned about them is added up exactly.
        """
        run = self._database.execute
        with self._asked(asked):
            for statement in _SPENT_PER_SOURCE.split(";"):
                run(statement)
            orders = ("times", "epsilon", "source", "image", "kept_times", "kept", "kept_source")
            units = {unit for order in orders for (unit,) in run(_CANDIDATES.format(order)).fetchall()}
            chosen = "(SELECT * FROM ledger.releases WHERE content IN (SELECT content FROM held WHERE unit = ?))"
            query = spent_query(chosen, plans="ledger.plans")
            return [add_up(run(query, (unit,)).fetchall()) for unit in sorted(units)]

    def copy_entries(self) -> None:
        """Copy the run's entries into its own database: from the copies a lost ledger can be made again."""
        run = self._database.execute
        try:
            run("BEGIN")
            for statement in _COPY.split(";"):
                run(statement)
            run("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                run("ROLLBACK")
            raise self._unreadable(error) from None

    @contextmanager
    def _asked(self, asked: Selection) -> Iterator[None]:
        """Provide the temporary table ``asked``, all of whose releases the ledger knows."""
        run = self._database.execute
        try:
            run("CREATE TEMP TABLE asked (unit INTEGER, number INTEGER, stream BLOB)")
            run("BEGIN")  # one view of the ledger for all statements
            run(f"INSERT INTO asked {asked[0]}", asked[1])
            unknown = (
                "SELECT COUNT(*) FROM asked LEFT JOIN ledger.releases AS known ON known.id = asked.number "
                "WHERE known.stream IS NOT asked.stream"
            )
            if missing := run(unknown).fetchone()[0]:
                raise LedgerError(
                    f"the ledger {self._path} does not know {missing} of these releases: it seems to have been "
                    "replaced by an older one. Restore the newest; this one counts less than was spent"
                )
            yield
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        finally:
            with contextlib.suppress(sqlite3.Error):
                if self._database.in_transaction:
                    run("COMMIT")
                for table in ("asked", "own", "in_files", "held", "totals", "added"):
                    run(f"DROP TABLE IF EXISTS temp.{table}")

    def _unreadable(self, error: sqlite3.Error) -> LedgerError:
        return LedgerError(f"the ledger {self._path} cannot be read: {error}")
