"""`make bench` measures speed, memory, files, small images, the page and more, and writes benchmarks/RESULTS.md.

`python -m benchmarks.run small` repeats one section and keeps the others.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.contenders import PLAN, contenders, each
from benchmarks.page import page
from benchmarks.shrinking import shrinking
from ldp_slicing import Plan, Slicer
from ldp_slicing.kernel import VARIANTS
from ldp_slicing.plan import BUDGETS
from ldp_slicing.png import Canvas, encode_png
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import on_this_machine
from ldp_slicing.release.settings import ReleaseSettings

SIZES = {
    "112 x 112": (112, 112),
    "224 x 224": (224, 224),
    "1024 x 1024": (1024, 1024),
    "12 MP (3000 x 4000)": (3000, 4000),
    "256 of 112 x 112": (256, 112, 112),
}
ROUNDS = {"12 MP (3000 x 4000)": 3, "256 of 112 x 112": 5}
SET = np.zeros((60_000, 32, 32, 3), np.uint8)  # time does not depend on the pixels
SLOW = "paper, float64"  # NumPy's default float; single precision is measured too

MEMORY = """
import sys, numpy as np
from benchmarks.contenders import PLAN, contenders, each
from ldp_slicing import Plan, Slicer
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
def now():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
run = contenders()[sys.argv[1]]
run(np.zeros((64, 64, 3), np.uint8))
image = np.random.default_rng(0).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
open("/proc/self/clear_refs", "w").write("5")
before = now()
result = run(image)
print((peak() - before) / 1024)
"""


def random_image(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)


def seconds(function: Callable[[Any], Any], argument: object, repeat: int) -> float:
    started = time.perf_counter()
    for _ in range(repeat):
        function(argument)
    return (time.perf_counter() - started) / repeat


def interleaved(functions: dict[str, Callable[[Any], Any]], image: object, rounds: int) -> dict[str, list[float]]:
    """Return the seconds per call of each function in each round. Fast functions are repeated for about 20 ms."""
    once = {name: min(seconds(function, image, 1) for _ in range(2)) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(seconds(function, image, max(1, int(0.02 / once[name]))))
    return times


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    """Return the median over the rounds of time ``a`` divided by time ``b``."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def speed() -> list[str]:
    functions = contenders()
    header = ["| ns per pixel |", "|---|"]
    rows = {name: f"| {name} |" for name in functions}
    ratios: dict[tuple[str, str, str], list[float]] = {
        ("speed-up of the reference over the paper in float64", SLOW, "reference"): [],
        ("speed-up of the kernel over the paper in float64", SLOW, "kernel"): [],
        ("speed-up of the kernel over the paper in float32", "paper, float32", "kernel"): [],
        ("time of the kernel relative to the keystream", "kernel", "keystream alone"): [],
    }
    for label, shape in SIZES.items():
        image = random_image(shape)
        times = interleaved(functions, image, ROUNDS.get(label, 9))
        header[0] += f" {label} |"
        header[1] += "---|"
        for name in functions:
            nanoseconds = statistics.median(times[name]) / (image.size // 3) * 1e9
            rows[name] += f" {nanoseconds:.2f} |"
            print(f"{label:>20}  {name:<24} {nanoseconds:9.2f} ns per pixel", flush=True)
        for (_, a, b), values in ratios.items():
            values.append(ratio(times, a, b))
    lines = [*header, *rows.values()]
    for (name, _, _), values in ratios.items():
        lines.append(f"| **{name}** |" + "".join(f" **{value:.1f}** |" for value in values))
        print(f"{name:<50}" + "".join(f"{value:9.1f}" for value in values))
    return lines


def growth() -> list[str]:
    """Fit a line to the time as a function of pixels, from 1/4 to 24 megapixels."""
    slicer = contenders()["kernel"]
    sides = [(512, 512), (1024, 1024), (2048, 1024), (2048, 2048), (3000, 4000), (4000, 6000)]
    images = [random_image(side) for side in sides]
    best = [min(seconds(slicer, image, 1) for _ in range(7)) for image in images]
    pixels = np.array([image.size / 3 for image in images])
    slope, start = np.polyfit(pixels, best, 1)
    explained = 1 - np.var(best - (slope * pixels + start)) / np.var(best)
    lines = ["| megapixels | " + " | ".join(f"{p / 1e6:.2f}" for p in pixels) + " |", "|---|" + "---|" * len(sides)]
    lines += ["| kernel, ms | " + " | ".join(f"{1000 * t:.2f}" for t in best) + " |", ""]
    lines.append(f"A straight line of {slope * 1e9:.2f} ns per pixel explains {100 * explained:.2f} % of the variance.")
    print(lines[-1])
    return lines


def memory() -> list[str]:
    lines = ["| | MiB |", "|---|---|"]
    for name in (SLOW, "reference", "kernel"):
        ran = subprocess.run([sys.executable, "-c", MEMORY, name], capture_output=True, text=True, check=True)
        lines.append(f"| {name} | {float(ran.stdout):.1f} |")
        print(f"{name:<24} {float(ran.stdout):8.1f} MiB at 12 MP")
    return lines


def files(rounds: int = 5) -> list[str]:
    """Compare a run with one worker to loops that decode, privatise and write, or only decode and write."""
    lines: list[str] = []
    for side, count in ((1024, 80), (112, 1000)):
        with tempfile.TemporaryDirectory() as folder:
            times = _measure_files(Path(folder), side, count, rounds)
        took, part, more = (
            1000 * statistics.median(times["ours"]) / count,
            ratio(times, "bare", "ours"),
            ratio(times, "ours", "copy"),
        )
        lines += [
            f"{count} JPEG files of {side} x {side} to PNG, one worker: {took:.2f} ms per image, ledger included.",
            f"This is **{part:.2f} of the throughput** of a loop that decodes, privatises and writes the same PNG, and",
            f"takes **{more:.2f} times** as long as one that decodes and writes without privacy. All flush to disk.",
            "",
        ]
        print("\n".join(lines[-4:]))
    return lines[:-1]


def _measure_files(folder: Path, side: int, count: int, rounds: int) -> dict[str, list[float]]:
    source = folder / "source"
    source.mkdir()
    noise = np.random.default_rng(0).normal(0, 6, (side, side, 3))
    wave = 127 + 100 * np.sin(np.linspace(0, 40, side))[:, None, None] * np.cos(np.linspace(0, 30, side))[None, :, None]
    for i in range(count):
        pixels = np.clip(wave * (0.8 + i / count / 4) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(source / f"{i:05}.jpg", quality=90)
    slicer = Slicer(Plan.paper(20.0))

    def bare(target: Path, *, private: bool = True) -> None:
        target.mkdir()
        for path in sorted(source.iterdir()):
            with Image.open(path) as image, open(target / f"{path.stem}.png", "wb") as file:
                pixels = np.asarray(image)
                canvas = Canvas(pixels.shape, pixels.dtype)
                if private:
                    slicer.release_into(pixels, canvas.pixels)
                else:
                    canvas.pixels[...] = pixels
                file.writelines(canvas.encode())

    def copy(target: Path) -> None:
        bare(target, private=False)

    def ours(target: Path) -> None:
        job = prepare(source, target, ReleaseSettings(20.0), ledger=target.with_suffix(".sqlite"))
        assert sum(1 for outcome in job.run(on_this_machine(1)) if outcome.problem is None) == count
        job.close()

    times: dict[str, list[float]] = {"ours": [], "bare": [], "copy": []}
    for turn in range(rounds + 1):
        for function in (ours, bare, copy):
            os.sync()
            started = time.perf_counter()
            function(folder / f"{function.__name__}{turn}")
            os.sync()  # a run ends with a flush, so the others do too
            if turn:
                times[function.__name__].append(time.perf_counter() - started)
            shutil.rmtree(folder / f"{function.__name__}{turn}")
    return times


def palettes() -> list[str]:
    """Measure files of a plan with few colours: with a palette, and with 24 bits per pixel."""
    plan = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")
    slicer = Slicer(plan)
    lines = [
        "Releases of `Y7+Y4+Cb7+Cr7`, which has 16 colours. Encoding is to memory; the whole is release, encoding and",
        "SHA-256.",
        "",
        "| image | file | bytes | bits per pixel | encoding, ns per pixel | whole, ns per pixel |",
        "|---|---|---|---|---|---|",
    ]
    for label in ("112 x 112", "1024 x 1024", "12 MP (3000 x 4000)"):
        image = random_image(SIZES[label])
        pixels = image.size // 3
        made = {"24 bits": Canvas(image.shape, image.dtype), "palette": Canvas(image.shape, image.dtype, plan)}
        whole = {name: _release_and_hash(slicer, canvas) for name, canvas in made.items()}
        encoding: dict[str, Callable[[Any], Any]] = {
            **{name: lambda _, canvas=canvas: canvas.encode() for name, canvas in made.items()},
            "24 bits, zlib level 6": lambda _, canvas=made["24 bits"]: zlib.compress(canvas.pixels.tobytes(), 6),
        }
        for function in whole.values():
            function(image)
        sizes = {name: sum(map(len, canvas.encode())) for name, canvas in made.items()}
        sizes["24 bits, zlib level 6"] = len(zlib.compress(made["24 bits"].pixels.tobytes(), 6))
        rounds = ROUNDS.get(label, 9)
        encoded, wholes = interleaved(encoding, image, rounds), interleaved(whole, image, rounds)
        for name, size in sizes.items():
            encode = statistics.median(encoded[name]) / pixels * 1e9
            total = f"{statistics.median(wholes[name]) / pixels * 1e9:.2f}" if name in wholes else ""
            lines.append(f"| {label} | {name} | {size:,} | {8 * size / pixels:.2f} | {encode:.2f} | {total} |")
            print(lines[-1], flush=True)
    return lines


def _release_and_hash(slicer: Slicer, canvas: Canvas) -> Callable[[Any], Any]:
    def run(image: NDArray[np.uint8]) -> bytes:
        slicer.release_into(image, canvas.pixels)
        digest = hashlib.sha256()
        for piece in canvas.encode():
            digest.update(piece)
        return digest.digest()

    return run


def archive() -> list[str]:
    """Measure the memory and time of a run in one process for growing numbers of images."""
    lines = ["| number of 16 x 16 images | peak memory, MiB | ms per image |", "|---|---|---|"]
    for count in (1_000, 10_000, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source")
            for i in range(count):
                path = source / f"{i // 1000:03}" / f"{i:06}.png"
                if i % 1000 == 0:
                    path.parent.mkdir(parents=True)
                path.write_bytes(b"".join(encode_png(np.full((16, 16, 3), [i & 255, i >> 8 & 255, i >> 16], np.uint8))))
            command = [
                sys.executable,
                "-m",
                "ldp_slicing",
                "privatize",
                str(source),
                f"{folder}/out",
                "--epsilon",
                "20",
                "--ledger",
                f"{folder}/l.sqlite",
                "--json",
            ]
            started = time.perf_counter()
            run = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(run.pid, 0)
            assert status == 0
            took = time.perf_counter() - started
            lines.append(f"| {count:,} | {usage.ru_maxrss / 1024:.0f} | {1000 * took / count:.2f} |")
            print(lines[-1], flush=True)
    return lines


def small(batch: int = 1024, rounds: int = 15, repeats: int = 5) -> list[str]:
    """Measure images whose key costs more than their keystream, and 60,000 of them at the paper's seven budgets."""
    made = contenders()
    functions = {name: made[name] for name in (SLOW, "reference", "kernel", "keystream alone")}
    functions["kernel, one by one"] = each(Slicer(PLAN, backend="kernel"))
    times = interleaved(functions, SET[:batch], rounds)
    lines = [f"| {batch:,} images of 32 x 32, microseconds per image | median | best |", "|---|---|---|"]
    for name, took in times.items():
        median, best = (1e6 * value / batch for value in (statistics.median(took), min(took)))
        lines.append(f"| {name} | {median:.1f} | {best:.1f} |")
    for name, a, b in (
        ("speed-up of the kernel on a batch over the paper in float64", SLOW, "kernel"),
        ("speed-up of the kernel on a batch over single images", "kernel, one by one", "kernel"),
        ("time of the kernel on a batch relative to the keystream", "kernel", "keystream alone"),
    ):
        lines.append(f"| **{name}** | **{ratio(times, a, b):.1f}** | |")
    jobs = [(epsilon, half) for epsilon in BUDGETS for half in (0, 1)]
    whole, busy = [], []
    for _ in range(repeats):
        started, used = time.perf_counter(), processor_seconds()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            count = sum(pool.starmap(_release_half, jobs, chunksize=1))
            pool.close()
            pool.join()
        whole.append(time.perf_counter() - started)
        busy.append(processor_seconds() - used)
    lines += ["", f"60,000 images of 32 x 32 at seven budgets ({count:,} releases), two processes, {repeats} times:"]
    lines.append(f"**{min(whole):.1f} s** at best, {statistics.median(whole):.1f} s median; total processor time")
    lines.append(f"{min(busy):.1f} s at best, {statistics.median(busy):.1f} s median.")
    print("\n".join(lines))
    return lines


def processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _release_half(epsilon: float, half: int) -> int:
    part = np.split(SET, 2)[half]
    return len(Slicer(Plan.paper(epsilon))(part))


def importing() -> list[str]:
    command = [
        sys.executable,
        "-c",
        "import time; t = time.perf_counter(); import ldp_slicing; print(time.perf_counter() - t)",
    ]
    took = statistics.median(
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(9)
    )
    print(f"import: {took:.3f} s")
    return [f"`import ldp_slicing` takes {took:.3f} s, NumPy and cryptography included."]


SECTIONS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "speed": ("Speed", speed),
    "growth": ("Time and image size", growth),
    "memory": ("Extra memory at 12 MP (the output alone is 34.3 MiB)", memory),
    "shrinking": ("Shrinking before the noise", lambda: shrinking(interleaved)),
    "files": ("Files", files),
    "palettes": ("Files as small as what they hold", palettes),
    "archive": ("Memory and number of images", archive),
    "small": ("Small images", small),
    "page": ("The page", lambda: page(seconds)),
    "import": ("Import", importing),
}


def main(names: list[str]) -> None:
    if unknown := set(names) - set(SECTIONS):
        sys.exit(f"unknown section {', '.join(unknown)}; the sections are {', '.join(SECTIONS)}")
    file = Path(__file__).with_name("RESULTS.md")
    head = [
        "# Benchmarks",
        "",
        "`make bench` writes this page. The functions of a table take turns in one process and one thread. Every image",
        "has a fresh key. Times are medians and depend on the machine. Ratios are computed within each round, so they",
        "hold even on a noisy machine.",
        "",
        f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, "
        f"kernel variants {', '.join(VARIANTS)}.",
    ]
    parts = dict(part.split("\n", 1) for part in file.read_text().split("\n## ")[1:]) if names else {}
    for title, measure in (SECTIONS[name] for name in names or SECTIONS):
        parts[title] = "\n" + "\n".join(measure()) + "\n"
    titles = [title for title, _ in SECTIONS.values() if title in parts]
    file.write_text("\n".join(head) + "\n" + "".join(f"\n## {title}\n{parts[title]}" for title in titles))


if __name__ == "__main__":
    main(sys.argv[1:])
