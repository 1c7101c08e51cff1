"""The page on attacks of one's own: its code runs, and is as short as it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, blocks


def test_the_code_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from ldp_slicing.lab import attack_command

    monkeypatch.setattr(attack_command, "UNTRAINED", dict(attack_command.UNTRAINED))
    monkeypatch.chdir(tmp_path)
    (code,) = blocks((ROOT / "docs/guide/own-attack.md").read_text(), "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    exec(compile(code, "own-attack.md", "exec"), {})
    (one,) = json.loads((tmp_path / "blur/result.json").read_text())["measurements"]
    assert one["metrics"]["reconstruction"]["psnr_db"] > one["metrics"]["release"]["psnr_db"]
    assert (tmp_path / "blur/sheet.png").is_file()
    assert "reconstruction" in capsys.readouterr().out
