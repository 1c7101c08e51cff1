"""The page and the figure of ``map2v``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ldp_slicing.lab.experiment import RowsByExperiment
from ldp_slicing.lab.peers import systems_first
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = ("same person as the victim's image, %", "as another image, %", "rank-1, %", "SSIM")
TIMES = ("networks, s", "search, s", "row, s", "finished (UTC), commit")


def table(rows: Sequence[Row]) -> str:
    parts = []
    for row in select(rows, method="prior"):
        lines = [
            [words, *_scores(row.metrics[key])]
            for key, words in (("sources", "the sources themselves"), ("ceiling", "the sources at 64 x 64"))
        ]
        far = row.metrics["distances"]
        parts += [
            "What is lost at 64 x 64 pixels, the size of generated faces:\n",
            markdown(["images", *HEADS], lines),
            "Median squared distance of a generated face to the nearest public one: "
            f"{far['style']['generated']:.2f} (style generator), {far['pca']['generated']:.2f} (principal components); "
            f"of a public face to the nearest other one: {far['style']['between_public']:.2f}. "
            f"Training this generator took {row.metrics['seconds']:,.0f} s ({_finished(row)}).\n",
        ]
    lines = []
    for row in systems_first(select(rows, release="once"), _peer):
        what = "a release of somebody else" if row.options["target"] == "another" else "one release"
        cells = [_peer(row), what, row.method, str(row.options["prior"])]
        asked = f"{row.metrics['queries']:,}" if row.metrics["queries"] else "-"
        lines.append([*cells, asked, f"{row.metrics['penalty']:g}", *_scores(row.metrics), *_times(row)])
    heads = ["system", "target", "access", "prior", "queries", "penalty", *HEADS, *TIMES]
    return "\n".join([*parts, markdown(heads, lines)])


def _peer(row: Row) -> str:
    return str(row.options["peer"])


def _scores(found: Any) -> list[str]:  # noqa: ANN401 - JSON
    def cell(share: Any) -> str:  # noqa: ANN401 - JSON
        return f"{percent(share['share'], 1)} ({percent(share['low_95'], 1)} to {percent(share['high_95'], 1)})"

    return [*(cell(found[kind]) for kind in ("type_1", "type_2", "rank_1")), f"{found['ssim']:.3f}"]


def _times(row: Row) -> list[str]:
    """How long a row took, and when it was finished. Rows of earlier versions have no time of their networks alone."""
    took = (row.metrics.get("network_seconds"), row.metrics["seconds"], row.seconds)
    return [*("-" if one is None else f"{one:,.0f}" for one in took), _finished(row)]


def _finished(row: Row) -> str:
    origin = row.provenance
    if origin is None or origin.time is None:
        return "-"
    return f"{origin.time.partition('+')[0].replace('T', ' ')}, {origin.commit[:12]}"


def figure(rows: RowsByExperiment) -> Figure:
    """How often a found face is taken for the victim, by system and access."""
    from ldp_slicing.lab.figures import COLOURS, common_legend, panels

    drawn, (axis,) = panels(1, width=6.4, logarithmic=False)
    kinds = (("gradients", "style"), ("gradients", "pca"), ("scores", "style"))
    found = select(rows["map2v"], target="release")
    names = list(dict.fromkeys(map(_peer, systems_first(found, _peer))))
    for shift, ((access, prior), colour) in enumerate(zip(kinds, COLOURS, strict=False)):
        mine = {_peer(row): row.metrics["type_1"] for row in select(found, method=access, prior=prior)}
        places = [names.index(name) + 0.2 * (shift - 1) for name in mine]
        shares = [100 * one["share"] for one in mine.values()]
        errors = [
            [100 * (one["share"] - one["low_95"]) for one in mine.values()],
            [100 * (one["high_95"] - one["share"]) for one in mine.values()],
        ]
        axis.errorbar(places, shares, yerr=errors, fmt="o", color=colour, capsize=2, label=f"{access}, {prior}")
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axis.set(ylabel="taken for the victim at FAR 0.001, %", ylim=(-2, 102))
    common_legend(drawn, axis, 3)
    return drawn
