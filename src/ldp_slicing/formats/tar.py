"""WebDataset shards: reads tar files, writes tar files whose images are PNG.

Members that share a name up to its first dot form a sample. Every image of a sample is released. Other members (labels,
captions) are kept only if the owner named their ending.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import VIDEO_SUFFIXES
from ldp_slicing.formats.base import Content, Damaged, Entry, Options, check_keep, make_entry, note_left_out
from ldp_slicing.formats.image import inspect_png
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import looks_like_image_or_video
from ldp_slicing.png import Canvas
from ldp_slicing.storage import TemporaryFile

RELEASED = re.compile("jpe?g|png|webp|tiff?|bmp|gif|ppm|pgm")
NEVER_KEPT = re.compile(  # images and videos that are not read here
    "jp2|j2k|jpx|jxl|avif|heic|heif|pbm|pnm|pam|qoi|tga|ico|svg|psd|exr|hdr|dng"
    "|cr2|cr3|nef|arw|orf|rw2|raf|dcm|dicom|pcx|sgi|xbm|xpm|dds|icns"
    "|mpo|jpe|jfif|apng|eps|wmf|emf|pdf|fits|m2ts|mts|mpv|m2v|vob|asf|rmvb|f4v|mjpeg|"
    + "|".join(suffix[1:] for suffix in VIDEO_SUFFIXES if suffix != ".ts")  # .ts may be a time: its bytes decide
)
_BLOCK_BYTES = 512


def split_member_name(name: str) -> tuple[str, str]:
    """Return the sample and the ending of a member: 'a/b.left.jpg' is 'left.jpg' of the sample 'a/b'."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}{slash}{stem}", ending


def read(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
    """Yield every image of the shard; the first image of a sample carries the members that are kept.

    A damaged shard raises ImageError: ``tarfile`` would take the damage for the end of the shard.
    """
    if options.keep:
        check_keep(options.keep, _other_endings(file))
    left_out, held = set[str](), None
    for entry in _entries(file, options, left_out):
        if isinstance(entry, Damaged):
            yield entry
        else:
            if held is not None:
                yield held
            held = entry  # the last entry reports what was left out, and that is known only at the end
    if held is not None:
        yield note_left_out(held, left_out)


def _other_endings(file: BinaryIO) -> set[str]:
    """Return the endings of all members that are not images."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as shard:
            found = {split_member_name(member.name)[1] for member in _each_member(shard) if member.isreg()}
    except tarfile.TarError:
        return set()  # reading the shard will report the damage
    finally:
        file.seek(0)
    return {ending for ending in found if not _matches(RELEASED, ending)}


def _each_member(shard: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := shard.next()) is not None:
        _forget_members(shard)
        yield member


def _forget_members(shard: tarfile.TarFile) -> None:
    """Keep memory constant: a TarFile remembers all of its members."""
    shard.members = []  # type: ignore[attr-defined]


def _matches(pattern: re.Pattern[str], ending: str) -> bool:
    return pattern.fullmatch(ending.rpartition(".")[2].lower()) is not None


def _entries(file: BinaryIO, options: Options, left_out: set[str]) -> Iterator[Entry | Damaged]:
    """Yield the entries of all samples; add the endings of members that are neither read nor kept to ``left_out``."""
    sample: dict[str, bytes] = {}
    current = None
    for member, data in _members(file, options, left_out):
        key, ending = split_member_name(member)
        if current is not None and key != current:
            yield from _sample_entries(current, sample, options)
            sample = {}
        if data is None:
            yield Damaged(member, "is a link to another member; links are not followed")
            continue
        if ending in sample:
            yield Damaged(member, "occurs more than once in its sample; only the first is used")
        current, sample[ending] = key, sample.get(ending, data)
    if current is not None:
        yield from _sample_entries(current, sample, options)


def _members(file: BinaryIO, options: Options, left_out: set[str]) -> Iterator[tuple[str, bytes | None]]:
    """Yield the name and data of images and of members that are kept. Links in place of images have the data None."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as shard:
            for member in _each_member(shard):
                ending = split_member_name(member.name)[1]
                is_image = _matches(RELEASED, ending)
                if is_image and (member.islnk() or member.issym()):
                    yield member.name, None
                elif member.isreg() and (is_image or ending in options.keep):
                    content = shard.extractfile(member)
                    if content is None or len(data := content.read()) != member.size:
                        raise ImageError("is cut off before its end")
                    yield member.name, data
                elif member.isreg():
                    left_out.add(ending)
            file.seek(shard.offset)
            if file.read(_BLOCK_BYTES) != bytes(_BLOCK_BYTES):
                raise ImageError(f"is damaged or cut off at byte {shard.offset:,}")
    except tarfile.TarError as error:
        raise ImageError(f"is not a tar file, or is damaged: {error}") from None


def _sample_entries(key: str, sample: dict[str, bytes], options: Options) -> Iterator[Entry | Damaged]:
    """Yield the images of a sample. The first one that can be decoded carries what is kept."""
    named = {ending: data for ending, data in sample.items() if ending in options.keep}
    kept: dict[str, Any] = {ending: data for ending, data in named.items() if not _may_be_image(ending, data)}
    for ending in (ending for ending in named if ending not in kept):
        yield Damaged(f"{key}.{ending}", "is an image and cannot be kept without protection")
    for ending, data in sample.items():
        name = f"{key}.{ending}"
        if ending in named or not _matches(RELEASED, ending):
            continue
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            yield Damaged(name, "has a path that leads out of the shard")
            continue
        try:
            yield make_entry(name, decode_image(data), hashlib.sha256(data).digest(), kept)
            kept = {}
        except ImageError as error:
            yield Damaged(name, str(error))


def _may_be_image(ending: str, data: bytes) -> bool:
    return _matches(RELEASED, ending) or _matches(NEVER_KEPT, ending) or looks_like_image_or_video(data)


class Writer:
    """Writes a shard whose members have no owner, no time, and nothing else of the source shard."""

    canvas = Canvas

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._compression = options.compression
        self._tar = tarfile.open(fileobj=cast("BinaryIO", file), mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        self._sample, self._taken = "", set[str]()  # the sample being written, and the member names it uses

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> str:
        sample, ending = split_member_name(name)
        if sample != self._sample:
            self._sample, self._taken = sample, set()
        stem = ending.rpartition(".")[0]
        member = f"{sample}.{stem}.png" if stem else f"{sample}.png"
        if member in self._taken:  # the sample has both a.jpg and a.png
            member = f"{sample}.{ending}.png"
        self._taken.add(member)
        self._add_member(member, b"".join(canvas.encode(self._compression)))
        for kept, data in entry.kept.items():
            self._add_member(f"{sample}.{kept}", data)
        return member

    def _add_member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)  # time, owner and group are zero
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))
        _forget_members(self._tar)

    def close(self) -> None:
        self._tar.close()

    def abort(self) -> None:
        """Do nothing: the caller discards the file."""


def inspect(file: BinaryIO) -> Iterator[Content]:
    """Yield every member: a release, or data that was kept."""
    with tarfile.open(fileobj=file, mode="r:") as shard:
        for member in _each_member(shard):
            content = shard.extractfile(member) if member.isreg() else None
            told = (member.mtime, member.uid, member.gid, member.uname, member.gname, member.pax_headers)
            if content is None or any(told):
                yield Content(member.name, problem="has an owner, a time or a type that no release has")
            elif member.name.endswith(".png"):
                yield inspect_png(content.read(), member.name)
            elif looks_like_image_or_video(content.read()):
                yield Content(member.name, problem="is an image that was not released")
            else:
                yield Content(member.name, kept=split_member_name(member.name)[1])
