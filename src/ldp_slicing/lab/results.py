"""What runs have shown, as files: JSON with everything, a table and a figure. A number that did not come out of a run is not in them."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.files import write_atomically
from ldp_slicing.lab.experiment import Experiment, Findings, Row
from ldp_slicing.lab.experiments import EXPERIMENTS
from ldp_slicing.version import __version__

LONGEST = 50  # lines of a table on the page of all results


@cache  # what runs is what was there when it began
def commit() -> str:
    """The commit that runs, and whether the package was changed since; a copy without its history is told by LDP_SLICING_COMMIT."""
    if told := os.environ.get("LDP_SLICING_COMMIT"):
        return told

    def git(*words: str) -> str:
        try:
            ran = subprocess.run(  # noqa: S603
                ["git", *words],  # noqa: S607
                cwd=Path(__file__).parents[1],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:  # it is not installed
            return ""
        return ran.stdout.strip()

    found = git("rev-parse", "HEAD") or "unknown"
    return f"{found}, changed" if git("status", "--porcelain", "--untracked-files=no", ".") else found


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    known = Path("/proc/cpuinfo")
    names = re.findall(r"(?m)^model name\s*: (.+)$", known.read_text()) if known.is_file() else []
    return f"CPU ({names[0] if names else platform.processor() or platform.machine()})"


def stamp(device: torch.device) -> Row:
    """By what a row is made."""
    return {
        "software": f"ldp-slicing {__version__}",
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": hardware(device),
    }


def read(name: str, folder: Path) -> list[Row]:
    """The rows that are there already."""
    path = folder / f"{name}.json"
    rows: list[Row] = json.loads(path.read_text())["rows"] if path.is_file() else []
    return rows


def keep(name: str, about: str, row: Row, folder: Path) -> Path:
    """``folder/NAME.json`` with the row, see ``add``; others may write theirs to it at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{name}.lock", mode=0o666):  # it stays, and the next one to come may be somebody else
        return write(name, about, add(row, read(name, folder)), folder)


def write(name: str, about: str, rows: list[Row], folder: Path) -> Path:
    """``folder/NAME.json``, one row after the other, whole or not at all."""
    path = folder / f"{name}.json"
    content: dict[str, Any] = {
        "experiment": name,
        "about": about,
        "rows": sorted(rows, key=lambda row: (row["run"], row["seed"])),
    }
    write_atomically(path, [json.dumps(content, indent=1).encode() + b"\n"])
    return path


def add(row: Row, rows: list[Row]) -> list[Row]:
    """``rows`` with ``row`` in place of an earlier one of that run and seed; one that was stopped takes no finished one's place."""
    if not row["finished"] and any(
        old["finished"] and (old["run"], old["seed"]) == (row["run"], row["seed"]) for old in rows
    ):
        return rows
    return [*(old for old in rows if (old["run"], old["seed"]) != (row["run"], row["seed"])), row]


def show(name: str, folder: Path) -> list[Path]:
    """``folder/NAME.md`` and, where there is one, ``folder/NAME.png``, from the rows."""
    findings: Findings = {path.stem: read(path.stem, folder) for path in sorted(folder.glob("*.json"))}
    shown = [folder / f"{name}.md"]
    experiment = EXPERIMENTS[name]
    if experiment.figure:
        from ldp_slicing.lab.figures import save

        shown.append(folder / f"{name}.png")
        save(experiment.figure(findings), shown[-1])
    shown[0].write_text(page(name, experiment, findings[name]))
    return shown


def shortened(commit: str) -> str:
    """Twelve digits, and what is said about it."""
    digits, comma, more = commit.partition(",")
    return digits[:12] + comma + more


def page(name: str, experiment: Experiment, rows: Sequence[Row], longest: float = float("inf")) -> str:
    """All of an experiment; instead of a table of more than ``longest`` lines it names the page that has it."""
    table = experiment.table(rows)
    table = table if table.count("\n") <= longest else f"[All numbers]({name}.md).\n"
    made = sorted({f"{row['hardware']}, torch {row['torch']}, commit {shortened(row['commit'])}" for row in rows})
    missing = sorted({row["run"] for row in rows if not row["finished"]})
    parts = [f"# {name}\n\n{experiment.about}.\n", table]
    parts += [f"![{name}]({name}.png)\n"] if experiment.figure else []
    parts += [
        f"![{picture}]({picture})\n"
        for picture in sorted({picture for row in rows for picture in row.get("pictures", ())})
    ]
    parts += [f"Not finished: {', '.join(missing)}.\n"] if missing else []
    return "\n".join([*parts, f"Made by `ldp-slicing lab reproduce {name}` on {'; '.join(made)}.\n"])


def summarise(folder: Path) -> Path:
    """All tables and figures anew, and ``folder/README.md`` with them."""
    names = [name for name in EXPERIMENTS if (folder / f"{name}.json").is_file()]
    if not names:
        raise LdpSlicingError(
            f"{folder} holds no results, such as curves.json: run `ldp-slicing lab reproduce` first, or name their folder"
        )
    head = (
        "# Results\n\nMade by `ldp-slicing lab results` from the JSON files beside it, which hold every number and, of what was trained, "
        "its seed, recipe and time. Where no number of seeds is named, there was one.\n"
    )
    pages = []
    for name in names:
        show(name, folder)
        pages.append(page(name, EXPERIMENTS[name], read(name, folder), longest=LONGEST).replace("# ", "## ", 1))
    path = folder / "README.md"
    path.write_text("\n".join([head, *pages]))
    return path
