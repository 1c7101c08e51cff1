from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from ldp_slicing import __version__, mask, selfcheck
from ldp_slicing.cli import app
from ldp_slicing.slicer import Reference, choose_backend
from ldp_slicing.tables import Tables


class OneBitOff(Reference):
    """A backend that is wrong in the lowest bit of one pixel."""

    def __init__(self, variant: str) -> None:
        self.name = f"kernel ({variant})"

    @staticmethod
    def draw(
        lanes: NDArray[np.uint16],
        tables: Tables,
        first_pixel: int,
        blocks: Sequence[mask.Blocks],
        masks: NDArray[np.uint8],
        offset: int,
    ) -> None:
        Reference.draw(lanes, tables, first_pixel, blocks, masks, offset)
        masks[0, 0, 1000] ^= 1


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_healthy_installation() -> None:
    status, out = doctor()
    assert status == 0
    assert choose_backend("auto").name in out
    assert out.rstrip().endswith("OK")
    status, out = doctor("--json")
    findings = json.loads(out)
    assert (status, findings["healthy"], findings["backend in use"]) == (0, True, choose_backend("auto").name)


def test_backend_that_differs_from_the_reference_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "VARIANTS", ("odd",))
    monkeypatch.setattr(selfcheck, "Kernel", OneBitOff)
    status, out = doctor()
    assert status == 1
    assert "FAILED: different from the reference: kernel (odd)" in out
    assert "do not use this installation" in out
    status, out = doctor("--json")
    assert (status, json.loads(out)["healthy"]) == (1, False)


def test_ledger_that_cannot_be_created_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LDP_SLICING_LEDGER", str(tmp_path / "file" / "ledger.sqlite"))
    status, out = doctor()
    assert (status, out.rstrip().endswith("FAILED: there is no place for the ledger")) == (1, True)
    monkeypatch.setenv("LDP_SLICING_LEDGER", str(tmp_path / "new" / "folder" / "ledger.sqlite"))
    assert doctor()[0] == 0
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))  # root may write anywhere
    status, out = doctor("--json")
    findings = json.loads(out)
    assert (status, f"because {tmp_path} cannot be written to" in findings["ledger"]) == (1, True)


def test_version_option() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert shown.output.strip() == f"ldp-slicing {__version__}"
    ran = subprocess.run([sys.executable, "-m", "ldp_slicing", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == shown.output
