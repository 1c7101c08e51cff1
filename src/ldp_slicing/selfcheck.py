"""Is this installation sound: which backend is in use, why, and does it give the bytes it must."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import cryptography
import numpy as np
import PIL
from cryptography.hazmat.backends.openssl import backend

from ldp_slicing.kernel import VARIANTS, WHY_MISSING, Kernel
from ldp_slicing.plan import Plan, Slice
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.slicer import Backend, Reference, Slicer, choose_backend
from ldp_slicing.version import __version__


@dataclass(frozen=True)
class Findings:
    facts: dict[str, str]
    healthy: bool


def checkup() -> Findings:
    """Facts about this installation, and whether every backend it has agrees with the reference."""
    wrong = [backend.name for backend in map(Kernel, VARIANTS) if not _agrees(backend)]
    facts = {
        "ldp-slicing": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "backend in use": choose_backend("auto").name,
        "why": f"the kernel was built; this processor runs {', '.join(VARIANTS)}"
        if VARIANTS
        else f"no kernel: {WHY_MISSING}; releases are right, but slower",
        "self-test": f"DIFFERENT FROM THE REFERENCE: {', '.join(wrong)}"
        if wrong
        else f"{len(VARIANTS)} kernel variants equal the reference, byte for byte",
        "randomness": f"operating system keys, AES-256-CTR by cryptography {cryptography.__version__} ({backend.openssl_version_text()})",
        "numpy": np.__version__,
        "pillow": PIL.__version__,
    }
    return Findings(facts, not wrong)


def _agrees(backend: Backend) -> bool:
    picture = np.arange(67 * 129 * 3, dtype=np.uint32).reshape(67, 129, 3)
    image = (picture * picture >> 3).astype(np.uint8)
    for plan in (Plan.paper(20.0), Plan([Slice(0xF8E0E0, 12.0), Slice(0x070000, 1.0)])):
        releases = []
        for candidate in (backend, Reference()):
            releases.append(Slicer(plan, backend=candidate, randomness=SeededForTests(0))(image))
        if not np.array_equal(releases[0], releases[1]):
            return False
    return True
