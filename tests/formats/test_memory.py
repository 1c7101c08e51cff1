"""Hostile sources and releases: they are refused, and the memory of the process stays small."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import thrift, video
from ldp_slicing.formats.parquet import IMAGE_TYPE
from ldp_slicing.integrity import read_whole
from tests.formats.dicom_files import SLICE, dicom, saved
from tests.formats.parquet_files import table
from tests.release.helpers import PNG, plant

MOST_MIB = 300  # the libraries themselves take up to 100
READ = """
import re, sys
from ldp_slicing.errors import ImageError
from ldp_slicing.formats import load_format
from ldp_slicing.formats.base import Damaged, Options
kind, path = sys.argv[1:]
try:
    with open(path, "rb") as file:
        found = ["damaged" if isinstance(one, Damaged) else "read" for one in load_format(kind).read(file, Options())]
except ImageError:
    found = ["refused"]
with open("/proc/self/status") as status:  # ru_maxrss would count the memory of the process that started this one
    print(*sorted(set(found)), int(re.search("VmHWM:\\s*(\\d+) kB", status.read())[1]) // 1024)
"""


class Uninitialised:
    def __reduce__(self) -> tuple[object, ...]:
        return np.ndarray, ((2_000_000, 3072), "u1")


def many_lists() -> bytes:
    """Return a pickle of a list that is two to the power of 28 numbers, as an array."""
    data: list[Any] = [1]
    for _ in range(28):
        data = [data, data]
    return pickle.dumps({"data": data})


def sparse_tar() -> bytes:
    """Return a shard whose one image is said to have 8 GiB, none of which are in the file."""
    member = tarfile.TarInfo("a.png")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    size = 8 << 30
    head[386:398] = b"%011o\0" % size  # the one piece: at the end, empty
    head[398:410] = b"%011o\0" % 0
    head[483:495] = b"%011o\0" % size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1024)


def huge_frames() -> bytes:
    return saved(dicom(SLICE, 12, Rows=65535, Columns=65535, NumberOfFrames=9999))


def many_rows() -> bytes:
    return table([None] * 1_000_000, label=pa.nulls(1_000_000), text=pa.nulls(1_000_000))


def large_page() -> bytes:
    content = pa.parquet.read_table(io.BytesIO(table([bytes(200_000_000)])))
    file = io.BytesIO()
    pa.parquet.write_table(content, file, compression="zstd")
    return file.getvalue()


def understated_page() -> bytes:
    """Return a Parquet file whose footer understates what its one page expands to."""
    data = large_page()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields = thrift.decode(data[start:-8])
    for group in fields[4].value:
        for chunk in group.value[1].value:
            chunk.value[3].value[6] = thrift.Field(6, 20)
    footer = thrift.encode(fields)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


SOURCES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "an array without data": ("cifar", lambda: pickle.dumps({"data": Uninitialised()})),
    "a large memo": ("cifar", lambda: b"\x80\x02}r\xff\xff\xff\x7f."),
    "a list of a list many times": ("cifar", many_lists),
    "a sparse tar": ("tar", sparse_tar),
    "frames that are not there": ("dicom", huge_frames),
    "rows that are not there": ("parquet", many_rows),
    "a page that expands": ("parquet", large_page),
    "a page that expands secretly": ("parquet", understated_page),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("name", SOURCES)
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    kind, make = SOURCES[name]
    data = make()
    assert len(data) < 400_000
    path = plant(tmp_path, {"source": data}) / "source"
    ran = subprocess.run([sys.executable, "-c", READ, kind, str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found, peak = ran.stdout.split()
    assert found in ("refused", "damaged")
    assert int(peak) < MOST_MIB


CHECK = """
import re, sys
from ldp_slicing.errors import ImageError
from ldp_slicing.formats import load_format
from ldp_slicing.formats.base import Claims
kind, path = sys.argv[1:]
try:
    with open(path, "rb") as file:
        found = ["wrong" if one.problem else "fine" for one in load_format(kind).check(file, Claims())]
except ImageError:
    found = ["wrong"]
with open("/proc/self/status") as status:
    print(*sorted(set(found)), int(re.search("VmHWM:\\s*(\\d+) kB", status.read())[1]) // 1024)
"""


def repeated_value(**options: Any) -> bytes:
    """Return a Parquet file whose 60 rows are one long value."""
    one = pa.array([{"bytes": PNG[:8] + bytes(20_000_000), "path": "a.png"}], IMAGE_TYPE)
    file = io.BytesIO()
    content = pa.table({"image": pa.concat_arrays([one] * 60)})
    pa.parquet.write_table(content, file, dictionary_pagesize_limit=1 << 30, **options)
    return file.getvalue()


def large_frame() -> bytes:
    """Return the header of a video whose frames have 13,000 x 13,000 pixels."""
    configuration = bytes(video._encoder(16, 16, Fraction(25), is_grey=True).extradata)
    return video._header(13_000, 13_000, Fraction(25), 1, configuration, 0)


RELEASES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "one value in every row": ("parquet", lambda: repeated_value(compression="none")),
    "a page that expands secretly": ("parquet", understated_page),
    "a compressed table": ("parquet", lambda: repeated_value(compression="zstd")),
    "a large frame": ("video", large_frame),
    "frames that are not there": ("dicom", huge_frames),
    "a sparse tar": ("tar", sparse_tar),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("name", RELEASES)
def test_memory_of_verify_is_bounded(name: str, tmp_path: Path) -> None:
    kind, make = RELEASES[name]
    path = plant(tmp_path, {"release": make()}) / "release"
    ran = subprocess.run([sys.executable, "-c", CHECK, kind, str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found, peak = ran.stdout.split()
    assert found == "wrong"
    assert int(peak) < MOST_MIB


def test_a_sparse_image_file_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant(tmp_path, {"a.png": PNG}) / "a.png"
    os.truncate(path, 1 << 40)
    monkeypatch.setattr("ldp_slicing.integrity.MOST_BYTES", 1 << 20)
    with path.open("rb") as file, pytest.raises(ImageError, match="has more than 1,048,576 bytes"):
        read_whole(file)
