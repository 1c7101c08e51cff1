"""Two ledgers become one: sources are recognised under each key, runs go on, and nothing is counted twice or lost."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ldp_slicing import Plan
from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Approval, Intent, Ledger, RunPolicy
from ldp_slicing.ledger.merge import merge
from tests.release.helpers import plant, release, small_images, spent

PLAN = Plan.paper(20.0)
FIRST, SECOND, THIRD = (RunPolicy(name, is_owners=False) for name in (b"run 1", b"run 2", b"run 3"))


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def enter(
    ledger: Ledger, pixels: str, policy: RunPolicy, *, file: str | None = None, form: str | None = None
) -> Approval:
    made = Intent(pixels.encode(), digest(pixels), digest(file) if file else None, PLAN, "haar", 1)
    (approval,) = ledger.approve([replace(made, forms=(digest(form),) if form else ())], policy)
    return approval


def test_sources_of_both_ledgers_are_recognised_by_pixels_file_and_form(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "a.sqlite")) as ours, closing(Ledger(tmp_path / "b.sqlite")) as theirs:
        enter(ours, "a", FIRST, file="A")
        theirs.finish([enter(theirs, "b", SECOND, file="B", form="grey b").entry])
        assert merge(ours, tmp_path / "b.sqlite") == 1
        for again in (
            enter(ours, "a", THIRD),
            enter(ours, "b", THIRD),
            enter(ours, "new pixels", THIRD, file="B"),
            enter(ours, "other depth", THIRD, form="grey b"),
        ):
            assert "was released before, once" in (again.problem or "")
        assert enter(ours, "c", THIRD).entry
        assert (ours.total().releases, ours.sources(), ours.total().unfinished) == (3, 3, 2)
        assert len(ours.runs()) == 0  # none was begun by privatize
        assert merge(ours, tmp_path / "b.sqlite") == 0
        enter(theirs, "d", SECOND)
        assert merge(ours, tmp_path / "b.sqlite") == 1
        assert ours.spent(digest("d")).releases == 1
    with closing(Ledger(tmp_path / "a.sqlite")) as opened:  # the keys are kept
        assert "released before" in (enter(opened, "b", THIRD).problem or "")


def test_merged_ledgers_can_be_merged(tmp_path: Path) -> None:
    for name, policy in (("a", FIRST), ("b", SECOND), ("c", THIRD)):
        with closing(Ledger(tmp_path / name)) as ledger:
            enter(ledger, name, policy)
    with closing(Ledger(tmp_path / "b")) as middle:
        merge(middle, tmp_path / "c")
    with closing(Ledger(tmp_path / "a")) as last:
        assert merge(last, tmp_path / "b") == 2
        assert all(enter(last, name, RunPolicy(b"run 4", is_owners=False)).problem for name in "abc")
        assert len(last.keys) == 3


def test_two_copies_of_one_ledger_become_one(tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "l.sqlite", tmp_path / "other" / "l.sqlite"
    with closing(Ledger(one)) as ledger:
        common = enter(ledger, "common", FIRST, form="f").entry
    shutil.copytree(one.parent, other.parent)
    owner = RunPolicy(b"owner", is_owners=True)
    with closing(Ledger(one)) as ours, closing(Ledger(other)) as theirs:
        enter(ours, "mine", FIRST)
        enter(theirs, "yours", FIRST)
        theirs.finish([common])
        enter(ours, "both", owner)
        enter(theirs, "both", owner)
        enter(theirs, "deep", FIRST, form="f")  # another depth of the first
        assert merge(ours, other) == 2
        assert (ours.total().releases, ours.total().unfinished) == (5, 4)
        assert ours.spent(digest("deep")).releases == ours.spent(digest("common")).releases == 2
        ours.withdraw([common])
        assert ours.spent(digest("common")).releases == 2


def test_merging_voids_only_what_was_voided(tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "l.sqlite", tmp_path / "other" / "l.sqlite"
    with closing(Ledger(one)) as ledger:
        enter(ledger, "common", FIRST)
        ledger.record_runs([FIRST.identity], is_owners=False, target="t", state="s")
    shutil.copytree(one.parent, other.parent)
    with closing(Ledger(one)) as ours, closing(Ledger(other)) as theirs:
        enter(ours, "later", FIRST)  # this copy does not know that the run was voided in the other
        theirs.void(FIRST.identity, "destroyed")
        merge(ours, other)
        assert (ours.spent(digest("common")).voided, ours.spent(digest("later")).voided) == (1, 0)
        with pytest.raises(LedgerError, match="this run was voided"):
            enter(ours, "more", FIRST)


def test_a_run_that_was_begun_with_the_other_ledger_goes_on(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(150))
    assert release(source, tmp_path / "out", ledger=tmp_path / "b.sqlite", after=3).stopped
    release(
        plant(tmp_path / "in2", {"x.png": small_images(151)["00150.png"]}),
        tmp_path / "out2",
        ledger=tmp_path / "a.sqlite",
    )
    with closing(Ledger(tmp_path / "a.sqlite")) as ours:
        merge(ours, tmp_path / "b.sqlite")
    for name in ("b.sqlite", "b.sqlite.key"):
        (tmp_path / name).unlink()
    ran = release(source, tmp_path / "out", ledger=tmp_path / "a.sqlite")
    assert (ran.complete, ran.problems) == (True, {})
    assert (spent(tmp_path / "a.sqlite").releases, spent(tmp_path / "a.sqlite").unfinished) == (151, 0)


def test_what_cannot_be_merged_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "a")) as ours, closing(Ledger(tmp_path / "b")) as theirs:
        entry = enter(ours, "a", FIRST).entry
        with pytest.raises(LedgerError, match="is this ledger itself"):
            merge(ours, tmp_path / "a")
        with pytest.raises(LedgerError, match="there is no ledger"):
            merge(ours, tmp_path / "c")
        enter(theirs, "b", SECOND)
        with closing(sqlite3.connect(tmp_path / "b")) as database, database:
            database.execute("UPDATE releases SET id = ?", (entry,))
        with pytest.raises(LedgerError, match="give one number to two releases"):
            merge(ours, tmp_path / "b")
        assert (ours.total().releases, len(ours.keys)) == (1, 1)
        (tmp_path / "b.key").unlink()
        with pytest.raises(LedgerError, match="without its key"):
            merge(ours, tmp_path / "b")


def test_the_keys_of_merged_ledgers_are_wrapped(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "a")) as ours, closing(Ledger(tmp_path / "b")) as theirs:
        enter(theirs, "b", SECOND)
        merge(ours, tmp_path / "b")
        key = theirs.keys[theirs.identity]
    held = (tmp_path / "a").read_bytes()
    assert key not in held
    assert key.hex().encode() not in held
    with closing(sqlite3.connect(tmp_path / "a")) as database, database:
        database.execute("UPDATE merged SET key = zeroblob(40)")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(tmp_path / "a")
