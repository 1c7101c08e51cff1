"""WebDataset shards: tar files in which members that share a name up to its first dot are one sample.

Every picture of a sample is released as PNG. Other members (labels, captions) travel along only where their ending was named.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import VIDEO_SUFFIXES
from ldp_slicing.formats.base import Damaged, Entry, Options, Seen, check_keep, entry_of, left_out
from ldp_slicing.formats.image import inspect_png
from ldp_slicing.images import Canvas, decode_image
from ldp_slicing.integrity import begins_as_picture
from ldp_slicing.storage import Draft

PICTURES = ("jpg", "jpeg", "png", "webp", "tif", "tiff", "bmp", "gif", "ppm", "pgm")
OTHERS = (  # that are not released, and not kept either
    *(
        "jp2",
        "j2k",
        "jpx",
        "jxl",
        "avif",
        "heic",
        "heif",
        "pbm",
        "pnm",
        "pam",
        "qoi",
        "tga",
        "ico",
        "svg",
        "psd",
        "exr",
        "hdr",
        "dng",
    ),
    *("cr2", "cr3", "nef", "arw", "orf", "rw2", "raf", "dcm", "dicom", "pcx", "sgi", "xbm", "xpm", "dds", "icns"),
    *(
        "mpo",
        "jpe",
        "jfif",
        "apng",
        "eps",
        "wmf",
        "emf",
        "pdf",
        "fits",
        "m2ts",
        "mts",
        "mpv",
        "m2v",
        "vob",
        "asf",
        "rmvb",
        "f4v",
        "mjpeg",
    ),
    *(
        suffix[1:] for suffix in VIDEO_SUFFIXES if suffix != ".ts"
    ),  # which may be a time; such a film is known by its bytes
)
_BLOCK = 512


def key_of(name: str) -> tuple[str, str]:
    """A member's sample and its ending: 'a/b.left.jpg' is 'left.jpg' of 'a/b'."""
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}{slash}{stem}", ending


def read(file: BinaryIO, options: Options) -> Iterator[Entry | Damaged]:
    if options.keep:
        check_keep(options.keep, _endings(file))
    left, last = set[str](), None
    for entry in _entries(file, options, left):
        if isinstance(entry, Damaged):
            yield entry
        else:
            if last is not None:
                yield last
            last = entry  # one is held back, since only at the end of the shard it is known what was left out
    if last is not None:
        yield left_out(last, left)


def _endings(file: BinaryIO) -> set[str]:
    """Of all members that are no pictures."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as shard:
            found = set[str]()
            while (member := shard.next()) is not None:
                _forget(shard)
                found.update({key_of(member.name)[1]} if member.isreg() else ())
    except tarfile.TarError:
        return set()  # what is wrong with it is found when it is read
    finally:
        file.seek(0)
    return {ending for ending in found if not _is_picture(ending)}


def _entries(file: BinaryIO, options: Options, left: set[str]) -> Iterator[Entry | Damaged]:
    sample: dict[str, bytes] = {}
    last = None
    for member, data in _members(file, options, left):
        key, ending = key_of(member)
        if last is not None and key != last:
            yield from _sample(last, sample, options)
            sample = {}
        if data is None:
            yield Damaged(member, "is a link to another member; links are not followed")
            continue
        if ending in sample:
            yield Damaged(member, "occurs more than once in its sample: the first is taken")
        last, sample[ending] = key, sample.get(ending, data)
    if last is not None:
        yield from _sample(last, sample, options)


def _is_picture(ending: str, kinds: Sequence[str] = PICTURES) -> bool:
    return ending.rpartition(".")[2].lower() in kinds


def _forget(shard: tarfile.TarFile) -> None:
    """Else it remembers all of its members."""
    shard.members = []  # type: ignore[attr-defined]


def _members(file: BinaryIO, options: Options, left: set[str]) -> Iterator[tuple[str, bytes | None]]:
    """Pictures, None for links in their place, and members that are kept; the endings of others go to ``left``.

    A shard that is damaged is refused: Python would take the damage for its end.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as shard:
            while (member := shard.next()) is not None:
                _forget(shard)
                ending = key_of(member.name)[1]
                if _is_picture(ending) and (member.islnk() or member.issym()):
                    yield member.name, None
                    continue
                if not member.isreg() or not (_is_picture(ending) or ending in options.keep):
                    left.update({ending} if member.isreg() else ())
                    continue
                content = shard.extractfile(member)
                if content is None or len(data := content.read()) != member.size:
                    raise ImageError("is cut off before its end")
                yield member.name, data
            file.seek(shard.offset)
            if file.read(_BLOCK) != bytes(_BLOCK):
                raise ImageError(f"is damaged, or cut off, at byte {shard.offset:,}")
    except tarfile.TarError as error:
        raise ImageError(f"is not a tar file, or damaged: {error}") from None


def _sample(key: str, sample: dict[str, bytes], options: Options) -> Iterator[Entry | Damaged]:
    """The pictures of a sample, the first with what is kept."""
    named = {ending: data for ending, data in sample.items() if ending in options.keep}
    kept: dict[str, Any] = {
        ending: data
        for ending, data in named.items()
        if not (_is_picture(ending, PICTURES + OTHERS) or begins_as_picture(data))
    }
    for ending in (ending for ending in named if ending not in kept):
        yield Damaged(f"{key}.{ending}", "is a picture: it cannot be kept as it is")
    for ending, data in sample.items():
        name = f"{key}.{ending}"
        if ending in named or not _is_picture(ending):
            continue
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            yield Damaged(name, "has a name that leads out of the shard")
            continue
        try:
            yield entry_of(name, decode_image(data), hashlib.sha256(data).digest(), kept)
            kept = {}
        except ImageError as error:
            yield Damaged(name, str(error))


class Writer:
    canvas = Canvas

    def __init__(self, draft: Draft, options: Options) -> None:
        self._compression = options.compression
        self._tar = tarfile.open(fileobj=cast("BinaryIO", draft), mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        self._key, self._taken = "", set[str]()  # of the sample that is being written

    def add(self, entry: Entry, name: str, identity: str, canvas: Canvas) -> str:
        key, ending = key_of(name)
        base = ending.rpartition(".")[0]
        if key != self._key:
            self._key, self._taken = key, set()
        picture = f"{key}{'.' * bool(base)}{base}.png"
        if picture in self._taken:  # a.jpg and a.png
            picture = f"{key}.{ending}.png"
        self._taken.add(picture)
        self._add(picture, b"".join(canvas.encode(self._compression)))
        for kept, data in entry.kept.items():
            self._add(f"{key}.{kept}", data)
        return picture

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)  # time, owner and group are zero
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))
        _forget(self._tar)

    def close(self) -> None:
        self._tar.close()

    def abort(self) -> None:
        """The draft goes, and this with it."""


def inspect(file: BinaryIO) -> Iterator[Seen]:
    with tarfile.open(fileobj=file, mode="r:") as shard:
        while (member := shard.next()) is not None:
            _forget(shard)
            content = shard.extractfile(member) if member.isreg() else None
            if (
                content is None
                or member.mtime
                or member.uid
                or member.gid
                or member.uname
                or member.gname
                or member.pax_headers
            ):
                yield Seen(member.name, problem="has an owner, a time or a kind that no release has")
            elif member.name.endswith(".png"):
                yield inspect_png(content.read(), member.name)
            elif begins_as_picture(content.read()):
                yield Seen(member.name, problem="is a picture that was not released")
            else:
                yield Seen(member.name, kept=key_of(member.name)[1])
