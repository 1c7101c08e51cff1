"""The report as one HTML file: no script, no font and no image from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ldp_slicing.lab.advise.budget import SEEDS
from ldp_slicing.lab.advise.figures import axis, legend, scatter
from ldp_slicing.lab.advise.findings import Finding, Status, status
from ldp_slicing.lab.advise.grid import FAMILIES
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.wording import counted

if TYPE_CHECKING:
    from torch import Tensor

    from ldp_slicing.lab.advise.run import Result

SHOWN = 5  # settings whose samples are shown
TILE = 96  # CSS pixels of a sample
STYLE = """
:root{--ink:#1d2430;--soft:#5b6675;--line:#dde2e9;--paper:#fff;--band:#f5f7fa;--good:#1d7a4d;--bad:#b3372b;--open:#8a6500}
*{box-sizing:border-box}body{margin:0;background:var(--band);color:var(--ink);font:15px/1.55 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 24px 60px;background:var(--paper)}
h1{font-size:26px;line-height:1.2;margin:14px 0 4px}h2{font-size:19px;margin:38px 0 8px}p{max-width:76ch;margin:8px 0}
.owner{background:#8f1d1d;color:#fff;padding:8px 14px;border-radius:4px;font-weight:600;font-size:14px}
.soft{color:var(--soft)}.answer{border-left:5px solid var(--soft);background:var(--band);padding:12px 18px;margin:18px 0}
.answer.proposal{border-color:var(--good)}.answer.none{border-color:var(--bad)}.answer.cannot{border-color:var(--open)}
.answer strong{font-size:17px;font-weight:600}pre{background:#1d2430;color:#eef2f7;padding:10px 14px;border-radius:4px;
overflow-x:auto;font:13px/1.5 ui-monospace,monospace}.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));
gap:20px}figure{margin:0}svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg text.label{font-size:12.5px;fill:var(--ink)}.grid{stroke:var(--line);fill:none}.bar{stroke-width:1;fill:none;opacity:.55}
.limit{stroke:var(--bad);stroke-width:1.6;fill:none}.control{stroke:var(--soft);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
.ring{fill:none;stroke:var(--ink);stroke-width:1.6}.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;
color:var(--soft);max-width:none}.legend svg{width:13px;height:13px;display:inline-block;vertical-align:-2px;margin-right:6px;
fill:var(--soft)}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;width:100%}
th,td{padding:5px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
th{font-weight:600;vertical-align:bottom;border-bottom:2px solid var(--ink)}td.l,th.l{text-align:left}
tr.chosen td{background:#e9f5ee}tr.quiet td{color:var(--soft)}td small{color:var(--soft);font-size:11px}
.met{color:var(--good)}.missed{color:var(--bad)}.open{color:var(--open)}
.samples{display:flex;flex-wrap:wrap;gap:20px 26px}.samples figcaption{font-size:12.5px;color:var(--soft);max-width:40ch;
margin-bottom:5px}.samples img{image-rendering:pixelated;display:block;border:1px solid var(--line)}
ul{max-width:76ch;padding-left:20px}li{margin:4px 0}@media print{main{max-width:none}body{background:#fff}}
"""


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
    shows = "these samples were named for the report" if request.samples else "it shows sources"
    yield f'<div class="owner">For the owner only: the numbers were measured on the sources, and {shows}.</div>'
    yield "<h1>Which setting for these images?</h1>"
    classes = f", {counted(len(sources.classes), 'class', 'classes')}" if sources.classes else ", no labels"
    groups = "" if sources.groups is None else f", {counted(len(np.unique(sources.groups)), 'group')}"
    width, height = sources.shape
    yield (
        f'<p class="soft">{len(sources.labels):,} of {counted(sources.total, "image")} at {width} x {height}'
        f"{', grey' if sources.is_grey else ''}{classes}{groups}. "
        f"{result.tried} of {counted(result.grid, 'setting')} in {result.minutes:.0f} minutes on "
        f"{escape(result.origin['machine'])}{'' if result.finished else '; stopped before it was finished'}.</p>"
    )


def _answer(result: Result) -> Iterator[str]:
    answer = result.answer
    kind = {"cannot tell": "cannot", "no limits": "open"}.get(answer.kind, answer.kind)
    yield f'<div class="answer {kind}"><strong>{escape(answer.sentence)}</strong>'
    if answer.proposal is not None:
        one = answer.proposal.setting
        yield f"<pre>{escape(one.command)}\n{escape(one.code)}\nldp-slicing privatize SRC DST --preset preset.json</pre>"
    if answer.nearest:
        title = "The nearest ones" if result.request.rules else "Settings that no other one beats"
        words = "".join(f"<li>{escape(one.setting.words)}{_misses(one, result)}</li>" for one in answer.nearest)
        yield f"<p>{title}:</p><ul>{words}</ul>"
    yield (
        "<p>Risks are lower bounds: they are what these attacks got in this time. More images, more time and better "
        "networks get more.</p></div>"
    )


def _misses(finding: Finding, result: Result) -> str:
    found = [(rule, status(rule, finding, result.controls)) for rule in result.request.rules]
    missed = [f"{rule.words} {_interval(finding, rule.metric)}: {how}" for rule, how in found if how is not Status.MET]
    return f" <span class='soft'>({escape('; '.join(missed))})</span>" if missed else ""


def _interval(finding: Finding, metric: str) -> str:
    one = finding.worst(metric) or finding.utility.get(metric)
    return "" if one is None else f"{one.value:.3f}, {one.low:.3f} to {one.high:.3f}"


def _figures(result: Result) -> Iterator[str]:
    limits = {rule.metric: rule.bound for rule in result.request.rules}
    views = sorted({one.setting.prune or "none" for one in result.findings}, key=lambda name: (name != "none", name))
    names = {view: VIEW_NAMES.get(None if view == "none" else view, f"pruned ({view})") for view in views}  # type: ignore[call-overload]
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
    yield "<h2>Utility and risk</h2><div class='figures'>"
    for across, up in pairs:
        ends = [axis(result.findings, one, labels[one], limits.get(one), control.get(one)) for one in (across, up)]
        yield f"<figure>{scatter(result.findings, ends[0], ends[1], result.answer.proposal, views)}</figure>"
    families = list(dict.fromkeys(one.setting.family for one in result.findings))
    yield f"</div>{legend(views, names, families, dict(FAMILIES))}"  # type: ignore[arg-type]
    yield (
        '<p class="soft">Each point is a setting, with 95 % intervals; larger points are larger releases. Pale points '
        "had the least training. The circled point is the proposal. Hover over a point for its numbers.</p>"
    )


COLUMNS: Sequence[tuple[str, str]] = (
    ("accuracy", "accuracy"),
    ("balanced_accuracy", "balanced<br>accuracy"),
    ("roc_auc", "ROC AUC"),
    ("ssim", "SSIM"),
    ("psnr_db", "PSNR (dB)"),
    ("ssim_at_least_0.7", "rebuilt to<br>SSIM 0.7"),
    ("rank_1", "rank-1"),
    ("verification", "verification"),
)


def _table(result: Result) -> Iterator[str]:
    rows = [(one, {**one.utility, **one.risks, **one.others}) for one in result.findings]
    columns = [(name, title) for name, title in COLUMNS if any(name in found for _, found in rows)]
    yield "<h2>All settings that were tried</h2><div class='scroll'><table><thead><tr>"
    yield "<th class='l'>size</th><th class='l'>view</th><th class='l'>plan</th><th>eps</th>"
    yield "".join(f"<th>{title}</th>" for _, title in columns)
    yield f"{'<th class=l>limits</th>' if result.request.rules else ''}<th class='l'>measured</th></tr></thead><tbody>"
    plain: Mapping[str, Estimate] = {**result.unprotected, **result.controls}
    yield "<tr><td class='l' colspan='4'>unprotected images</td>"
    yield "".join(f"<td>{_cell(plain.get(name))}</td>" for name, _ in columns)
    yield f"{'<td></td>' if result.request.rules else ''}<td class='l'>control</td></tr>"
    for one, found in rows:
        setting = one.setting
        kind = "chosen" if one is result.answer.proposal else "" if one.confirmations else "quiet"
        yield f"<tr class='{kind}'><td class='l'>{setting.size[0]} x {setting.size[1]}</td>"
        yield f"<td class='l'>{escape(VIEW_NAMES.get(setting.prune, str(setting.prune)))}</td>"
        yield f"<td class='l'>{setting.family}</td><td>{setting.epsilon:g}</td>"
        yield "".join(f"<td>{_cell(found.get(name))}{_known(one, name)}</td>" for name, _ in columns)
        yield _limits(one, result)
        yield f"<td class='l'>{_measured(one)}</td></tr>"
    yield "</tbody></table></div><p class='soft'>95 % intervals in small print. SSIM, PSNR, rebuilt, rank-1 and "
    yield "verification are what the strongest attack got that was run: lower bounds on what releases reveal.</p>"


def _cell(one: Estimate | None) -> str:
    if one is None:
        return ""
    digits = 1 if one.value > 2 else 3
    return f"{one.value:.{digits}f}<br><small>{one.low:.{digits}f} to {one.high:.{digits}f}</small>"


def _known(finding: Finding, metric: str) -> str:
    known = finding.known.get(metric)
    return (
        f"<br><small title='{escape(known.entry)}'>{known.value:.3f} on {escape(known.data)}</small>" if known else ""
    )


def _limits(finding: Finding, result: Result) -> str:
    if not result.request.rules:
        return ""
    classes = {Status.MET: "met", Status.MISSED: "missed"}
    found = [(rule, status(rule, finding, result.controls)) for rule in result.request.rules]
    lines = [f"<span class='{classes.get(how, 'open')}'>{rule.metric}: {how}</span>" for rule, how in found]
    return f"<td class='l'>{'<br>'.join(lines)}</td>"


def _measured(one: Finding) -> str:
    rounds = counted(one.rounds, "round")
    return f"{rounds}, {counted(one.confirmations, 'other seed')}" if one.confirmations else rounds


def _samples(result: Result) -> Iterator[str]:
    chosen = [result.answer.proposal, *result.answer.nearest, *result.findings]
    shown = list(dict.fromkeys(one.setting.name for one in chosen if one is not None))
    words = {one.setting.name: one.setting.words for one in result.findings}
    drawn = [name for name in shown if result.work.sample(name).is_file()][:SHOWN]
    if not drawn:
        return
    whose = "Samples that were named for this report" if result.request.samples else "Sources. For the owner only"
    yield f"<h2>Samples</h2><p>{whose}. Beside each release is what the attacker's network makes of it.</p>"
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
    held_out = (
        "groups, so that nobody is in both parts" if result.sources.groups is not None else "images of every class"
    )
    points = [
        f"<b>Parts.</b> About a third of the images is held out, by {held_out}. Everything is trained on the other part "
        "and measured on the held-out part. The rounds use one division, each confirmation another one.",
        "<b>Releases</b> are simulated on this machine with an ordinary random generator. None was written, and none "
        "counts as a release.",
    ]
    if result.sources.classes:
        points.append(
            "<b>Utility.</b> A small convolutional network learns from one release of each image, decoded with the plan "
            "alone, and is tested on decoded releases of held-out images. A larger network, tuned for the task, would "
            "reach more."
        )
    points.append(
        "<b>Reconstruction.</b> One network for all plans of a view, told the flip probability of every bit, is trained "
        "on the other part, of which it may make as many releases as it likes. It rebuilds held-out images from one "
        "release each."
    )
    if result.judge:
        judge = (
            "the recogniser that was supplied" if result.request.recogniser else "a network trained on the other part"
        )
        points.append(
            f"<b>Linkage.</b> {judge[0].upper()}{judge[1:]} embeds unprotected images. Two attacks compare a release with "
            "unprotected images: this network on the rebuilt image, and a student that reads the released bits and was "
            "taught its embeddings. The stronger one counts. Rank-1: how often a release is nearest to another image of "
            "its own group, of one image for each group of the same class. Guessing gives "
            f"{100 * float(result.judge['chance']):.2f} %. Verification: whether a release and an image are of one group; "
            "half of the pairs are, and the others are of the same class."
        )
    points += [
        "<b>Time.</b> Successive halving: many settings with little training, then fewer with more. "
        f"{_steps(result)}The confirmation has {len(SEEDS)} other seeds: other weights, other noise, other held-out images.",
        "<b>Limits.</b> A limit is met only if the whole 95 % interval meets it, in every confirmation run. A limit on a "
        "risk is met only if the same attack exceeds it on unprotected images; otherwise the answer is “cannot tell”. A "
        "stronger committed result of this software for the same view and plan, with no more pixels and no larger eps, "
        "replaces what was measured here.",
        "<b>What this does not say.</b> The attacks are small. That an attack fails shows only that this attack failed. "
        "The promise of a release is on its card, and these numbers are not. The choice of a setting was made by looking "
        "at the sources, so it reveals a little about them.",
    ]
    yield "<h2>Methods</h2><ul>" + "".join(f"<li>{one}</li>" for one in points) + "</ul>"
    yield (
        f'<p class="soft">{escape(result.origin["software"])}, commit {escape(result.origin["commit"][:20])}, PyTorch '
        f"{escape(result.origin['torch'])}, {escape(result.origin['machine'])}.</p>"
    )


def _steps(result: Result) -> str:
    found = [
        f"{name}: {counted(len(one['settings']), 'setting')}"
        + (f", {one['learning']:,} steps for each learner" if one["learning"] else "")
        + f", {one['attacking']:,} for each attack"
        for name, one in result.stages.items()
    ]
    return f"{'; '.join(found)}. ".capitalize() if found else ""
