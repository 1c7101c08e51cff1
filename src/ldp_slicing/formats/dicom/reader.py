"""A DICOM file to words: each frame is a source."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO

import pydicom
from numpy.typing import NDArray
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.files import CHUNK_BYTES
from ldp_slicing.formats.base import Entry, Options, Original
from ldp_slicing.formats.dicom import values
from ldp_slicing.formats.dicom.pixels import Stored, check_amount, check_frame, describe, encapsulated_frames, inflated
from ldp_slicing.formats.dicom.tags import TAGS, kept_tags
from ldp_slicing.formats.dicom.uids import pseudonyms
from ldp_slicing.plan import COLOUR_BITS

_HEAD_BYTES = 132  # a preamble and "DICM"
_MOST_BYTES = 1 << 32  # more than the elements of any uncompressed image can have


def read(file: BinaryIO, options: Options) -> Iterator[Entry]:
    """Yield every frame as uint8 [H, W, 3], uint8 [H, W] or uint16 [H, W]. ``kept`` is what the writer needs."""
    data = _read_whole(file)
    digest = hashlib.sha256(data).digest()
    try:
        dataset = pydicom.dcmread(io.BytesIO(inflated(data)))
        del data
        stored = describe(dataset)
        check_amount(dataset, stored)
        _check_settings(stored, options)
        about = {
            "burned": _burned(dataset, options),
            "groups": pseudonyms(dataset, options.pseudonym),
            "tags": kept_tags(dataset, options.keep, shrinks=options.shrinks),
            "signed": stored.is_signed,
            "inverted": stored.is_inverted,
        }
        for number, pixels in enumerate(_frames(dataset, stored), 1):
            yield _entry(dataset, stored, number, pixels, digest, options, about)
    except LdpSlicingError:
        raise
    except Exception:  # pydicom and its decoders raise many types on damaged files
        raise ImageError("cannot be decoded: it is damaged, or not as the DICOM standard demands") from None


def _read_whole(file: BinaryIO) -> bytes:
    """Return the bytes of a DICOM file. No more than the first are read of any other file: it can have any size."""
    data = io.BytesIO()
    data.write(file.read(_HEAD_BYTES))
    if not data.getvalue().endswith(b"DICM"):
        raise ImageError("is not a DICOM file: its header is missing")
    while piece := file.read(CHUNK_BYTES):
        if data.tell() + len(piece) > _MOST_BYTES:
            raise ImageError(f"has more than {_MOST_BYTES:,} bytes: split it into files of fewer frames")
        data.write(piece)
    return data.getvalue()


def keepable(open_file: Callable[[], BinaryIO]) -> Collection[str]:
    return TAGS


def _check_settings(stored: Stored, options: Options) -> None:
    if stored.is_colour and options.value_range is not None:
        raise ImageError("is in colour, and --range is for grey: release it in a run of its own, without --range")
    if not stored.is_colour and options.value_range is None:
        values.without_range(stored)


def _burned(dataset: Any, options: Options) -> str:  # noqa: ANN401
    """Return what the release says of text in its pixels: YES, NO or nothing."""
    stated = str(dataset.get("BurnedInAnnotation") or "")
    if options.not_burned_in and stated not in ("", "NO"):  # "yes", or two values, are not of the standard
        if stated == "YES":
            raise ImageError("states that text is burned into its pixels, which contradicts --not-burned-in")
        raise ImageError(f"has the BurnedInAnnotation {stated[:40]!r}, which may contradict --not-burned-in")
    return "NO" if options.not_burned_in else stated if stated in ("YES", "NO") else ""


def _entry(
    dataset: Any,  # noqa: ANN401
    stored: Stored,
    number: int,
    pixels: NDArray[Any],
    digest: bytes,
    options: Options,
    about: dict[str, Any],
) -> Entry:
    name, frame = (str(number), number) if stored.frames > 1 else ("", 0)
    notices: tuple[str, ...] = ()
    if stored.is_colour:
        if stored.bits > 8 and not stored.is_palette:
            notices = (f"{stored.bits} bits per channel are reduced to 8",)
        words = values.colour_words(pixels, stored)
        return Entry(name, words, COLOUR_BITS, digest, notices, frame, about, tuple(about["tags"]))
    words = values.grey_words(pixels, stored)
    if options.value_range is None:
        notices = _unused_bits(words, stored)
        return Entry(name, words, stored.bits, digest, notices, frame, about, tuple(about["tags"]))
    by = values.range_map(dataset, stored, number, options.value_range)
    original = Original(words, stored.bits, str(by))
    about = about | {"rescale": by.rescale}
    bits = options.value_range.bits
    return Entry(name, by.apply(words), bits, digest, notices, frame, about, tuple(about["tags"]), original=original)


def _frames(dataset: Any, stored: Stored) -> Iterator[NDArray[Any]]:  # noqa: ANN401
    """Yield the frames as stored, or in RGB.

    They are decoded in order: for a single one, pydicom looks through all before it.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    advice = "pip install 'ldp-slicing[dicom-jpeg]' may help, or convert it to an uncompressed DICOM file first"
    try:
        decoder = get_decoder(syntax)
        if not decoder.is_available:
            raise NotImplementedError
        decoded = _decoded(decoder, dataset, stored.frames)
        encoded = encapsulated_frames(dataset, stored) if syntax.is_encapsulated else None
        for _ in range(stored.frames):
            with warnings.catch_warnings(action="ignore"):  # of padding, which check_amount has looked at
                if encoded is not None:
                    check_frame(dataset, next(encoded))
                pixels = next(decoded)
            yield apply_color_lut(pixels, dataset) if stored.is_palette else pixels
    except NotImplementedError:
        raise ImageError(f"is compressed as {syntax.name}, which no installed library decodes: {advice}") from None
    except ImageError:
        raise
    except Exception:
        if not syntax.is_encapsulated:
            raise
        raise ImageError(
            f"cannot be decoded: it is damaged, or its form of {syntax.name} is not supported: {advice}"
        ) from None


def _decoded(decoder: Any, dataset: Any, frames: int) -> Iterator[NDArray[Any]]:  # noqa: ANN401
    """Yield the frames in order, in linear time unless pydicom 3.0 has to correct the sign of JPEG 2000 values.

    While it iterates, it tries to do so in an array that is read-only. Given the numbers of frames, it does not.
    """
    done = 0
    try:
        for pixels, _ in decoder.iter_array(dataset):
            yield pixels
            done += 1
    except ValueError:  # of damage, too: then the rest fails as well
        for pixels, _ in decoder.iter_array(dataset, indices=range(done, frames)):
            yield pixels


def _unused_bits(words: NDArray[Any], stored: Stored) -> tuple[str, ...]:
    used = values.used_bits(words, stored)
    if used >= stored.bits:
        return ()
    return (
        "the highest bits of its pixels are all the same, and most of the budget is spent on them: --range LOW:HIGH "
        "in the units of the file (--range CT for CT) leaves them out",
    )
