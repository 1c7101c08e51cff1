"""Time and storage of a release: 112 x 112 faces, one thread."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.rows import Metrics, Row, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import Plan
from ldp_slicing.png import encode_png
from ldp_slicing.slicer import Slicer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 100  # as in the paper
ROUNDS = 15
CALLS = {"single": "one call per image", "batch": "one call for all"}
FORMATS = {"png-stored": "PNG as `privatize` writes it", "png": "PNG by Pillow", "jpeg-95": "JPEG, quality 95"}
PEERS = {  # from the paper's table
    "MinusFace": 1.0,
    "AdvFace": 5.3,
    "PartialFace": 9.0,
    "PPFR-FD": 36.0,
    "DuetFace": 54.0,
    "DCTDP": 63.0,
}
PAPER_TIMES = {"paper (Apple M4)": 5.5, "MinusFace, in the paper (machine not stated)": 68.0}  # milliseconds
BASE = Row("overhead", "lfw", plans=(Plan.paper(20.0),), prune="haar", release="once")
ROWS = (
    *(replace(BASE, method="time", options={"calls": calls}) for calls in CALLS),
    *(replace(BASE, method="size", options={"format": name}) for name in FORMATS),
)


def measure(context: ExperimentContext) -> Iterator[Row]:
    wanted = context.wants_any(ROWS)
    if not wanted or all(context.is_done(row) for row in ROWS):  # all of them together, on one machine in one state
        return
    faces = load_lfw(context.data).images
    chosen = np.ascontiguousarray(faces[np.linspace(0, len(faces) - 1, min(COUNT, len(faces))).astype(int)])
    slicer = Slicer(BASE.plans[0])
    work: dict[str, Callable[[], object]] = {
        "single": lambda: [slicer(image) for image in chosen],
        "batch": lambda: slicer(chosen),
    }
    releases = np.asarray(slicer(chosen))
    sizes: dict[str, Callable[[NDArray[np.uint8]], int]] = {
        "png-stored": lambda image: sum(map(len, encode_png(image))),
        "png": lambda image: _encoded(image, "PNG"),
        "jpeg-95": lambda image: _encoded(image, "JPEG", quality=95),
    }
    for row in ROWS:
        found: dict[str, float | None] = {"images": len(chosen)}
        if row.method == "time":
            found["milliseconds"] = _median(work[str(row.options["calls"])], len(chosen))
        else:
            size = sizes[str(row.options["format"])]
            lossless = row.options["format"] != "jpeg-95"  # releases are written without loss; many sources are JPEG
            found["source_bytes"] = statistics.mean(map(size, chosen))
            found["release_bytes"] = statistics.mean(map(size, releases)) if lossless else None
            found["raw_bytes"] = chosen[0].nbytes
        yield replace(row, metrics=found)


def _median(do: Callable[[], object], images: int) -> float:
    """Milliseconds per image, the median of some rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times) / images


def _encoded(image: NDArray[np.uint8], kind: str, **options: int) -> int:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    return buffer.tell()


def _found(rows: Sequence[Row]) -> tuple[dict[str, float], dict[str, Metrics]] | None:
    """Milliseconds by the kind of call, and sizes by format; None if some are missing."""
    times = {str(row.options["calls"]): row.metrics["milliseconds"] for row in select(rows, method="time")}
    sizes = {str(row.options["format"]): row.metrics for row in select(rows, method="size")}
    return (times, sizes) if times.keys() == CALLS.keys() and sizes.keys() == FORMATS.keys() else None


def table(rows: Sequence[Row]) -> str:
    found = _found(rows)
    if found is None:
        return "Not all of it has been measured.\n"
    times, sizes = found
    lines = [[f"release, {title}", f"{times[calls]:.3f}"] for calls, title in CALLS.items()]
    lines += [[who, f"{milliseconds:g}"] for who, milliseconds in PAPER_TIMES.items()]

    def ratio(name: str, side: str) -> str:
        value = sizes[name][f"{side}_bytes"]
        return "-" if value is None else f"{value / sizes[name]['raw_bytes']:.2f}"

    stored = [[title, ratio(name, "source"), ratio(name, "release")] for name, title in FORMATS.items()]
    stored.append(["raw pixels", "1.00", "1.00"])
    peers = ", ".join(f"{name} {value:g}" for name, value in PEERS.items())
    return (
        markdown(["112 x 112, colour, eps 20", "ms per image"], lines)
        + "\n"
        + markdown(["size, relative to the raw pixels", "source", "release"], stored)
        + f"\nThe paper counts raw values: ours 1, {peers}. Lossless formats hardly compress noise.\n"
    )


def figure(rows: RowsByExperiment) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, bars, dots, panels

    drawn, (left, right) = panels(2, width=5.4, height=3.4)
    found = _found(rows["overhead"])
    if found is None:
        return drawn
    machine = ", ".join(sorted({row.provenance.hardware for row in rows["overhead"] if row.provenance}))
    times = {f"ours, {calls}\n{machine}, one thread": found[0][name] for name, calls in CALLS.items()}
    stored = found[1]["png-stored"]
    sizes = {"ours, PNG": [stored["release_bytes"] / stored["raw_bytes"]]}
    others = {title.replace(" (", "\n("): value for title, value in PAPER_TIMES.items()}
    dots(left, times | others, [*COLOURS[:1] * len(times), *COLOURS[1:2] * len(others)])
    left.set(title="Time of a release, 112 x 112", xlabel="ms per image", xlim=(0.01, 200))
    right.set(xscale="linear", xlim=(0, 70), title="Storage (peers: from the paper)")
    bars(
        right,
        sizes | {name: [value] for name, value in PEERS.items()},
        colours=[COLOURS[0], *COLOURS[1:2] * len(PEERS)],
    )
    right.set(xlabel="relative to the raw pixels")
    return drawn


EXPERIMENT = Experiment(
    "overhead", "Time and storage of releases of 112 x 112 faces (LFW), one thread.", measure, table, figure
)
