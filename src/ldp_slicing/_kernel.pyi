from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any] | bytes | memoryview

variants: tuple[str, ...]

def draw(
    variant: int,
    lanes: _Array,
    first: _Array,
    rest: _Array,
    outcome: _Array,
    uniform: _Array,
    planes: int,
    first_pixel: int,
    masks: _Array,
    offset: int,
    ties: _Array,
    counters: _Array,
    /,
) -> int: ...
def settle(
    lanes: _Array,
    first: _Array,
    rest: _Array,
    outcome: _Array,
    uniform: _Array,
    planes: int,
    first_pixel: int,
    masks: _Array,
    offset: int,
    ties: _Array,
    counters: _Array,
    blocks: _Array,
    /,
) -> None: ...
def finish(
    variant: int,
    source: _Array,
    release: _Array,
    masks: _Array,
    images: int,
    height: int,
    width: int,
    channels: int,
    bits: int,
    block: int,
    gain: int,
    keep: int,
    drop: int,
    to_rgb: bool,
    /,
) -> None: ...
