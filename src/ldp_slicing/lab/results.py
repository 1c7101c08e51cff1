"""What runs have shown, as files: JSON with everything, and a table. A number that did not come out of a run is not in them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ldp_slicing.lab.experiments import Experiment
from ldp_slicing.lab.training import Run
from ldp_slicing.version import __version__


def commit() -> str:
    """The commit that runs; a copy without its history is told by LDP_SLICING_COMMIT."""
    if told := os.environ.get("LDP_SLICING_COMMIT"):
        return told
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)  # noqa: S607
    return asked.stdout.strip() or "unknown"


def hardware() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()})"


def describe(run: Run, paper: float | None) -> dict[str, Any]:
    """One run: what was done and what came of it."""
    task, tested = run.task, [epoch for epoch in run.history if epoch.test_accuracy is not None]
    best = max(tested, key=lambda epoch: epoch.test_accuracy or 0.0, default=None)
    finished = run.epoch >= task.recipe.epochs
    return {
        "task": task.name,
        "data": task.data.name,
        "release": task.release,
        "prune": task.prune if task.plan else None,
        "epsilon_requested": task.plan.epsilon if task.plan else None,
        "epsilon_realised_per_release": task.plan.realised_epsilon if task.plan else None,
        "epsilon_spent_per_released_pixel": task.epsilon_per_source,
        "seed": task.seed,
        "recipe": asdict(task.recipe),
        "epochs_done": run.epoch,
        "finished": finished,
        "test_accuracy_last_epoch": run.history[-1].test_accuracy if finished else None,
        "test_accuracy_best_epoch": {
            "accuracy": best.test_accuracy,
            "epoch": best.epoch,
            "note": "chosen on the test set, as the authors do",
        }
        if best
        else None,
        "paper": paper,
        "seconds_per_epoch": sum(epoch.seconds for epoch in run.history) / max(1, run.epoch),
        "history": [asdict(epoch) for epoch in run.history],
    }


def write(name: str, experiment: Experiment, runs: Sequence[Run], folder: Path) -> Path:
    """``folder/NAME.json`` and ``folder/NAME.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    described = [describe(run, experiment.paper.get(run.task.name)) for run in runs]
    content = {
        "experiment": name,
        "about": experiment.about,
        "software": f"ldp-slicing {__version__}",
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": hardware(),
        "runs": described,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    (folder / f"{name}.md").write_text(table(content))
    return path


def summarise(folder: Path) -> Path:
    """``folder/README.md`` from every experiment's JSON there."""
    contents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    head = [
        "# Results",
        "",
        "Made by `ldp-slicing lab results` from the JSON files beside it, which hold every number with its seed, recipe and history.",
        "",
    ]
    path = folder / "README.md"
    path.write_text("\n".join([*head, *(table(content).replace("# ", "## ", 1) for content in contents)]))
    return path


def table(content: dict[str, Any]) -> str:
    """The Markdown table of an experiment's JSON."""

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.2f}"

    lines = [
        f"# {content['experiment']}",
        "",
        f"{content['about']}. {content['hardware']}, torch {content['torch']}, commit {content['commit'][:12]}.",
        "",
        "| run | seed | epochs | eps spent per released pixel | last epoch, % | best test epoch, % (as the authors report) | paper, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in content["runs"]:
        best = run["test_accuracy_best_epoch"]
        spent = run["epsilon_spent_per_released_pixel"]
        lines.append(
            f"| {run['task']} | {run['seed']} | {run['epochs_done']} | {'-' if spent is None else f'{spent:.6g}'} "
            f"| {percent(run['test_accuracy_last_epoch'])} | {percent(best and best['accuracy'])} | {run['paper'] or '-'} |"
        )
    return "\n".join(lines) + "\n"
