from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ldp_slicing import privatize
from ldp_slicing.errors import LdpSlicingError, PresetError
from ldp_slicing.presets import Preset, get_preset, presets
from ldp_slicing.view import Padded
from tests.docs.documents import ROOT, blocks

OURS = Preset("ours", "For us.", 3.5, slices="Y7+Y4", prune=None, size=(28, 28), measured=("An attacker got little.",))


def test_every_preset_says_what_an_attacker_got() -> None:
    assert [one.name for one in presets()][:1] == ["paper"]
    for one in presets():
        assert one.measured
        assert all("from one release each" in sentence for sentence in one.measured)
        assert one.plan(24).epsilon == one.epsilon
        assert one.measured_bits == ((8,) if one.name == "chest-xrays" else (24,))
        assert f"eps {one.epsilon:g}, " in one.setting


@pytest.mark.parametrize("preset", [OURS, *presets(), Preset("p", "", 1.0, (2.0, 1.0, 1.0), size=Padded(8, 9))])
def test_a_preset_file_is_read_back(preset: Preset, tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    path.write_text(preset.to_json())
    assert Preset.read(path) == get_preset(str(path)) == preset


def test_whole_numbers_need_no_decimal_point() -> None:
    content = Preset("p", "", 4.0, (2.0, 1.0, 1.0)).to_dict() | {"epsilon": 4, "weights": [2, 1, 1]}
    assert Preset.from_dict(content) == Preset("p", "", 4.0, (2.0, 1.0, 1.0))
    assert isinstance(Preset.from_dict(content).epsilon, float)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "not a preset": (lambda one: one.pop("preset"), "it is not a JSON object with the field"),
    "a later version": (lambda one: one.update(preset=2), "version 2 is unknown"),
    "true as a version": (lambda one: one.update(preset=True), "version True is unknown"),
    "an unknown field": (lambda one: one.update(safe=True), "unknown key 'safe'"),
    "a missing field": (lambda one: one.pop("prune"), "lacks the key 'prune'"),
    "true as a budget": (lambda one: one.update(epsilon=True), "epsilon must be a number; got True"),
    "a text as a budget": (lambda one: one.update(epsilon="5"), "epsilon must be a number; got '5'"),
    "a negative budget": (lambda one: one.update(weights=[4, 1, 1], slices=None, epsilon=-3), "epsilon must be .*-3"),
    "true as a weight": (lambda one: one.update(weights=[4, 1, True], slices=None), "weights must be a number"),
    "no budget": (lambda one: one.update(weights=[4.0, 1.0, 1.0], slices=None, epsilon=0.0), "must be"),
    "weights and slices": (lambda one: one.update(weights=[4.0, 1.0, 1.0]), "either weights"),
    "neither weights nor slices": (lambda one: one.update(slices=None), "either weights"),
    "two weights": (lambda one: one.update(weights=[4.0, 1.0], slices=None), "weights must be 3 numbers; got 2"),
    "an unknown pruning": (lambda one: one.update(prune="all"), "prune must be one of"),
    "an empty size": (lambda one: one.update(size=[0, 3]), "size must be"),
    "half a padded size": (lambda one: one.update(size={"pad": [224]}), "size.pad must be 2 numbers; got 1"),
    "a size in words": (lambda one: one.update(size="small"), "size must be"),
    "other names": (lambda one: one.update(names="secret"), "names must be"),
    "a long text": (lambda one: one.update(about="x" * 2000), "at most 1,000 characters"),
    "a text of two lines": (lambda one: one.update(measured=["a\nb"]), "printable"),
    "bits of no pixel": (lambda one: one.update(measured_bits=[24, 17]), r"measured_bits must be .* got \[24, 17\]"),
    "bits as a text": (lambda one: one.update(measured_bits=["24"]), "measured_bits must be"),
    "no name": (lambda one: one.update(name=" "), "has a name"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_preset_file_is_refused(wrong: str, tmp_path: Path) -> None:
    change, problem = WRONG[wrong]
    content = OURS.to_dict()
    change(content)
    path = tmp_path / "ours.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PresetError, match=problem) as caught:
        get_preset(path)
    assert str(path) in str(caught.value)


def test_a_preset_file_says_on_what_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    path.write_text(replace(OURS, slices=None, measured_bits=(8, 12)).to_json())
    assert Preset.read(path).measured_bits == (8, 12)
    path.write_text(OURS.to_json())  # as files were before
    assert Preset.read(path).measured_bits == ()


def test_python_warns_of_a_preset_that_was_measured_on_another_kind_of_image(tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    path.write_text(Preset("ours", "", 3.5, measured_bits=(8,)).to_json())
    grey, colour = np.zeros((9, 9), np.uint8), np.zeros((9, 9, 3), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        privatize(grey, preset=path)
        privatize(colour, preset="paper")
        privatize(grey, epsilon=3.5)
    with pytest.warns(UserWarning, match="this image has colour pixels, but the preset was measured on 8-bit grey"):
        privatize(colour, preset=path)
    with pytest.warns(UserWarning, match="this image has 8-bit grey pixels, but the preset was measured on colour"):
        privatize(grey, preset="paper")


def test_slices_of_a_preset_are_checked_by_its_plan() -> None:
    with pytest.raises(LdpSlicingError, match="Z9"):
        Preset("ours", "", 3.5, slices="Z9").plan(24)


def test_a_file_that_is_not_there_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match=r"none\.json is not a valid preset"):
        get_preset(tmp_path / "none.json")
    with pytest.raises(PresetError, match="there is no preset 'papre': choose one of paper, "):
        get_preset("papre")


def test_the_preset_file_in_the_guide_is_valid() -> None:
    (example,) = blocks((ROOT / "docs/guide/budget.md").read_text(), "json")
    assert Preset.from_dict(json.loads(example)).size == 64
