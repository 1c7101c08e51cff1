"""A card lies beside releases only if it counts all of them, whatever failed. docs/proofs.md, 13.6."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ldp_slicing.card import Card
from ldp_slicing.errors import LedgerError, ReleaseError
from ldp_slicing.keys import new_key_file
from ldp_slicing.ledger import Approval, Ledger
from ldp_slicing.release import closing
from ldp_slicing.release.inventory import Stop
from ldp_slicing.release.ledger_client import LedgerClient, ReleaseRequest
from ldp_slicing.release.ledger_join import LedgerJoin
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.report import FileReport, FileState
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.release.state import RunState
from ldp_slicing.release.target import ReleasePaths
from ldp_slicing.release.worker import Worker, WorkerContext
from ldp_slicing.sets import CARD_NAME
from ldp_slicing.storage import LocalStorage, StoredFile, TemporaryFile, write_file
from tests.markers import encoded, gradient
from tests.release.helpers import (
    PNG,
    SETTINGS,
    card_of,
    on_card,
    outputs,
    plant,
    release,
    small_images,
    spent,
    verified,
)


def lost_in_between(
    context: WorkerContext, client: LedgerClient, state: RunState, stop: Stop
) -> Generator[list[FileReport]]:
    """Run workers that are killed after their files have their names, before they can report."""
    list(Worker(context, client).run(list(state.tasks())))
    yield from ()


def test_an_uncounted_file_prevents_the_card(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(3))
    assert release(source, tmp_path / "out").complete
    plant(source, {"large.png": encoded(gradient(90, 70), "PNG")})
    run = prepare(source, tmp_path / "out", SETTINGS)
    list(run.run(lost_in_between))
    assert "large.png is in the target but not counted" in (run.result.problem or "")
    assert not run.result.complete
    run.close()
    assert not (tmp_path / "out" / CARD_NAME).exists()
    before = outputs(tmp_path / "out")
    assert release(source, tmp_path / "out").complete
    assert outputs(tmp_path / "out") == before
    assert on_card(tmp_path / "out") == 4
    assert verified(tmp_path / "out") == []


def test_an_uncounted_single_file_prevents_its_card(tmp_path: Path) -> None:
    plant(tmp_path, {"in.png": PNG, "other.png": PNG})
    run = prepare(tmp_path / "in.png", tmp_path / "out.png", SETTINGS)
    list(run.run(lost_in_between))
    assert "out.png is in the target but not counted" in (run.result.problem or "")
    run.close()
    assert release(tmp_path / "in.png", tmp_path / "out.png").complete


def test_a_ledger_that_fails_after_files_are_named_prevents_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = plant(tmp_path / "in", small_images(3))

    def fails(self: Ledger, entries: object) -> None:
        raise LedgerError("the ledger is locked: for a test")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "finish", fails)
        ran = release(source, tmp_path / "out")
    assert len(outputs(tmp_path / "out")) == 3
    assert "is in the target but not counted" in (ran.card_problem or "")
    assert not (tmp_path / "out" / CARD_NAME).exists()
    assert release(source, tmp_path / "out").complete
    assert on_card(tmp_path / "out") == 3


def test_no_earlier_card_is_present_while_something_is_released(tmp_path: Path) -> None:
    """A killed run leaves no card rather than one that counts too little."""
    source = plant(tmp_path / "in", small_images(2))
    assert release(source, tmp_path / "out").complete
    plant(source, small_images(3))
    run = prepare(source, tmp_path / "out", SETTINGS)
    assert [(tmp_path / "out" / CARD_NAME).exists() for _ in run.run(on_this_machine(1))] == [False]
    run.close()
    assert on_card(tmp_path / "out") == 3


def test_a_card_that_this_run_did_not_write_is_not_replaced(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    assert release(source, tmp_path / "out").complete
    for content, why in (('{"card": 6, "statements": []}', "another run wrote it"), ("notes", "it is not a card")):
        (tmp_path / "out" / CARD_NAME).write_text(content)
        with pytest.raises(ReleaseError, match=why):
            prepare(source, tmp_path / "out", SETTINGS)
        assert (tmp_path / "out" / CARD_NAME).read_text() == content
    for content in ("", "\0\0\0"):  # as a power cut leaves it
        (tmp_path / "out" / CARD_NAME).write_text(content)
        assert release(source, tmp_path / "out").complete
    assert on_card(tmp_path / "out") == 2


def test_a_card_is_not_withdrawn_where_nothing_is_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(tmp_path / "in", small_images(2))
    release(source, tmp_path / "out")
    before, removed = (tmp_path / "out" / CARD_NAME).read_bytes(), list[str]()
    monkeypatch.setattr(LocalStorage, "remove", lambda self, path: removed.append(path))
    assert release(source, tmp_path / "out").complete
    assert removed == []
    assert (tmp_path / "out" / CARD_NAME).read_bytes() == before


def test_a_card_is_withdrawn_before_the_first_file_and_written_again(tmp_path: Path) -> None:
    """Also where the new file cannot be released: then the card says the same as before."""
    source, card = plant(tmp_path / "in", small_images(2)), tmp_path / "out" / CARD_NAME
    release(source, tmp_path / "out")
    before = card.read_bytes()
    plant(source, {"damaged.png": b"no image"})
    seen = list[bool]()

    def look(context: WorkerContext, client: LedgerClient, state: RunState, stop: Stop) -> Generator[list[FileReport]]:
        seen.append(card.exists())
        yield from on_this_machine(1)(context, client, state, stop)

    run = prepare(source, tmp_path / "out", SETTINGS)
    (report,) = run.run(look)
    run.close()
    assert seen == [False]
    assert report.state is FileState.FAILED
    assert card.read_bytes() == before


def test_a_deleted_target_can_be_released_again(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    release(source, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    assert len(release(source, tmp_path / "out").problems) == 2
    assert release(source, tmp_path / "out", spend=True).complete
    assert verified(tmp_path / "out") == []


def test_a_refused_run_unlocks_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(tmp_path / "in", small_images(2))
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "listing", lambda self: (_ for _ in ()).throw(ReleaseError("for a test")))
        with pytest.raises(ReleaseError, match="for a test"):
            prepare(source, tmp_path / "out", SETTINGS)
    assert release(source, tmp_path / "out").complete


def test_files_of_the_operating_system_do_not_prevent_the_card(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    release(source, tmp_path / "out")
    plant(tmp_path / "out", {"._00000.png": b"\0\5\x16\7", ".DS_Store": b"x"})
    plant(source, small_images(3))
    assert release(source, tmp_path / "out").complete


@pytest.mark.parametrize("name", ["caf\u00e9.png", "cafe\u0301.png", "\u00e9e\u0301.png"])
def test_names_with_accents_are_counted_in_every_unicode_form(name: str, tmp_path: Path) -> None:
    assert release(plant(tmp_path / "in", {name: PNG}), tmp_path / "out").complete


def test_an_unreadable_folder_prevents_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plant(tmp_path / "in", small_images(2))
    run = prepare(source, tmp_path / "out", SETTINGS)
    monkeypatch.setattr(
        LocalStorage,
        "files",
        lambda self: iter([StoredFile("deep", problem="folder cannot be read: Permission denied")]),
    )
    list(run.run(on_this_machine(1)))
    assert "deep folder cannot be read" in (run.result.problem or "")
    run.close()
    assert not (tmp_path / "out" / CARD_NAME).exists()


@pytest.mark.parametrize("owners", [False, True])
def test_an_older_ledger_is_recognised_before_anything_is_spent(owners: bool, tmp_path: Path) -> None:
    """Also in the middle of a run, which goes on under the same identity, and under an owner's key."""
    key = tmp_path / "key" if owners else None
    if key:
        new_key_file(key)
    source, ledger = plant(tmp_path / "in", small_images(3)), tmp_path / "l" / "ledger.sqlite"
    many = {f"z{i:03}.png": data for i, data in enumerate(small_images(70, 9, 8).values())}
    release(plant(source, many), tmp_path / "out", ledger=ledger, key=key, after=1)  # a batch
    shutil.copytree(ledger.parent, tmp_path / "backup")
    assert release(source, tmp_path / "out", ledger=ledger, key=key).complete
    before, card = outputs(tmp_path / "out"), (tmp_path / "out" / CARD_NAME).read_bytes()
    shutil.rmtree(ledger.parent)
    (tmp_path / "backup").rename(ledger.parent)
    plant(source, {"copy.png": many["z069.png"], "new.png": encoded(gradient(5, 5), "PNG")})
    others = {f"{i}.png": encoded(gradient(4, 4 + i), "PNG") for i in range(90)}
    release(plant(tmp_path / "others", others), tmp_path / "elsewhere", ledger=ledger, key=key)  # they fill the gap
    for _ in range(2):
        with pytest.raises(LedgerError, match="it seems to have been replaced by an older one"):
            prepare(source, tmp_path / "out", SETTINGS, ledger=ledger, key=key)
    assert outputs(tmp_path / "out") == before
    shutil.copytree(tmp_path / "out", tmp_path / "kept")
    for name in before:
        (tmp_path / "out" / name).unlink()  # lost releases were spent all the same
    with pytest.raises(LedgerError, match="it seems to have been replaced by an older one"):
        prepare(source, tmp_path / "out", SETTINGS, ledger=ledger, key=key, spend=True)
    shutil.copytree(tmp_path / "kept", tmp_path / "out", dirs_exist_ok=True)
    assert (tmp_path / "out" / CARD_NAME).read_bytes() == card


def test_no_card_says_less_than_the_one_before_it(tmp_path: Path) -> None:
    """A ledger that knows this run's releases, but no longer what another run had spent when the card was written."""
    source, ledger = plant(tmp_path / "in", {"a.png": PNG}), tmp_path / "l" / "ledger.sqlite"
    release(source, tmp_path / "out", ledger=ledger)
    shutil.copytree(ledger.parent, tmp_path / "backup")
    release(source, tmp_path / "other", ledger=ledger, spend=True)
    release(source, tmp_path / "out", ledger=ledger)
    before = card_of(tmp_path / "out")["statements"][0]
    assert before["most_releases_of_one_source"] == 2
    shutil.rmtree(ledger.parent)
    (tmp_path / "backup").rename(ledger.parent)
    release(source, tmp_path / "out", ledger=ledger)
    assert card_of(tmp_path / "out")["statements"][0] == before


def test_no_card_is_written_beside_an_image_that_is_not_a_release(tmp_path: Path) -> None:
    """Somebody copied the originals over the releases, or named the state of another target."""
    source = plant(tmp_path / "in", small_images(2))
    assert release(source, tmp_path / "out", state=tmp_path / "state").complete
    shutil.copytree(source, tmp_path / "mine")
    for spend in (False, True):
        with pytest.raises(
            ReleaseError,
            match=r"is the state of a run to .*out, and none of its releases is in the target that you named",
        ):
            prepare(source, tmp_path / "mine", SETTINGS, state=tmp_path / "state", spend=spend)
    assert outputs(tmp_path / "mine") == small_images(2)
    shutil.copytree(source, tmp_path / "out", dirs_exist_ok=True)
    ran = release(source, tmp_path / "out", state=tmp_path / "state")
    assert "00000.png is not the file that was released under that name" in (ran.card_problem or "")
    assert not (tmp_path / "out" / CARD_NAME).exists()
    for name in small_images(2):
        (tmp_path / "out" / name).unlink()
    ran = release(source, tmp_path / "out", state=tmp_path / "state")  # lost releases stay on the card
    assert ran.card_problem is None
    assert on_card(tmp_path / "out") == 2


def test_a_target_and_its_state_may_be_moved_together(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    assert release(source, tmp_path / "out").complete
    (tmp_path / "out").rename(tmp_path / "moved")
    plant(source, {"new.png": encoded(gradient(5, 5), "PNG")})
    assert release(source, tmp_path / "moved", state=tmp_path / "out.owner").complete
    (tmp_path / "out.owner").rename(tmp_path / "moved.owner")
    assert release(source, tmp_path / "moved").complete
    assert verified(tmp_path / "moved") == []


def test_a_refused_start_does_not_open_a_folder_of_other_files(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.jpg": encoded(gradient(9, 7), "JPEG")})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReleaseError):
        prepare(source, tmp_path / "file" / "out", SETTINGS, state=tmp_path / "state")
    shutil.copytree(source, tmp_path / "mine")
    with pytest.raises(ReleaseError, match="is not an empty folder"):
        prepare(source, tmp_path / "mine", SETTINGS, state=tmp_path / "state", spend=True)


def test_a_lost_release_that_returns_is_recognised(tmp_path: Path) -> None:
    """Releases were replaced by links, or lay on a disk that was away when they were to be made again."""
    source = plant(tmp_path / "in", small_images(3))
    release(source, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "kept")
    for name in small_images(3):
        (tmp_path / "out" / name).unlink()
        (tmp_path / "out" / name).symlink_to(tmp_path / "kept" / name)
    ran = release(source, tmp_path / "out", spend=True)
    assert all("another file has the name of its release" in problem for problem in ran.problems.values())
    assert spent().releases == 3
    for name in small_images(3):
        (tmp_path / "out" / name).unlink()
    prepare(source, tmp_path / "out", SETTINGS, spend=True).close()  # killed before anything was released
    shutil.copy(tmp_path / "kept" / "00000.png", tmp_path / "out")
    (tmp_path / "out" / "00001.png").write_bytes(b"another")
    ran = release(source, tmp_path / "out", spend=True)
    assert "nothing is overwritten" in ran.problems["00001.png"]
    assert spent().releases == 4  # one was released again, one returned, and the one whose name is in use cost nothing
    (tmp_path / "out" / "00001.png").unlink()
    shutil.copy(tmp_path / "kept" / "00001.png", tmp_path / "out")
    assert release(source, tmp_path / "out").complete
    assert outputs(tmp_path / "out")["00001.png"] == outputs(tmp_path / "kept")["00001.png"]
    assert card_of(tmp_path / "out")["statements"][0]["most_releases_of_one_source"] == 2
    assert verified(tmp_path / "out") == []


def test_a_run_below_another_target_is_not_resumed_once_that_has_a_card(tmp_path: Path) -> None:
    one, two = (
        plant(tmp_path / "one", {"a.png": PNG}),
        plant(tmp_path / "two", {"b.png": encoded(gradient(5, 5), "PNG")}),
    )
    first = prepare(one, tmp_path / "out", SETTINGS)
    prepare(two, tmp_path / "out" / "sub", SETTINGS, state=tmp_path / "s0").close()
    list(first.run(on_this_machine(1)))
    first.close()
    with pytest.raises(ReleaseError, match="out is the target of another run"):
        prepare(two, tmp_path / "out" / "sub", SETTINGS, state=tmp_path / "s0")
    memory = f"memory://above-{tmp_path.name}"
    release(one, memory, spend=True, state=tmp_path / "s1")  # type: ignore[arg-type]
    for target in (f"{memory}/sub", f"{memory}/deep/sub"):
        with pytest.raises(ReleaseError, match="is the target of another run"):
            prepare(two, target, SETTINGS, state=tmp_path / "s2")
    with pytest.raises(ReleaseError, match="is the target of another run"):
        prepare(two / "b.png", f"{memory}/b.png", SETTINGS, state=tmp_path / "s3")


def test_a_file_named_card_that_is_not_a_card_is_ignored(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    for content in ('["statements"]', '"my statements"', '{"statements": []}', "\n", "[" * 100_000):
        (tmp_path / CARD_NAME).write_text(content)
        run = prepare(source, tmp_path / "out", SETTINGS)
        assert run.inventory.waiting == 1
        run.close()
        assert (tmp_path / CARD_NAME).read_text() == content


def test_a_release_of_an_earlier_key_is_checked_by_content_not_size(tmp_path: Path) -> None:
    """Uncompressed releases of equal dimensions have equal sizes: one of another plan could take its place."""
    source, many = (
        plant(tmp_path / "in", {"a.png": PNG}),
        {f"z{i:03}.png": data for i, data in enumerate(small_images(70, 9, 8).values())},
    )
    release(source, tmp_path / "out")
    release(source, tmp_path / "weak", ReleaseSettings(epsilon=40.0), spend=True)
    release(plant(source, many), tmp_path / "out", after=1)  # a new key
    shutil.copy(tmp_path / "weak" / "a.png", tmp_path / "out" / "a.png")
    ran = release(source, tmp_path / "out")
    assert "a.png is not the file that was released under that name" in (ran.card_problem or "")


@pytest.mark.parametrize("target", ["out/again.png", "out/below/again.png", "out/below"])
def test_nothing_is_released_into_another_runs_target(target: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    release(source, tmp_path / "out")
    with pytest.raises(ReleaseError, match="out is the target of another run, whose card would not count this release"):
        prepare(source / "a.png" if target.endswith("png") else source, tmp_path / target, SETTINGS, spend=True)
    assert verified(tmp_path / "out") == []
    assert spent().releases == 1


def test_two_runs_on_one_unlocked_target_leave_no_card(tmp_path: Path) -> None:
    """Remote targets cannot be locked: the second run names a file after the first one has ended."""
    memory = f"memory://both-{tmp_path.name}"
    one, two = (
        plant(tmp_path / "one", {"x.png": PNG}),
        plant(tmp_path / "two", {"y.png": encoded(gradient(5, 5), "PNG")}),
    )
    first, second = (
        prepare(one, memory, SETTINGS, state=tmp_path / "s1"),
        prepare(two, memory, SETTINGS, state=tmp_path / "s2"),
    )

    def slow(context: WorkerContext, client: LedgerClient, state: RunState, stop: Stop) -> Generator[list[FileReport]]:
        tasks = list(state.tasks())
        worker = Worker(context, client)
        approve = client.approve

        def approved(requests: Sequence[ReleaseRequest]) -> list[Approval]:
            approvals = approve(requests)
            list(first.run(on_this_machine(1)))
            return approvals

        client.approve = approved  # type: ignore[method-assign]
        yield list(worker.run(tasks))

    list(second.run(slow))
    assert first.result.problem is None
    assert "x.png is in the target but not counted" in (second.result.problem or "")
    assert first.paths.target.size(CARD_NAME) is None
    for run in (first, second):
        run.close()


def test_a_card_written_after_another_runs_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run named it after this one had looked, and before its card had its name."""
    memory = f"memory://late-{tmp_path.name}"
    run = prepare(plant(tmp_path / "in", {"x.png": PNG}), memory, SETTINGS, state=tmp_path / "s1")
    write = closing.write_card

    def late(paths: ReleasePaths, state: RunState, card: Card, stated: closing.Stated) -> None:
        write_file(paths.target, "y.png", [PNG])
        write(paths, state, card, stated)

    monkeypatch.setattr(closing, "write_card", late)
    list(run.run(on_this_machine(1)))
    assert "y.png is in the target but not counted" in (run.result.problem or "")
    assert run.paths.target.size(CARD_NAME) is None
    assert not run.result.complete
    run.close()


@pytest.mark.parametrize("how", ["._b.png", "sub/b.png"])
def test_a_hidden_or_linked_release_prevents_the_card(how: str, tmp_path: Path) -> None:
    """An image named like an AppleDouble file, and one behind a link. The source is gone meanwhile."""
    source = plant(tmp_path / "in", {"a.png": PNG, how: encoded(gradient(5, 5), "PNG")})
    if how.startswith("sub"):
        (tmp_path / "elsewhere").mkdir()
        prepare(source, tmp_path / "out", SETTINGS).close()
        (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    run = prepare(source, tmp_path / "out", SETTINGS)
    list(run.run(lost_in_between))
    run.close()
    (source / how).unlink()
    ran = release(source, tmp_path / "out")
    assert ("sub is a symbolic link" if how.startswith("sub") else "._b.png is in the target but not counted") in (
        ran.card_problem or ""
    )
    assert not (tmp_path / "out" / CARD_NAME).exists()


def test_an_owners_key_inside_the_target_is_refused(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.png": PNG})
    (tmp_path / "out").mkdir()
    new_key_file(tmp_path / "out" / "key")
    with pytest.raises(ReleaseError, match=r"key would lie in .*out, which is handed on"):
        prepare(source, tmp_path / "out", SETTINGS, key=tmp_path / "out" / "key")
    for names in (("", tmp_path / "x"), (source, "")):
        with pytest.raises(ReleaseError, match="one of them is empty"):
            prepare(*names, SETTINGS)


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_two_runs_cannot_work_on_one_target(tmp_path: Path) -> None:
    one, two = (
        plant(tmp_path / "one", small_images(2)),
        plant(tmp_path / "two", {"b.png": encoded(gradient(5, 5), "PNG")}),
    )
    run = prepare(one, tmp_path / "out", SETTINGS)
    with pytest.raises(ReleaseError, match="another run is working on"):
        prepare(two, tmp_path / "out", SETTINGS, state=tmp_path / "state")
    list(run.run(on_this_machine(1)))
    run.close()
    assert run.result.complete


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_target_that_is_made_again_is_locked(tmp_path: Path) -> None:
    one, two = (plant(tmp_path / name, {"a.png": PNG}) for name in ("one", "two"))
    release(one, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    run = prepare(one, tmp_path / "out", SETTINGS, spend=True)
    with pytest.raises(ReleaseError, match="another run is working on"):
        prepare(two, tmp_path / "out", SETTINGS, state=tmp_path / "state")
    list(run.run(on_this_machine(1)))
    run.close()
    assert verified(tmp_path / "out") == []


def test_an_older_ledger_is_refused_and_the_card_stays(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", small_images(2))
    ledger = tmp_path / "l" / "ledger.sqlite"
    release(source, tmp_path / "one", ledger=ledger)
    (tmp_path / "backup").mkdir()
    for path in ledger.parent.iterdir():
        shutil.copy(path, tmp_path / "backup")
    release(source, tmp_path / "two", ledger=ledger, spend=True)
    before = (tmp_path / "two" / CARD_NAME).read_bytes()
    shutil.rmtree(ledger.parent)
    (tmp_path / "backup").rename(ledger.parent)
    with pytest.raises(LedgerError, match="it seems to have been replaced by an older one"):
        release(source, tmp_path / "two", ledger=ledger, spend=True)
    assert (tmp_path / "two" / CARD_NAME).read_bytes() == before


class Failing(LocalStorage):
    """A folder that refuses to rename."""

    number = errno.EACCES

    def create(self, path: str) -> TemporaryFile:
        file = super().create(path)

        def refuse(*, replace: bool = False) -> None:
            raise OSError(self.number, os.strerror(self.number))

        file.commit = refuse  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize(
    ("number", "state", "counted"),
    [("EACCES", FileState.RETRY, 0), ("ENAMETOOLONG", FileState.FAILED, 0), ("EIO", FileState.RETRY, 1)],
)
def test_a_file_that_certainly_has_no_name_is_not_counted(
    number: str, state: FileState, counted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only folder and a name that is too long leave no file; after a disk error that is unknown."""
    source = plant(tmp_path / "in", {"a.png": PNG})
    monkeypatch.setattr(Failing, "number", getattr(errno, number))
    run = prepare(source, tmp_path / "out", SETTINGS)
    target = run.paths.target
    assert isinstance(target, LocalStorage)
    run.paths = replace(run.paths, target=Failing(target.root, target.scratch))
    (report,) = run.run(on_this_machine(1))
    assert report.state is state
    run.close()
    assert spent().releases == counted


def test_a_run_without_a_card_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run keeps its key."""
    source = plant(tmp_path / "in", small_images(3))

    def fails(self: LedgerJoin, asked: object) -> list[object]:
        raise LedgerError("the ledger cannot be read: for a test")

    with monkeypatch.context() as patch:
        patch.setattr(LedgerJoin, "most_spent", fails)
        ran = release(source, tmp_path / "out")
    assert not ran.complete
    assert "for a test" in (ran.card_problem or "")
    assert not (tmp_path / "out" / "card.json").exists()
    before = outputs(tmp_path / "out")
    assert release(source, tmp_path / "out").complete
    assert outputs(tmp_path / "out") == before
    assert verified(tmp_path / "out") == []
