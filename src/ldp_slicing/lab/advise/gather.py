"""Findings from the records of a run. It needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ldp_slicing.lab.advise.findings import RISKS, UTILITY, SettingFinding, committed
from ldp_slicing.lab.advise.grid import Setting
from ldp_slicing.lab.advise.intervals import Estimate

OTHERS = ("psnr_db", "rmse_at_most_0.1", "ssim_at_least_0.7")
Records = Mapping[str, Mapping[str, Any]]


def gather(records: Records, settings: Sequence[Setting]) -> list[SettingFinding]:
    """What was measured for each of the settings that were measured at all."""
    found = []
    for setting in settings:
        learned = _learned(records, setting.name)
        attacked = _attacked(records, setting.name)
        confirmed = [content for seed, content in learned if seed] or []
        seeds = {seed for seed, _ in attacked if seed and (not learned or seed in dict(learned))}
        if not learned and not attacked:
            continue
        risks = {name: strongest(values) for name in RISKS if (values := _confirmed(attacked, name, seeds))}
        found.append(
            SettingFinding(
                setting,
                utility=_utility(confirmed or [content for _, content in learned[-1:]]),
                risks=risks,
                others={name: strongest(values) for name in OTHERS if (values := _metric(attacked, name))},
                growth={name: growth for name in risks if (growth := _growth(attacked, name)) is not None},
                known=committed(setting, risks),
                rounds=sum(
                    name.startswith("round ") and setting.name in one["settings"] for name, one in records.items()
                ),
                confirmations=len(seeds),
            )
        )
    return found


def controls(records: Records) -> dict[str, Estimate]:
    """What the attacks get from images with almost no noise: of those that were trained longest, the weakest."""
    attacked = [content for content in records.values() if "control" in content]
    longest = max((content["steps"] for content in attacked), default=0)
    mine = [content["control"] for content in attacked if content["steps"] == longest]
    found = {name: [one[name] for one in mine if name in one] for name in (*RISKS, *OTHERS)}
    return {name: weakest(Estimate(**one) for one in each) for name, each in found.items() if each}


def unprotected(records: Records) -> dict[str, Estimate]:
    """The utility of unprotected images."""
    return _utility([content for _, content in _learned(records, "unprotected")])


def strongest(values: Sequence[Estimate]) -> Estimate:
    """Of several attacks on one setting: every end at its highest, because each attack is a lower bound."""
    return Estimate(
        max(one.value for one in values),
        max(one.low for one in values),
        max(one.high for one in values),
        max(values, key=lambda one: one.value).count,
    )


def weakest(values: Iterable[Estimate]) -> Estimate:
    """The one with the lowest lower end."""
    return min(values, key=lambda one: one.low)


def _utility(runs: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """The mean of several runs. The interval reaches from the lowest to the highest end of all."""
    if not runs:
        return {}
    found = {name: [Estimate(**run[name]) for run in runs] for name in UTILITY}
    return {
        name: Estimate(
            sum(one.value for one in each) / len(each),
            min(one.low for one in each),
            max(one.high for one in each),
            each[0].count,
        )
        for name, each in found.items()
    }


def _learned(records: Records, setting: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Seeds and records of the learners of a setting, in the order in which they were trained."""
    mine = [(name.split(" | "), content) for name, content in records.items() if name.startswith("learner |")]
    return [(int(parts[2].removeprefix("seed ")), content) for parts, content in mine if parts[1] == setting]


def _attacked(records: Records, setting: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = []
    for name, content in records.items():
        if name.startswith("attack |") and setting in content["settings"]:
            seed = int(name.split(" | ")[3].removeprefix("seed "))
            found.append((seed, content["settings"][setting] | {"steps": content["steps"]}))
    return found


def _confirmed(attacked: Sequence[tuple[int, Mapping[str, Any]]], name: str, seeds: set[int]) -> list[Estimate]:
    """A metric in all attacks; nothing if a confirmation did not measure it, because then it is not confirmed."""
    missing = [seed for seed in seeds if not _metric([one for one in attacked if one[0] == seed], name)]
    return [] if missing else _metric(attacked, name)


def _growth(attacked: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> float | None:
    """How much higher a risk is in the longest training than in the shortest one; 0 if it is not.

    None if no training was twice as long as another: then nothing is known about what more training would bring.
    """
    by_steps: dict[int, list[float]] = {}
    for one in attacked:
        for found in _metric([one], name):
            by_steps.setdefault(int(one[1]["steps"]), []).append(found.value)
    if not by_steps or max(by_steps) < 2 * min(by_steps):
        return None
    first, last = (sum(by_steps[steps]) / len(by_steps[steps]) for steps in (min(by_steps), max(by_steps)))
    return max(0.0, last - first)


def _metric(attacked: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> list[Estimate]:
    found = [one.get(part, {}).get(name) for _, one in attacked for part in ("reconstruction", "linkage")]
    return [Estimate(**one) for one in found if one is not None]
