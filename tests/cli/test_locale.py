"""Locales whose names of files are not UTF-8. Python decides at its start, so each command is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ldp_slicing.ledger import Ledger
from tests.markers import encoded, gradient
from tests.release.helpers import plant, release

pytestmark = pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names are UTF-8 there in every locale")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(tmp_path: Path, *words: str, **variables: str) -> tuple[int, str]:
    places = {"XDG_DATA_HOME": str(tmp_path / "data"), "LDP_SLICING_LEDGER": str(tmp_path / "l.sqlite")}
    ran = subprocess.run(
        [sys.executable, "-m", "ldp_slicing", *words],
        env=os.environ | places | variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.fixture
def work(tmp_path: Path) -> Path:
    source = plant(tmp_path / "in", {"Müller.png": encoded(gradient(8, 8), "PNG")})
    release(source, tmp_path / "out")
    Ledger(tmp_path / "l.sqlite").close()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["privatize", "in", "again", "-e20"],
        ["privatize", "in/Müller.png", "again.png", "-e20"],
        ["verify", "out"],
        ["audit", "out"],
        ["names", "out"],
        ["ledger"],
        ["ledger", "in/Müller.png"],
    ],
)
def test_a_locale_with_other_names_is_refused(work: Path, words: list[str]) -> None:
    """Otherwise a correct set is called damaged, and a path in the ledger is not found."""
    status, said = run(work, *words, **ASCII)
    assert status == 2
    assert said.startswith("refused: names of files are read as ascii here")
    assert said.endswith("set the variable PYTHONUTF8=1 and run the same command again\n")
    assert {path.name for path in work.iterdir()} == {"in", "out", "out.owner", "l.sqlite", "l.sqlite.key"}


def test_the_advice_helps(work: Path) -> None:
    status, said = run(work, "verify", "out", **ASCII | {"PYTHONUTF8": "1"})
    assert (status, said) == (0, "1 release, 1 file: OK\n")


def test_doctor_finds_such_a_locale(work: Path) -> None:
    status, said = run(work, "doctor", **ASCII)
    assert status == 1
    assert "PYTHONUTF8=1" in said
