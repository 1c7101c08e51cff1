from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Plan, Slicer, comparison_sheet, view
from ldp_slicing.comparison_sheet import (
    COLUMNS,
    GAP,
    PAPER,
    SMALLEST,
    TEXT,
    TITLE,
    WARNING,
    Pixels,
    Words,
    _fitting,
    average,
    make_sheet,
    reduce_image,
    stretch,
    view_image,
)
from ldp_slicing.plan import BUDGETS
from tests.markers import gradient

ROOT = Path(__file__).parents[1]
SHAPES = [(1, 1), (1, 400), (400, 1), (2, 3), (96, 96), (97, 200), (300, 250)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "grey"])
def test_sheet_is_large_enough_and_has_the_banner(shape: tuple[int, int], colour: bool) -> None:
    source = gradient(*shape) if colour else gradient(*shape)[..., 0]
    drawn = np.asarray(make_sheet(source, 64))
    banner, below = drawn[: 3 * TITLE], drawn[3 * TITLE + 1 :]
    assert np.all(banner[0] == WARNING)
    assert np.all(banner[-1] == WARNING)
    for line in (banner[8 : 8 + TITLE], banner[8 + TITLE :]):
        written = np.flatnonzero(np.any(line != WARNING, axis=(0, 2)))
        assert len(written) > 300  # text is drawn
        assert written[-1] < drawn.shape[1] - GAP  # and fits on the sheet
    assert not np.any(np.all(below[:, :GAP] == WARNING, axis=-1))  # outside the tiles, whose noise has every colour
    assert np.all(below[:, -GAP + 1 :] == PAPER)  # labels fit under their tiles


def test_sheet_shows_the_source_and_its_bit_planes() -> None:
    source = gradient(96, 96)
    drawn = np.asarray(make_sheet(source, 96))
    np.testing.assert_array_equal(tile(drawn, 0, 0, 96), source)
    planes = view_image(source, None)
    for bit in (7, 6, 0):
        np.testing.assert_array_equal(tile(drawn, 1, 7 - bit, 96)[..., 0] == 255, planes[..., 0] >> bit & 1 == 1)


def tile(drawn: Pixels, row: int, column: int, side: int) -> Pixels:
    """Return one tile of a sheet with tiles of that size."""
    top = 3 * TITLE + GAP + TITLE + 6 + row * (TITLE + 8 + side + 2 * TEXT + 6 + GAP)
    left = GAP + column * (side + GAP)
    return drawn[top : top + side, left : left + side]


class Bare:
    """A stand-in for Slicer that returns its input, so that tests see what the sheet does with a release."""

    given: ClassVar[list[tuple[int, ...]]] = []

    def __init__(self, plan: Plan, *, prune: view.Prune) -> None: ...
    def __call__(self, source: Words) -> Words:
        Bare.given.append(source.shape)
        return source


def test_large_image_is_released_whole_and_shown_in_part_and_reduced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison_sheet, "Slicer", Bare)
    monkeypatch.setattr(Bare, "given", [])
    source = gradient(302, 302)
    drawn = np.asarray(make_sheet(source, 100))  # tile edges inside blocks of 2 and of 8
    assert Bare.given == [source.shape] * 2 * len(BUDGETS)
    middle = (slice(96, 196), slice(96, 196))
    np.testing.assert_array_equal(tile(drawn, 0, 0, 100), source[middle])
    np.testing.assert_array_equal(tile(drawn, 0, 6, 100)[..., 0], view_image(source, "haar")[middle][..., 0])
    pruned = np.moveaxis(view.to_rgb(np.moveaxis(view_image(source, "dct"), -1, 0)), 0, -1)
    np.testing.assert_array_equal(tile(drawn, 0, 5, 100), pruned[middle])
    for row in (4, 6):
        np.testing.assert_array_equal(tile(drawn, row, 0, 100), source[middle])
        for column in (0, len(BUDGETS) - 1, COLUMNS - 1):  # releases and source are reduced alike
            np.testing.assert_array_equal(tile(drawn, row + 1, column, 100), stretch(*[average(source, 100, 100)] * 2))


def test_reduced_image_keeps_its_aspect_ratio() -> None:
    assert [
        reduce_image(gradient(*shape), 100).shape[:2] for shape in ((300, 200), (20, 3000), (1, 101), (50, 60))
    ] == [
        (100, 67),
        (1, 100),
        (1, 100),
        (50, 60),
    ]


@pytest.mark.parametrize("bits", [9, 12, 16])
def test_deep_grey_uses_the_plan_of_its_word(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[tuple[int, float]] = []

    class Noted(Slicer):
        def __init__(self, plan: Plan, *, prune: view.Prune) -> None:
            plans.append((plan.word_bits, plan.epsilon))
            super().__init__(plan, prune=prune)

    monkeypatch.setattr(comparison_sheet, "Slicer", Noted)
    source = gradient(96, 96)[..., 2].astype(np.uint16) << (bits - 8)
    drawn = np.asarray(make_sheet(source, 96, bits=bits))
    assert plans == [(bits, epsilon) for _ in range(2) for epsilon in BUDGETS]
    for column, words in enumerate((source, view_image(source, "haar", bits), view_image(source, "dct", bits))):
        np.testing.assert_array_equal(tile(drawn, 0, column, 96)[..., 0], stretch(words, words))
    for bit in (bits - 1, 0):  # eight per row
        row, column = divmod(bits - 1 - bit, COLUMNS)
        np.testing.assert_array_equal(tile(drawn, 1 + row, column, 96)[..., 0] == 255, source >> bit & 1 == 1)


@pytest.mark.parametrize(
    ("shape", "size"), [((12, 8, 3), (4, 4)), ((7, 5), (3, 5)), ((5, 9, 3), (1, 1)), ((3, 3), (3, 3))]
)
def test_average_is_the_mean_of_each_rectangle(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 16, shape, dtype=np.uint16)
    rows, columns = ([*(np.arange(n) * length // n), length] for n, length in zip(size, shape, strict=False))
    for i, j in np.ndindex(*size):
        wanted = words[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean(axis=(0, 1))
        np.testing.assert_allclose(average(words, *size)[i, j], wanted)


@pytest.mark.parametrize("prune", [None, "haar", "haar4", "dct"])
def test_narrow_range_of_deep_grey_is_visible_in_releases_almost_without_noise(
    prune: view.Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_sheet, "BUDGETS", (600.0,))
    source = 0x8000 + gradient(96, 96)[..., 2].astype(np.uint16)
    drawn = np.asarray(make_sheet(source, 96, prune=prune, bits=16))
    seen = view_image(source, prune, 16)
    assert np.corrcoef(tile(drawn, 3, 0, 96)[..., 0].ravel(), stretch(seen, seen).ravel())[0, 1] > 0.95


def test_contrast_is_stretched_per_channel_and_flat_channels_stay_flat() -> None:
    ramp = np.linspace(100, 101, 10_000).reshape(100, 100)
    values = np.stack([ramp, 3 * ramp, np.full_like(ramp, 7)], axis=-1)
    shown = stretch(values, values)
    assert set(np.unique(shown[..., 0])) == set(range(256))
    np.testing.assert_array_equal(shown[..., 0], shown[..., 1])
    assert len(np.unique(shown[..., 2])) == 1


def reduced_luma(source: Pixels, epsilon: float | None, prune: view.Prune) -> Words:
    release = source if epsilon is None else Slicer(Plan.paper(epsilon), prune=prune)(source)
    return average(release, 96, 96) @ np.array([0.299, 0.587, 0.114])


def test_larger_images_reveal_more_at_the_same_eps_as_the_documents_state() -> None:
    found: dict[str, list[float]] = {"source": [], "each other": []}
    with Image.open(ROOT / "examples" / "astronaut.jpg") as portrait:
        for side in (3072, 96):
            source = np.asarray(portrait.resize((side, side), Image.Resampling.LANCZOS))
            pairs = {
                "source": (reduced_luma(source, 1.0, None), reduced_luma(source, None, None)),
                "each other": (reduced_luma(source, 5.2, "haar"), reduced_luma(source, 5.2, "haar")),
            }
            for name, (one, two) in pairs.items():
                found[name].append(float(np.corrcoef(one.ravel(), two.ravel())[0, 1]))
    findings, threats = (
        " ".join((ROOT / "docs" / name).read_text().split()) for name in ("findings.md", "threat-model.md")
    )
    quotes = {
        "source": [
            re.search(r"also reduced to 96 x 96, is then (0\.\d\d)\..*? the correlation is (0\.\d\d)", findings),
            re.search(r"eps 1, no pruning \|[^|]*\| (0\.\d\d) \| (0\.\d\d) \|", threats),
        ],
        "each other": [re.search(r"eps 5\.2, pruned \|[^|]*\| (0\.\d\d) \| (0\.\d\d) \|", threats)],
    }
    for name, said in ((name, said) for name, several in quotes.items() for said in several):
        assert said is not None, name
        large = pytest.approx(float(said[1]), abs=0.01 if name == "source" else 0.03)
        assert found[name] == [large, pytest.approx(float(said[2]), abs=0.05)]


@pytest.mark.parametrize("prune", ["haar", "dct"])
def test_view_image_is_colour_conversion_and_pruning(prune: view.Prune) -> None:
    source = gradient(11, 13)
    words = view.to_ycbcr(np.ascontiguousarray(np.moveaxis(source, -1, 0)))
    for c in range(3):
        np.testing.assert_array_equal(view_image(source, prune)[..., c], view.prune_low(words[c], prune, 8))
    np.testing.assert_array_equal(view_image(source[..., 0], prune), view.prune_low(source[..., 0], prune, 8))


def test_sheets_show_different_releases() -> None:
    assert not np.array_equal(np.asarray(make_sheet(gradient(16, 16))), np.asarray(make_sheet(gradient(16, 16))))


def test_releases_state_what_was_measured_at_their_budget() -> None:
    found = [comparison_sheet.re_identified(Plan.paper(epsilon), "haar") for epsilon in (2.4, 20.0, 20.1)]
    assert found == ["4.5 % of faces", "84.0 % of faces", "not measured"]
    assert comparison_sheet.re_identified(Plan.paper(20.0), "dct") == "not measured"
    assert comparison_sheet.re_identified(Plan.grey(5.2), "haar") == "10.0 % of patients"


def test_long_heading_is_shrunk_to_fit() -> None:
    words = "Releases with the low Haar band pruned, slices Y7+Y6,Y5,Y4+Y3,Cb7+Cr7,Cb6,Cr6; eps per released pixel"
    assert _fitting("Bit-planes", 16, 800).getlength("W") == _fitting("Bit", 16, 200).getlength("W")
    assert 800 >= _fitting(words, 16, 800).getlength(words) > 600
    assert _fitting(words, 16, 10).getlength(words) == _fitting(words, SMALLEST, 10).getlength(words)  # still legible
