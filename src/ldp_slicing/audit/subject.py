"""What is audited: a promise, and the things that are said to keep it. Faults are planted by replacing one of these from outside."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ldp_slicing.audit.pixel_words import Pixels, highest_value
from ldp_slicing.errors import AuditError
from ldp_slicing.kernel import VARIANTS, Kernel
from ldp_slicing.plan import Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune

Release = Callable[[Pixels], Pixels]  # a source to its release, as YCbCr or grey
PROGRAM = "import sys; from ldp_slicing.audit.subject import answer; sys.stdout.buffer.write(answer(sys.argv[1], sys.stdin.buffer.read()))"


@dataclass(frozen=True)
class Subject:
    """``plan`` and ``prune`` are what was promised; the audit reads nothing but these to know what is right.

    ``tables``: what the sampler reads. ``paths``: for each path a function that sets it up anew. ``elsewhere``: a release by a new process.
    """

    plan: Plan
    prune: Prune
    tables: Tables
    paths: Mapping[str, Callable[[], Release]]
    elsewhere: Release


def installed(plan: Plan, prune: Prune) -> Subject:
    """This installation, through its public interface: the reference and every variant of the kernel that this processor runs."""
    names = ["reference", *(f"kernel ({variant})" for variant in VARIANTS)]
    paths = {
        name: partial(_slicer, plan, prune, variant) for name, variant in zip(names, (None, *VARIANTS), strict=True)
    }
    return Subject(plan, prune, plan.tables, paths, partial(release_elsewhere, plan, prune))


def _slicer(plan: Plan, prune: Prune, variant: str | None) -> Slicer:
    return Slicer(plan, prune=prune, output="ycbcr", backend=Kernel(variant) if variant else "reference")


def release_elsewhere(plan: Plan, prune: Prune, source: Pixels) -> Pixels:
    """A release made by a new process, which shares nothing with this one: a seed that every process starts with would show."""
    order = {"plan": plan.to_dict(), "prune": prune}
    image = io.BytesIO()
    np.save(image, source)
    command = [sys.executable, "-c", PROGRAM, json.dumps(order)]
    done = subprocess.run(command, input=image.getvalue(), capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise AuditError(
            f"a new process could not make a release: {done.stderr.decode(errors='replace').strip()[-300:]}"
        )
    release: Pixels = np.load(io.BytesIO(done.stdout))
    return release


def answer(text: str, image: bytes) -> bytes:
    """The other end of ``release_elsewhere``: source and release are .npy files."""
    order = json.loads(text)
    release = io.BytesIO()
    np.save(
        release, Slicer(Plan.from_dict(order["plan"]), prune=order["prune"], output="ycbcr")(np.load(io.BytesIO(image)))
    )
    return release.getvalue()


def sources(plan: Plan, pixels: int) -> list[Pixels]:
    """Four sources of together about ``pixels`` pixels: one without any structure, twice; one flat; one smooth."""
    height = max(1, math.isqrt(max(1, pixels // 4))) | 1
    width = max(1, pixels // 4 // height)
    highest, dtype = highest_value(plan), plan.dtype
    shape = (height, width, 3) if plan.is_colour else (height, width)
    index = np.arange(math.prod(shape), dtype=np.uint64)
    mixed = (index + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15
    )  # no generator is needed, only every value at every place
    mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(0x94D049BB133111EB)
    wild = (mixed >> np.uint64(40) & np.uint64(highest)).astype(dtype).reshape(shape)
    smooth = np.linspace(0, highest, wild.size).astype(dtype).reshape(shape)
    return [wild, wild, np.full(shape, highest * 3 // 4, dtype), smooth]
