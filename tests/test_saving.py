from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Card, LdpSlicingError, Plan, Slicer
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.saving import check_target
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify_file

COLOUR = np.arange(9 * 7 * 3, dtype=np.uint8).reshape(9, 7, 3)
DEEP = np.arange(9 * 7, dtype=np.uint16).reshape(9, 7)


@pytest.mark.parametrize(
    ("slicer", "image"),
    [
        (Slicer(Plan.paper(20.0)), COLOUR),
        (Slicer(Plan.paper(20.0), size=4), Image.fromarray(COLOUR)),
        (Slicer(Plan.sliced(3.5, "Y7+Cb7"), prune=None), COLOUR),
        (Slicer(Plan.grey(5.2)), COLOUR[..., 0]),
        (Slicer(Plan.grey(5.2)), COLOUR[..., :1]),
        (Slicer(Plan.grey(5.2, bits=16), prune="dct"), DEEP),
    ],
)
def test_a_saved_release_can_be_verified(slicer: Slicer, image: np.ndarray | Image.Image, tmp_path: Path) -> None:
    card = slicer.save(image, tmp_path / "release.png")
    assert Card.read(tmp_path / "release.png.card.json") == card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release.png", "release.png.card.json"]
    assert not verify_file(LocalStorage(tmp_path), "release.png").problems


@pytest.mark.parametrize("taken", ["release.png", "release.png.card.json"])
def test_nothing_is_overwritten(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).write_text("older")
    with pytest.raises(LdpSlicingError, match=rf"{taken} exists"):
        Slicer(Plan.paper(20.0)).save(COLOUR, tmp_path / "release.png")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]


@pytest.mark.parametrize(
    ("slicer", "image", "name", "message"),
    [
        (Slicer(Plan.paper(20.0)), COLOUR, "release.jpg", "must end in .png"),
        (Slicer(Plan.paper(20.0)), COLOUR[None], "release.png", "cannot be one file"),
        (Slicer(Plan.paper(20.0)), COLOUR, "none/release.png", "the folder .*none does not exist"),
        (Slicer(Plan.paper(20.0)), "image.jpg", "release.png", "open it first"),
        (Slicer(Plan.grey(20.0)), COLOUR, "release.png", "needs a colour plan"),
        (Slicer(Plan.grey(20.0, bits=12)), DEEP, "release.png", "8, 16 or 24 bits, but this plan's have 12"),
        (Slicer(Plan.paper(20.0), randomness=SeededForTests(0)), COLOUR, "release.png", "gets no card"),
        (Slicer(Plan.paper(20.0), output="ycbcr"), COLOUR, "release.png", "release.png cannot hold ycbcr"),
        (Slicer(Plan.sliced(3.5, "Y7+Cb7"), output="ycbcr"), COLOUR, "release.png", "release.png cannot hold ycbcr"),
    ],
)
def test_what_cannot_be_saved_writes_nothing(
    slicer: Slicer, image: np.ndarray, name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(LdpSlicingError, match=message):
        slicer.save(image, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_card_stays_without_its_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("ldp_slicing.saving.encode_png", fail)
    with pytest.raises(OSError, match="disk full"):
        Slicer(Plan.paper(20.0)).save(COLOUR, tmp_path / "release.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("first", ["all", "card"])
def test_of_two_that_save_to_one_name_the_first_has_it(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the card of one could lie beside the release of the other, and state another eps."""
    path, private = tmp_path / "release.png", Slicer(Plan.paper(1.0))

    def check_then_be_late(target: Path, plan: Plan, *, output: str) -> None:
        monkeypatch.undo()
        check_target(target, plan, output=output)
        if first == "all":
            private.save(COLOUR, path)
        else:
            (tmp_path / "release.png.card.json").write_text(private.card(7, 9).to_json())

    monkeypatch.setattr("ldp_slicing.slicer.check_target", check_then_be_late)
    with pytest.raises(LdpSlicingError, match=r"release.png.card.json exists"):
        Slicer(Plan.paper(20.0)).save(COLOUR, path)
    assert Card.read(tmp_path / "release.png.card.json").statement().plan == Plan.paper(1.0)
    assert path.exists() == (first == "all")


def test_a_file_that_appears_while_a_release_is_made_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "release.png"

    def check_then_be_late(target: Path, plan: Plan, *, output: str) -> None:
        check_target(target, plan, output=output)
        path.write_text("newer")

    monkeypatch.setattr("ldp_slicing.slicer.check_target", check_then_be_late)
    with pytest.raises(LdpSlicingError, match=r"release.png exists"):
        Slicer(Plan.paper(20.0)).save(COLOUR, path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("release.png", "newer")]


@pytest.mark.parametrize("folder", ["", "below"])
def test_nothing_is_saved_into_a_set_whose_card_does_not_count_it(folder: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(Slicer(Plan.paper(1.0)).card(7, 9).to_json())
    (tmp_path / "below").mkdir()
    with pytest.raises(LdpSlicingError, match="a set whose card does not count it"):
        Slicer(Plan.paper(20.0)).save(COLOUR, tmp_path / folder / "release.png")
    assert not list(tmp_path.rglob("*.png*"))


def test_a_grey_release_is_grey_whatever_the_output_of_colours(tmp_path: Path) -> None:
    Slicer(Plan.grey(5.2), output="ycbcr").save(COLOUR[..., 0], tmp_path / "release.png")
    assert not verify_file(LocalStorage(tmp_path), "release.png").problems
