"""A hospital's files: all DICOM files that pydicom ships, from many devices and in every compression.

Finding: every file whose pixels pydicom can decode is released, those of 32 bits with `--range`. Everything else is
refused with a sentence that names no exception.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pydicom = pytest.importorskip("pydicom")
for library in ("gdcm", "openjpeg", "libjpeg"):
    pytest.importorskip(library)

LEAST_READABLE = 90  # pydicom 3.0 ships more
EXCEPTION = re.compile(r"Error\b|Exception|Traceback|NoneType")


def ldp_slicing(*words: str, cwd: Path) -> tuple[int, str]:
    """Run the command as a user would. Return its exit status and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "ldp_slicing", *words],
        cwd=cwd,
        env={**os.environ, "LDP_SLICING_LEDGER": str(cwd / "ledger.sqlite")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def is_dicom(path: Path) -> bool:
    return path.suffix == ".dcm" or path.read_bytes()[128:132] == b"DICM"


def decoded_by_pydicom(path: Path) -> Any:
    """Return the file as a data set if pydicom can decode its pixels, or None."""
    try:
        with warnings.catch_warnings(action="ignore"):
            dataset = pydicom.dcmread(path)
            return dataset if dataset.pixel_array.size else None
    except Exception:  # no DICOM, no pixels, or damaged on purpose
        return None


def test_every_readable_file_is_released(tmp_path: Path) -> None:
    shipped = Path(pydicom.__file__).parent / "data"
    names = dict[str, bool]()  # whether its words need a range
    (tmp_path / "in").mkdir()
    for path in sorted(path for path in shipped.rglob("*") if path.is_file() and is_dicom(path)):
        name = f"{'-'.join(path.relative_to(shipped).with_suffix('').parts)}.dcm"
        shutil.copy(path, tmp_path / "in" / name)
        if (dataset := decoded_by_pydicom(path)) is not None:
            names[name] = dataset.SamplesPerPixel == 1 and dataset.BitsAllocated > 16
    assert len(names) >= LEAST_READABLE

    options = ("--epsilon", "8", "--workers", "1", "--json")
    status, text = ldp_slicing("privatize", "in", "out", *options, cwd=tmp_path)
    problems = {one["source"]: one["problem"] for one in json.loads(text)["problems"]}
    assert status == 1  # some are damaged on purpose, and say so
    assert {name for name in names if name in problems} == {name for name, is_long in names.items() if is_long}
    assert all("--range LOW:HIGH" in problems[name] for name, is_long in names.items() if is_long)
    assert not [problem for problem in problems.values() if EXCEPTION.search(problem)]

    (tmp_path / "doses").mkdir()
    for name, is_long in names.items():
        if is_long:
            shutil.copy(tmp_path / "in" / name, tmp_path / "doses" / name)
    status, text = ldp_slicing("privatize", "doses", "out-doses", "--range", "0:80:12", *options, cwd=tmp_path)
    assert (status, json.loads(text)["problems"]) == (0, [])

    released = {path.name for folder in ("out", "out-doses") for path in (tmp_path / folder).glob("*.dcm")}
    assert {name for name in names if name not in released} == set()
    for folder in ("out", "out-doses"):
        status, text = ldp_slicing("verify", folder, cwd=tmp_path)
        assert status == 0, text
        for path in (tmp_path / folder).glob("*.dcm"):
            assert not pydicom.dcmread(path).PatientName
