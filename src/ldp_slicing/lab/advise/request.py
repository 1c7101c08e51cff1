"""What an owner asks for, and how a run speaks to the owner."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.advise.findings import Rule
from ldp_slicing.lab.advise.grid import SMALLEST_RELEASE, Family
from ldp_slicing.lab.run_folder import check_writable
from ldp_slicing.sets import STATE_SUFFIX
from ldp_slicing.view import Prune


@dataclass(frozen=True)
class Request:
    """The options of ``advise``. sizes: longest sides, empty for the default. epsilons: empty for the default.

    samples: images for the report instead of sources. title: of the report.
    """

    source: Path
    out: Path
    labels: str | None = None
    groups: str | None = None
    minutes: float = 15.0
    sizes: tuple[int, ...] = ()
    views: tuple[Prune, ...] = (None, "haar")
    families: tuple[Family, ...] = ("paper", "thick", "grey")
    epsilons: tuple[float, ...] = ()
    rules: tuple[Rule, ...] = ()
    samples: tuple[Path, ...] = ()
    recogniser: Path | None = None
    images: int | None = None
    device: str = ""
    title: str = ""

    @property
    def work(self) -> Path:
        """The work folder, beside the folder of the report."""
        return self.out.with_name(self.out.name + STATE_SUFFIX)

    @property
    def parameters(self) -> dict[str, Any]:
        """What must be the same when a run is resumed. The time, the limits and the samples may change."""
        return {
            "source": str(self.source.resolve()),
            "labels": self.labels,
            "groups": self.groups,
            "most_images": self.images,
            "sizes": list(self.sizes),
            "views": [one or "none" for one in self.views],
            "plans": list(self.families),
            "epsilons": list(self.epsilons),
            "recogniser": None if self.recogniser is None else str(self.recogniser.resolve()),
        }

    def check(self) -> None:
        """Refuse a request that would write into the sources, or that cannot be carried out. Nothing is read."""
        self._check_numbers()
        for folder in (self.out, self.work):
            check_writable(folder)
        for path in self.samples:
            if not path.is_file():
                raise LdpSlicingError(f"--samples {path} is not a file: name an image")
        if self.recogniser is not None and not self.recogniser.is_file():
            raise LdpSlicingError(f"--recogniser {self.recogniser} is not a file: name a file of weights")
        out, source = self.out.resolve(), self.source.resolve()
        if not source.exists():
            raise DataError(f"{self.source} does not exist")
        if out == source or out.is_relative_to(source) or source.is_relative_to(out):
            raise LdpSlicingError(f"--out {self.out} and the sources {self.source} overlap: name another --out")
        if self.recogniser is not None and self.groups is None:
            raise LdpSlicingError("--recogniser links images to groups: name them with --groups")
        if self.groups is None and any(rule.metric in ("rank_1", "verification") for rule in self.rules):
            raise LdpSlicingError("a limit on linkage needs --groups: who or what must not be linked")
        if self.labels == "none" and any(not rule.is_risk for rule in self.rules):
            raise LdpSlicingError("a limit on accuracy needs labels: leave out --labels none")

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.minutes) and self.minutes > 0):
            raise LdpSlicingError(f"--minutes takes a number above 0, such as 15; got {self.minutes:g}")
        for side in self.sizes:
            if side < SMALLEST_RELEASE:
                raise LdpSlicingError(
                    f"--sizes takes longest sides of {SMALLEST_RELEASE} pixels or more, such as 112,56,28; got {side}"
                )
        for epsilon in self.epsilons:
            if not (math.isfinite(epsilon) and epsilon > 0):
                raise LdpSlicingError(f"--epsilons takes numbers above 0, such as 2.4,5.2,12; got {epsilon:g}")


@dataclass(frozen=True)
class Talk:
    """Lines of text, a progress bar (seconds done, seconds in all, what is being done), and whether to stop."""

    say: Callable[[str], None] = lambda text: None
    progress: Callable[[float, float, str], None] = lambda done, total, text: None
    interrupted: Callable[[], bool] = lambda: False
