from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ldp_slicing import Plan
from ldp_slicing.cli import app
from ldp_slicing.ledger import Ledger
from ldp_slicing.wording import number


def plan(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_slices_realised_epsilon_and_promises_are_printed() -> None:
    status, out, _ = plan("--epsilon", "12")
    assert status == 0
    chosen = Plan.paper(12.0)
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    for part in chosen.slices:
        row = rows[chosen.slice_name(part)]
        assert f"0x{part.bits:06x}" in row
        assert number(part.epsilon) in row
        assert f"{100 * float(chosen.tables.change_probability(part.bits)):.4f} %" in row
    assert len(chosen.slices) == 24
    assert f"{number(chosen.realised_epsilon)} realised" in out
    assert "12" in rows["released pixel"]
    assert "48" in rows["source pixel"]
    assert "150,528" in rows["image"]
    assert "no limit" in rows["image"]
    assert "slice" in rows


@pytest.mark.parametrize(("prune", "times"), [("none", 1), ("haar", 4), ("haar8", 4), ("dct", 64)])
def test_pruning_multiplies_the_epsilon_of_a_source_pixel(prune: str, times: int) -> None:
    levels = {
        level["unit"]: level for level in content("--epsilon", "2", "--prune", prune, "--size", "20x10")["levels"]
    }
    realised = Plan.paper(2.0).realised_epsilon
    assert levels["released pixel"]["epsilon"] == pytest.approx(realised)
    assert levels["source pixel"]["epsilon"] == pytest.approx(times * realised)
    assert levels["image"]["epsilon"] == pytest.approx(200 * realised)


def content(*arguments: str) -> dict[str, Any]:
    status, out, err = plan("--json", *arguments)
    assert (status, err) == (0, "")
    statement: dict[str, Any] = json.loads(out)["statements"][0]
    return statement


def test_named_slices() -> None:
    status, out, _ = plan("--epsilon", "5.2", "--slices", "Y7+Y4+Cb7+Cr7")
    assert status == 0
    assert "0x908080" in next(line for line in out.splitlines() if line.startswith("│ Y7+Y4+Cb7+Cr7 "))
    assert "5.2 realised" in out
    deep = content("--epsilon", "2", "--grey", "12", "--slices", "11+10=2,9")
    assert [part["bits"] for part in deep["plan"]["slices"]] == ["0xc00", "0x200"]
    assert "almost never changes Y7+Y6+Y5" in plan("--epsilon", "20", "--slices", "Y7+Y6+Y5")[1]
    for options, said in (
        (("--slices", "Y7", "--weights", "1:1:1"), "give shares instead"),
        (("--slices", "Y7+Y9"), "'Y9'"),
        (("--slices", ""), "no bits are named"),
        (("--slices", "7+6"), "add --grey BITS"),
    ):
        status, _, err = plan("--epsilon", "5", *options)
        assert status == 2
        assert said in err


def test_json_has_the_printed_numbers() -> None:
    status, out, _ = plan("--json", "-e", "20", "--weights", "1:1:1")
    assert status == 0
    chosen = json.loads(out)["statements"][0]["plan"]
    assert chosen["epsilon_realised"] == Plan.paper(20.0, (1, 1, 1)).realised_epsilon
    assert len(chosen["slices"]) == 24
    assert all(0 < part["change_probability"] <= 0.5 for part in chosen["slices"])
    assert chosen["slices"][0]["epsilon"] == chosen["slices"][8]["epsilon"]


@pytest.mark.parametrize("command", ["plan", "audit"])
@pytest.mark.parametrize(("slices", "bits"), [("11+10", 12), ("11+10=2,9", 12), ("7", 8), ("5=20", 8)])
def test_slices_of_grey_pixels_need_their_number_of_bits(command: str, slices: str, bits: int) -> None:
    result = CliRunner().invoke(app, [command, "-e", "3", "--slices", slices])
    assert result.exit_code == 2
    advice = f"add --grey BITS, the bits of your images, such as --grey {bits}"
    assert f"--slices {slices} names bits of a grey pixel: {advice}" in " ".join(result.stderr.split())


def test_grey() -> None:
    status, out, _ = plan("-e", "20", "--grey", "12")
    assert status == 0
    assert [f"bit {bit} " in out for bit in range(13)] == [True] * 12 + [False]
    status, out, _ = plan("-e", "20", "--grey", "12", "--json")
    statement = json.loads(out)["statements"][0]
    assert (statement["plan"]["word_bits"], len(statement["plan"]["slices"])) == (12, 12)


def test_plan_that_realises_less_has_a_remark() -> None:
    _, out, _ = plan("--epsilon", "5000")
    assert "noisier and more private than requested" in out


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("--epsilon", "0", "got 0.0"),
        ("--epsilon", "-3", "got -3.0"),
        ("--epsilon", "nan", "got nan"),
        ("--epsilon", "inf", "got inf"),
        ("--epsilon", "much", "much"),
        ("--epsilon", "5e-324", "5e-324"),
        ("--weights", "4:1", "'4:1'"),
        ("--weights", "4:1:x", "'4:1:x'"),
        ("--weights", "0:0:0", "(0.0, 0.0, 0.0)"),
        ("--weights", "-1:1:1", "(-1.0, 1.0, 1.0)"),
        ("--weights", "nan:1:1", "(nan, 1.0, 1.0)"),
        ("--size", "5", "'5'"),
        ("--size", "5x", "'5x'"),
        ("--size", "0x5", "'0x5'"),
        ("--size", "-5x5", "'-5x5'"),
        ("--size", "1x1x1", "'1x1x1'"),
        ("--grey", "0", "from 1 to 16"),
        ("--grey", "17", "from 1 to 16"),
        ("--grey", "24", "from 1 to 16"),
        ("--grey", "x", "x"),
        ("--prune", "all", "'all'"),
        ("--fit", "5", "'5'"),
        ("--fit", "0x5", "'0x5'"),
        ("--fit", "200x200", "nothing is enlarged"),
        ("--max-side", "0", "or equal to 1"),
        ("--prune", "harr", "--prune': 'harr' is not one of"),
    ],
)
def test_invalid_values_are_refused(option: str, value: str, shown: str) -> None:
    budget = () if option == "--epsilon" else ("--epsilon", "20")
    status, out, err = plan(f"{option}={value}", *budget)
    assert (status, out) == (2, "")
    assert shown in err


@pytest.mark.parametrize("command", ["privatize", "plan", "show", "doctor", "audit"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_begins_with_an_example_and_offers_no_seed(command: str, flag: str) -> None:
    result = CliRunner().invoke(app, [command, flag])
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    assert result.exit_code == 0
    assert lines[0].startswith("Usage: ldp-slicing " + command)
    assert lines[1].partition(": ")[2].startswith("ldp-slicing " + command)
    assert "seed" not in result.stdout.lower()
    assert re.search(r"<[a-z]|\{", result.stdout) is None  # types of Python, such as <int range>


def test_help_of_privatize_says_how_to_choose_a_budget_and_a_size_and_where_the_ledger_lies() -> None:
    shown = " ".join(CliRunner().invoke(app, ["privatize", "--help"]).stdout.partition("Arguments")[0].split())
    for named in ("plan --presets", "plan --epsilon", "ldp-slicing show", "--max-side", "--fit", "LDP_SLICING_LEDGER"):
        assert named in shown


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("privatize", "plan", "show", "doctor", "audit"))
    assert "seed" not in result.stdout.lower()
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    assert lines[1].startswith("Example: ldp-slicing privatize")


@pytest.mark.skipif(sys.platform == "win32", reason="has other pipes")
@pytest.mark.parametrize("words", [["plan", "-e20"], ["plan", "-e20", "--json"], ["ledger", "--json"]])
def test_closed_output_pipe_is_not_a_failure(words: list[str], tmp_path: Path) -> None:
    """The exit status is 128 + SIGPIPE, because 1 would mean a failed check."""
    Ledger(tmp_path / "l.sqlite").close()
    words = [*words, "--ledger", str(tmp_path / "l.sqlite")] if words[0] == "ledger" else words
    ran = subprocess.Popen(
        [sys.executable, "-m", "ldp_slicing", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert ran.stdout is not None
    ran.stdout.close()
    assert ran.wait() == 141
    assert ran.stderr is not None
    assert ran.stderr.read() == ""
    ran.stderr.close()
