from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ldp_slicing import Plan
from ldp_slicing.errors import LedgerError
from ldp_slicing.ledger import Approval, Intent, Ledger, RunPolicy, Spent, default_ledger
from ldp_slicing.ledger.sums import add_up
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.tables import round_up
from ldp_slicing.view import Padded
from ldp_slicing.wording import number

COLOUR, GREY = Plan.paper(20.0), Plan.grey(5.0)
FIRST, SECOND = RunPolicy(b"run 1", is_owners=False), RunPolicy(b"run 2", is_owners=False)


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def intent(item: str, pixels: str, file: str | None = None, plan: Plan = COLOUR, frame: int = 0) -> Intent:
    return Intent(item.encode(), digest(pixels), digest(file) if file else None, plan, "haar", 1, frame)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "deep" / "ledger.sqlite")


def most_spent(ledger: Ledger, sources: list[tuple[bytes, list[int]]]) -> list[Spent]:
    """Ask the ledger about the releases of some sources, each given by its stream and the numbers of its releases."""
    with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as database:
        database.execute("CREATE TABLE run_releases (unit INTEGER, number INTEGER, stream BLOB)")
        rows = [(unit, number, stream) for unit, (stream, numbers) in enumerate(sources) for number in numbers]
        database.executemany("INSERT INTO run_releases VALUES (?, ?, ?)", rows)
        return LedgerJoin(database, ledger).most_spent(("SELECT * FROM run_releases", ()))


def one(ledger: Ledger, made: Intent, policy: RunPolicy = FIRST) -> Approval:
    (approval,) = ledger.approve([made], policy)
    return approval


def test_a_retried_release_is_entered_once(ledger: Ledger) -> None:
    entries = {one(ledger, intent("a.png", "a", "A")).entry for _ in range(3)}
    assert len(entries) == 1
    assert ledger.total().releases == ledger.total().unfinished == 1
    ledger.finish([*entries])
    assert (ledger.total().releases, ledger.total().unfinished) == (1, 0)
    assert ledger.total().epsilon == COLOUR.realised_epsilon
    assert ledger.total().source_pixel_epsilon == 4 * COLOUR.realised_epsilon


@pytest.mark.parametrize(
    "again",
    [
        intent("a.png", "a", "A"),
        intent("b.png", "a", "B"),
        intent("b.png", "b", "A"),
        intent("a.png", "a"),
        intent("a.png", "a", plan=GREY),
    ],
    ids=["the same", "the same pixels", "the same file", "pixels alone", "another plan"],
)
def test_a_source_of_an_earlier_run_is_refused_with_the_sum(again: Intent, ledger: Ledger) -> None:
    ledger.finish([one(ledger, intent("a.png", "a", "A")).entry])
    approval = one(ledger, again, SECOND)
    total = float(Fraction(COLOUR.realised_epsilon) + Fraction(again.plan.realised_epsilon))
    assert approval.entry == 0
    assert approval.problem is not None
    assert "once," in approval.problem
    assert f"add up to epsilon {number(total)}" in approval.problem
    assert "--spend" in approval.problem
    assert ledger.total().releases == 1
    spending = RunPolicy(b"run 2", is_owners=False, spend=True)
    assert most_spent(ledger, [(spending.identity, [one(ledger, again, spending).entry])])[0].releases == 2
    assert ledger.total().epsilon == pytest.approx(total)


def test_an_unfinished_intent_counts(ledger: Ledger) -> None:
    one(ledger, intent("a.png", "a"))
    assert "1 unconfirmed: that run was interrupted" in (one(ledger, intent("a.png", "a"), SECOND).problem or "")


def test_an_intent_is_withdrawn_unless_it_was_approved_before(ledger: Ledger) -> None:
    entry = one(ledger, intent("a.png", "a")).entry
    ledger.withdraw([entry])
    assert ledger.total().releases == 0
    entry = one(ledger, intent("a.png", "a")).entry
    one(ledger, intent("a.png", "a"))  # again, after a crash: the first time may have got out
    ledger.withdraw([entry])
    assert ledger.total().releases == 1
    done = one(ledger, intent("b.png", "b")).entry
    ledger.finish([done])
    ledger.withdraw([done])
    assert ledger.total().releases == 2


def test_copies_within_a_run_are_counted_or_refused(ledger: Ledger) -> None:
    first, second = ledger.approve([intent("a.png", "a", "A"), intent("b.png", "a", "A")], FIRST)
    assert first.entry != second.entry
    assert most_spent(ledger, [(FIRST.identity, [first.entry])]) == most_spent(
        ledger, [(FIRST.identity, [first.entry, second.entry])]
    )
    assert most_spent(ledger, [(FIRST.identity, [second.entry])])[0].releases == 2
    once = RunPolicy(b"run 3", is_owners=False, spend=True, duplicates="once")
    first, second, other = ledger.approve(
        [intent("a.png", "a", "A"), intent("b.png", "a", "B"), intent("c.png", "c")], once
    )
    assert (first.is_copy, second.is_copy, other.is_copy) == (False, True, False)
    assert one(ledger, intent("a.png", "a", "A"), once).entry == first.entry  # resumed, the first is still the first
    assert one(ledger, intent("b.png", "a", "B"), once).is_copy
    frames = [intent("film/1", "same", "F", frame=1), intent("film/2", "same", "F", frame=2)]
    assert all(approval.entry for approval in ledger.approve(frames, once))


def test_under_an_owners_key_the_same_release_costs_nothing_more(ledger: Ledger) -> None:
    owner = RunPolicy(b"owner", is_owners=True)
    entry = one(ledger, intent("a.png", "a", "A"), owner).entry
    assert one(ledger, intent("copy.png", "a", "B"), owner).entry == entry
    assert ledger.total().releases == 1
    assert "released before" in (one(ledger, intent("a.png", "a", "A", GREY), owner).problem or "")
    assert "released before" in (
        one(ledger, intent("a.png", "a", "A"), RunPolicy(b"another owner", is_owners=True)).problem or ""
    )
    assert "released before" in (one(ledger, intent("a.png", "a", "A"), FIRST).problem or "")


def test_unknown_releases_are_refused(ledger: Ledger) -> None:
    entry = one(ledger, intent("a.png", "a", "A")).entry
    for stream, entered in ((FIRST.identity, entry + 1), (b"run 2", entry)):
        with pytest.raises(LedgerError, match="does not know 1 of these releases"):
            most_spent(ledger, [(stream, [entered])])
    assert most_spent(ledger, [(FIRST.identity, [entry])])[0].releases == 1


def test_an_intent_is_on_the_disk_before_anything_is_written(ledger: Ledger) -> None:
    """SQLite syncs at the end of a transaction; that it reaches the disk is SQLite's promise."""
    seen = list[str]()
    ledger._database.set_trace_callback(seen.append)
    entry = one(ledger, intent("a.png", "a", "A")).entry
    ledger.finish([entry])
    ledger._database.set_trace_callback(None)
    order = [text for text in seen if text.startswith(("PRAGMA", "BEGIN", "INSERT INTO releases", "COMMIT", "UPDATE"))]
    kinds = [text.split(" (")[0] if text.startswith("INSERT") else text.split(" SET")[0] for text in order]
    intents = ["PRAGMA synchronous = FULL", "BEGIN IMMEDIATE", "INSERT INTO releases", "COMMIT"]
    assert kinds == [*intents, "PRAGMA synchronous = NORMAL", "BEGIN IMMEDIATE", "UPDATE releases", "COMMIT"]


def test_the_source_with_most_spent_is_found_by_either_eps(ledger: Ledger) -> None:
    """Many sources with more eps per released pixel do not hide one with more per source pixel."""
    spending = RunPolicy(b"run 1", is_owners=False, spend=True)
    many = [one(ledger, intent(f"{i}-{k}.png", f"source {i}"), spending) for i in range(6) for k in range(3)]
    (wide,) = ledger.approve([Intent(b"wide.png", b"w" * 32, None, COLOUR, "dct", 1)], spending)
    found = most_spent(ledger, [(spending.identity, [approval.entry]) for approval in (*many, wide)])
    assert max(one.source_pixel_epsilon for one in found) == pytest.approx(64 * COLOUR.realised_epsilon)
    assert max(one.epsilon for one in found) == pytest.approx(3 * COLOUR.realised_epsilon)


def test_releases_of_several_sizes_count_with_their_own_pixels(ledger: Ledger) -> None:
    """A release of full size, and a shrunk one. The card of the second must not count the first as small."""
    spending = replace(SECOND, spend=True)
    whole = one(ledger, replace(intent("a", "x"), released=12_000_000))
    small = one(ledger, replace(intent("a", "x"), size=224, released=37_632), spending)
    (found,) = most_spent(ledger, [(spending.identity, [small.entry])])
    epsilon = Fraction(intent("a", "x").plan.realised_epsilon)
    assert found.releases == 2
    assert found.image_epsilon == round_up(epsilon * (12_000_000 + 37_632))
    assert whole.entry != small.entry


def test_sums_are_exact_and_rounded_up() -> None:
    """Rounded to nearest, every second sum would state less than was spent."""
    rng = random.Random(0)
    for _ in range(50):
        rows = [
            (rng.randint(1, 5), 0, 1, rng.uniform(0.1, 60), rng.choice((1, 4, 64)), voided, rng.randint(1, 10**6))
            for voided in (0, 1, rng.randint(0, 1), 0)
        ]
        found = add_up(rows)
        assert found.unvoided is not None
        for sums, counted in ((found, rows), (found.unvoided, [row for row in rows if not row[5]])):
            said = (sums.epsilon, sums.source_pixel_epsilon, sums.image_epsilon)
            factors = [(row[0], row[0] * row[4], row[6]) for row in counted]
            for stated, several in zip(said, zip(*factors, strict=True), strict=True):
                spent = sum(Fraction(row[3]) * factor for row, factor in zip(counted, several, strict=True))
                assert Fraction(math.nextafter(stated, 0)) < spent <= Fraction(stated)


def test_a_size_is_another_view_under_an_owners_key(ledger: Ledger) -> None:
    """The two releases have different masks, so the second is a further release and not the same again."""
    policy = replace(FIRST, is_owners=True)
    made = [one(ledger, replace(intent("a", "x"), size=size), policy) for size in (None, None)]
    assert made[0] == made[1]
    for size in (224, (224, 224), Padded(224, 224)):
        shrunk = replace(intent("a", "x"), size=size, released=100)
        assert "was released before" in (one(ledger, shrunk, policy).problem or "")
        assert one(ledger, shrunk, replace(policy, spend=True)).entry not in {approval.entry for approval in made}
    assert [about.get("size") for about in ledger.plans().values()] == [
        None,
        "at most 224 x 224",
        "224 x 224",
        "224 x 224, smaller sources padded with black",
    ]


def test_frames_add_up_to_their_file(ledger: Ledger) -> None:
    frames = [intent(f"film/{i}", f"frame {i}", "film", frame=i) for i in range(1, 31)]
    approvals = ledger.approve(frames, FIRST)
    assert most_spent(ledger, [(FIRST.identity, [approvals[-1].entry])])[0].releases == 30
    assert ledger.spent(digest("frame 3"), digest("film")).releases == 30
    assert ledger.spent(digest("frame 3")).releases == 1
    assert "30 times" in (one(ledger, intent("film/1", "other", "film", frame=1), SECOND).problem or "")


def test_the_most_spent_sources_come_first(ledger: Ledger) -> None:
    for count in range(4):
        spending = RunPolicy(f"run {count}".encode(), is_owners=False, spend=True)
        ledger.approve([intent(f"{i}.png", f"{i}", f"file {i}") for i in range(count + 1)], spending)
    ledger.approve([intent(f"film/{i}", f"frame {i}", "film", frame=i) for i in range(1, 6)], FIRST)
    spent = ledger.most_spent(3)
    assert [one.releases for _, one in spent] == [5, 4, 3]
    assert len({name for name, _ in spent}) == 3
    assert ledger.sources() == 9
    assert ledger.total().releases == 15
    assert [one.releases for _, one in ledger.most_spent(9)] == [5, 4, 3, 2, 1]  # a film is one, not its frames
    ledger.approve([intent("still.png", "frame 2", "still")], RunPolicy(b"later", is_owners=False, spend=True))
    assert [one.releases for _, one in ledger.most_spent(9)] == [
        6,
        4,
        3,
        2,
        2,
        1,
    ]  # but what was also released by itself is
    assert ledger.spent_on_frames([(digest("frame 2"), ()), (digest("0"), ())], digest("no such")).releases == 6
    assert ledger.spent_on_frames([], digest("film")).releases == 6
    for k in range(20):  # most of what was spent on the film was spent on one of its frames, as a still
        ledger.approve(
            [intent("still.png", "frame 2", "still")], RunPolicy(f"still {k}".encode(), is_owners=False, spend=True)
        )
    assert [one.releases for _, one in ledger.most_spent(1)] == [26]
    assert most_spent(ledger, [(FIRST.identity, [])]) is not None  # both use tables of their own


def test_the_ledger_holds_neither_names_nor_plain_digests(ledger: Ledger) -> None:
    secret = intent("the secret name.png", "pixels", "file")
    one(ledger, secret)
    ledger.close()
    content = b"".join(path.read_bytes() for path in ledger.path.parent.iterdir() if path.suffix != ".key")
    for planted in (secret.item, secret.source, secret.file, b"the secret"):
        assert planted is not None
        assert planted not in content
    for path in ledger.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    other = Ledger(ledger.path.with_name("other.sqlite"))
    assert other.keyed("pixels", secret.source) != Ledger(ledger.path).keyed("pixels", secret.source)
    assert len({other.keyed(kind, b"x") for kind in ("pixels", "file", "item")}) == 3


def test_a_ledger_without_its_key_is_refused(tmp_path: Path) -> None:
    path, key = tmp_path / "l.sqlite", tmp_path / "l.sqlite.key"
    with closing(Ledger(path)) as begun:
        one(begun, intent("a.png", "a"))
    other = Ledger(tmp_path / "other.sqlite")
    kept = key.read_bytes()
    key.write_bytes((tmp_path / "other.sqlite.key").read_bytes())
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        Ledger(path)
    key.unlink()
    with pytest.raises(LedgerError, match="cannot be used without its key"):
        Ledger(path)
    key.write_bytes(kept)
    key.chmod(0o600)
    assert Ledger(path).identity != other.identity


@pytest.mark.parametrize("how", ["missing", "empty", "cut off", "a page is missing"])
def test_a_damaged_ledger_is_not_begun_anew(how: str, tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with closing(Ledger(path)) as begun:
        begun.finish([one(begun, intent(f"{i}.png", f"{i}")).entry for i in range(50)])
    content = path.read_bytes()
    path.unlink()
    if how != "missing":
        left = {"empty": 0, "cut off": len(content) // 2 + 7, "a page is missing": len(content) - 4096}[how]
        path.write_bytes(content[:left])
    for must_exist in (True, False):
        with pytest.raises(LedgerError, match=r"is missing, but its key is there|is empty|is cut off before its end"):
            Ledger(path, must_exist=must_exist)
    path.write_bytes(content)
    assert Ledger(path).total().releases == 50


def test_a_second_name_of_a_ledger_is_refused_and_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with closing(Ledger(path)) as begun:
        one(begun, intent("a.png", "a"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(path)
    with closing(Ledger(tmp_path / "elsewhere" / "link")) as linked:
        assert linked.total().releases == 1
    os.link(path, tmp_path / "second.sqlite")
    os.link(tmp_path / "l.sqlite.key", tmp_path / "second.sqlite.key")
    for name in ("l.sqlite", "second.sqlite"):
        with pytest.raises(LedgerError, match="has a second name"):
            Ledger(tmp_path / name)


@pytest.mark.parametrize("must_exist", [True, False])
@pytest.mark.parametrize("name", ["link", "link/l.sqlite"])
def test_no_ledger_is_created_where_a_link_leads_to_nothing(name: str, must_exist: bool, tmp_path: Path) -> None:
    """The link may lead to a disk that is not mounted, with the ledger that knows what was released."""
    (tmp_path / "link").symlink_to("disk")
    with pytest.raises(LedgerError, match=r"a symbolic link to disk, which does not exist: mount its disk"):
        Ledger(tmp_path / name, must_exist=must_exist)
    assert [one.name for one in tmp_path.iterdir()] == ["link"]


CREATING = """
import os, signal, sys
from pathlib import Path
import ldp_slicing.ledger.file as file
step, at = [0], int(sys.argv[2])
def deadly(function):
    def wrapped(*args, **kwargs):
        step[0] += 1
        if step[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapped
for name in ("make_folder", "new_key_file", "_write_new", "sync_file", "sync_folder", "read_key_file", "_check_whole"):
    setattr(file, name, deadly(getattr(file, name)))
from ldp_slicing.ledger import Ledger
Ledger(Path(sys.argv[1]))
"""


def test_a_crash_while_a_ledger_is_created_does_not_refuse_it_for_ever(tmp_path: Path) -> None:
    for at in range(1, 9):
        path = tmp_path / str(at) / "ledger.sqlite"
        killed = subprocess.run([sys.executable, "-c", CREATING, str(path), str(at)], check=False)
        assert killed.returncode == -signal.SIGKILL
        with closing(Ledger(path)) as ledger:
            assert one(ledger, intent("a.png", "a")).entry
        with closing(Ledger(path)) as ledger:
            assert ledger.total().releases == 1
        assert sorted(one.name for one in path.parent.iterdir()) == ["ledger.sqlite", "ledger.sqlite.key"]


def test_a_log_that_an_earlier_ledger_left_is_not_added_to_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path)
    one(ledger, intent("a.png", "a"))
    log = path.with_name("l.sqlite-wal").read_bytes()
    ledger.close()
    for name in ("l.sqlite", "l.sqlite.key"):
        (tmp_path / name).unlink()
    path.with_name("l.sqlite-wal").write_bytes(log)
    assert Ledger(path).total().releases == 0


def test_the_log_is_merged_when_a_ledger_is_closed(tmp_path: Path) -> None:
    """Also while another process reads it, so that a copy of the file alone has every entry."""
    path = tmp_path / "l.sqlite"
    ledger, other = Ledger(path), Ledger(path)
    one(ledger, intent("a.png", "a"))
    assert other.total().releases == 1
    assert path.with_name("l.sqlite-wal").stat().st_size > 0
    ledger.close()
    assert path.with_name("l.sqlite-wal").stat().st_size == 0
    (tmp_path / "copy").mkdir()
    for name in ("l.sqlite", "l.sqlite.key"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
        (tmp_path / "copy" / name).chmod(0o600)
    assert Ledger(tmp_path / "copy" / "l.sqlite").total().releases == 1


def test_whatever_is_damaged_in_a_ledger_is_a_ledger_error(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with closing(Ledger(path)) as begun:
        for i in range(60):
            one(begun, intent(f"{i}.png", f"{i}", f"file {i % 7}"))
    content, rng = path.read_bytes(), random.Random(1)
    failed = 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 40)):
            at = rng.randrange(rng.choice((200, len(content))))
            damaged[at : at + 8] = rng.randbytes(8)
        path.write_bytes(damaged)
        try:
            with closing(Ledger(path)) as ledger:
                ledger.total(), ledger.sources(), ledger.most_spent(), list(ledger.rows()), ledger.plans()
                ledger.spent(digest("3"), digest("file 3"), (digest("form"),))
                ledger.approve([intent("new.png", "new"), intent("1.png", "1", "file 1")], SECOND)
        except LedgerError:  # anything else would fail the test
            failed += 1
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    assert failed > 50


def test_sources_with_a_common_form_are_one(ledger: Ledger) -> None:
    def formed(item: str, pixels: str, *forms: str) -> Intent:
        return replace(intent(item, pixels), forms=tuple(map(digest, forms)))

    spending = RunPolicy(b"run 2", is_owners=False, spend=True)
    one(ledger, formed("8 bits", "p8", "grey"))
    assert "once (" in (one(ledger, formed("16 bits", "p16", "grey"), SECOND).problem or "")
    entries = [one(ledger, formed("16 bits", "p16", "grey"), spending).entry]
    assert (ledger.sources(), ledger.spent(digest("p8")).releases, ledger.spent(digest("p16")).releases) == (1, 2, 2)
    assert ledger.spent(digest("never seen"), None, (digest("grey"),)).releases == 2
    one(ledger, formed("signed", "s12", "stored"))
    assert ledger.sources() == 2
    entries.append(one(ledger, formed("both", "s13", "grey", "stored"), spending).entry)  # it joins the two
    assert (ledger.sources(), ledger.spent(digest("s12")).releases) == (1, 4)
    assert most_spent(ledger, [(b"run 2", entries[:1]), (b"run 2", entries[1:])])[0].releases == 4
    once = RunPolicy(b"run 3", is_owners=False, spend=True, duplicates="once")
    assert one(ledger, formed("a", "p8", "grey"), once).entry
    assert one(ledger, formed("b", "p16", "grey"), once).is_copy


def steps_of(database: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Return how many hundreds of instructions SQLite carries out."""
    seen = list[None]()
    database.set_progress_handler(lambda: seen.append(None), 100)
    work()
    database.set_progress_handler(None, 0)
    return len(seen)


def steps_for_equal_images(count: int, kind: str, ledger: Ledger) -> int:
    intents = [intent(f"v/{i}", "p", "f", frame=i if kind == "frames" else 0) for i in range(1, count + 1)]
    batches = [intents[i : i + 50] for i in range(0, count, 50)]

    def release(policy: RunPolicy) -> list[int]:
        return [approval.entry for batch in batches for approval in ledger.approve(batch, policy)]

    entries: list[int] = []
    steps = steps_of(ledger._database, lambda: entries.extend(release(FIRST)))
    if kind == "refused rows":
        return steps_of(ledger._database, lambda: release(SECOND))
    with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as database:
        database.execute("CREATE TABLE run_releases (unit INTEGER, number INTEGER, stream BLOB)")
        rows = ((0 if kind == "frames" else unit, entry, FIRST.identity) for unit, entry in enumerate(entries))
        database.executemany("INSERT INTO run_releases VALUES (?, ?, ?)", rows)
        joined = LedgerJoin(database, ledger)
        assert joined.most_spent(("SELECT * FROM run_releases", ()))[0].releases == count
        return steps + steps_of(database, lambda: joined.most_spent(("SELECT * FROM run_releases", ())))


@pytest.mark.parametrize("kind", ["rows", "frames", "refused rows"])
def test_twice_as_many_equal_images_are_at_most_twice_the_work(kind: str, tmp_path: Path) -> None:
    """Rows of one file that hold the same image, each with the digest of its bytes; or equal frames of one video."""
    some, twice = (steps_for_equal_images(count, kind, Ledger(tmp_path / f"{count}.sqlite")) for count in (1000, 2000))
    assert 10 < twice <= 2.1 * some


def test_what_an_earlier_session_released_is_released_again_only_beside_its_source(ledger: Ledger) -> None:
    def session(*present: int) -> RunPolicy:
        return RunPolicy(b"run 1", is_owners=False, session=ledger.begin_session(), has_source=present.__contains__)

    first = session()
    entry = one(ledger, intent("a.png", "a", "A"), first).entry
    assert one(ledger, intent("copy.png", "a", "A"), first).entry  # both were there when the session began
    gone = session()
    for again in (intent("b.png", "a", "B"), intent("b.png", "b", "A")):
        assert "under a name that is gone" in (one(ledger, again, gone).problem or "")
    assert one(ledger, intent("a.png", "a", "A"), gone).entry == entry
    both = [row["state"] for row in ledger.rows()]
    assert both == ["intent", "intent"]
    there = session(*(entry + i for i in range(2)))
    assert one(ledger, intent("b.png", "a", "B"), there).entry
    assert one(ledger, intent("c.png", "a", "C"), session(entry)).problem  # the copy is gone


def test_a_file_that_is_not_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(tmp_path / "none.sqlite", must_exist=True)
    assert not list(tmp_path.iterdir())
    path = tmp_path / "l.sqlite"
    Ledger(path).close()
    database = sqlite3.connect(path)
    database.execute("UPDATE meta SET value = 3 WHERE name = 'version'")
    database.commit()
    database.close()
    with pytest.raises(LedgerError, match="version 3, and this software reads version 4"):
        Ledger(path)
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(path)
    (tmp_path / "folder.sqlite").mkdir()
    (tmp_path / "folder.sqlite.key").write_bytes((tmp_path / "l.sqlite.key").read_bytes())
    (tmp_path / "folder.sqlite.key").chmod(0o600)
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger(tmp_path / "folder.sqlite")


def test_a_ledger_that_cannot_be_written_stops_the_release(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldp_slicing.ledger.file.BUSY_SECONDS", 0.1)
    impatient = Ledger(ledger.path)
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked"):
        one(impatient, intent("a.png", "a"))
    holder.execute("ROLLBACK")
    assert one(impatient, intent("a.png", "a")).entry


MANY = """
import hashlib, sys
from pathlib import Path
from ldp_slicing import Plan
from ldp_slicing.ledger import Intent, Ledger, RunPolicy
ledger = Ledger(Path(sys.argv[1]))
policy = RunPolicy(sys.argv[2].encode(), is_owners=False)
got = 0
plan = Plan.paper(20.0)
for batch in range(20):
    names = [b"%d" % i for i in range(10 * batch, 10 * batch + 10)]
    intents = [Intent(name, hashlib.sha256(name).digest(), None, plan, "haar", 1) for name in names]
    approvals = [approval for approval in ledger.approve(intents, policy) if not approval.problem]
    ledger.finish([approval.entry for approval in approvals])
    got += len(approvals)
print(got)
"""


def test_concurrent_processes_never_release_a_source_twice(tmp_path: Path) -> None:
    """All open it at once, where there is no ledger yet, and all request the same 200 sources."""
    path = tmp_path / "new" / "ledger.sqlite"
    runs = [subprocess.Popen([sys.executable, "-c", MANY, str(path), str(i)], stdout=subprocess.PIPE) for i in range(3)]
    got = [int(run.communicate()[0]) for run in runs]
    assert sum(got) == 200
    total = Ledger(path).total()
    assert (total.releases, total.unfinished) == (200, 0)


ENDLESS = MANY.replace("for batch in range(20)", "import itertools\nfor batch in itertools.count()").replace(
    "got +=", "print(batch, flush=True); got +="
)


def test_approved_intents_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path), "run"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        batches = [int(run.stdout.readline()) for _ in range(12)]
        run.send_signal(signal.SIGKILL)
        batches += [int(line) for line in run.stdout.read().splitlines()]
    ledger = Ledger(path)
    assert ledger.total().releases >= 10 * len(batches)
    assert ledger.total().unfinished <= 10


def test_the_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_ledger() == tmp_path / "ldp-slicing" / "ledger.sqlite"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_ledger() == Path.home() / ".local" / "share" / "ldp-slicing" / "ledger.sqlite"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_ledger().parts[-3:] == ("Application Support", "ldp-slicing", "ledger.sqlite")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_ledger() == tmp_path / "local" / "ldp-slicing" / "ledger.sqlite"


def test_export(ledger: Ledger) -> None:
    ledger.finish([one(ledger, intent("a.png", "a", "A")).entry])
    one(ledger, intent("b.png", "b"))
    done, open_ = ledger.rows()
    assert (done["state"], open_["state"]) == ("done", "intent")
    assert done["epsilon"] == COLOUR.realised_epsilon
    assert abs(done["time"] - time.time()) < 1000
    assert open_["file"] is None
    about = ledger.plans()[done["plan"]]
    assert len(about["slices"]) == 24
    assert json.dumps(list(ledger.rows()))
    assert os.path.getsize(ledger.path)  # noqa: PTH202


def test_a_relative_data_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    assert default_ledger() == tmp_path / ".local" / "share" / "ldp-slicing" / "ledger.sqlite"
