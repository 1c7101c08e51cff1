"""The report as JSON, the preset file, and the lines that the command prints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ldp_slicing.files import make_folder, write_atomically
from ldp_slicing.lab.advise.committed import REPORT_VERSION
from ldp_slicing.lab.advise.findings import METRICS, Rule, SettingFinding, describe, status
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.lab.advise.page import PRESET, make_page
from ldp_slicing.lab.advise.run import Result
from ldp_slicing.presets import Preset
from ldp_slicing.wording import counted


def write_report(result: Result) -> list[str]:
    """Write report.html and report.json, and preset.json if a setting is proposed. Return the names of the files."""
    make_folder(result.request.out)
    files = {"report.html": make_page(result), "report.json": json.dumps(to_dict(result), indent=1) + "\n"}
    preset = make_preset(result)
    if preset is not None:
        files[PRESET] = preset.to_json()
    else:
        (result.request.out / PRESET).unlink(missing_ok=True)  # of an earlier run with other limits
    for name, text in files.items():
        write_atomically(result.request.out / name, [text.encode()])
    return list(files)


def make_preset(result: Result) -> Preset | None:
    """The proposal as a preset. Its numbers are for the owner: they depend on the sources, and no card has them."""
    chosen = result.answer.proposal
    if chosen is None:
        return None
    by = f"measured by `advise` on {counted(len(result.sources.labels), 'source')}"
    sentences = [f"{METRICS[name]} {one}, {by}" for name, one in chosen.utility.items()]
    for name, one in chosen.risks.items():
        known = chosen.known.get(name)
        stronger = (
            f"; on a comparable setting, a stronger attack reached {known.value:.3f} ({known.data})" if known else ""
        )
        sentences.append(f"{METRICS[name]} {one}, a lower bound {by}{stronger}")
    name = re.sub(r"[^\w.-]+", "-", f"advice-{chosen.setting.name}")
    about = "Proposed by `ldp-slicing advise` for these sources. For the owner: the numbers depend on the sources."
    return chosen.setting.preset(name, about, sentences)


def to_dict(result: Result) -> dict[str, Any]:
    """The report as JSON values. It names no file and holds no pixel of the sources."""
    request, sources = result.request, result.sources
    return {
        "report": REPORT_VERSION,
        "for": "the owner of the sources",
        "title": request.title,
        "answer": {"kind": result.answer.kind, "sentence": result.answer.sentence},
        "limits": [{"option": rule.option, "metric": rule.metric, "bound": rule.bound} for rule in request.rules],
        "proposal": None if result.answer.proposal is None else _setting(result.answer.proposal),
        "nearest": [one.setting.name for one in result.answer.nearest],
        "sources": {
            "images": len(sources.labels),
            "of": sources.total,
            "width": sources.shape[0],
            "height": sources.shape[1],
            "grey": sources.is_grey,
            "classes": len(sources.classes),
            "groups": None if sources.groups is None else len(set(sources.groups.tolist())),
        },
        "unprotected": {
            "utility": _estimates(result.unprotected),
            "attacks": _estimates(result.controls),
            "linkage": {key: result.judge[key] for key in ("chance", "steps") if key in result.judge},
        },
        "settings": [_finding(one, request.rules, result.controls) for one in result.findings],
        "grid": result.grid,
        "tried": result.tried,
        "stages": result.stages,
        "finished": result.finished,
        "minutes": round(result.minutes, 2),
        **result.origin,
    }


def _setting(finding: SettingFinding) -> dict[str, Any]:
    one = finding.setting
    return {"name": one.name, "words": one.words, "command": one.command, "code": one.code}


def _finding(finding: SettingFinding, rules: tuple[Rule, ...], controls: Mapping[str, Estimate]) -> dict[str, Any]:
    one = finding.setting
    return {
        **_setting(finding),
        "width": one.size[0],
        "height": one.size[1],
        "shrinks": one.shrinks,
        "prune": one.prune or "none",
        "plan": one.family,
        "slices": one.slices,
        "epsilon": one.epsilon,
        "epsilon_realised": one.plan.realised_epsilon,
        "rounds": finding.rounds,
        "confirmations": finding.confirmations,
        "utility": _estimates(finding.utility),
        "risks_lower_bounds": _estimates(finding.risks),
        "growth_with_training": {name: round(value, 5) for name, value in finding.growth.items()},
        "reconstruction": _estimates(finding.others),
        "committed": {
            name: {"value": known.value, "entry": known.entry, "data": known.data}
            for name, known in finding.known.items()
        },
        "limits": {rule.option: str(status(rule, finding, controls)) for rule in rules},
    }


def _estimates(found: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: {key: round(value, 5) for key, value in one.to_dict().items()} for name, one in found.items()}


def summary(result: Result) -> list[str]:
    """What the command prints at the end."""
    return describe(result.answer, result.request.rules, result.controls, str(result.request.out / PRESET))
