from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing.cli import app
from tests.release.helpers import outputs, plant, small_images


def ask(*arguments: str | Path) -> tuple[int, str]:
    ran = CliRunner().invoke(app, list(map(str, arguments)))
    return ran.exit_code, ran.output


@pytest.mark.parametrize("kind", ["keep", "random"])
def test_the_owner_can_trace_every_release_to_its_source(kind: str, tmp_path: Path) -> None:
    files, shard = small_images(6), io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as tar:
        for name in ("00003.png", "00004.png"):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    source = plant(
        tmp_path / "in", {"a, b.png": files["00000.png"], "deep/c.png": files["00001.png"], "s.tar": shard.getvalue()}
    )
    assert ask("privatize", source, tmp_path / "out", "--names", kind, "-e", 20)[0] == 0
    code, text = ask("names", tmp_path / "out")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["release"] for row in rows} == set(outputs(tmp_path / "out"))
    assert sorted((row["source"], row["entry"]) for row in rows) == [
        ("a, b.png", ""),
        ("deep/c.png", ""),
        ("s.tar", "00003.png"),
        ("s.tar", "00004.png"),
    ]
    (made,) = {row["release"] for row in rows if row["source"] == "s.tar"}
    with tarfile.open(tmp_path / "out" / made) as tar:
        assert set(tar.getnames()) == {row["member"] for row in rows if row["source"] == "s.tar"}


def test_without_the_state_folder_names_are_refused(tmp_path: Path) -> None:
    code, text = ask("names", tmp_path / "out")
    assert code == 2
    assert "out.owner" in text.replace("\n", "")


@pytest.mark.skipif(os.name != "posix", reason="a pseudo-terminal")
def test_control_characters_are_escaped_on_a_terminal_only(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"\x1b[31m.png": small_images(1)["00000.png"]})
    assert ask("privatize", source, tmp_path / "out", "-e", 20)[0] == 0
    assert "\x1b[31m.png" in ask("names", tmp_path / "out")[1]
    terminal, end = os.openpty()
    subprocess.run([sys.executable, "-m", "ldp_slicing", "names", tmp_path / "out"], stdout=end, check=True)
    assert os.read(terminal, 4096).decode().splitlines()[1] == "\\x1b[31m.png,,\\x1b[31m.png,"
    os.close(end)
    os.close(terminal)


def test_a_single_file_has_no_state_folder(tmp_path: Path) -> None:
    source = plant(tmp_path, small_images(1)) / "00000.png"
    assert ask("privatize", source, tmp_path / "out.png", "-e", 20)[0] == 0
    code, text = ask("names", tmp_path / "out.png")
    assert (code, "a complete run of a single file leaves no state folder" in " ".join(text.split())) == (2, True)
