"""Videos: reads every format that FFmpeg decodes; writes FFV1 in Matroska, without loss and without sound.

Every frame is a release, so a video of t frames costs t x eps.
"""

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
from ldp_slicing.formats.base import Content, Entry, Options, PixelBuffer
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import TemporaryFile

_CHUNK_BYTES = 1 << 20
_CONTAINER_METADATA = {"encoder", "duration"}  # what FFmpeg itself writes into the container
_EBML_HEAD = b"\x1a\x45\xdf\xa3"  # the first bytes of a Matroska file
_SEGMENT_ID = 0x18538067  # the Matroska element that holds the video
_DEFAULT_RATE = Fraction(25)
_COMMON_RATES = (
    *(Fraction(rate * 1000, 1001) for rate in (24, 30, 60, 120)),  # NTSC
    *map(Fraction, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 24, 25, 30, 48, 50, 60, 72, 90, 100, 120, 144, 200, 240)),
)


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield every frame, upright, as uint8 [H, W, 3] or, for grey video, uint8 [H, W]. ``kept`` holds the frame rate.

    Raises ImageError if the video is cut off, damaged or changes its size, possibly after the first frames.
    """
    digest, size = _sha256(file)
    stated_size = _matroska_size(file)
    if stated_size is not None and stated_size > size:
        raise ImageError(f"is cut off: it has {size} of {stated_size} bytes")
    file.seek(0)
    try:
        with av.open(file, mode="r", options={"err_detect": "explode"}) as video:
            if not video.streams.video:
                raise ImageError("has no video stream")
            stream = video.streams.video[0]
            about = {"rate": _nearest_common_rate(stream.average_rate or stream.guessed_rate or _DEFAULT_RATE)}
            notices = _notices(len(video.streams) - 1, length_is_known=stated_size is not None or bool(stream.frames))
            shape, number = None, 0
            for number, frame in enumerate(video.decode(stream), 1):
                pixels = _upright(frame)
                if shape is not None and pixels.shape != shape:
                    old, new = (f"{width} x {height}" for height, width, *_ in (shape, pixels.shape))
                    raise ImageError(f"changes its frame size from {old} to {new} at frame {number}")
                shape = pixels.shape
                bits = COLOUR_BITS if pixels.ndim == 3 else 8
                yield Entry(str(number), pixels, bits, digest, notices, number, about)
            if stream.frames and stream.frames != number:
                raise ImageError(f"is cut off or damaged: {number} of {stream.frames} frames can be decoded")
    except ImageError:
        raise
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"is not a video, or is cut off or damaged: {reason}") from None


def _sha256(file: BinaryIO) -> tuple[bytes, int]:
    """Return the SHA-256 and the size of the file; raise ImageError if it is empty."""
    digest = hashlib.sha256()
    while piece := file.read(_CHUNK_BYTES):
        digest.update(piece)
    if not file.tell():
        raise ImageError("is empty")
    return digest.digest(), file.tell()


def _matroska_size(file: BinaryIO) -> int | None:
    """Return the size that a Matroska file states, or None if it states none (streamed recordings) or is not Matroska.

    A Matroska file is a sequence of elements: an ID, a size, and that many bytes. IDs and sizes are integers of 1 to 8
    bytes. The number of leading zero bits of the first byte is the number of bytes that follow it. The one bit after
    them is part of an ID but not of a size. A size whose bits are all ones is unknown.
    """

    def read_integer() -> tuple[int, int]:
        """Return the value with its length marker, and the mask of its other bits."""
        first = file.read(1)
        following = 8 - first[0].bit_length() if first and first[0] else 0
        return int.from_bytes(first + file.read(following), "big"), (1 << 7 * (following + 1)) - 1

    file.seek(0)
    is_matroska = file.read(4) == _EBML_HEAD
    file.seek(0)
    while is_matroska and (element := read_integer()[0]):
        value, mask = read_integer()
        size = value & mask
        if size == mask:
            break
        if element == _SEGMENT_ID:
            return file.tell() + size
        file.seek(size, 1)
    return None


def _nearest_common_rate(rate: Fraction) -> Fraction:
    """Return the nearest common frame rate: the exact average of a camera's intervals could identify the source."""
    return min(_COMMON_RATES, key=lambda common: max(common / rate, rate / common))


def _notices(other_streams: int, *, length_is_known: bool) -> tuple[str, ...]:
    notices = []
    if other_streams:
        streams = "stream" if other_streams == 1 else "streams"
        notices.append(f"left out: {other_streams} other {streams} (sound, subtitles)")
    if not length_is_known:
        notices.append("may be cut off: this container does not state its length")
    return tuple(notices)


def _upright(frame: Any) -> NDArray[np.uint8]:  # noqa: ANN401
    is_grey = frame.format.name.startswith("gray")
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="gray" if is_grey else "rgb24")
    quarter_turns = round((frame.rotation or 0) / 90) % 4  # counterclockwise
    return np.ascontiguousarray(np.rot90(pixels, quarter_turns))


class Writer:
    """Writes frames as FFV1 in Matroska, without metadata."""

    canvas = PixelBuffer

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # Matroska seeks back to fill in sizes; the output cannot
        spool = cast("BinaryIO", self._spool)
        self._video = av.open(spool, mode="w", format="matroska", options={"fflags": "+bitexact"})
        self._stream: Any = None

    def add(self, entry: Entry, name: str, identity: str, canvas: PixelBuffer) -> None:
        is_grey = entry.pixels.ndim == 2
        if self._stream is None:
            self._stream = self._video.add_stream("ffv1", rate=entry.kept["rate"])
            self._stream.height, self._stream.width = entry.pixels.shape[:2]
            self._stream.pix_fmt = "gray" if is_grey else "bgr0"
            self._stream.codec_context.options = {"flags": "+bitexact"}
        frame = av.VideoFrame.from_ndarray(canvas.pixels, format="gray" if is_grey else "rgb24")
        frame.pts = entry.frame - 1
        self._video.mux(self._stream.encode(frame if is_grey else frame.reformat(format="bgr0")))

    def close(self) -> None:
        self._video.mux(self._stream.encode(None))
        self._video.close()
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._file, _CHUNK_BYTES)
        self._spool.close()

    def abort(self) -> None:
        self._video.close()
        self._spool.close()


def inspect(file: BinaryIO) -> Iterator[Content]:
    """Yield the video as one release of several frames."""
    with av.open(file, mode="r") as video:
        keys = [*video.metadata, *(key for stream in video.streams for key in stream.metadata)]
        unwanted = sorted({key for key in keys if key.lower() not in _CONTAINER_METADATA})
        if len(video.streams) != 1 or unwanted or video.streams[0].codec_context.name != "ffv1":
            found = f"{len(video.streams)} streams, metadata: {', '.join(unwanted) or 'none'}"
            yield Content(None, problem=f"holds more than one FFV1 video stream: {found}")
            return
        frames = 0
        for frame in video.decode(video=0):
            frames, last = frames + 1, frame
        yield Content(None, last.width, last.height, 8 if last.format.name == "gray" else COLOUR_BITS, frames)
