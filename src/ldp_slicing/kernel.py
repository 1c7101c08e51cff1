"""The compiled backend: the two steps of the reference, on the same arrays. It is optional.

Tests: tests/test_kernel.py and tests/test_slicer.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import KernelError
from ldp_slicing.mask import Blocks
from ldp_slicing.plan import Plan, channel_bits
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune, block_of, gain_of

try:
    import ldp_slicing._kernel as _kernel  # "from ldp_slicing import" would report a circular import if it is missing

    VARIANTS: tuple[str, ...] = _kernel.variants  # those that this processor can run, the fastest last
    WHY_MISSING = ""
except ModuleNotFoundError:
    VARIANTS, WHY_MISSING = (), "it was not built, which needs a C compiler"
except ImportError as error:
    VARIANTS, WHY_MISSING = (), str(error)


class Kernel:
    """A variant of the kernel: by default the fastest that this processor can run."""

    def __init__(self, variant: str | None = None) -> None:
        if not VARIANTS:
            raise KernelError(
                f"the compiled kernel is not available ({WHY_MISSING}); use backend='auto' or backend='reference'"
            )
        if variant is not None and variant not in VARIANTS:
            raise KernelError(f"this processor runs the kernel variants {', '.join(VARIANTS)}; got {variant!r}")
        self.name = f"kernel ({variant or VARIANTS[-1]})"
        self._variant = VARIANTS.index(variant) if variant else len(VARIANTS) - 1

    def draw(
        self,
        lanes: NDArray[np.uint16],
        tables: Tables,
        first_pixel: int,
        blocks: Sequence[Blocks],
        masks: NDArray[np.uint8],
        offset: int,
    ) -> None:
        """Draw masks, as ``slicer.Reference.draw`` does."""
        ties = np.empty(len(lanes), np.int64)  # per image
        arguments = (
            lanes,
            tables.first,
            tables.rest,
            tables.outcome,
            tables.uniform,
            tables.planes,
            first_pixel,
            masks,
            offset,
            ties,
        )
        draws = lanes.size // tables.lanes * tables.groups
        # One draw in 256 ties on average. If the buffer is too small, the call is repeated with a larger one.
        counters = np.empty((draws // 128 + 64, 2), ">u8")
        count = _kernel.draw(self._variant, *arguments, counters)
        if count > len(counters):
            counters = np.empty((count, 2), ">u8")
            _kernel.draw(self._variant, *arguments, counters)
        if count:
            wanted, start, parts = counters.data.cast("B"), 0, []
            for own, number in zip(blocks, ties.tolist(), strict=True):
                end = start + 16 * number
                parts.append(own(wanted[start:end]))
                start = end
            _kernel.settle(*arguments, wanted[:start], b"".join(parts))

    def finish(
        self,
        source: NDArray[np.unsignedinteger],
        release: NDArray[np.unsignedinteger],
        masks: NDArray[np.uint8],
        plan: Plan,
        prune: Prune,
        to_rgb: bool,
    ) -> None:
        """Apply view, mask and rebuild, as ``slicer.Reference.finish`` does."""
        images, height, width, channels = source.shape
        _kernel.finish(
            self._variant,
            source,
            release,
            masks,
            images,
            height,
            width,
            channels,
            channel_bits(plan.word_bits),
            block_of(prune),
            gain_of(prune),
            plan.kept_bits,
            plan.dropped_value,
            to_rgb,
        )
