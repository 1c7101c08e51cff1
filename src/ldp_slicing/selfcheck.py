"""Self-check of an installation: which backend is in use, why, and whether it returns the right bytes."""

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
class SelfCheck:
    """Facts about this installation, and whether every backend agrees with the reference."""

    facts: dict[str, str]
    healthy: bool


def check_installation() -> SelfCheck:
    """Compare every kernel variant of this installation with the reference, and collect versions."""
    wrong = [backend.name for backend in map(Kernel, VARIANTS) if not _agrees(backend)]
    facts = {
        "ldp-slicing": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "backend in use": choose_backend("auto").name,
        "why": f"the kernel was built; this processor runs {', '.join(VARIANTS)}"
        if VARIANTS
        else f"no kernel: {WHY_MISSING}; releases are correct, but slower",
        "self-test": f"FAILED: different from the reference: {', '.join(wrong)}"
        if wrong
        else f"{len(VARIANTS)} kernel variants return the same bytes as the reference"
        if VARIANTS
        else "no kernel to compare with the reference",
        "randomness": f"keys from the operating system, AES-256-CTR from cryptography {cryptography.__version__} "
        f"({backend.openssl_version_text()})",
        "numpy": np.__version__,
        "pillow": PIL.__version__,
    }
    return SelfCheck(facts, not wrong)


def _agrees(backend: Backend) -> bool:
    values = np.arange(67 * 129 * 3, dtype=np.uint32).reshape(67, 129, 3)
    image = (values * values >> 3).astype(np.uint8)
    for plan in (Plan.paper(20.0), Plan([Slice(0xF8E0E0, 12.0), Slice(0x070000, 1.0)])):
        releases = []
        for candidate in (backend, Reference()):
            releases.append(Slicer(plan, backend=candidate, randomness=SeededForTests(0))(image))
        if not np.array_equal(releases[0], releases[1]):
            return False
    return True
