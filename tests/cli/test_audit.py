from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing.audit import selftest
from ldp_slicing.audit.faults import INSTALLATION_FAULTS, sample_image
from ldp_slicing.cli import app
from ldp_slicing.png import encode_png
from ldp_slicing.release.settings import ReleaseSettings
from tests.release.helpers import release


def audit(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for number in range(2):
        (tmp_path / "images" / f"{number}.png").write_bytes(b"".join(encode_png(sample_image(number))))
    release(tmp_path / "images", tmp_path / "releases", ReleaseSettings(20.0))
    return tmp_path / "releases"


def test_this_installation(tmp_path: Path) -> None:
    status, out, _ = audit("--pixels", 20_000, "--out", tmp_path / "report.json")
    assert status == 0
    assert out.startswith("audit of 24 slices, epsilon 20 ")
    assert "\nthe mathematical bound holds" in out
    assert "false alarms: at most 1.0e-06 per run" in out
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["audit"], report["verdict"]) == (2, "the mathematical bound holds")
    assert report["not_detected"]


def test_another_plan_as_json() -> None:
    status, out, _ = audit("--json", "--pixels", 20_000, "--grey", 12, "--epsilon", 5, "--prune", "none")
    report = json.loads(out)
    assert (status, report["verdict"]) == (0, "the mathematical bound holds")
    assert report["subject"].startswith("12 slices, epsilon 5 ")
    assert report["subject"].endswith("pruning none")
    slices = next(check for check in report["checks"] if check["name"] == "slices")
    assert len(slices["details"]["parts"]) == 12
    assert all(part["epsilon"] <= part["requested"] * (1 + 1e-9) for part in slices["details"]["parts"])


def test_releases_that_pass_and_that_fail(releases: Path) -> None:
    status, out, _ = audit(releases)
    assert status == 0
    assert "audit of 2 releases" in out
    assert "\nconsistent with the card (8 checks" in out
    assert "holds" not in out
    (releases / "1.png").write_bytes((releases / "1.png").read_bytes() + b"[bold]thumbnail")
    status, out, _ = audit(releases)
    assert status == 1
    assert "FAILS   files" in out
    assert "          1.png: " in out
    assert "\nrefuted: 1 of 8 checks failed" in out
    status, out, _ = audit(releases, "--json")
    assert (status, json.loads(out)["verdict"]) == (1, "refuted")


def test_releases_about_which_an_audit_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"".join(encode_png(sample_image(0)[:3, :5])))
    release(tmp_path / "a.png", tmp_path / "release.png", ReleaseSettings(20.0))
    status, out, _ = audit(tmp_path / "release.png")
    assert status == 3
    assert "\ncannot tell at this budget: 1 release could be an unprotected image with a" in out
    assert "holds" not in out
    status, out, _ = audit(tmp_path / "release.png", "--json")
    report = json.loads(out)
    assert (status, report["verdict"]) == (3, "cannot tell at this budget")
    assert report["power"][0]["releases_detected_at_moderate_sigma"] == 0


def test_the_exit_status_of_a_separate_process(releases: Path) -> None:
    (releases / "notes [red].txt").write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "ldp_slicing", "audit", str(releases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "notes [red].txt: is not in the manifest" in done.stdout
    assert done.stderr == ""


def test_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selftest, "INSTALLATION_FAULTS", INSTALLATION_FAULTS[:2]
    )  # the others take long, and tests/audit covers them
    status, out, _ = audit("--self-test")
    assert status == 0
    assert "every fault is found" in out
    assert out.count("rejected by") == 11
    assert out.count(": accepted") == 2
    monkeypatch.setattr(
        selftest, "INSTALLATION_FAULTS", (dataclasses.replace(INSTALLATION_FAULTS[1], rejected_by=frozenset()),)
    )
    status, out, _ = audit("--self-test")
    assert status == 1
    assert "A FAULT IS NOT FOUND: 1 of 12 checks failed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/place"], "/no/such/place is neither a folder"),
        (["--epsilon", "0"], "got 0.0"),
        (["--weights", "4:1"], "'4:1'"),
        (["--pixels", "10"], "4096"),
        (["--grey", "0"], "from 1 to 16"),
        (["--grey", "8", "--slices", "Y7", "--epsilon", "2"], "a grey pixel of 8 bits has the bits 7 to 0"),
        (["--slices", "Y7"], "--slices needs --epsilon"),
        (["DST", "--slices", "Y7"], "leave out --slices"),
        (["--self-test", "--grey", "8"], "leave out --grey"),
        (["--self-test", "--pixels", "100000"], "leave out --grey and --pixels"),
        (["DST", "--epsilon", "5"], "leave out --epsilon"),
        (["DST", "--self-test"], "leave out --self-test"),
        (["--out", "EXISTING"], "exists and is not overwritten: choose"),
    ],
)
def test_refusals(releases: Path, arguments: list[str], message: str) -> None:
    names = {"DST": str(releases), "EXISTING": str(releases / "card.json")}
    status, out, err = audit(*(names.get(argument, argument) for argument in arguments))
    assert (status, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_report_that_cannot_be_written_is_a_refusal(releases: Path) -> None:
    status, out, err = audit(releases, "--out", releases / "no" / "report.json")
    assert (status, out) == (2, "")
    assert "cannot be written: No such file" in err
