"""Many files under cron: a run is killed, its sources move, an old backup of the ledger is restored.

CI does it with 600 files; ``LDP_SLICING_TRIAL_FILES=20000 pytest tests/trials/test_many_files.py`` with 20,000.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections import Counter
from pathlib import Path

from tests.release.helpers import outputs, plant, small_images
from tests.release.processes import Run, wait_for
from tests.trials.command_line import LDP_SLICING, check, cron, ldp_slicing

FILES = int(os.environ.get("LDP_SLICING_TRIAL_FILES", "600"))


def test_many_files_under_cron(tmp_path: Path) -> None:
    images = small_images(FILES, 8, 6)
    source = plant(tmp_path / "disk", {f"{i // 100:03}/{name}": data for i, (name, data) in enumerate(images.items())})
    target, env = tmp_path / "releases", cron(tmp_path / "home")
    ledgers = tmp_path / "home/.local/share/ldp-slicing"
    job = ("--epsilon", "20", "--json", "--workers", "2")

    with Run(*LDP_SLICING, "privatize", str(source), str(target), *job, env=env) as run:
        wait_for(FILES // 3, target, run)
        run.kill()
    assert run.returncode == -9
    early = outputs(target)
    assert 0 < len(early) < FILES
    assert ldp_slicing("verify", target, env=env).status != 0  # there is no card yet
    backup = shutil.copytree(ledgers, tmp_path / "backup")

    source = source.rename(tmp_path / "another disk")
    resumed = ldp_slicing("privatize", source, target, *job, env=env)
    assert (resumed.status, resumed.json["complete"], resumed.json["problems"]) == (0, True, [])
    assert (resumed.json["released"], resumed.json["total"]) == (FILES, FILES)
    assert resumed.json["kept"] > 0
    made = outputs(target)
    assert made.items() >= early.items()  # what was there keeps its bytes

    newest = ledgers.rename(tmp_path / "newest")
    shutil.copytree(backup, ledgers)
    plant(source, {"new.png": small_images(FILES + 1, 8, 6)[f"{FILES:05}.png"]})
    refused = ldp_slicing("privatize", source, target, *job, env=env)
    assert (refused.status, refused.json["refused"]["reason"]) == (2, "ledger")
    assert outputs(target) == made
    shutil.rmtree(ledgers)
    newest.rename(ledgers)

    last = ldp_slicing("privatize", source, target, *job, env=env)
    assert (last.status, last.json["kept"], last.json["released"]) == (0, FILES, FILES + 1)
    assert outputs(target).items() > made.items()
    named = csv.DictReader(io.StringIO(ldp_slicing("names", target, env=env).out))
    released = Counter(row["source"] for row in named)
    assert released == Counter(str(path.relative_to(source)) for path in source.rglob("*.png"))
    total = ldp_slicing("ledger", "show", "--json", env=env).json["total"]
    assert (total["releases"], total["unfinished"]) == (FILES + 1, 0)
    assert not (tmp_path / "releases.owner/key").exists()
    check(target)
