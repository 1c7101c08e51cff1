"""Mutated sources, releases, cards, manifests and ledgers, run through the commands as a user would.

FUZZ_SECONDS is the time for all tests together (a minute by default; `make fuzz` sets ten), FUZZ_SEED the seed. Every
command must end with a documented exit status and without a traceback, within bounded memory. Its counts must add up,
and whatever was released must pass `verify`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ldp_slicing.cli.exit_status import ExitStatus
from tests.fuzz.corpus import SEEDS, image
from tests.fuzz.mutate import mutate, mutate_json

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
MEMORY = 700 << 20  # resident bytes, libraries included; no seed needs more than a few megabytes of its own
PER_RUN = 40
# The highest resident size of the process itself: what wait4 reports includes the memory of its parent.
LAUNCH = """
import atexit, re, sys
from pathlib import Path
target = Path(sys.argv.pop(1))
peak = lambda: target.write_text(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
atexit.register(peak)
from ldp_slicing.cli import app
app()
"""
STATUSES = set(ExitStatus)  # not a crash, and not ended by a signal


@dataclass(frozen=True)
class Ran:
    """How a command ended; ``out`` and ``err`` are what it printed."""

    status: int
    out: str
    err: str
    memory: int


def run(folder: Path, *arguments: str) -> Ran:
    """Run `ldp-slicing` as a user would, and check what holds for every command."""
    out, err = folder / "out.txt", folder / "err.txt"
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data")}
    with open(out, "wb") as to, open(err, "wb") as errors:
        command = [sys.executable, "-c", LAUNCH, str(folder / "memory.txt"), *arguments]
        status = subprocess.run(command, cwd=folder, env=environment, stdout=to, stderr=errors, check=False).returncode
    memory = int((folder / "memory.txt").read_text()) * 1024
    ran = Ran(status, out.read_text(), err.read_text(), memory)
    assert ran.status in STATUSES, ran
    assert "Traceback" not in ran.err, ran
    assert ran.memory < MEMORY, ran
    return ran


def rounds(share: float) -> Iterator[random.Random]:
    """Generators for round after round, until this share of the time is spent; at least one."""
    end, number = time.monotonic() + SECONDS * share, 0
    while number == 0 or time.monotonic() < end:
        yield random.Random(f"{SEED}, {number}")
        number += 1


@pytest.fixture(scope="module")
def seeds() -> dict[str, bytes]:
    return {name: make() for name, make in SEEDS.items()}


def test_mutated_sources(seeds: dict[str, bytes], tmp_path: Path) -> None:
    for rng in rounds(0.4):
        folder = tmp_path / "round"
        (folder / "in").mkdir(parents=True)
        for number in range(PER_RUN):
            name = rng.choice(list(seeds))
            (folder / "in" / str(number)).mkdir()
            damaged = mutate(seeds[name], rng, seeds[rng.choice(list(seeds))])
            (folder / "in" / str(number) / name).write_bytes(damaged)
        ran = run(folder, "privatize", "in", "out", "--epsilon", "20", "--json")
        counts = json.loads(ran.out)
        released, skipped = counts["released"], len(counts["skipped"])  # skipped: no longer recognised as a format
        assert released + counts["failed"] + counts["waiting"] + len(counts["copies"]) == counts["total"]
        assert counts["total"] + skipped == PER_RUN
        assert len({problem["source"] for problem in counts["problems"]}) >= counts["failed"]
        assert (ran.status == 0) == (released == counts["total"] and not counts["members_failed"])
        if released:
            assert len([path for path in (folder / "out").rglob("*") if path.is_file()]) == released + 2
            assert run(folder, "verify", "out").status == 0
        shutil.rmtree(folder)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def released(seeds: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of releases of every format, with its ledger."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "in").mkdir()
    for name, data in seeds.items():
        if name != "image.gif":  # animated: refused
            (folder / "in" / name).write_bytes(data)
    assert run(folder, "privatize", "in", "out", "--epsilon", "20").status == 0
    assert run(folder, "verify", "out").status == 0
    return folder


@pytest.mark.parametrize("recomputed", [False, True])
def test_mutated_releases_do_not_verify(
    recomputed: bool, released: Path, seeds: dict[str, bytes], tmp_path: Path
) -> None:
    """With a checksum that was recomputed, only other pixels or names may pass; the file has its one encoding."""
    for rng in rounds(0.1):
        shutil.copytree(released / "out", tmp_path / "out")
        path = rng.choice(
            [one for one in (tmp_path / "out").iterdir() if one.name not in ("card.json", "manifest.jsonl")]
        )
        original = path.read_bytes()
        changed = mutate(original, rng, seeds["image.jpg"])
        path.write_bytes(changed)
        if recomputed:
            manifest, old, new = tmp_path / "out" / "manifest.jsonl", *map(_sha256, (original, changed))
            manifest.write_text(manifest.read_text().replace(old, new))
        passed = run(tmp_path, "verify", "out").status == 0
        assert passed == (changed == original) or (recomputed and len(changed) == len(original)), path.name
        run(tmp_path, "audit", "out")
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("name", ["card.json", "manifest.jsonl"])
def test_mutated_cards_and_manifests(name: str, released: Path, tmp_path: Path) -> None:
    for rng in rounds(0.1):
        shutil.copytree(released / "out", tmp_path / "out")
        path = tmp_path / "out" / name
        if name == "card.json":
            path.write_text(mutate_json(path.read_text(), rng))
        else:
            lines = path.read_text().splitlines()
            number = rng.randrange(len(lines))
            lines[number] = mutate_json(lines[number], rng)
            path.write_text("\n".join(lines) + "\n")
        run(tmp_path, "verify", "out")
        run(tmp_path, "audit", "out")
        shutil.rmtree(tmp_path / "out")


def test_mutated_ledgers(released: Path, tmp_path: Path) -> None:
    """A damaged ledger is refused or still knows every release; it never lets one through a second time."""
    for rng in rounds(0.2):
        shutil.copytree(released / "data", tmp_path / "data")
        path = rng.choice(sorted((tmp_path / "data").rglob("*.sqlite*")))
        damaged = mutate(path.read_bytes(), rng)
        path.write_bytes(damaged)
        run(tmp_path, "ledger")
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / "new.jpg").write_bytes(image("JPEG", rng.randrange(1000)))
        run(tmp_path, "privatize", "in", "new", "--epsilon", "20")
        for name in ("data", "new", "new.owner", "in"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
