"""Many small files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.release.helpers import BESIDE, pictures, plant, spent, tree, verified
from tests.release.test_fire import command, running, wait_for


def test_ten_thousand_small_files_and_a_kill_among_them(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {f"{i // 500:02}/{name}": data for i, (name, data) in enumerate(pictures(10_000, 5, 4).items())})
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    with running(*command(source, target, ledger, "--workers", "2")) as run:
        wait_for(2000, target, run)
        run.kill()
    with running(*command(source, target, ledger, "--workers", "2")) as run:
        out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    assert json.loads(out)["kept"] > 1000
    assert len(tree(target)) == 10_000 + len(BESIDE)
    total = spent(ledger)
    assert (total.releases, total.unfinished) == (10_000, 0)
    assert verified(target) == []
