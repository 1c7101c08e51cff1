"""Presets: a view, a plan and a budget under a name, with what was measured for them. None of them is called safe.

>>> get_preset("paper").epsilon
20.0

The presets of this software are in the table of measured settings (``measured.py``). Other ones are read from JSON
files, which have the same fields as a preset of the table and a version.

Tests: tests/test_presets.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from ldp_slicing.errors import LdpSlicingError, PresetError
from ldp_slicing.files import open_regular, read_limited
from ldp_slicing.measured import entries, latest, read_table, risk, table_version
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan, kind_of_pixels, plan_for
from ldp_slicing.strict_json import fields, parse, shown, typed
from ldp_slicing.view import Padded, Prune, Size, block_of, check_size
from ldp_slicing.wording import number

PRESET_VERSION = 1
PRESET_BYTES = 1 << 16  # the longest preset file
MOST_CHARACTERS = 1000  # of a text in it
FIELDS = {"preset": int, "name": str, "about": str, "epsilon": object, "weights": object, "slices": object}
FIELDS |= {"prune": str, "size": object, "names": str, "measured": list}


@dataclass(frozen=True)
class Preset:
    """A view, a plan and a budget, and what was measured for them.

    name, about
        the name, and what the preset is for.
    epsilon, weights, slices
        the budget and the plan: ``slices`` as ``--slices`` takes them, or None for the paper's plan with ``weights``.
    prune, size
        the view, as ``Slicer`` takes them.
    names
        whether releases "keep" the names of their sources or get "random" ones.
    measured
        sentences on what attackers got.
    measured_bits
        the word lengths of the images in those measurements, 24 for colour; empty if unknown.
    """

    name: str
    about: str
    epsilon: float
    weights: tuple[float, float, float] = PAPER_WEIGHTS
    slices: str | None = None
    prune: Prune = "haar"
    size: Size = None
    names: Literal["keep", "random"] = "keep"
    measured: tuple[str, ...] = ()
    measured_bits: tuple[int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        texts = (self.name, self.about, self.slices or "", *self.measured)
        if any(len(text) > MOST_CHARACTERS or not text.isprintable() for text in texts) or not self.name.strip():
            raise PresetError(
                f"a preset has a name, and its texts are printable and have at most {MOST_CHARACTERS:,} characters"
            )
        if self.names not in ("keep", "random"):
            raise PresetError(f'names must be "keep" or "random"; got {self.names!r}')
        block_of(self.prune)  # raises if there is no such pruning
        check_size(self.size)
        if not all(bits == COLOUR_BITS or 1 <= bits <= 16 for bits in self.measured_bits):
            raise PresetError(
                f"measured_bits must be bits per pixel, 24 (colour) or 1 to 16 (grey); got {list(self.measured_bits)}"
            )
        if self.slices is None:
            plan_for(COLOUR_BITS, self.epsilon, self.weights)

    def plan(self, word_bits: int) -> Plan:
        """Return the plan for words of ``word_bits`` bits."""
        return plan_for(word_bits, self.epsilon, self.weights, self.slices)

    @property
    def setting(self) -> str:
        """The budget, the plan and the view in words."""
        plan = "the paper's plan" if self.slices is None else f"slices {self.slices}"
        if self.slices is None and self.weights != PAPER_WEIGHTS:
            plan += f" with weights {':'.join(f'{weight:g}' for weight in self.weights)}"
        size = "" if self.size is None else f", {_size_in_words(self.size)}"
        names = ", random names" if self.names == "random" else ""
        return f"eps {number(self.epsilon)}, {plan}, pruning: {self.prune or 'none'}{size}{names}"

    def to_dict(self) -> dict[str, Any]:
        """Return the preset as JSON values."""
        known = {"measured_bits": list(self.measured_bits)} if self.measured_bits else {}
        return {
            "preset": PRESET_VERSION,
            "name": self.name,
            "about": self.about,
            "epsilon": self.epsilon,
            "weights": [float(one) for one in self.weights] if self.slices is None else None,
            "slices": self.slices,
            "prune": self.prune or "none",
            "size": _size_to_json(self.size),
            "names": self.names,
            "measured": list(self.measured),
            **known,
        }

    def to_json(self) -> str:
        """Return the text of a preset file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, content: object) -> Preset:
        """Return the preset with this content, or raise PresetError. There are no unknown fields.

        Only ``measured_bits`` may be missing: not everybody who writes a file knows it.
        """
        if not isinstance(content, dict) or "preset" not in content:
            raise PresetError('it is not a JSON object with the field "preset"')
        if content["preset"] != PRESET_VERSION or isinstance(content["preset"], bool):
            raise PresetError(f"version {content['preset']!r} is unknown: this software reads {PRESET_VERSION}")
        try:
            found = fields(content, FIELDS, {"measured_bits": list})
            slices, weights = found["slices"], found["weights"]
            if (slices is None) == (weights is None):
                raise PresetError("a preset has either weights, for the paper's plan, or slices; the other one is null")
            return cls(
                found["name"],
                found["about"],
                _real(found["epsilon"], "epsilon"),
                PAPER_WEIGHTS if weights is None else _read_weights(weights),
                None if slices is None else typed(slices, str, "slices"),
                None if found["prune"] == "none" else found["prune"],
                _read_size(found["size"]),
                found["names"],
                tuple(typed(text, str, "measured") for text in found["measured"]),
                tuple(typed(bits, int, "measured_bits") for bits in found.get("measured_bits", ())),
            )
        except PresetError:
            raise
        except ValueError as error:  # every LdpSlicingError is one
            raise PresetError(str(error)) from None

    @classmethod
    def read(cls, path: Path | str) -> Preset:
        """Read a preset file, or raise PresetError.

        >>> preset = Preset.read("ours.json")       # doctest: +SKIP
        """
        try:
            return cls.from_dict(parse(read_limited(open_regular(Path(path)), PRESET_BYTES), most_bytes=PRESET_BYTES))
        except (LdpSlicingError, OSError) as error:
            raise PresetError(f"{path} is not a valid preset: {error}") from None


def presets() -> tuple[Preset, ...]:
    """Return the presets of this software, with sentences on what attackers got at each.

    The first is the one that cards have. What else was measured at the very setting follows, without advice.
    """
    settings, found = {one.name: one for one in entries(table_version())}, []
    for content in latest(read_table()["presets"], table_version()):
        known = {name: value for name, value in content.items() if name != "since"}
        preset = Preset.from_dict(known | {"preset": PRESET_VERSION, "measured": []})
        measured = [settings[name] for name in content["measured"]]
        pixels = preset.size**2 if isinstance(preset.size, int) else None
        bits = tuple(sorted({one.word_bits for one in measured}))
        worst = [risk(preset.plan(one), preset.prune, pixels) for one in bits]
        others = [one for one in measured if one.name not in {each.entry for each in worst}]
        sentences = (*(one.sentence for one in worst), *(f"{one.sentence}." for one in others))
        found.append(replace(preset, measured=sentences, measured_bits=bits))
    return tuple(found)


def get_preset(name: str | Path) -> Preset:
    """Return the preset of that name, or read it from a file if the name ends in .json. Otherwise raise PresetError."""
    if Path(name).suffix == ".json":
        return Preset.read(name)
    known = {one.name: one for one in presets()}
    if str(name) not in known:
        raise PresetError(
            f"there is no preset {str(name)!r}: choose one of {', '.join(known)}, or name a preset file that ends in "
            ".json"
        )
    return known[str(name)]


def unlike_measured(measured_bits: Collection[int], word_bits: int) -> str | None:
    """Return what to say of an image with words of ``word_bits`` bits if its preset was measured on other kinds only.

    measured_bits: of the preset. The sentence lacks its subject, the image.
    """
    if not measured_bits or word_bits in measured_bits:
        return None
    measured = " and ".join(map(kind_of_pixels, measured_bits))
    return (
        f"has {kind_of_pixels(word_bits)} pixels, but the preset was measured on {measured} images only: its "
        "measurements do not apply here; see the card for what is known"
    )


def no_budget(how: str, *, listed: bool = False) -> PresetError:
    """Return the error for whoever chose neither a budget nor a preset.

    how: says how to choose one. listed: whether the presets were printed before it.
    """
    names = (
        f"The presets are {', '.join(one.name for one in presets())}; `ldp-slicing plan --presets` says what an "
        "attacker got at each. "
    )
    return PresetError(
        f"no budget was chosen: {how}. {'' if listed else names}`ldp-slicing show IMAGE --out sheet.png` draws your "
        "image at several budgets, and `ldp-slicing plan --epsilon 5.2` prints what a budget promises"
    )


def _size_to_json(size: Size) -> Any:  # noqa: ANN401 - JSON values
    """Return a size as a preset file has it: null, 224 for the longest side, [w, h], or {"pad": [w, h]}."""
    if isinstance(size, Padded):
        return {"pad": [size.width, size.height]}
    return list(size) if isinstance(size, tuple) else size


def _read_size(content: object) -> Size:
    if isinstance(content, dict):
        return Padded(*_numbers(fields(content, {"pad": list}, where="size")["pad"], int, 2, "size.pad"))
    return cast("Size", tuple(content) if isinstance(content, list) else content)


def _size_in_words(size: Size) -> str:
    if isinstance(size, int):
        return f"shrunk to a longest side of {size} pixels"
    width, height = (size.width, size.height) if isinstance(size, Padded) else size or (0, 0)
    return f"{width} x {height} pixels{', padded' if isinstance(size, Padded) else ''}"


def _read_weights(weights: object) -> tuple[float, float, float]:
    y, cb, cr = _numbers(weights, object, 3, "weights")
    return _real(y, "weights"), _real(cb, "weights"), _real(cr, "weights")


def _real(value: object, where: str) -> float:
    """Return a number as a float. People write 4 as well as 4.0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PresetError(f"{where} must be a number; got {shown(value)}")
    return float(value)


def _numbers(values: object, kind: type[Any], count: int, where: str) -> list[Any]:
    found = [typed(one, kind, where) for one in typed(values, list, where)]
    if len(found) != count:
        raise PresetError(f"{where} must be {count} numbers; got {len(found)}")
    return found
