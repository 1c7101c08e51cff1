"""The settings of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from ldp_slicing.errors import PlanError, ReleaseError
from ldp_slicing.ledger import Duplicates
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, plan_for
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune


@dataclass(frozen=True)
class ReleaseSettings:
    """The settings of a run: plan and view for each kind of image, and the form of the set of releases.

    slices: the bits to randomise, or None for the paper's plan.
    names: "keep" the names of the sources, or "random" names, which reveal nothing.
    duplicates: release equal images of a run each ("spend"), or only the first ("once").
    keep: names of data that is kept besides the pixels, where a source has such data.
    """

    epsilon: float = 20.0
    weights: tuple[float, float, float] = PAPER_WEIGHTS
    prune: Prune = "haar"
    names: Literal["keep", "random"] = "keep"
    duplicates: Duplicates = "spend"
    keep: tuple[str, ...] = ()
    slices: str | None = None

    def slicer(self, word_bits: int) -> Slicer:
        """Return the slicer for words of ``word_bits`` bits."""
        if self.slices is not None and self._is_for_grey != (word_bits != COLOUR_BITS):
            kind, other = ("grey", "colour") if word_bits != COLOUR_BITS else ("in colour", "grey")
            raise PlanError(
                f"is {kind}, and these slices are for {other} pixels: release it in a run of its own, "
                "with other slices or none"
            )
        return _slicer(self.epsilon, self.weights, self.slices, self.prune, word_bits)

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
        for word_bits in (COLOUR_BITS, 8) if self.slices is None else (self._widest,):
            self.slicer(word_bits)
        if self.names not in ("keep", "random") or self.duplicates not in ("spend", "once"):
            raise ReleaseError(
                f'names are "keep" or "random", duplicates "spend" or "once"; got {self.names!r}, {self.duplicates!r}'
            )

    def parameters(self) -> dict[str, Any]:
        """Return the settings as the state of a run records them, in JSON."""
        shown = {
            "weights": list(self.weights),
            "keep": sorted(self.keep),
            "prune": self.prune or "none",
            "slices": "each bit",
        }
        if self.slices is not None:  # in one spelling
            plan = self.slicer(self._widest).plan
            shown["slices"] = ", ".join(f"{plan.slice_name(part)} {part.epsilon!r}" for part in plan.slices)
        return asdict(self) | shown


@lru_cache(maxsize=16)
def _slicer(
    epsilon: float, weights: tuple[float, float, float], slices: str | None, prune: Prune, word_bits: int
) -> Slicer:
    return Slicer(plan_for(word_bits, epsilon, weights, slices), prune=prune)
