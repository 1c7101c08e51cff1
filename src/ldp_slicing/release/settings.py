"""The settings of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from ldp_slicing.card.card import MOST_KEPT, MOST_NAME
from ldp_slicing.errors import PlanError, Reason, ReleaseError
from ldp_slicing.formats.base import Options
from ldp_slicing.ledger import Duplicates
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, plan_for
from ldp_slicing.png import MAX_PIXELS
from ldp_slicing.presets import unlike_measured
from ldp_slicing.slicer import Slicer
from ldp_slicing.value_range import ValueRange
from ldp_slicing.view import Padded, Prune, Size, sizing

NO_PARAMETERS = ("force", "measured_bits")  # settings that may change when a run is resumed


@dataclass(frozen=True)
class ReleaseSettings:
    """The settings of a run: plan and view for each kind of image, and the form of the set of releases.

    slices: the bits to randomise, or None for the paper's plan.
    names: "keep" the names of the sources, or "random" names, which reveal nothing.
    duplicates: release equal images of a run each ("spend"), or only the first ("once").
    keep: names of data that is kept besides the pixels, where a source has such data.
    frames: release the frames of animated images, as those of a video; without it animations are refused.
    size: what sources are shrunk to before the noise, as in ``Slicer``.
    value_range: LOW:HIGH in the units of DICOM files, or a modality; mapped to words by ``value_range.ValueRange``.
    not_burned_in: the owner's word that no text is burned into the pixels of DICOM files.
    force: also release with a plan that leaves a slice almost without noise.
    measured_bits: the word lengths that the preset was measured with, if known; images of other ones get a notice.
    """

    epsilon: float
    weights: tuple[float, float, float] = PAPER_WEIGHTS
    prune: Prune = "haar"
    names: Literal["keep", "random"] = "keep"
    duplicates: Duplicates = "spend"
    keep: tuple[str, ...] = ()
    slices: str | None = None
    frames: bool = False
    size: Size = None
    value_range: str | None = None
    not_burned_in: bool = False
    force: bool = False
    measured_bits: tuple[int, ...] = ()

    @property
    def values(self) -> ValueRange | None:
        """The range that values are mapped to."""
        return None if self.value_range is None else ValueRange.parse(self.value_range)

    def options(self, pseudonym: Callable[[str, str], bytes] | None = None) -> Options:
        """Return what readers and writers need to know."""
        return Options(self.keep, self.values, self.not_burned_in, pseudonym, self.size is not None)

    def slicer(self, word_bits: int) -> Slicer:
        """Return the slicer for words of ``word_bits`` bits."""
        if self.slices is not None and self._is_for_grey != (word_bits != COLOUR_BITS):
            kind, other = ("grey", "colour") if word_bits != COLOUR_BITS else ("in colour", "grey")
            raise PlanError(
                f"is {kind}, and these slices are for {other} pixels: release it in a run of its own, "
                "with other slices or none"
            )
        plan = (self.epsilon, self.weights, self.slices, word_bits)
        return _slicer(*plan, self.prune, self.size, force=self.force)

    def notices(self, word_bits: int) -> tuple[str, ...]:
        """Return what the owner of images with words of ``word_bits`` bits should know about these settings."""
        unlike = unlike_measured(self.measured_bits, word_bits)
        return () if unlike is None else (unlike,)

    @property
    def _is_for_grey(self) -> bool:
        """Whether the slices name bits of grey pixels ("11+10") rather than of colours ("Y7+Y6")."""
        return self.slices is not None and not any(map(str.isalpha, self.slices.casefold().replace("bit", "")))

    @property
    def _widest(self) -> int:
        """The length of a word that has every bit these slices can name."""
        return 16 if self._is_for_grey else COLOUR_BITS

    def check(self) -> None:
        """Refuse a wrong epsilon, weights, slices, pruning or choice before anything is touched."""
        if self.values is not None:
            self.slicer(self.values.bits)
        self.slicer(COLOUR_BITS if self.slices is None else self._widest)
        sides = (self.size.width, self.size.height) if isinstance(self.size, Padded) else self.size
        if isinstance(sides, tuple) and math.prod(sides) > MAX_PIXELS:
            raise ReleaseError(
                f"a release of {sides[0]} x {sides[1]} pixels is too large: it has at most {MAX_PIXELS:,}",
                Reason.SETTINGS,
            )
        if self.names not in ("keep", "random") or self.duplicates not in ("spend", "once"):
            raise ReleaseError(
                f'names are "keep" or "random", duplicates "spend" or "once"; got {self.names!r}, {self.duplicates!r}'
            )
        if len(self.keep) > MOST_KEPT or any(len(name) > MOST_NAME for name in self.keep):
            raise ReleaseError(f"a card names at most {MOST_KEPT} kinds of kept data, of {MOST_NAME} characters each")

    def parameters(self) -> dict[str, Any]:
        """Return the settings as the state of a run records them, in JSON."""
        shown = {
            "weights": list(self.weights),
            "keep": sorted(self.keep),
            "prune": self.prune or "none",
            "size": sizing(self.size),
            "slices": "each bit",
            "value_range": str(self.values or "none"),
        }
        if self.slices is not None:  # in one spelling
            plan = self.slicer(self._widest).plan
            shown["slices"] = ", ".join(f"{plan.slice_name(part)} {part.epsilon!r}" for part in plan.slices)
        return {name: value for name, value in (asdict(self) | shown).items() if name not in NO_PARAMETERS}

    def record(self) -> dict[str, Any]:
        """Return the settings as they are, in JSON, for ``from_record``."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ReleaseSettings:
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in record.items()}
        if isinstance(values["size"], dict):
            values["size"] = Padded(**values["size"])
        return cls(**values)


@lru_cache(maxsize=16)  # it is asked for several times for each image
def _slicer(
    epsilon: float,
    weights: tuple[float, float, float],
    slices: str | None,
    word_bits: int,
    prune: Prune,
    size: Size,
    *,
    force: bool,
) -> Slicer:
    plan = plan_for(word_bits, epsilon, weights, slices)
    if not force:
        plan.check_noise("Choose a smaller --epsilon, or go on with --force")
    return Slicer(plan, prune=prune, size=size)
