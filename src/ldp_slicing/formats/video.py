"""Videos: reads every format that FFmpeg decodes; writes FFV1 in Matroska, without loss and without sound.

Every frame is a release, so a video of t frames costs t x eps. FFmpeg compresses the frames of a release. The Matroska
file around them is written here, because FFmpeg's has gaps, tags and several forms for the same content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, BinaryIO

import av
import numpy as np
from av.stream import Disposition
from numpy.typing import NDArray

from ldp_slicing.arrays import word_bits_of
from ldp_slicing.errors import ImageError
from ldp_slicing.formats.base import Claims, Content, Entry, Member, Options, PixelBuffer, Released
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.storage import TemporaryFile

_CHUNK_BYTES = 1 << 20
_EBML_HEAD = b"\x1a\x45\xdf\xa3"  # the first bytes of a Matroska file
_SEGMENT_ID = 0x18538067  # the Matroska element that holds the video
_DEFAULT_RATE = Fraction(25)
_COVER = Disposition.attached_pic  # a still image that belongs to a video, and may come before it
_KEY_FRAMES = 12  # every 12th frame is compressed without reference to others
_ENCODER_OPTIONS = {"level": "3", "slicecrc": "1", "coder": "1", "context": "0", "flags": "+bitexact"}
_APPLICATION = b"ldp-slicing"
_MOST_PIXELS = 1 << 25  # of a frame, 8K included: FFmpeg needs up to 80 bytes of memory for each
_HEADER_BYTES = 4096  # more than the header of any release
# FFmpeg recognises formats by content. A playlist would make it open other files of this machine, or connect to others.
_CONTAINERS = "mov,matroska,avi,asf,flv,mpeg,mpegts,mpegvideo,m4v,ogg,h264,hevc,mjpeg,dv,mxf,yuv4mpegpipe"
_READ_OPTIONS = {"err_detect": "explode", "format_whitelist": _CONTAINERS, "protocol_whitelist": "none"}
_COMMON_RATES = (
    *(Fraction(rate * 1000, 1001) for rate in (24, 30, 60, 120)),  # NTSC
    *map(Fraction, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 24, 25, 30, 48, 50, 60, 72, 90, 100, 120, 144, 200, 240)),
)


_RATES = {round(1_000_000_000 / rate): rate for rate in _COMMON_RATES}  # by the duration of a frame, in nanoseconds
_DURATION_ID, _FRAME_DURATION_ID, _WIDTH_ID, _HEIGHT_ID = 0x4489, 0x23E383, 0xB0, 0xBA


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
        with av.open(file, mode="r", options=_READ_OPTIONS, container_options=_READ_OPTIONS) as video:
            stream = next((one for one in video.streams.video if not one.disposition & _COVER), None)
            if stream is None:
                raise ImageError("has no video stream")
            if stream.codec_context is None:
                raise ImageError("is compressed by a method that FFmpeg does not decode")
            if stream.width * stream.height > _MOST_PIXELS:
                raise ImageError(f"declares {stream.width} x {stream.height} pixels, more than {_MOST_PIXELS:,}")
            stream.codec_context.options = {"err_detect": "explode", "max_pixels": str(_MOST_PIXELS)}
            about = {"rate": nearest_common_rate(stream.average_rate or stream.guessed_rate or _DEFAULT_RATE)}
            notices = _notices(len(video.streams) - 1, length_is_known=stated_size is not None or bool(stream.frames))
            shape, number = None, 0
            for number, frame in enumerate(video.decode(stream), 1):
                pixels = _upright(frame)
                if shape is not None and pixels.shape != shape:
                    old, new = (f"{width} x {height}" for height, width, *_ in (shape, pixels.shape))
                    raise ImageError(f"changes its frame size from {old} to {new} at frame {number}")
                shape = pixels.shape
                yield Entry(str(number), pixels, word_bits_of(pixels), digest, notices, number, about)
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


def nearest_common_rate(rate: Fraction) -> Fraction:
    """Return the nearest common frame rate: the exact average of a camera's intervals could identify the source."""
    return min(_COMMON_RATES, key=lambda common: max(common / rate, rate / common))


def _notices(other_streams: int, *, length_is_known: bool) -> tuple[str, ...]:
    notices = []
    if other_streams:
        streams = "stream" if other_streams == 1 else "streams"
        notices.append(f"left out: {other_streams} other {streams} (sound, subtitles, cover)")
    if not length_is_known:
        notices.append("may be cut off: this container does not state its length")
    return tuple(notices)


def _upright(frame: Any) -> NDArray[np.uint8]:  # noqa: ANN401
    is_grey = frame.format.name.startswith("gray")
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="gray" if is_grey else "rgb24")
    quarter_turns = round((frame.rotation or 0) / 90) % 4  # counterclockwise
    return np.ascontiguousarray(np.rot90(pixels, quarter_turns))


def _encoder(width: int, height: int, rate: Fraction, *, is_grey: bool) -> Any:  # noqa: ANN401
    """Return an FFV1 encoder with every option fixed that has an influence on its bytes."""
    encoder: Any = av.CodecContext.create("ffv1", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "gray" if is_grey else "bgr0"
    encoder.time_base, encoder.gop_size, encoder.options = 1 / rate, _KEY_FRAMES, _ENCODER_OPTIONS
    encoder.open()
    return encoder


def _encode(encoder: Any, pixels: NDArray[np.unsignedinteger], number: int) -> bytes:  # noqa: ANN401
    """Return the compressed frame. FFV1 does not delay frames."""
    frame = av.VideoFrame.from_ndarray(pixels, format="gray" if pixels.ndim == 2 else "rgb24")
    frame = frame if pixels.ndim == 2 else frame.reformat(format="bgr0")
    frame.pts = number
    (packet,) = encoder.encode(frame)
    return bytes(packet)


def _element(identifier: int, *contents: bytes | int) -> bytes:
    """Return a Matroska element. Its size and numbers in it always take eight bytes, so that there is one form only."""
    content = b"".join(one.to_bytes(8, "big") if isinstance(one, int) else one for one in contents)
    return _start(identifier, len(content)) + content


def _start(identifier: int, size: int) -> bytes:
    return identifier.to_bytes((identifier.bit_length() + 7) // 8, "big") + (1 << 56 | size).to_bytes(8, "big")


def _header(width: int, height: int, rate: Fraction, frames: int, configuration: bytes, following: int) -> bytes:
    """Return the file up to the first frame. ``following`` is the number of bytes after it."""
    head = _element(
        0x1A45DFA3,
        _element(0x4286, 1),  # version and read version of EBML, longest ID and size
        _element(0x42F7, 1),
        _element(0x42F2, 4),
        _element(0x42F3, 8),
        _element(0x4282, b"matroska"),
        _element(0x4287, 4),  # version and read version of Matroska
        _element(0x4285, 2),
    )
    information = _element(
        0x1549A966,
        _element(0x2AD7B1, 1_000_000),  # times are in milliseconds
        _element(0x4D80, _APPLICATION),
        _element(0x5741, _APPLICATION),
        _element(_DURATION_ID, struct.pack(">d", frames * 1000 / rate)),
    )
    track = _element(
        0xAE,
        _element(0xD7, 1),  # number, UID, type (video), no lacing, no language
        _element(0x73C5, 1),
        _element(0x83, 1),
        _element(0x9C, 0),
        _element(0x22B59C, b"und"),
        _element(_FRAME_DURATION_ID, _nanoseconds(rate)),
        _element(0x86, b"V_FFV1"),
        _element(0x63A2, configuration),
        _element(0xE0, _element(_WIDTH_ID, width), _element(_HEIGHT_ID, height)),
    )
    content = information + _element(0x1654AE6B, track)
    return head + _start(_SEGMENT_ID, len(content) + following) + content


def _nanoseconds(rate: Fraction) -> int:
    return round(1_000_000_000 / rate)


def _frame_start(number: int, rate: Fraction, size: int) -> bytes:
    """Return what comes before a compressed frame of ``size`` bytes. Frames are numbered from 0."""
    time = _element(0xE7, int(number * 1000 / rate + Fraction(1, 2)))
    block = b"\x81\0\0" + (b"\x80" if number % _KEY_FRAMES == 0 else b"\0")  # track 1, time as above, key frame or not
    start = time + _start(0xA3, len(block) + size) + block
    return _start(0x1F43B675, len(start) + size) + start


class Writer:
    """Writes frames as FFV1 in Matroska, without metadata."""

    canvas = PixelBuffer

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # the header states how much follows
        self._encoder: Any = None
        self._rate, self._frames = _DEFAULT_RATE, 0

    def add(self, entry: Entry, name: str, identity: str, canvas: PixelBuffer) -> None:
        if self._encoder is None:
            height, width = canvas.pixels.shape[:2]
            self._rate = entry.kept["rate"]
            self._encoder = _encoder(width, height, self._rate, is_grey=entry.pixels.ndim == 2)
        data = _encode(self._encoder, canvas.pixels, self._frames)
        self._spool.write(_frame_start(self._frames, self._rate, len(data)) + data)
        self._frames += 1

    def close(self) -> None:
        encoder = self._encoder
        header = _header(
            encoder.width, encoder.height, self._rate, self._frames, bytes(encoder.extradata), self._spool.tell()
        )
        self._file.write(header)
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._file, _CHUNK_BYTES)
        self._spool.close()

    def abort(self) -> None:
        self._spool.close()


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield the video as one release of several frames. Every byte must be the one that ``Writer`` writes.

    Each frame is decoded and compressed again. This relies on FFmpeg's FFV1 encoder, which gives the same bytes for the
    same pixels and options; one that does not is reported as a difference.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEADER_BYTES)
    width, height = (int.from_bytes(_value(head, identifier), "big") for identifier in (_WIDTH_ID, _HEIGHT_ID))
    rate = _RATES.get(int.from_bytes(_value(head, _FRAME_DURATION_ID), "big"))
    (duration,) = struct.unpack(">d", _value(head, _DURATION_ID))
    if rate is None or not 0 < duration < 1e15 or not 0 < width * height <= _MOST_PIXELS:
        yield Content(None, problem="has a frame rate, a duration or a size that no release has")
        return
    frames = round(Fraction(duration) * rate / 1000)
    for bits in (COLOUR_BITS, 8):
        if (problem := claims.size_problem(width, height, bits)) is not None:
            continue
        encoder = _encoder(width, height, rate, is_grey=bits == 8)
        configuration = bytes(encoder.extradata)
        length = len(_header(width, height, rate, frames, configuration, 0))
        if head.startswith(_header(width, height, rate, frames, configuration, size - length)):
            file.seek(length)
            problem = _check_frames(file, encoder, rate, frames)
            yield Content(None, problem=problem) if problem else Content(None, width, height, bits, frames)
            return
    problem = problem or "its header differs from the one that this software writes"
    yield Content(None, problem=f"holds more than one FFV1 video stream, or is not our file: {problem}")


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield one member per frame. The piece is the whole video."""
    yield from (Member(entry.name, 0, entry.frame - 1) for entry in read(file, Options()))


def load(file: BinaryIO, piece: int) -> list[Released]:
    return [Released(entry.pixels, entry.bits) for entry in read(file, Options())]


def _value(head: bytes, identifier: int) -> bytes:
    """Return the eight bytes of an element, wherever it is: encoding the header again tells whether it is in place."""
    start = _start(identifier, 8)
    at = head.find(start)
    if at < 0 or len(value := head[at + len(start) : at + len(start) + 8]) < 8:
        raise ImageError("is not our file: its header is not the one that this software writes")
    return value


def _check_frames(file: BinaryIO, encoder: Any, rate: Fraction, frames: int) -> str | None:  # noqa: ANN401
    """Return what is wrong with the frames, or None."""
    decoder: Any = av.CodecContext.create("ffv1", "r")
    decoder.extradata, decoder.width, decoder.height = encoder.extradata, encoder.width, encoder.height
    decoder.options = {"err_detect": "explode"}
    kind = "gray" if encoder.pix_fmt == "gray" else "rgb24"
    longest = 8 * encoder.width * encoder.height + _HEADER_BYTES  # FFV1 never needs as much
    for number in range(frames):
        start = file.read(len(_frame_start(number, rate, 0)))
        size = int.from_bytes(start[-11:-4], "big") - 4  # as the block states it
        if not 0 < size <= longest or start != _frame_start(number, rate, size):
            return f"is damaged, or holds more than frames, before frame {number + 1} of {frames}"
        data = file.read(size)
        decoded = decoder.decode(av.Packet(data)) if len(data) == size else []
        if len(decoded) != 1 or decoded[0].format.name != encoder.pix_fmt:
            return f"is cut off or damaged at frame {number + 1} of {frames}"
        if (decoded[0].width, decoded[0].height) != (encoder.width, encoder.height):
            return f"changes its frame size at frame {number + 1}"
        if _encode(encoder, decoded[0].to_ndarray(format=kind), number) != data:
            return (
                f"holds more than pixels in frame {number + 1}, or was compressed by another encoder than the FFV1 of "
                f"FFmpeg that is installed (libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))})"
            )
    return "holds more than its frames: bytes after them" if file.read(1) else None
