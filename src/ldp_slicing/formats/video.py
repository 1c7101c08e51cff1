"""Video, frame by frame: every frame is a release, and t frames cost t x eps. Written without loss (FFV1 in Matroska), without sound."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, BinaryIO, cast

import av
import numpy as np
from numpy.typing import NDArray

from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Entry, Options, Plain, Seen
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import Draft

_CHUNK = 1 << 20
_METADATA = {"encoder", "duration"}  # what the container says of itself
_EBML, _SEGMENT = (
    b"\x1a\x45\xdf\xa3",
    0x18538067,
)  # Matroska: the name of its first element, and of the one that holds the film
_NTSC = (Fraction(rate * 1000, 1001) for rate in (24, 30, 60, 120))
_RATES = (
    *_NTSC,
    *map(Fraction, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 24, 25, 30, 48, 50, 60, 72, 90, 100, 120, 144, 200, 240)),
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    digest = hashlib.sha256()
    while piece := file.read(_CHUNK):
        digest.update(piece)
    if not file.tell():
        raise ImageError("is empty")
    size, stated = file.tell(), _stated_size(file)
    if stated is not None and stated > size:
        raise ImageError(f"is cut off: {size} of {stated} bytes are there")
    file.seek(0)
    try:
        with av.open(file, mode="r", options={"err_detect": "explode"}) as film:
            if not film.streams.video:
                raise ImageError("has no pictures")
            stream = film.streams.video[0]
            about = {"rate": _usual(stream.average_rate or stream.guessed_rate or Fraction(25))}
            notices = _notices(film, open_ended=stated is None and not stream.frames)
            shape, number = None, 0
            for number, frame in enumerate(film.decode(stream), 1):
                pixels = _upright(frame)
                if shape is not None and pixels.shape != shape:
                    raise ImageError(
                        f"changes its size, from {shape[1]} x {shape[0]} to {pixels.shape[1]} x {pixels.shape[0]}"
                    )
                shape = pixels.shape
                bits = COLOUR_BITS if pixels.ndim == 3 else 8
                yield Entry(str(number), pixels, bits, digest.digest(), notices, number, about)
            if stream.frames and stream.frames != number:  # where the file says how many there should be
                raise ImageError(f"is cut off or damaged: {number} of {stream.frames} frames can be decoded")
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        words = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"is no film, or is cut off or damaged: {words}") from None


def _stated_size(file: BinaryIO) -> int | None:
    """How many bytes a Matroska file should have; None where it does not say so (a recording that was streamed), or is none.

    Its elements are a name, a size and as many bytes. Names and sizes are numbers of 1 to 8 bytes: the zero bits that the first begins with
    say how many follow, and the one behind them belongs to a name, but not to a size. A size of ones only is not known.
    """

    def number() -> tuple[int, int]:
        first = file.read(1)
        more = 8 - first[0].bit_length() if first and first[0] else 0
        return int.from_bytes(first + file.read(more), "big"), (1 << 7 * (more + 1)) - 1

    file.seek(0)
    is_matroska = file.read(4) == _EBML
    file.seek(0)
    while is_matroska and (name := number()[0]):
        value, ones = number()
        size = value & ones
        if size == ones:
            break
        if name == _SEGMENT:
            return file.tell() + size
        file.seek(size, 1)
    return None


def _usual(rate: Fraction) -> Fraction:
    """The nearest of a few rates: the exact average of a camera's own intervals would tell one source from all others."""
    return min(_RATES, key=lambda usual: max(usual / rate, rate / usual))


def _notices(film: Any, *, open_ended: bool) -> tuple[str, ...]:  # noqa: ANN401
    others = len(film.streams) - 1
    notices = [f"{others} other stream{'s' * (others > 1)} (sound, subtitles) left out"] if others else []
    if open_ended:
        notices.append("may have been cut off: that cannot be told of this kind of film file")
    return tuple(notices)


def _upright(frame: Any) -> NDArray[np.uint8]:  # noqa: ANN401
    grey = frame.format.name.startswith("gray")
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="gray" if grey else "rgb24")
    turns = round((frame.rotation or 0) / 90) % 4  # counterclockwise
    return np.ascontiguousarray(np.rot90(pixels, turns))


class Writer:
    canvas = Plain

    def __init__(self, draft: Draft, options: Options) -> None:
        self._draft = draft
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # Matroska goes back to fill in its sizes
        self._film = av.open(
            cast("BinaryIO", self._spool), mode="w", format="matroska", options={"fflags": "+bitexact"}
        )
        self._stream: Any = None

    def add(self, entry: Entry, name: str, identity: str, canvas: Plain) -> None:
        grey = entry.pixels.ndim == 2
        if self._stream is None:
            height, width = entry.pixels.shape[:2]
            self._stream = self._film.add_stream("ffv1", rate=entry.kept["rate"])
            self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "gray" if grey else "bgr0"
            self._stream.codec_context.options = {"flags": "+bitexact"}
        frame = av.VideoFrame.from_ndarray(canvas.pixels, format="gray" if grey else "rgb24")
        frame.pts = entry.frame - 1
        self._film.mux(self._stream.encode(frame if grey else frame.reformat(format="bgr0")))

    def close(self) -> None:
        self._film.mux(self._stream.encode(None))
        self._film.close()
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._draft, _CHUNK)
        self._spool.close()

    def abort(self) -> None:
        self._film.close()
        self._spool.close()


def inspect(file: BinaryIO) -> Iterator[Seen]:
    with av.open(file, mode="r") as film:
        said = [*film.metadata, *(key for stream in film.streams for key in stream.metadata)]
        unwanted = sorted({key for key in said if key.lower() not in _METADATA})
        if len(film.streams) != 1 or unwanted or film.streams[0].codec_context.name != "ffv1":
            yield Seen(
                None,
                problem=f"holds more than pictures: {len(film.streams)} streams, {', '.join(unwanted) or 'no metadata'}",
            )
            return
        frames = 0
        for frame in film.decode(video=0):
            frames, last = frames + 1, frame
        yield Seen(None, last.width, last.height, 8 if last.format.name == "gray" else COLOUR_BITS, frames)
