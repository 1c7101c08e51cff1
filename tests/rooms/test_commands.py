"""Every command loads what it needs and nothing else: the modules of ours that are loaded after it has run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Plan, Slicer
from ldp_slicing.png import encode_png
from tests.rooms.graph import NAME

OWNERS_RUN = ("release", "ledger")
LAB = ("lab", "torch", "cli.lab")
FORBIDDEN = {  # for each command, the rooms that it must not load
    "--version": (*LAB, *OWNERS_RUN, "audit", "formats"),
    "privatize {sources} {out} --epsilon 20 --ledger {ledger}": LAB,
    "plan --epsilon 20": (*LAB, *OWNERS_RUN, "audit"),
    "show {sources}/train/a/0.png {out}.png": (*LAB, *OWNERS_RUN, "audit"),
    "verify {sources}": (*LAB, *OWNERS_RUN, "audit"),
    "decode {releases} {out}": (*OWNERS_RUN, "audit", "lab", "cli.lab"),
    "names {sources}": (*LAB, "audit"),
    "ledger --ledger {ledger}": (*LAB, "audit"),
    "doctor": (*LAB, "release"),
    "audit {sources}": LAB,
    "key new {out}.key": (*LAB, *OWNERS_RUN, "audit"),
    "advise {sources} --out {out} --labels none": (*OWNERS_RUN, "lab.experiments"),
    "lab choose --max-leakage 0.78": (*OWNERS_RUN, "torch", "lab.experiments", "lab.learners", "lab.attacks"),
    "lab train sources --data {data} --out {out} --minutes 0 --validation 0.5": (*OWNERS_RUN, "lab.experiments"),
    "lab train-faces sources/train --data {data} --out {out}": (*OWNERS_RUN, "lab.experiments"),
    "lab verify-faces {sources} --recogniser {data} --out {out}": OWNERS_RUN,
    "lab attack averaging sources --data {data} --out {out}": (*OWNERS_RUN, "lab.experiments"),
    "lab reproduce fidelity --data {data} --results {out}": OWNERS_RUN,
}
OWNERS = [command for command, rooms in FORBIDDEN.items() if "torch" in rooms]
CODE = """
import json, sys
from ldp_slicing.cli import app
try:
    app(sys.argv[1:])
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("command", FORBIDDEN)
def test_a_command_loads_nothing_of_other_rooms(command: str, tmp_path: Path) -> None:
    if command not in OWNERS:
        pytest.importorskip("torch")
    for part in ("train", "test"):
        for label in "ab":
            (tmp_path / "sources" / part / label).mkdir(parents=True)
            Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "sources" / part / label / "0.png")
            Image.fromarray(np.ones((32, 32, 3), np.uint8)).save(tmp_path / "sources" / part / label / "1.png")
    slicer = Slicer(Plan.grey(8.0))
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "0.png").write_bytes(b"".join(encode_png(slicer(np.zeros((8, 8), np.uint8)))))
    (tmp_path / "releases" / "card.json").write_text(slicer.card(8, 8).to_json())
    places = {name: str(tmp_path / name) for name in ("sources", "releases", "out", "ledger")} | {"data": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *command.format(**places).split()],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"XDG_DATA_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
    )
    loaded = json.loads(ran.stdout.splitlines()[-1])
    ours = [name.removeprefix(f"{NAME}.") for name in loaded if name.startswith(f"{NAME}.")]
    rooms = FORBIDDEN[command]
    assert [name for name in ours if any(name == room or name.startswith(f"{room}.") for room in rooms)] == []
    assert ("torch" in loaded) == (command not in OWNERS)
    assert "Traceback" not in ran.stderr
