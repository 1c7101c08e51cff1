"""WebDataset shards for tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from tests.markers import encoded, gradient
from tests.release.helpers import PNG, SECRET

OTHER = encoded(gradient(11, 5), "PNG")


GREY = encoded(gradient()[..., 1], "PNG")


def shard(members: dict[str, bytes], form: int = tarfile.DEFAULT_FORMAT, **about: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.uid = len(data), 1_234_567_890, "anna", 1000
            for attribute, value in about.items():
                setattr(member, attribute, value)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def members_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


SAMPLES = {
    "train/0001.jpg": encoded(gradient(), "JPEG", comment=SECRET),
    "train/0001.cls": b"7",
    "train/0001.json": SECRET,
    "train/0002.cls": b"3",
    "train/0002.left.png": PNG,
    "train/0002.right.png": OTHER,
    "train/0003.txt": SECRET,
    "train/0004.png": GREY,
}
