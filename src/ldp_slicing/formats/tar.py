"""WebDataset shards: reads tar files, writes tar files whose images are PNG.

Members that share a name up to its first dot form a sample. Every image of a sample is released. Other members (labels,
captions) are kept only if the owner named their ending.

Written shards have exactly one encoding, which is written here because that of ``tarfile`` depends on its version:
ustar headers in GNU form without owner, time or links, ``@LongLink`` for names over 100 bytes, and zeros up to a
multiple of 10,240 bytes at the end. Names of members and the data that was kept are free content.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Self

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import ARCHIVES, OTHER_IMAGES
from ldp_slicing.formats.base import (
    Claims,
    Content,
    Damaged,
    Entry,
    Member,
    Options,
    Released,
    check_keep,
    make_entry,
    note_left_out,
)
from ldp_slicing.formats.image import check_png, load_png
from ldp_slicing.images import decode_image
from ldp_slicing.integrity import MOST_BYTES, looks_like_archive, looks_like_image_or_video
from ldp_slicing.png import Canvas
from ldp_slicing.storage import TemporaryFile

RELEASED = re.compile("jpe?g|png|webp|tiff?|bmp|gif|hei[cf]|hif|avif|ppm|pgm")
_BLOCK_BYTES = 512
_RECORD_BYTES = 20 * _BLOCK_BYTES  # a tar file is a multiple of this
_NAME_BYTES = 100  # of a header
_LONG_NAME = b"././@LongLink"
_MOST_SOURCE_NAME, _MOST_NAME = 2048, 4096  # bytes of a member's name; that of a release may be longer
_MOST_MEMBER_BYTES = 8**11  # what the eleven octal digits of a header can state
_HEAD_BYTES = 1 << 12  # of kept data, to recognise images by
_LEADS_OUT = re.compile(r"[\\/]|[A-Za-z]:[\\/]|(.*[\\/])?\.\.([\\/]|\Z)", re.DOTALL)  # on any system

_EXTENSIONS = (b"L", b"K", b"x", b"g", b"X")
_MOST_EXTENSION = 1 << 16  # bytes of a header that extends another; Python takes a time that is quadratic in them
_DAMAGE = (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError)  # what ``tarfile`` raises

Place = tuple[str, int, int]  # of a member: its name, where its data begins, and its size


def split_member_name(name: str) -> tuple[str, str]:
    """Return the sample and the ending of a member: 'a/b.left.jpg' is 'left.jpg' of the sample 'a/b'."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}{slash}{stem}", ending


class _Samples:
    """The samples of a shard so far. Only digests of their names are kept: there may be millions."""

    def __init__(self) -> None:
        self._current, self._all = "", set[bytes]()

    def has_ended(self, sample: str) -> bool:
        """Return whether another sample came after this one. Samples "a" and "./a" are one, and may not be mixed."""
        if sample == self._current and self._all:
            return False
        path = posixpath.normpath(sample).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(path, digest_size=16).digest()
        is_new = digest not in self._all
        if is_new:
            self._current = sample
            self._all.add(digest)
        return not is_new


def leads_out(name: str) -> bool:
    """Return whether a member's path leads out of the folder that it is unpacked into, on Windows too."""
    return _LEADS_OUT.match(name) is not None


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


def keepable(open_file: Callable[[], BinaryIO]) -> None:
    """Return None: a shard has no list of its members."""


def _other_endings(file: BinaryIO) -> set[str]:
    """Return the endings of all members that are not images."""
    try:
        with _open(file) as shard:
            found = {split_member_name(member.name)[1] for member in _each_member(shard) if member.isreg()}
    except (ImageError, *_DAMAGE):
        return set()  # reading the shard will report the damage
    finally:
        file.seek(0)
    return {ending for ending in found if not _matches(RELEASED, ending)}


class _CheckedHeader(tarfile.TarInfo):
    """A header whose size is checked before ``tarfile`` reads or skips as many bytes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise ImageError(f"is damaged: the size of a member is {header.size}")
        if header.type in _EXTENSIONS and header.size > _MOST_EXTENSION:
            raise ImageError(f"is damaged: a header has {header.size:,} bytes, and {_MOST_EXTENSION:,} are the most")
        return header


def _open(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:", tarinfo=_CheckedHeader)


def _each_member(shard: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    at = 0
    while (member := shard.next()) is not None:
        _forget_members(shard)
        if member.size < 0 or shard.offset <= at:  # an extended header can state another size
            raise ImageError(f"is damaged: the size of a member is {member.size}")
        at = shard.offset
        yield member


def _forget_members(shard: tarfile.TarFile) -> None:
    """Keep memory constant: a TarFile remembers all of its members."""
    shard.members = []  # type: ignore[attr-defined]


def _matches(pattern: re.Pattern[str], ending: str) -> bool:
    return pattern.fullmatch(ending.rpartition(".")[2].lower()) is not None


def _entries(file: BinaryIO, options: Options, left_out: set[str]) -> Iterator[Entry | Damaged]:
    """Yield the entries of all samples; add the endings of members that are neither read nor kept to ``left_out``."""
    sample: dict[str, bytes] = {}
    current, samples, held = None, _Samples(), 0
    for member, data in _members(file, options, left_out):
        if isinstance(data, Damaged):
            yield data
            continue
        key, ending = split_member_name(member)
        if samples.has_ended(key):
            yield Damaged(member, f"is apart from the rest of its sample {key}: pack the shard sorted by name")
            continue
        if current is not None and key != current:
            yield from _sample_entries(current, sample, options)
            sample, held = {}, 0
        if ending in sample:
            yield Damaged(member, "occurs more than once in its sample; only the first is used")
        elif held + len(data) > MOST_BYTES:
            yield Damaged(member, f"is in a sample of more than {MOST_BYTES:,} bytes")
            current = key
            continue
        else:
            held += len(data)
        current, sample[ending] = key, sample.get(ending, data)
    if current is not None:
        yield from _sample_entries(current, sample, options)


def _members(file: BinaryIO, options: Options, left_out: set[str]) -> Iterator[tuple[str, bytes | Damaged]]:
    """Yield the name and data of images and of members that are kept, or what is wrong with them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        with _open(file) as shard:
            for member in _each_member(shard):
                ending = split_member_name(member.name)[1]
                is_image = _matches(RELEASED, ending)
                if is_image and len(member.name.encode("utf-8", "surrogateescape")) > _MOST_SOURCE_NAME:
                    too_long = f"has a name of more than {_MOST_SOURCE_NAME:,} bytes"
                    yield member.name, Damaged(f"{member.name[:60]}...", too_long)
                elif is_image and (member.islnk() or member.issym()):
                    yield member.name, Damaged(member.name, "is a link to another member; links are not followed")
                elif member.isreg() and (is_image or ending in options.keep):
                    if member.size > MOST_BYTES and member.offset_data + member.size <= size:
                        yield member.name, Damaged(member.name, f"has more than {MOST_BYTES:,} bytes")
                        continue
                    if member.issparse():  # a few bytes can declare any size
                        yield member.name, Damaged(member.name, "is a sparse file: pack the shard without --sparse")
                        continue
                    content = shard.extractfile(member) if member.offset_data + member.size <= size else None
                    if content is None or len(data := content.read()) != member.size:
                        raise ImageError("is cut off before its end")
                    yield member.name, data
                elif member.isreg():
                    left_out.add(ending)
            file.seek(shard.offset)
            if file.read(_BLOCK_BYTES) != bytes(_BLOCK_BYTES):
                raise ImageError(f"is damaged or cut off at byte {shard.offset:,}")
    except ImageError:
        raise
    except _DAMAGE as error:
        raise ImageError(f"is not a tar file, or is damaged: {error}") from None


def _sample_entries(key: str, sample: dict[str, bytes], options: Options) -> Iterator[Entry | Damaged]:
    """Yield the images of a sample. The first one that can be decoded carries what is kept."""
    named = {ending: data for ending, data in sample.items() if ending in options.keep}
    kept: dict[str, Any] = {end: data for end, data in named.items() if not _may_hold_image(end, data, len(data))}
    for ending in (ending for ending in named if ending not in kept):
        yield Damaged(f"{key}.{ending}", "is an image or an archive, and cannot be kept without protection")
    for ending, data in sample.items():
        name = f"{key}.{ending}"
        if ending in named or not _matches(RELEASED, ending):
            continue
        if leads_out(name):
            yield Damaged(name, "has a path that leads out of the shard")
            continue
        try:
            yield make_entry(name, decode_image(data), hashlib.sha256(data).digest(), kept, kept)
            kept = {}
        except ImageError as error:
            yield Damaged(name, str(error))


def _may_hold_image(ending: str, head: bytes, size: int) -> bool:
    """Return whether a member of ``size`` bytes that begins with ``head`` cannot be kept. ``check`` asks the same."""
    is_archive = f".{ending}".lower().endswith((*ARCHIVES, ".tar"))
    by_name = is_archive or _matches(RELEASED, ending) or _matches(OTHER_IMAGES, ending)
    return by_name or looks_like_image_or_video(head, size) or looks_like_archive(head)


class Writer:
    """Writes a shard whose members have no owner, no time, and nothing else of the source shard."""

    canvas = Canvas

    def __init__(self, file: TemporaryFile, options: Options) -> None:
        self._file = file
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
        self._add_member(member, canvas.encode())
        for kept, data in entry.kept.items():
            self._add_member(f"{sample}.{kept}", [data])
        return member

    def _add_member(self, name: str, pieces: list[bytes | memoryview]) -> None:
        size = sum(map(len, pieces))
        header = _member_header(name.encode("utf-8", "surrogateescape"), size)
        self._file.writelines([header, *pieces, bytes(-size % _BLOCK_BYTES)])

    def close(self) -> None:
        self._file.write(bytes(_end_bytes(self._file.size)))

    def abort(self) -> None:
        """Do nothing: the caller discards the file."""


def _member_header(name: bytes, size: int) -> bytes:
    """Return the header of a member, preceded by its name where that is too long for a header."""
    if b"\0" in name or leads_out(name.decode("utf-8", "surrogateescape")) or size >= _MOST_MEMBER_BYTES:
        raise ImageError("has a member with a path or a size that no shard can have")
    if len(name) <= _NAME_BYTES:
        return _header(name, size, b"0", mode=0o644)
    long_name = name + b"\0"
    padding = bytes(-len(long_name) % _BLOCK_BYTES)
    return (
        _header(_LONG_NAME, len(long_name), b"L", mode=0) + long_name + padding + _header(name, size, b"0", mode=0o644)
    )


def _header(name: bytes, size: int, kind: bytes, *, mode: int) -> bytes:
    """Return one block: owner, group, time and device are 0 or empty, and there is no link."""
    before = name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0") + b"%07o\0" % mode + 2 * b"0000000\0"
    before += b"%011o\0" % size + b"00000000000\0"
    after = (kind + bytes(100) + b"ustar  \0").ljust(_BLOCK_BYTES - len(before) - 8, b"\0")
    return before + b"%06o\0 " % (sum(before) + sum(after) + sum(b" " * 8)) + after


def _end_bytes(size: int) -> int:
    """Return the number of zeros after ``size`` bytes of members: two blocks, and more up to a whole record."""
    return 2 * _BLOCK_BYTES + -(size + 2 * _BLOCK_BYTES) % _RECORD_BYTES


def check(file: BinaryIO, claims: Claims) -> Iterator[Content]:
    """Yield every member, a release or data that was kept, after comparing all other bytes with what ``Writer`` writes.

    One member at a time is in memory, and of kept data only the first bytes.
    """
    total = file.seek(0, os.SEEK_END)
    at, sample, endings, samples = file.seek(0), None, set[str](), _Samples()
    while (found := _read_header(file)) is not None:
        name, size, is_ours = found
        at = file.tell() + size
        if not is_ours or at > total:
            wrong = "has a header that this software does not write" if at <= total else "is cut off before its end"
            yield Content(name, problem=wrong)
            return
        named, ending = split_member_name(name)
        is_release = f".{ending}".endswith(".png")
        if is_release and named != sample:
            sample, endings = named, set()
        if samples.has_ended(named):
            yield Content(name, problem="belongs to a sample that ended before it")
        elif ending in endings:
            yield Content(name, problem="occurs more than once")
        elif is_release:
            endings.add(ending)
            yield check_png(file, size, name, claims)
        elif _may_hold_image(ending, file.read(min(size, _HEAD_BYTES)), size):
            yield Content(name, problem="is an image or an archive that was not released")
        elif named != sample:
            yield Content(name, problem="does not belong to a release")
        else:
            endings.add(ending)
            yield Content(name, kept=ending)
        padding = -size % _BLOCK_BYTES
        file.seek(at)
        if file.read(padding) != bytes(padding):
            yield Content(name, problem="has bytes in its padding")
        at += padding
    file.seek(at)
    if total - at != _end_bytes(at) or file.read() != bytes(_end_bytes(at)):
        yield Content(
            None, problem="does not end in the zeros that end a shard: something is hidden there, or it is cut off"
        )


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield where the releases lie. A piece is the places of a release and of everything that its sample kept."""
    sample, images, kept = "", list[Place](), list[Place]()
    while (found := _read_header(file)) is not None:
        name, size, is_ours = found
        if not is_ours:
            raise ImageError(f"{name} has a header that this software does not write")
        named, ending = split_member_name(name)
        if named != sample:
            yield from (Member(image[0], (image, *kept)) for image in images)
            sample, images, kept = named, [], []
        at = file.tell()
        (images if f".{ending}".endswith(".png") else kept).append((name, at, size))
        file.seek(at + size + -size % _BLOCK_BYTES)
    yield from (Member(image[0], (image, *kept)) for image in images)


def load(file: BinaryIO, piece: tuple[Place, ...]) -> list[Released]:
    (_, image), *kept = ((name, _read_at(file, at, size)) for name, at, size in piece)
    named = {split_member_name(name)[1]: data for name, data in kept}
    return [load_png(image, {ending: _decoded(ending, data) for ending, data in named.items()})]


def _read_at(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    if len(data := file.read(size)) != size:
        raise ImageError("is cut off before its end")
    return data


def _decoded(ending: str, data: bytes) -> object:
    """Return kept data as the ``webdataset`` library decodes it: numbers, text, JSON, and bytes of anything else."""
    kind = ending.rpartition(".")[2]
    try:
        if kind in ("cls", "cls2", "class", "count", "index", "inx", "id"):
            return int(data)
        if kind in ("txt", "text", "transcript"):
            return data.decode()
        return json.loads(data) if kind in ("json", "jsn") else data
    except (ValueError, RecursionError):
        raise ImageError(f"has kept data .{ending} that is not what its name says: {data[:40]!r}") from None


def _read_header(file: BinaryIO) -> tuple[str, int, bool] | None:
    """Return the name and size of the next member, and whether its header is ours; None where the members end."""
    raw = file.read(_BLOCK_BYTES)
    if raw in (b"", bytes(_BLOCK_BYTES)):
        return None
    name = raw[:_NAME_BYTES].rstrip(b"\0")
    try:
        if name == _LONG_NAME:
            size = int(raw[124:135], 8)
            if not 0 < size <= _MOST_NAME:
                return "@LongLink", 0, False
            raw += file.read(size + -size % _BLOCK_BYTES) + file.read(_BLOCK_BYTES)
            name = raw[_BLOCK_BYTES : _BLOCK_BYTES + size - 1]
        size = int(raw[-_BLOCK_BYTES:][124:135], 8)
        if size < 0:
            raise ValueError
        return name.decode("utf-8", "surrogateescape"), size, raw == _member_header(name, size)
    except (ValueError, ImageError):
        return name.decode("utf-8", "surrogateescape"), 0, False
