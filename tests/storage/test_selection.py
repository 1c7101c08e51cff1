"""Patterns of --include and --exclude."""

from __future__ import annotations

import pytest

from ldp_slicing.errors import ReleaseError
from ldp_slicing.storage import Selection

PATHS = ["a.jpg", "b.JPG", "cats/1.jpg", "cats/2.png", "pets/cats/3.jpg", "cats/old/4.jpg", "cats.txt", "[x].jpg"]


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("*.jpg", ["a.jpg", "cats/1.jpg", "pets/cats/3.jpg", "cats/old/4.jpg", "[x].jpg"]),
        ("/*.jpg", ["a.jpg", "[x].jpg"]),
        ("cats/*.jpg", ["cats/1.jpg", "pets/cats/3.jpg"]),
        ("/cats/*.jpg", ["cats/1.jpg"]),
        ("cats/", ["cats/1.jpg", "cats/2.png", "pets/cats/3.jpg", "cats/old/4.jpg"]),
        ("/cats/**", ["cats/1.jpg", "cats/2.png", "cats/old/4.jpg"]),
        ("/cats/**.jpg", ["cats/1.jpg", "cats/old/4.jpg"]),
        ("*.{jpg,JPG}", ["a.jpg", "b.JPG", "cats/1.jpg", "pets/cats/3.jpg", "cats/old/4.jpg", "[x].jpg"]),
        ("?.jpg", ["a.jpg", "cats/1.jpg", "pets/cats/3.jpg", "cats/old/4.jpg"]),
        ("[0-2].*", ["cats/1.jpg", "cats/2.png"]),
        ("[^a-z].jpg", ["cats/1.jpg", "pets/cats/3.jpg", "cats/old/4.jpg"]),
        (r"\[x\].jpg", ["[x].jpg"]),
        ("[[]x[]].jpg", ["[x].jpg"]),
        ("[&&|~~a].jpg", ["a.jpg"]),
        ("cats", []),
        ("cat[^x]1.jpg", []),
        ("cats.txt", ["cats.txt"]),
        ("catsxtxt", []),
    ],
)
def test_what_a_pattern_matches(pattern: str, selected: list[str]) -> None:
    assert [path for path in PATHS if Selection(include=(pattern,)).has(path)] == selected
    assert [path for path in PATHS if not Selection(exclude=(pattern,)).has(path)] == selected


def test_what_is_excluded_is_not_included() -> None:
    selection = Selection(("*.jpg", "*.png"), ("old/", "/a.*"))
    assert [path for path in PATHS if selection.has(path)] == ["cats/1.jpg", "cats/2.png", "pets/cats/3.jpg", "[x].jpg"]
    assert all(map(Selection().has, PATHS))


@pytest.mark.parametrize("pattern", ["", "/", "[a", "{a,b", "a}", "{a,{b,c}}", "a\\", "[z-a]", "[!a]*"])
def test_malformed_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ReleaseError, match="is not a pattern"):
        Selection(include=(pattern,))


def test_a_folder_named_as_if_it_were_a_file_is_found() -> None:
    for patterns in (("cats",), ("*.jpg", "/pets"), ("pe*",)):
        assert Selection(exclude=patterns).folder_pattern(PATHS) == patterns[-1]
        assert Selection(include=patterns).folder_pattern(PATHS) == patterns[-1]
    for patterns in (("cats/",), ("*",), ("dogs",), ("cats*",)):
        assert Selection(exclude=patterns).folder_pattern(PATHS) is None


def test_undecodable_names_can_be_matched() -> None:
    assert Selection(include=("*.jpg",)).has("a\udcff\n.jpg")
