"""What a release costs in time and storage: 112 x 112 faces, one thread."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.experiment import Experiment, Findings, Row, Setting, markdown
from ldp_slicing.plan import Plan
from ldp_slicing.png import encode_png
from ldp_slicing.slicer import Slicer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 100  # as the paper
ROUNDS = 15
RUNS = ("time-one-by-one", "time-batch", "size-png-stored", "size-png", "size-jpeg-95")
PEERS = {
    "MinusFace": 1.0,
    "AdvFace": 5.3,
    "PartialFace": 9.0,
    "PPFR-FD": 36.0,
    "DuetFace": 54.0,
    "DCTDP": 63.0,
}  # of the paper's table
PAPER_TIMES = {"paper (Apple M4)": 5.5, "MinusFace, as the paper says": 68.0}  # milliseconds


def measure(setting: Setting) -> Iterator[Row]:
    if not setting.wants_any(RUNS) or all(setting.has(run) for run in RUNS):  # together, on a machine in one state
        return
    faces = load_lfw(setting.data).images
    chosen = np.ascontiguousarray(faces[np.linspace(0, len(faces) - 1, min(COUNT, len(faces))).astype(int)])
    slicer = Slicer(Plan.paper(20.0))
    yield _row(
        "time-one-by-one", len(chosen), milliseconds=_median(lambda: [slicer(image) for image in chosen], len(chosen))
    )
    yield _row("time-batch", len(chosen), milliseconds=_median(lambda: slicer(chosen), len(chosen)))
    releases = np.asarray(slicer(chosen))
    raw = chosen[0].nbytes
    sizes: dict[str, Callable[[NDArray[np.uint8]], int]] = {
        "png-stored": lambda image: sum(map(len, encode_png(image))),
        "png": lambda image: _encoded(image, "PNG"),
        "jpeg-95": lambda image: _encoded(image, "JPEG", quality=95),
    }
    for name, size in sizes.items():
        source, release = (statistics.mean(size(image) for image in images) for images in (chosen, releases))
        if name == "jpeg-95":  # a release is written without loss; this is what many sources are
            yield _row(f"size-{name}", len(chosen), source_bytes=source, release_bytes=None, raw_bytes=raw)
        else:
            yield _row(f"size-{name}", len(chosen), source_bytes=source, release_bytes=release, raw_bytes=raw)


def _row(run: str, images: int, **found: float | None) -> Row:
    return {"run": run, "seed": 0, "finished": True, "images": images, "epsilon_requested": 20.0, **found}


def _median(do: Callable[[], object], images: int) -> float:
    """Milliseconds an image, the median of some rounds."""
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


def table(rows: Sequence[Row]) -> str:
    found = {row["run"]: row for row in rows}
    if not found.keys() >= set(RUNS):
        return "Not all of it has been measured.\n"
    times = [
        ["release, one call per image", f"{found['time-one-by-one']['milliseconds']:.3f}"],
        ["release, one call for all", f"{found['time-batch']['milliseconds']:.3f}"],
        *([who, f"{milliseconds:g}"] for who, milliseconds in PAPER_TIMES.items()),
    ]
    raw = found["size-png"]["raw_bytes"]

    def times_raw(value: float | None) -> str:
        return "-" if value is None else f"{value / raw:.2f}"

    titles = {"png-stored": "PNG as `privatize` writes it", "png": "PNG by Pillow", "jpeg-95": "JPEG, quality 95"}
    sizes = [
        [title, *(times_raw(found[f"size-{name}"][f"{side}_bytes"]) for side in ("source", "release"))]
        for name, title in titles.items()
    ]
    sizes.append(["raw pixels", "1.00", "1.00"])
    peers = ", ".join(f"{name} {value:g}" for name, value in PEERS.items())
    return (
        markdown(["112 x 112, colour, eps 20", "ms an image"], times)
        + "\n"
        + markdown(["size, times the raw pixels", "source", "release"], sizes)
        + f"\nThe paper counts raw values: ours 1, {peers}. A release is noise, which no lossless format makes much smaller.\n"
    )


def figure(findings: Findings) -> Figure:
    from ldp_slicing.lab.figures import COLOURS, bars, panels

    found = {row["run"]: row for row in findings["overhead"]}
    drawn, (left, right) = panels(2, width=5)
    if not found.keys() >= set(RUNS):
        return drawn
    times = {
        "ours, one by one": found["time-one-by-one"]["milliseconds"],
        "ours, all at once": found["time-batch"]["milliseconds"],
    }
    sizes = {"ours, PNG": found["size-png-stored"]["release_bytes"] / found["size-png-stored"]["raw_bytes"]}
    for axis, mine, others in ((left, times, PAPER_TIMES), (right, sizes, PEERS)):
        bars(axis, mine | others, colours=[*COLOURS[:1] * len(mine), *COLOURS[1:2] * len(others)])
    left.set(title="Time of a release, 112 x 112", xlabel="ms an image", xlim=(0.01, 100))
    right.set(title="Storage, of others as the paper says", xlabel="times the raw pixels", xlim=(0.5, 100))
    return drawn


EXPERIMENT = Experiment("Time and storage of a release of 112 x 112 faces (LFW), one thread", measure, table, figure)
