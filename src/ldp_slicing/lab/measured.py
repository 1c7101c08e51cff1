"""Make the table of measured settings and presets from ``results/*.json``.

Run, in the root of the repository::

    python -m ldp_slicing.lab.measured            # add what is new to src/ldp_slicing/measured.json
    python -m ldp_slicing.lab.measured --check    # exit status 1 if something would be added

It also takes the reports in ``results/advise/``, lists them there, and puts them into the package for ``lab choose``.

Entries are never removed or changed, because cards name them. If results say something else about a setting than its
entry does, a new entry of the same name is appended, and the version of the table rises.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ldp_slicing.lab.advise.committed import FOLDER, PACKAGED, Report, findings_of, list_page, read_reports
from ldp_slicing.lab.advise.findings import ADVISE, SHORT
from ldp_slicing.lab.rows import Metrics, Row, plan_name, read_rows
from ldp_slicing.measured import FIRST_TABLE, RECOGNISABLE, TABLE, Kind, Measured, latest, shares_of
from ldp_slicing.plan import COLOUR_BITS, PAPER_WEIGHTS, Plan
from ldp_slicing.presets import Preset
from ldp_slicing.view import Prune

EXPERIMENTS = {  # those that attack one release of each image, and the attack
    "white-box": "white box",
    "bit-unet": "white box",
    "sizes": "white box",
    "tradeoff": "white box",
    "black-box": "black box",
    "chest": "classifier",
}
NETWORKS = {SHORT: "a small, briefly trained network", ADVISE: "a small network"}  # by attack; others: a network
RECOGNISED = 0.05  # from this share of recognised images on, releases are called recognisable
LINKABLE = 0.6  # from this verification accuracy on, releases are called linkable; a coin toss is right for 0.5
SAME = ("kind", "data", "prune", "word_bits", "weights", "slices")
NEAR = "ssim_at_least_0.7"  # the share of images that are reconstructed so well
MORE = "a better attack may get more"
LOWER = "images with a lower SSIM can be recognisable, too"
LONGER = f"longer training got more at other settings, so {RECOGNISABLE}"  # the advice for ``SHORT`` attacks


@dataclass(frozen=True)
class Data:
    """A data set: what it shows, in words, the width and height of its images, and who is shown."""

    words: str
    side: int
    who: tuple[str, str] = ("person", "people")


DATA = {
    "lfw": Data("faces, LFW", 112),
    "cifar10": Data("objects, CIFAR-10", 32),
    "chest": Data("chest X-rays", 224, ("patient", "patients")),
}

# The settings of each preset, and the data set whose measurements belong to it.
PRESETS = (
    (Preset("paper", "The paper's setting. It does not stop recognition of people.", 20.0), "lfw"),
    (
        Preset("small-objects", "Objects at 32 pixels, to train a classifier. Not for images of people.", 5.2, size=32),
        "cifar10",
    ),
    (
        Preset(
            "tiny",
            "Images of 14 pixels, for coarse content. People can still be linked to other images of theirs.",
            5.2,
            slices="Y7+Y6+Cb7+Cr7",
            prune=None,
            size=14,
        ),
        "lfw",
    ),
    (
        Preset(
            "chest-xrays",
            "Chest X-rays in 8-bit grey, for classifiers. Patients may still be linked to other X-rays of theirs.",
            2.4,
            size=224,
            names="random",
        ),
        "chest",
    ),
)


def measured(rows: Iterable[Row], reports: Mapping[str, Report] | None = None) -> list[Measured]:
    """The strongest attack at each setting, as entries of the first version, in the order of their names.

    Attacks of ``advise`` are small. Those on settings that it did not confirm were also trained for a short time: they
    count if they succeed, and if nothing else was measured for the plan and the view. An entry of ``advise`` is left
    out if another attack got as much from a smaller budget and fewer pixels.
    """
    best = dict[str, tuple[float, Measured]]()
    known = [row for row in rows if row.experiment in EXPERIMENTS and row.dataset in DATA and row.finished]
    advised = [_advised(name, report) for name, report in (reports or {}).items()]
    for success, entry in itertools.chain(*map(_entries, known), *advised):
        if entry.name not in best or success > best[entry.name][0]:
            best[entry.name] = (success, entry)
    found = list(best.values())
    kept = (entry for success, entry in found if _is_needed(success, entry, found))
    return sorted(kept, key=lambda one: (one.kind, one.data, one.name))


def _is_needed(success: float, entry: Measured, found: Sequence[tuple[float, Measured]]) -> bool:
    """Whether an entry belongs in the table beside the others; see ``measured``."""
    if entry.attack not in (ADVISE, SHORT):
        return True
    alike = [(more, one) for more, one in found if _group(one) == _group(entry) and one.name != entry.name]
    if entry.attack == SHORT and any(one.attack != SHORT for _, one in alike):
        return False
    return not any(
        more >= success and one.epsilon <= entry.epsilon and one.pixels <= entry.pixels for more, one in alike
    )


def _group(entry: Measured) -> tuple[object, ...]:
    """What entries have in common that differ in budget and size only."""
    return tuple(getattr(entry, name) for name in SAME)


def _entries(row: Row) -> Iterator[tuple[float, Measured]]:
    """The entries of a row, each with the number by which attacks on one setting are compared."""
    found = [(one.plan, one.metrics) for one in row.measurements if one.releases == 1] or [(row.plan, row.metrics)]
    side = int(row.options.get("size", DATA[row.dataset].side))
    for plan, metrics in found:
        if plan is not None:
            got = metrics.get("reconstruction", metrics)
            yield from _entry(row.dataset, (side, side), plan, row.prune, EXPERIMENTS[row.experiment], got)


def _advised(name: str, report: Report) -> Iterator[tuple[float, Measured]]:
    """The entries of a report of ``advise``: what was linked, and what was reconstructed, at each setting."""
    for one in findings_of(name, report):
        place = (name, one.setting.size, one.setting.plan, one.setting.prune, ADVISE if one.is_confirmed else SHORT)
        if {"rank_1", "verification"} <= one.risks.keys():
            rank_1, pairs = one.risks["rank_1"], one.risks["verification"]
            linked = {"share": rank_1.value, "count": rank_1.count}
            if one.is_confirmed or rank_1.value >= RECOGNISED:
                yield from _entry(*place, {"rank_1": linked, "verification": {"accuracy": pairs.value}})
        near = one.others[NEAR]
        share = {"share": near.value, "count": near.count}
        if one.is_confirmed or near.value >= RECOGNISED:
            yield from _entry(*place, {"ssim": one.risks["ssim"].value, "success": {NEAR: share}})


def _entry(
    dataset: str, size: tuple[int, int], plan: Plan, prune: Prune, attack: str, metrics: Metrics
) -> Iterator[tuple[float, Measured]]:
    """The entry of one setting, if the metrics say anything, with the number by which attacks are compared."""
    data, (width, height) = DATA[dataset], size
    outcome = _outcome(metrics, data)
    if outcome is None:
        return
    kind, success, numbers, clause, advice = outcome
    weights, slices = _described(plan)
    pixels = f"{width}" if width == height else f"{width}x{height}"
    called, network = plan_name(plan).replace("bit ", ""), NETWORKS.get(attack, "a network")
    yield (
        success,
        Measured(
            name=f"{dataset}-{pixels}-{called}-{prune or 'whole'}-eps{plan.epsilon:g}-{kind}",
            since=1,
            kind=kind,
            data=data.words,
            width=width,
            height=height,
            word_bits=plan.word_bits,
            weights=weights,
            slices=slices,
            epsilon=plan.epsilon,
            prune=prune,
            attack=attack,
            numbers=numbers,
            sentence=f"At eps {plan.epsilon:g} and {width} x {height} pixels, {network} {clause} ({data.words})",
            advice=LONGER if attack == SHORT else advice,
        ),
    )


def _outcome(metrics: Metrics, data: Data) -> tuple[Kind, float, dict[str, float], str, str] | None:
    """What an attack got: its kind, the number to compare attacks by, its numbers, a clause and an advice."""
    if "rank_1" in metrics and "verification" in metrics:
        rank_1, people = metrics["rank_1"]["share"], metrics["rank_1"]["count"]
        pairs = metrics["verification"]["accuracy"]
        clause = (
            f"re-identified {rank_1:.1%} of {people:,} {data.who[1]} from one release each, and was correct on "
            f"{pairs:.1%} of pairs when asked whether they show the same {data.who[0]}"
        )
        if rank_1 >= RECOGNISED:
            advice = RECOGNISABLE
        elif pairs >= LINKABLE:
            advice = f"treat these releases as linkable to other images of the same {data.who[0]}"
        elif pairs - 2 * metrics["verification"].get("standard_error", 1.0) > 0.5:
            advice = f"images of one {data.who[0]} were linked more often than by chance, and {MORE}"
        else:
            advice = MORE
        numbers = {"rank_1_identification": rank_1, "verification_accuracy": pairs}
        return "identity", rank_1, _rounded(numbers), _spaced(clause), advice
    if "success" in metrics:
        share = metrics["success"][NEAR]
        clause = (
            f"reconstructed {share['share']:.1%} of {share['count']:,} images with an SSIM of at least 0.7 (mean "
            f"{metrics['ssim']:.2f}) from one release each"
        )
        numbers = {"ssim": metrics["ssim"], "share_of_ssim_at_least_0.7": share["share"]}
        advice = RECOGNISABLE if share["share"] >= RECOGNISED else f"{LOWER}, and {MORE}"
        return "reconstruction", metrics["ssim"], _rounded(numbers), _spaced(clause), advice
    if "roc_auc" in metrics:
        area = metrics["roc_auc"]
        clause = f"detected pneumonia from one release each with a ROC AUC of {area:.1%}"
        advice = "whether people can be recognised was not measured"
        return "content", area, _rounded({"roc_auc": area}), _spaced(clause), advice
    return None


def _described(plan: Plan) -> tuple[tuple[float, float, float], str | None]:
    """The weights of the paper's plan, or the slices of another one as ``--slices`` takes them."""
    for weights in (PAPER_WEIGHTS, (2.0, 1.0, 1.0), (1.0, 1.0, 1.0)):
        if plan == (Plan.paper(plan.epsilon, weights) if plan.is_colour else Plan.grey(plan.epsilon, plan.word_bits)):
            return weights, None
    names = {part.bits: plan.slice_name(part).replace("bit ", "") for part in plan.slices}
    if len(names) == 1:
        return PAPER_WEIGHTS, next(iter(names.values()))
    return PAPER_WEIGHTS, ",".join(f"{names[bits]}={share:.9f}" for bits, share in shares_of(plan).items())


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in numbers.items()}


def _spaced(text: str) -> str:
    """Percentages as the documents write them."""
    return text.replace("%", " %")


def presets(known: Sequence[Measured]) -> list[dict[str, Any]]:
    """The presets as the table has them, each with the names of the entries that were measured for it."""
    found = []
    for preset, dataset in PRESETS:
        data = DATA[dataset]
        bits = 8 if dataset == "chest" else COLOUR_BITS
        names = [
            one.name
            for one in known
            if one.data == data.words
            and one.width == (preset.size or data.side)
            and (one.epsilon, one.prune) == (preset.epsilon, preset.prune)
            and one.is_family_of(preset.plan(bits))
        ]
        content = {name: value for name, value in preset.to_dict().items() if name != "preset"}
        found.append(content | {"measured": names})
    return found


def extend(table: Mapping[str, Any], known: Sequence[Measured]) -> dict[str, Any]:
    """The table with what is new, under a new version; or the same table."""
    version = table["table"]
    made = {
        "measured": [replace(one, since=version + 1).to_dict() for one in known],
        "presets": [{"since": version + 1} | one for one in presets(known)],
    }
    extended: dict[str, Any] = {"table": version}
    for part, new in made.items():
        old = {one["name"]: one for one in latest(table[part], version)}
        fresh = [one for one in new if old.get(one["name"], {}) | {"since": version + 1} != one]
        extended[part] = [*table[part], *fresh]
        extended["table"] = version + 1 if fresh else extended["table"]
    return extended


def to_json(table: Mapping[str, Any]) -> str:
    """The table's file, with one entry per line, so that changes are seen to be additions."""
    parts = [
        f'"{part}": [\n' + ",\n".join(json.dumps(one, ensure_ascii=False) for one in table[part]) + "\n]"
        for part in ("measured", "presets")
    ]
    return f'{{\n"table": {table["table"]},\n' + ",\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ldp_slicing.lab.measured", description="Add results to the table of measured settings."
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with the JSON files")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table")
    parser.add_argument("--advice", type=Path, default=PACKAGED, help="the reports in the package")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the table is out of date")
    asked = parser.parse_args(arguments)
    rows = [row for name in EXPERIMENTS for row in read_rows(asked.results / f"{name}.json")]
    reports = read_reports(asked.results)
    empty = {"table": FIRST_TABLE - 1, "measured": [], "presets": []}
    table = json.loads(asked.table.read_text(encoding="utf-8")) if asked.table.exists() else empty
    extended = extend(table, measured(rows, reports))
    made = {asked.table: to_json(extended)}
    if (asked.results / FOLDER).is_dir():
        made[asked.results / FOLDER / "README.md"] = list_page(reports, {name: one.words for name, one in DATA.items()})
        made[asked.advice] = json.dumps(reports, ensure_ascii=False) + "\n"
    changed = {
        path: text for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in changed.items():
        print(f"{path}: {'out of date' if asked.check else 'written'}")
        if not asked.check:
            path.write_text(text, encoding="utf-8")
    return 1 if asked.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
