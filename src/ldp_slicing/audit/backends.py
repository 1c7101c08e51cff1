"""The installation under audit: the promised plan and view, the tables, and the backends that must keep the promise.

Planted faults replace one of these parts (``faults.py``). Tests: tests/audit/test_installation.py.
"""

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

Release = Callable[[Pixels], Pixels]  # from a source to its release, as YCbCr or grey
PROGRAM = (
    "import sys; from ldp_slicing.audit.backends import serve_request; "
    "sys.stdout.buffer.write(serve_request(sys.argv[1], sys.stdin.buffer.read()))"
)


@dataclass(frozen=True)
class Installation:
    """``plan`` and ``prune`` are the promise: the audit takes what is right from these alone.

    ``tables``: what the sampler reads. ``backends``: for each backend, a function that sets it up anew.
    ``new_process``: a release made in a new process.
    """

    plan: Plan
    prune: Prune
    tables: Tables
    backends: Mapping[str, Callable[[], Release]]
    new_process: Release


def this_installation(plan: Plan, prune: Prune) -> Installation:
    """This installation by its public interface: the reference, and every kernel variant that this processor runs."""
    backends = {"reference": partial(_make_slicer, plan, prune, None)}
    backends |= {f"kernel ({variant})": partial(_make_slicer, plan, prune, variant) for variant in VARIANTS}
    return Installation(plan, prune, plan.tables, backends, partial(release_in_new_process, plan, prune))


def _make_slicer(plan: Plan, prune: Prune, variant: str | None) -> Slicer:
    return Slicer(plan, prune=prune, output="ycbcr", backend=Kernel(variant) if variant else "reference")


def release_in_new_process(plan: Plan, prune: Prune, source: Pixels) -> Pixels:
    """Make a release in a new process, which would show a seed that every process starts with."""
    request = {"plan": plan.to_dict(), "prune": prune}
    image = io.BytesIO()
    np.save(image, source)
    command = [sys.executable, "-c", PROGRAM, json.dumps(request)]
    done = subprocess.run(command, input=image.getvalue(), capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()[-300:]
        raise AuditError(f"a new process could not make a release: {message}")
    release: Pixels = np.load(io.BytesIO(done.stdout))
    return release


def serve_request(text: str, image: bytes) -> bytes:
    """Make the release that ``release_in_new_process`` requests. Source and release are .npy files."""
    request = json.loads(text)
    slicer = Slicer(Plan.from_dict(request["plan"]), prune=request["prune"], output="ycbcr")
    release = io.BytesIO()
    np.save(release, slicer(np.load(io.BytesIO(image))))
    return release.getvalue()


def audit_sources(plan: Plan, pixels: int) -> list[Pixels]:
    """Four sources with about ``pixels`` pixels together: one without any structure, twice; one flat; one smooth."""
    height = max(1, math.isqrt(max(1, pixels // 4))) | 1
    width = max(1, pixels // 4 // height)
    highest = highest_value(plan)
    shape = (height, width, 3) if plan.is_colour else (height, width)
    # A hash of the index suffices: every value must occur everywhere, and nothing here has to be random.
    index = np.arange(math.prod(shape), dtype=np.uint64)
    mixed = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(0x94D049BB133111EB)
    hashed = (mixed >> np.uint64(40) & np.uint64(highest)).astype(plan.dtype).reshape(shape)
    smooth = np.linspace(0, highest, hashed.size).astype(plan.dtype).reshape(shape)
    return [hashed, hashed, np.full(shape, highest * 3 // 4, plan.dtype), smooth]
