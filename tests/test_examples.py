"""Each script in examples/ runs and prints what it says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
EXPECTED = {
    "one_image": r"source pixel +epsilon 20\.8 ",
    "folder": r"8 bits per pixel: \{.*'released pixel': 5\.2",
    "pytorch_dataset": r"test accuracy (9\d|100)\.\d %",
    "dicom_series": r"2\.dcm '' 12 bits, \(64, 64\)",
    "attack": r"25 releases, eps 500 per pixel: PSNR 3\d\.\d dB",
}
NEEDS = {"pytorch_dataset": "torch", "dicom_series": "pydicom", "attack": "torch"}


def test_every_example_is_run_and_short() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    assert all(len(path.read_text().splitlines()) < 40 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    command = [sys.executable, EXAMPLES / f"{name}.py", tmp_path]
    for _ in range(2 if name == "dicom_series" else 1):  # a second run resumes the first
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        assert re.search(EXPECTED[name], done.stdout), done.stdout
