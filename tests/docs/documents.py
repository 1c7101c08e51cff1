"""Code blocks of README and docs/: find them, run the ```console``` ones, and compare or rewrite the quoted output.

python -m tests.docs.documents          # replaces the output that the documents quote by what the commands print now
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOME = "/home/owner"  # stands for the temporary folder in quoted output
SESSION = re.compile(r"^<!-- (\$ .*?) -->$|^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = 118  # of quoted output: the widest table has 117 columns
VARIES = [  # what two runs may print differently, and what to compare instead
    (re.compile(r"\b\d+(\.\d+)? (s|ms)\b"), "TIME"),
    (re.compile(r"smallest p [0-9.e-]+ "), "smallest p P "),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "DIGEST"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "VERSION"),
    (re.compile(r"[┃│┏┓┡┩└┘━─┳╇┴ ]+"), " "),  # tables are as wide as their cells
]


def blocks(text: str, kind: str) -> list[str]:
    """The contents of all fenced blocks of a kind."""
    return [content for found, content in FENCE.findall(text) if found == kind]


def command_lines(text: str) -> Iterator[list[str]]:
    """Arguments of each ``ldp-slicing`` command in the ``sh`` and ``console`` blocks, without the program's name."""
    for line in "".join(blocks(text, "sh") + blocks(text, "console")).splitlines():
        command = line.removeprefix("$ ")
        if command.startswith("ldp-slicing "):
            arguments = shlex.split(command, comments=True)
            end = next((i for i, word in enumerate(arguments) if word in (">", "|", ";", "&&")), len(arguments))
            yield arguments[1:end]


def session(folder: Path, block: str) -> str:
    """The block with the output that its commands, the lines that begin with ``$``, print in ``folder`` now."""
    lines = []
    environment = {
        "PATH": f"{folder / '.bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(folder),
        "COLUMNS": "100",
        "TERM": "dumb",
    }
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        run = ["bash", "-c", command]
        done = subprocess.run(
            run, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode == 2:  # refused: the document lacks a command that must come first
            raise RuntimeError(f"{command}: {done.stdout}")
        printed = [line.rstrip() for line in done.stdout.replace(str(folder), HOME).strip("\n").split("\n")]
        lines += [f"$ {command}", *(row for line in printed if any(printed) for row in wrapped(line))]
    return "\n".join(lines) + "\n"


def wrapped(line: str) -> list[str]:
    """The line as a terminal of WIDTH columns shows it: a page would cut it off, or let its readers scroll."""
    indent = " " * (len(line) - len(line.lstrip()))
    rows = textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return rows if len(line) > WIDTH else [line]


def sessions(text: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Each console block as the document quotes it, and with what its commands print now.

    The blocks of a document run in order in one folder. A comment ``<!-- $ command -->`` runs too and is not shown.
    """
    prepare(folder)
    for hidden, shown in SESSION.findall(text):
        now = session(folder, hidden or shown)
        if shown:
            yield shown, now


def prepare(folder: Path) -> None:
    """Make the files that the documents' commands name: images in a folder, and the program."""
    (folder / "images").mkdir()
    with Image.open(ROOT / "examples/astronaut.jpg") as portrait:
        portrait.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "new.jpg")
    shutil.copy(ROOT / "examples/astronaut.jpg", folder / "portrait.jpg")
    shutil.copy(ROOT / "examples/astronaut.jpg", folder / "images/portrait.jpg")
    (folder / ".bin").mkdir()
    program = folder / ".bin/ldp-slicing"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ldp_slicing "$@"\n')
    program.chmod(0o755)


def normalised(text: str) -> str:
    """The text with everything replaced that differs between two runs."""
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return text


def rewrite(path: Path) -> None:
    """Run all console blocks of a document, in order and in one folder, and write what they print into it."""
    text = path.read_text()
    with tempfile.TemporaryDirectory() as name:
        for quoted, now in sessions(text, Path(name)):
            if normalised(now) != normalised(quoted):
                text = text.replace(f"```console\n{quoted}```", f"```console\n{now}```")
    path.write_text(text)


if __name__ == "__main__":
    for page in PAGES:
        rewrite(page)
