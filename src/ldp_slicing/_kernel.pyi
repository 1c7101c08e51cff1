from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any] | bytes

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
    counters: _Array,
    blocks: _Array,
    /,
) -> None: ...
def finish(
    variant: int,
    source: _Array,
    release: _Array,
    masks: _Array,
    height: int,
    width: int,
    channels: int,
    bits: int,
    block: int,
    keep: int,
    drop: int,
    to_rgb: bool,
    /,
) -> None: ...
