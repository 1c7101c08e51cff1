"""What the attacks have in common: targets, rows, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import SETS, AttackTarget, open_target
from ldp_slicing.lab.attacks.contact_sheet import contact_sheet, portrait, view_of
from ldp_slicing.lab.experiment import BUDGETS, Findings, Row, Setting, markdown
from ldp_slicing.lab.metrics.images import CRITERIA
from ldp_slicing.plan import Plan
from ldp_slicing.view import Prune

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EASY = 200.0  # an attack that does not succeed here, without pruning, is not to be believed anywhere
TARGETS = (*BUDGETS, EASY)
VIEWS: dict[str, Prune] = {"whole": None, "pruned": "haar"}
WORDS = {"whole": "not pruned", "pruned": "pruned"}
BLIND = "-blind"  # ends the names of runs that see no release
SHOWN = 6  # images on a contact sheet

Tiles = dict[str, tuple[Tensor, Tensor]]  # by title, releases of what ``shown`` has and what was made of them
Record = dict[str, Any]  # one target: "epsilon_requested", "release" and "reconstruction", each as Case.judge has it


def record(plan: Plan, release: dict[str, object], reconstruction: dict[str, object]) -> Record:
    return {
        "epsilon_requested": plan.epsilon,
        "epsilon_realised_per_release": plan.realised_epsilon,
        "release": release,
        "reconstruction": reconstruction,
    }


def grid(name: str) -> dict[str, tuple[Prune, float]]:
    """The runs of a set by name, the easy targets first."""
    return {f"{name}-{view}-eps{eps:g}": (prune, eps) for view, prune in VIEWS.items() for eps in reversed(TARGETS)}


def shown(case: AttackTarget) -> Tensor:
    """uint8 [K, 3, H, W]: sources that a sheet may show to everybody."""
    return portrait().to(case.sources.device) if case.faces else case.sources[:SHOWN]


def blind_guesses(setting: Setting) -> Iterator[Row]:
    """For each set, how near the mean of the public images comes to every source: what uses nothing of a release."""
    for name in SETS:
        run = f"{name}{BLIND}"
        if setting.wants(run) and not setting.has(run):
            case = open_target(name, setting.data, setting.device)
            yield {
                "run": run,
                "seed": 0,
                "finished": True,
                "found": [],
                "guess": blind_guess(case),
                "originals": case.originals,
            }


def blind_guess(case: AttackTarget) -> dict[str, object]:
    mean = torch.from_numpy(case.public.mean(0, dtype=np.float64)).permute(2, 0, 1).float().to(case.sources.device)
    return case.judge(mean.expand(len(case.sources), -1, -1, -1))


def attack_all(setting: Setting, attack: Callable[[AttackTarget, str, Plan, Prune], Row]) -> Iterator[Row]:
    """Rows of all budgets, views and sets that are not done yet, of an attack that trains nothing; unfinished ones when the time is up."""
    yield from blind_guesses(setting)
    for name in SETS:
        wanted = {run: target for run, target in grid(name).items() if setting.wants(run) and not setting.has(run)}
        case = None
        for run, (prune, eps) in wanted.items():
            row: Row = {"run": run, "seed": 0, "finished": not setting.limits.over, "prune": prune}
            if row["finished"]:
                case = case or open_target(name, setting.data, setting.device)
                row |= attack(case, run, Plan.paper(eps), prune) | {"originals": case.originals}
                setting.say(f"{run}: SSIM {row['found'][-1]['reconstruction']['ssim']:.3f}")
            yield row


def sheet(
    setting: Setting, case: AttackTarget, name: str, prune: Prune, tiles: Mapping[str, tuple[Tensor, Tensor]]
) -> list[str]:
    """Adds to the picture ``name`` of the page, and gives its name: from titles to releases and reconstructions of what ``shown`` has.

    What was there already is kept with the checkpoints.
    """
    setting.work.mkdir(parents=True, exist_ok=True)
    setting.pictures.mkdir(parents=True, exist_ok=True)
    kept = setting.work / f"{name}.tiles.pt"
    known: dict[str, list[Tensor]] = torch.load(kept, weights_only=True) if kept.is_file() else {}
    known |= {title: [image.cpu() for image in images] for title, images in tiles.items()}
    torch.save(known, kept)
    sources = shown(case)
    contact_sheet(columns_of(sources, view_of(sources, prune), known)).save(setting.pictures / f"{name}.png")
    return [f"{name}.png"]


def columns_of(sources: Tensor, view: Tensor, known: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
    """The columns of a sheet: a release and what was made of it beside each other, or below each other where there is one image only."""
    titles = sorted(known, key=lambda title: float(title.split()[-1]))
    if len(sources) == 1:
        below = {
            f"{title}: release\nand attack below": torch.cat([image.float() for image in known[title]])
            for title in titles
        }
        return {"source,\nits view below": torch.cat((sources.float(), view)), **below}
    columns = {"source": sources, "view": view}
    for title in titles:
        columns |= {
            f"{title}\n{word}": images for word, images in zip(("release", "attack"), known[title], strict=True)
        }
    return columns


def records(rows: Sequence[Row], prefix: str) -> list[Record]:
    """Of all finished rows of a set and view, by budget."""
    found = [one for row in rows if row["finished"] and row["run"].startswith(prefix) for one in row["found"]]
    return sorted(found, key=lambda one: (one["epsilon_requested"], one.get("releases", 1)))


def _share(value: Record) -> str:
    return f"{100 * value['share']:.1f} ({100 * value['low_95']:.1f} to {100 * value['high_95']:.1f})"


def heads(*, faces: bool) -> list[str]:
    """Of the columns that ``judged`` fills."""
    criteria = [f"success, %: {criterion.name}" for criterion in CRITERIA]
    people = ["same person for the recogniser, %", "rank-1, %", "verification, %", "perceptual distance"]
    return ["PSNR, dB", "SSIM", *criteria, *(people if faces else [])]


def judged(value: Record) -> list[str]:
    """What ``Case.judge`` found, as cells; shares with 95 % intervals."""
    cells = [
        f"{value['psnr_db']:.2f}",
        f"{value['ssim']:.3f}",
        *(_share(value["success"][criterion.name]) for criterion in CRITERIA),
    ]
    if "rank_1" in value:
        verified = value["verification"]
        cells += [_share(value["same_person"]), _share(value["rank_1"])]
        cells += [
            f"{100 * verified['accuracy']:.2f} ± {100 * verified['standard_error']:.2f}",
            f"{value['perceptual_distance']:.3f}",
        ]
    return cells


def title_of(eps: float, view: str) -> str:
    return f"{eps:g} (the easy target)" if (eps, view) == (EASY, "whole") else f"{eps:g}"


def table_of(rows: Sequence[Row], name: str, view: str, *, what: str = "reconstruction") -> str:
    """One set and view: a guess without a release, every budget with its release and what was made of it, the originals."""
    lines = [["none", "the mean of the public images", *judged(guess)] for guess in blind(rows, name)]
    found = records(rows, f"{name}-{view}")
    for one in found:
        lines.append([title_of(one["epsilon_requested"], view), "release", *judged(one["release"])])
        lines.append(["", one.get("by", what), *judged(one["reconstruction"])])
    if not found:
        return ""
    return (
        f"**{SETS[name]}, {WORDS[view]}**\n\n"
        + markdown(["eps of a released pixel", "", *heads(faces=name == "lfw")], lines)
        + ceiling(rows, name)
    )


def blind(rows: Sequence[Row], name: str) -> list[Record]:
    """What a guess reaches that uses nothing of a release, where it was measured: nothing below it counts."""
    return [row["guess"] for row in rows if row["run"] == f"{name}{BLIND}"]


def ceiling(rows: Sequence[Row], name: str) -> str:
    """What the recogniser says of the originals themselves."""
    found = next(
        (row["originals"] for row in rows if row["finished"] and row["run"].startswith(name) and row.get("originals")),
        None,
    )
    if not found:
        return "\n"
    verified, first = found["verification"], found["rank_1"]
    return (
        f"\nThe originals themselves: rank-1 {100 * first['share']:.1f} % in a gallery of {found['gallery']} people (chance "
        f"{100 / found['gallery']:.2f} %), verification {100 * verified['accuracy']:.2f} %. The same person: a squared distance of the "
        f"recogniser's embeddings of at most {found['same_person']['radius']:.3f}, its own threshold between originals.\n\n"
    )


def over_eps(rows: Sequence[Row], prefix: str, part: str, measure: str) -> dict[float, float]:
    """eps to a measure of the release or the reconstruction; of several records for one eps the first."""
    points: dict[float, float] = {}
    for one in records(rows, prefix):
        value = one[part].get(measure)
        points.setdefault(one["epsilon_requested"], value["share"] if isinstance(value, dict) else value)
    return points


def figure_of(name: str, findings: Findings) -> Figure:
    """SSIM of both sets, and rank-1 of the faces, over eps: releases dotted, reconstructions drawn through."""
    from ldp_slicing.lab.figures import COLOURS, budget_ticks, legend, panels

    drawn, axes = panels(3)
    for axis, (case, measure, words) in zip(
        axes, (("cifar10", "ssim", "SSIM"), ("lfw", "ssim", "SSIM"), ("lfw", "rank_1", "rank-1")), strict=True
    ):
        for (view, text), colour in zip(WORDS.items(), COLOURS, strict=False):
            for part, style in (("reconstruction", "-"), ("release", ":")):
                points = over_eps(findings[name], f"{case}-{view}", part, measure)
                axis.plot(
                    list(points),
                    list(points.values()),
                    style,
                    color=colour,
                    marker="o",
                    markersize=3.5,
                    label=f"{part}, {text}",
                )
        for guess in blind(findings[name], case):
            value = guess[measure]["share"] if isinstance(guess[measure], dict) else guess[measure]
            axis.axhline(value, color="0.6", linewidth=1, label="no release: the mean of the public images")
        budget_ticks(axis, TARGETS)
        axis.set(
            title=SETS[case], xlabel="eps of one released pixel, per release (local)", ylabel=words, ylim=(-0.02, 1.02)
        )
        legend(axis)
    return drawn
