"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ldp_slicing.lab.rows import Metrics, Row

SUCCESS = {  # names of the success criteria of the attacks to the titles of their columns
    "rmse_at_most_0.1": "RMSE <= 0.1, %",
    "ssim_at_least_0.7": "SSIM >= 0.7, %",
}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}"


def spread(values: Sequence[float]) -> str:
    """Shares as their mean in %, with the range over seeds where there are several."""
    if len(values) < 2:
        return percent(values[0]) if values else "-"
    return f"{percent(fmean(values))} ({percent(min(values))} to {percent(max(values))}, {len(values)} seeds)"


def metric(rows: Iterable[Row], name: str) -> list[float]:
    """The values of one metric, in the order of the rows."""
    return [row.metrics[name] for row in rows]


def epochs_of(rows: Iterable[Row]) -> str:
    """For how long networks were trained: "75 epochs" or "50 or 75 epochs"; "" where there are none."""
    found = sorted({row.training.epochs for row in rows if row.training})
    return f"{' or '.join(map(str, found))} epochs" if found else ""


def share_with_interval(value: Metrics) -> str:
    """A share in % with its 95 % confidence interval."""
    return f"{100 * value['share']:.1f} ({100 * value['low_95']:.1f} to {100 * value['high_95']:.1f})"


def attack_heads(*, faces: bool) -> list[str]:
    """Titles of the columns that ``attack_cells`` fills."""
    people = ["same person, %", "rank-1 identification, %", "verification accuracy, %", "cosine distance"]
    return ["PSNR, dB", "SSIM", *SUCCESS.values(), *(people if faces else [])]


def attack_cells(reached: Any) -> list[str]:  # noqa: ANN401 - JSON
    """The metrics of ``AttackTarget.judge`` as cells."""
    cells = [f"{reached['psnr_db']:.2f}", f"{reached['ssim']:.3f}"]
    cells += [share_with_interval(reached["success"][name]) for name in SUCCESS]
    if "rank_1" in reached:
        verified = reached["verification"]
        cells += [share_with_interval(reached["same_person"]), share_with_interval(reached["rank_1"])]
        cells += [f"{100 * verified['accuracy']:.2f} ± {100 * verified['standard_error']:.2f}"]
        cells += [f"{reached['perceptual_distance']:.3f}"]
    return cells
