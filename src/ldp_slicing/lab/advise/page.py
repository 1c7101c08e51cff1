"""The report as one HTML file: no script, no font and no image from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ldp_slicing.lab.advise.figures import axis, legend, scatter
from ldp_slicing.lab.advise.findings import (
    SettingFinding,
    Status,
    describe_numbers,
    describe_risk,
    status,
    ways_to_release,
)
from ldp_slicing.lab.advise.grid import FAMILIES
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.lab.advise.methods import describe_methods
from ldp_slicing.lab.advise.style import STYLE
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.wording import counted

if TYPE_CHECKING:
    from torch import Tensor

    from ldp_slicing.lab.advise.run import Result

PRESET = "preset.json"
SHOWN = 5  # settings whose samples are shown
TILE = 96  # CSS pixels of a sample


def make_page(result: Result) -> str:
    """Return the text of report.html."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Advice on a setting</title>',
        '<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy" ',
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">",
        f"<style>{STYLE}</style></head><body><main>",
        *_head(result),
        *_answer(result),
        *_figures(result),
        *_table(result),
        *_samples(result),
        *_methods(result),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _head(result: Result) -> Iterator[str]:
    sources, request = result.sources, result.request
    shows = "" if request.samples else ", and the samples are sources"
    yield f'<div class="owner">For the owner only: the numbers were measured on the sources{shows}.</div>'
    yield f"<h1>{escape(request.title or 'Which setting for these images?')}</h1>"
    classes = f", {counted(len(sources.classes), 'class', 'classes')}" if sources.classes else ", no labels"
    groups = "" if sources.groups is None else f", {counted(len(np.unique(sources.groups)), 'group')}"
    width, height = sources.shape
    shrunk = (
        f" (shrunk from {sources.size[0]} x {sources.size[1]})" if sources.size not in (None, sources.shape) else ""
    )
    yield (
        f'<p class="soft">{len(sources.labels):,} of {counted(sources.total, "image")}, {width} x {height} pixels'
        f"{shrunk}{', grey' if sources.is_grey else ''}{classes}{groups}. "
        f"{len(result.findings)} of {counted(result.grid, 'setting')} measured in "
        f"{counted(max(1, round(result.minutes)), 'minute')} on {escape(result.origin['machine'])}"
        f"{'' if result.finished else '. The run is not finished, so the answer may change'}.</p>"
    )
    if sources.converted:
        yield "<p>The three channels of these images are equal, so they were measured as grey images. Convert them to "
        yield "grey before you release them.</p>"
    yield "".join(f"<p>{escape(one[0].upper() + one[1:])}.</p>" for one in sources.remarks)


def _answer(result: Result) -> Iterator[str]:
    answer = result.answer
    kind = {"cannot tell": "cannot", "no limits": "open"}.get(answer.kind, answer.kind)
    yield f'<div class="answer {kind}"><strong>{escape(answer.sentence)}</strong>'
    limit = "limit" if len(result.request.rules) == 1 else "limits"
    if result.request.rules and answer.proposal is None:
        yield f"<p>{limit.capitalize()}: {escape('; '.join(map(str, result.request.rules)))}.</p>"
    if answer.proposal is not None:
        yield f"<p>Measured for it:</p>{_numbers(answer.proposal, result)}"
        yield "".join(f"<p>{escape(one)}</p>" for one in describe_risk(answer.proposal))
        ways = ways_to_release(answer.proposal.setting, str(result.request.out / PRESET))
        yield "<p>To release with this setting, use any of these, with your folders for SRC and DST:</p>"
        yield f"<pre>{escape(chr(10).join(ways))}</pre>"
    if answer.nearest:
        nearest = f"Nearest to the {limit}, confirmed settings first"
        title = nearest if result.request.rules else "Best trade-offs: no other setting beats these on every measure"
        words = "".join(f"<li>{escape(one.setting.words)}{_numbers(one, result)}</li>" for one in answer.nearest)
        yield f"<p>{title}:</p><ul>{words}</ul>"
    yield (
        "<p>Risks are lower bounds: they are what these attacks achieved in this time. An attacker with more images, "
        "more time or better networks may achieve more.</p></div>"
    )


def _numbers(finding: SettingFinding, result: Result) -> str:
    found = describe_numbers(finding, result.request.rules, result.controls)
    return f"<ul class='soft'>{''.join(f'<li>{escape(one)}</li>' for one in found)}</ul>"


def _figures(result: Result) -> Iterator[str]:
    limits = {rule.metric: rule.bound for rule in result.request.rules}
    views = sorted({one.setting.prune or "none" for one in result.findings}, key=lambda name: (name != "none", name))
    names = {view: VIEW_NAMES.get(None if view == "none" else view, f"pruned ({view})") for view in views}
    useful = "accuracy" if "accuracy" in limits or "roc_auc" not in limits else "roc_auc"
    pairs = [("ssim", useful), ("rank_1", useful)] if result.sources.classes else [("ssim", "rank_1")]
    labels = {
        "accuracy": "test accuracy",
        "roc_auc": "ROC AUC",
        "ssim": "SSIM of reconstructions (lower bound)",
        "rank_1": "rank-1 identification rate (lower bound)",
    }
    pairs = [(a, b) for a, b in pairs if any(a in one.risks for one in result.findings)]
    if not pairs:
        return
    control = {name: one.value for name, one in {**result.controls, **result.unprotected}.items()}
    yield f"<h2>{'Utility and risk' if result.sources.classes else 'Risks'}</h2><div class='figures'>"
    for across, up in pairs:
        ends = [axis(result.findings, one, labels[one], limits.get(one), control.get(one)) for one in (across, up)]
        yield f"<figure>{scatter(result.findings, ends[0], ends[1], result.answer.proposal, views)}</figure>"
    families = list(dict.fromkeys(one.setting.family for one in result.findings))
    yield f"</div>{legend(views, names, families, dict(FAMILIES))}"  # type: ignore[arg-type]
    yield (
        '<p class="soft">Each point is a setting, with 95 % intervals; larger points are larger releases. Attacks on '
        "pale points had less training, so do not compare them with dark ones. "
        f"{'' if result.answer.proposal is None else 'The circled point is the proposal. '}"
        "Hover over a point for its numbers.</p>"
    )


PLANS = {"grey": "brightness"}  # images that are grey are another thing
COLUMNS: Sequence[tuple[str, str]] = (
    ("accuracy", "accuracy"),
    ("balanced_accuracy", "balanced<br>accuracy"),
    ("roc_auc", "ROC AUC"),
    ("ssim", "SSIM"),
    ("psnr_db", "PSNR (dB)"),
    ("ssim_at_least_0.7", "share with<br>SSIM ≥ 0.7"),
    ("rank_1", "rank-1"),
    ("verification", "verification"),
)


def _table(result: Result) -> Iterator[str]:
    rows = [(one, {**one.utility, **one.risks, **one.others}) for one in result.findings]
    columns = [(name, title) for name, title in COLUMNS if any(name in found for _, found in rows)]
    yield f"<h2>All settings that were tried</h2><p>{_terms(result)}</p><div class='scroll'><table><thead><tr>"
    yield "<th class='l'>size</th><th class='l'>view</th><th class='l'>plan</th><th>eps</th>"
    yield "".join(f"<th>{title}</th>" for _, title in columns) + "<th class='l'>measured in</th></tr></thead><tbody>"
    plain: Mapping[str, Estimate] = {**result.unprotected, **result.controls}
    yield "<tr><td class='l' colspan='4'>unprotected images<br><small>attacks: eps 200</small></td>"
    yield "".join(f"<td>{_cell(plain.get(name))}</td>" for name, _ in columns) + "<td></td></tr>"
    guessed = {"roc_auc": 0.5, "verification": 0.5, "rank_1": result.judge.get("chance")}
    guessed["balanced_accuracy"] = 1 / max(1, len(result.sources.classes))
    numbers = [guessed.get(name) for name, _ in columns]
    yield "<tr><td class='l' colspan='4'>guessing</td>"
    yield "".join(f"<td>{'' if one is None else f'{one:.3f}'}</td>" for one in numbers) + "<td></td></tr>"
    for one, found in rows:
        setting = one.setting
        kind = "chosen" if one is result.answer.proposal else "" if one.is_confirmed else "quiet"
        yield f"<tr class='{kind}'><td class='l'>{setting.size[0]} x {setting.size[1]}</td>"
        yield f"<td class='l'>{escape(VIEW_NAMES.get(setting.prune, str(setting.prune)))}</td>"
        yield f"<td class='l'>{PLANS.get(setting.family, setting.family)}</td><td>{setting.epsilon:g}</td>"
        yield "".join(
            f"<td>{_cell(found.get(name), _how(one, name, result))}{_known(one, name)}</td>" for name, _ in columns
        )
        yield f"<td class='l'>{_measured(one)}</td></tr>"
    yield "</tbody></table></div><p class='soft'>95 % intervals in small print. SSIM, PSNR, rank-1 and verification "
    yield "are those of the strongest attack that was run: lower bounds on what releases reveal."
    if result.request.rules:
        yield " Limits: ✓ met, (✓) met so far but not confirmed, ✗ not met, ? cannot tell, ~ not established (the "
        yield "interval contains the limit, or would if the attack got stronger once more)."
    if any(one.known for one in result.findings):
        yield " A third line is a stronger result from the table of this software, for the same pruning and plan, with "
        yield "no more pixels and no larger eps. The mark refers to it; the figure does not show it."
    yield "</p>"


def _terms(result: Result) -> str:
    """What the words in the table mean."""
    thick = {one.setting.prune: one.setting.slices for one in result.findings if one.setting.family == "thick"}
    several = " or ".join(dict.fromkeys(escape(str(one)) for one in thick.values()))
    families = {one.setting.family for one in result.findings}
    plans = {
        "paper": "<i>paper</i>, over all bits by their weight",
        "grey": "<i>brightness</i>, the same over the bits of brightness only",
        "thick": f"<i>thick</i>, {several} randomised together",
    }
    groups = " Groups: images of one person, patient or place." if result.sources.groups is not None else ""
    return (
        "View: size and pruning before the noise is added. Plan: how eps is divided over the bits of a "
        f"pixel: {'; '.join(text for family, text in plans.items() if family in families)}. Round: a stage of the "
        f"search.{groups}"
    )


MARKS = {Status.MET: "✓", Status.SO_FAR: "(✓)", Status.MISSED: "✗", Status.OPEN: "~", Status.BLIND: "?"}


def _how(finding: SettingFinding, metric: str, result: Result) -> Status | None:
    """Whether a setting meets the limit on a metric; None if there is none."""
    rules = [rule for rule in result.request.rules if rule.metric == metric]
    return status(rules[0], finding, result.controls) if rules else None


def _cell(one: Estimate | None, how: Status | None = None) -> str:
    if one is None:
        return ""
    digits = 1 if one.value > 2 else 3
    mark = f"<span title='{how}'>{MARKS[how]}</span> " if how in MARKS and how is not None else ""
    kind = {Status.MET: "met", Status.MISSED: "missed", None: ""}.get(how, "open")
    number = f"<span class='{kind}'>{mark}{one.value:.{digits}f}</span>"
    return f"{number}<br><small>{one.low:.{digits}f}&ndash;{one.high:.{digits}f}</small>"


def _known(finding: SettingFinding, metric: str) -> str:
    known = finding.known.get(metric)
    return (
        f"<br><small title='{escape(known.entry)}'>{known.value:.3f} on {escape(known.data)}</small>" if known else ""
    )


def _measured(one: SettingFinding) -> str:
    rounds = counted(one.rounds, "round")
    return f"{rounds},<br>confirmed" if one.is_confirmed else rounds


def _samples(result: Result) -> Iterator[str]:
    chosen = [result.answer.proposal, *result.answer.nearest, *result.findings]
    shown = list(dict.fromkeys(one.setting.name for one in chosen if one is not None))
    words = {one.setting.name: one.setting.words for one in result.findings}
    drawn = [name for name in shown if result.work.sample(name).is_file()][:SHOWN]
    if not drawn:
        return
    named = (
        "Images that were named for this report. They may differ from the sources that the networks were trained on; "
        "the SSIM in the table is that of held-out sources."
    )
    whose = named if result.request.samples else "Some of the sources, for the owner only."
    yield f"<h2>Samples</h2><p>{whose} To the right of each release is its reconstruction.</p>"
    count, wide = len(result.samples), TILE * result.sources.shape[0] // max(result.sources.shape)
    yield "<div class='samples'>"
    yield _figure("before release", _png(result.samples), count * wide)
    for name in drawn:
        yield _figure(words[name], result.work.sample(name).read_bytes(), 2 * count * wide)
    yield "</div>"


def _figure(caption: str, png: bytes, width: int) -> str:
    data = base64.b64encode(png).decode()
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<img alt="{escape(caption)}" width="{width}" src="data:image/png;base64,{data}"></figure>'
    )


def _png(tiles: Tensor) -> bytes:
    row = np.concatenate(list(tiles.permute(0, 2, 3, 1).cpu().numpy()), axis=1)
    file = io.BytesIO()
    Image.fromarray(row[..., 0] if row.shape[2] == 1 else row).save(file, format="PNG")
    return file.getvalue()


def _methods(result: Result) -> Iterator[str]:
    sources, origin = result.sources, result.origin
    points = describe_methods(
        grouped=sources.groups is not None,
        learns=bool(sources.classes),
        chance=result.judge.get("chance"),
        recogniser=result.request.recogniser is not None,
        stages=result.stages,
    )
    yield "<h2>Methods</h2><ul>"
    yield "".join(f"<li><b>{escape(title)}</b> {escape(text)}</li>" for title, text in points.items())
    yield f"</ul><p class='soft'>{escape(origin['software'])}, commit {escape(origin['commit'][:20])}, PyTorch "
    yield f"{escape(origin['torch'])}, {escape(origin['machine'])}.</p>"
