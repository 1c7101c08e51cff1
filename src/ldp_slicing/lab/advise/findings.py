"""What was found for each setting, the limits that an owner gives, and what they allow. It needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.advise.budget import SEEDS
from ldp_slicing.lab.advise.grid import Setting
from ldp_slicing.lab.advise.intervals import Estimate
from ldp_slicing.measured import Measured, entries, risk, table_version

UTILITY = ("accuracy", "balanced_accuracy", "roc_auc")
RISKS = ("ssim", "rank_1", "verification")
METRICS = {
    "accuracy": "test accuracy",
    "balanced_accuracy": "balanced accuracy",
    "roc_auc": "ROC AUC",
    "ssim": "SSIM of reconstructions",
    "rank_1": "rank-1 identification rate",
    "verification": "verification accuracy",
}
NEAREST = 3  # settings that an answer without a proposal names, at most
ADVISE, SHORT = "advise", "advise, short"  # attacks of this command in the table; of settings that are not confirmed
ROUNDING = 5e-4  # a committed result is stronger if it is so in three digits
NO_LINKAGE = (
    "Linkage was not measured, so this does not say whether releases can be linked to other images of the same person "
    "or patient. To measure it, see --groups."
)
COMMITTED = {"ssim": "ssim", "rank_1": "rank_1_identification", "verification": "verification_accuracy"}


@dataclass(frozen=True)
class Rule:
    """One limit: a metric must be at most, or at least, ``bound``."""

    option: str
    metric: str
    words: str
    bound: float

    @property
    def is_risk(self) -> bool:
        return self.metric in RISKS

    def shortfall(self, value: float) -> float:
        """By how much a value misses the limit; 0 if it does not."""
        return max(0.0, value - self.bound if self.is_risk else self.bound - value)

    def __str__(self) -> str:
        return f"{self.words} at {'most' if self.is_risk else 'least'} {self.bound:g}"


OPTIONS = {  # by option: the metric, and how it is called
    "max_linkage": ("rank_1", "rank-1 identification rate"),
    "max_verification": ("verification", "verification accuracy"),
    "max_ssim": ("ssim", "SSIM of reconstructions"),
    "min_accuracy": ("accuracy", "test accuracy"),
    "min_auc": ("roc_auc", "ROC AUC"),
}


def make_rules(**bounds: float | None) -> tuple[Rule, ...]:
    """The rules of the options that were given."""
    for option, bound in bounds.items():
        if bound is not None and not 0 <= bound <= 1:
            raise LdpSlicingError(f"--{option.replace('_', '-')} is a number from 0 to 1; got {bound:g}")
    return tuple(Rule(option, *OPTIONS[option], bound) for option, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Known:
    """A committed result that is stronger than what was measured here."""

    metric: str
    value: float
    entry: str
    data: str


@dataclass(frozen=True)
class SettingFinding:
    """What was measured for one setting.

    utility: of the longest training, or of all confirmation runs. risks: the strongest of all attacks.
    growth: by how much a risk was higher in the longest training than in the shortest one, if it was twice as long.
    known: committed results for a like setting that are stronger. Each replaces the risk in ``worst``.
    """

    setting: Setting
    utility: Mapping[str, Estimate] = field(default_factory=dict)
    risks: Mapping[str, Estimate] = field(default_factory=dict)
    others: Mapping[str, Estimate] = field(default_factory=dict)
    growth: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, Known] = field(default_factory=dict)
    rounds: int = 0
    confirmations: int = 0

    def worst(self, metric: str) -> Estimate | None:
        """The risk, or the committed result where that is stronger."""
        own = self.risks.get(metric)
        if metric in self.known and own is not None:
            value = self.known[metric].value
            return Estimate(max(value, own.value), max(value, own.low), max(value, own.high), own.count)
        return own

    @property
    def score(self) -> float:
        """What settings within the limits are ranked by: utility, or what is visible where nothing is learned.

        Balanced accuracy: always answering the most frequent class is worth nothing.
        """
        found = self.utility.get("balanced_accuracy") or self.risks.get("ssim")
        return found.value if found else 0.0

    @property
    def is_confirmed(self) -> bool:
        return self.confirmations >= len(SEEDS)


class Status(StrEnum):
    MET = "met"
    SO_FAR = "met so far, not confirmed"  # by attacks and learners that were trained for a shorter time
    OPEN = "not established"  # the interval contains the limit, or would if the attack grew once more
    MISSED = "not met"
    BLIND = "cannot tell"  # the attack does not exceed the limit on unprotected images either
    UNKNOWN = "not measured"


WITHIN = (Status.MET, Status.SO_FAR)


def status(rule: Rule, finding: SettingFinding, controls: Mapping[str, Estimate]) -> Status:
    """Whether a setting meets a limit. It does only if it was confirmed and the whole interval meets it.

    An attack that grew with its training may grow further, so a risk must stay within the limit if it grows once more
    by as much. If no training was twice as long as another, that is not known. A limit is not met by an attack that
    fails: on images with almost no noise, the lower end must exceed the limit.
    """
    found = finding.worst(rule.metric) if rule.is_risk else finding.utility.get(rule.metric)
    if found is None:
        return Status.UNKNOWN
    good, bad = (found.low, found.high) if rule.is_risk else (found.high, found.low)
    if rule.shortfall(good) > 0:
        return Status.MISSED
    control = controls.get(rule.metric)
    if rule.is_risk and (control is None or control.low <= rule.bound):
        return Status.BLIND
    if rule.shortfall(bad + finding.growth.get(rule.metric, 0.0)) > 0:
        return Status.OPEN
    if not finding.is_confirmed:
        return Status.SO_FAR
    return Status.OPEN if rule.is_risk and rule.metric not in finding.growth else Status.MET


def by_promise(findings: Sequence[SettingFinding], rules: Sequence[Rule]) -> list[SettingFinding]:
    """The most promising setting first: what to spend time on.

    With limits, settings come first whose risks do not already exceed them, since more training only makes attacks
    stronger; then those that miss all limits by least, and then the score. Without limits, those come first that no
    other setting beats in everything.
    """

    def excess(one: SettingFinding) -> float:
        found = [(rule, one.worst(rule.metric)) for rule in rules if rule.is_risk]
        return sum(rule.shortfall(estimate.low) for rule, estimate in found if estimate is not None)

    if rules:
        return sorted(findings, key=lambda one: (excess(one), _miss(one, rules), -one.score))
    return sorted(findings, key=lambda one: (sum(_beats(other, one) for other in findings), -one.score))


def survivors(findings: Sequence[SettingFinding], rules: Sequence[Rule], count: int) -> list[SettingFinding]:
    """The settings that are measured longer: from the most useful one within the limits to the least revealing one.

    Attacks get stronger with training. Were only the most useful settings kept, which are just within the limits, all
    of them might exceed the limits in the end. Learners get better, too: if no setting is useful enough yet, the more
    useful half counts. Settings that are not within the limits follow by their promise.
    """
    ordered, limited = by_promise(findings, rules), [rule.metric for rule in rules if rule.is_risk]
    useful = [rule for rule in rules if not rule.is_risk]
    safe = [one for one in ordered if rules and _miss(one, [rule for rule in rules if rule.is_risk]) == 0]
    within = [one for one in safe if _miss(one, useful) == 0]
    within = within or sorted(safe, key=lambda one: (_miss(one, useful), -one.score))[: -(-len(safe) // 2)]
    chosen = _evenly(sorted(front(within, limited or RISKS), key=lambda one: -one.score), count)
    taken = {one.setting for one in chosen}
    return (chosen + [one for one in ordered if one.setting not in taken])[:count]


def _evenly(findings: Sequence[SettingFinding], count: int) -> list[SettingFinding]:
    """The first, the last and others at equal distances: ``count`` in all, or fewer if there are not so many."""
    if len(findings) <= count or count < 2:
        return list(findings[:count])
    return [findings[round(i * (len(findings) - 1) / (count - 1))] for i in range(count)]


def _beats(other: SettingFinding, one: SettingFinding, risks: Sequence[str] = RISKS) -> bool:
    """Whether the other setting is at least as good in utility and in these risks, and better in something."""
    known = [(a, b) for name in risks if (a := other.worst(name)) is not None and (b := one.worst(name)) is not None]
    better = [other.score - one.score, *(b.value - a.value for a, b in known)]
    return min(better) >= 0 and max(better) > 0


def front(findings: Sequence[SettingFinding], risks: Sequence[str] = RISKS) -> list[SettingFinding]:
    """The settings that no other setting beats in utility and in these risks."""
    return [one for one in findings if not any(_beats(other, one, risks) for other in findings)]


Kind = Literal["proposal", "none", "cannot tell", "no limits", "unfinished"]


@dataclass(frozen=True)
class Answer:
    """What is proposed, or why nothing is. nearest: settings that miss the limits by least."""

    kind: Kind
    sentence: str
    proposal: SettingFinding | None = None
    nearest: tuple[SettingFinding, ...] = ()


def answer(
    findings: Sequence[SettingFinding],
    rules: Sequence[Rule],
    controls: Mapping[str, Estimate],
    *,
    classes: int = 0,
    confirmed: bool = True,
) -> Answer:
    """Choose the setting with the highest score among those that meet every limit.

    classes: their number; a setting whose learner may be guessing is not chosen. confirmed: whether a setting must have
    been confirmed. If not, those that were are preferred.
    """
    checked = [one for one in findings if one.is_confirmed]
    if not rules:
        longest = max((one.rounds for one in findings), default=0)
        text = "No limit was given, so nothing is proposed. For a proposal, give limits such as --max-ssim 0.6."
        unbeaten = sorted(front(checked or [one for one in findings if one.rounds == longest]), key=_by_score)
        return Answer("no limits", text, nearest=tuple(unbeaten[:NEAREST]))
    if confirmed and not checked:
        text = "The run ended before a setting was confirmed: run the same command again to continue."
        return Answer("unfinished", text, nearest=tuple(by_promise(findings, rules)[:NEAREST]))
    within = [one for one in findings if all(status(rule, one, controls) in WITHIN for rule in rules)]
    useful = [one for one in within if not _may_guess(one, classes)]
    good = [one for one in useful if one.is_confirmed or not confirmed]
    if good:
        best = max(good, key=lambda one: (one.is_confirmed, one.score))
        limits = " and ".join(map(str, rules))
        verb = "meets" if best.is_confirmed else "has met, so far and without confirmation,"
        which = "the limit" if len(rules) == 1 else "the limits"
        sentence = f"{best.setting.words} {verb} {which} against the attacks that were tried: {limits}."
        return Answer("proposal", sentence, best)
    order = sorted(findings, key=lambda one: (not one.is_confirmed, _miss(one, rules), -one.score))
    kind, sentence = _why_not(findings, rules, controls, guessing=bool(within) and not useful)
    nearest = [*order[: NEAREST - 1], max(useful, key=lambda one: one.score)] if useful else order
    names = {one.setting: one for one in nearest}
    return Answer(kind, sentence, nearest=tuple(names.values())[:NEAREST])


def _by_score(one: SettingFinding) -> float:
    return -one.score


def _may_guess(one: SettingFinding, classes: int) -> bool:
    """Whether the learner may be no better than guessing: balanced accuracy is then 1 / classes."""
    found = one.utility.get("balanced_accuracy")
    return found is not None and classes > 0 and found.low <= 1 / classes


def _why_not(
    findings: Sequence[SettingFinding], rules: Sequence[Rule], controls: Mapping[str, Estimate], *, guessing: bool
) -> tuple[Kind, str]:
    """Why nothing is proposed. The first reason that holds is given."""
    which = {1: "the limit", 2: "both limits"}.get(len(rules), "all limits")
    checked = [one for one in findings if one.is_confirmed] or list(findings)
    found = [{rule: status(rule, one, controls) for rule in rules} for one in checked]
    for rule in rules:
        if all(one[rule] is Status.UNKNOWN for one in found):
            return "cannot tell", f"Cannot tell: the {rule.words} was not measured. More images or more groups help."
    if any(all(status(rule, one, controls) in WITHIN for rule in rules) for one in findings):
        if guessing:
            return "none", f"Settings meet {which}, but what is learned from them may be no better than guessing."
        return "none", (
            f"No confirmed setting meets {which}. Other settings have met {which} so far, but with shorter training of "
            "the attacks. To test them, start a new run with more --minutes and another --out."
        )
    if all(Status.MISSED in one.values() for one in found):
        kind = "confirmed setting" if any(one.is_confirmed for one in findings) else "setting that was measured"
        return "none", f"No {kind} meets {which}."
    for rule in rules:
        if any(one[rule] is Status.BLIND for one in found):
            return "cannot tell", (
                "Cannot tell: the attack is too weak to test this limit. Even on images with almost no noise, its "
                f"{rule.words} may be {rule.bound:g} or less. Use more images or groups, or more --minutes with "
                f"another --out{'; --recogniser also helps' if rule.metric != 'ssim' else ''}."
            )
    return "none", (
        f"No setting is shown to meet {which}: the intervals of the nearest ones contain a limit, or their attacks "
        "still get stronger. More images or groups make intervals narrower."
    )


def describe(found: Answer, rules: Sequence[Rule], controls: Mapping[str, Estimate], preset: str = "") -> list[str]:
    """The answer in lines of text: the proposal and how to use it, or the nearest settings, and what was measured.

    preset: the path of the preset file, if there is one.
    """
    lines = [found.sentence]
    for one in [found.proposal] if found.proposal else found.nearest:
        if found.proposal is None:
            nearest = f"nearest, {'confirmed' if one.is_confirmed else 'not confirmed'}"
            lines.append(
                f"{nearest if rules else 'best trade-off (no setting beats it on every measure)'}: {one.setting.words}"
            )
        lines += [f"  {text}" for text in describe_numbers(one, rules, controls)]
    if found.proposal is not None:
        lines += describe_risk(found.proposal)
        lines.append("To release with this setting, use any of these, with your folders for SRC and DST:")
        lines += [f"  {one}" for one in ways_to_release(found.proposal.setting, preset)]
    return lines


def describe_numbers(one: SettingFinding, rules: Sequence[Rule], controls: Mapping[str, Estimate]) -> list[str]:
    """What was measured for a setting, with intervals, and how it compares with the limits."""
    found = {**one.utility, **one.risks}
    return [f"{METRICS[name]} {value}{_marks(one, name, rules, controls)}" for name, value in found.items()]


def describe_risk(proposal: SettingFinding) -> list[str]:
    """What the limits do not say: whether linkage was measured, and what `privatize` says of the setting."""
    setting = proposal.setting
    unknown = [] if "rank_1" in proposal.risks else [NO_LINKAGE]
    width, height = setting.size
    return [*unknown, risk(setting.plan, setting.prune, width * height).sentence]


def ways_to_release(setting: Setting, preset: str = "") -> list[str]:
    """Two equivalent commands and a line of Python. preset: the path of the preset file, if there is one."""
    by_preset = [shlex.join(["ldp-slicing", "privatize", "SRC", "DST", "--preset", preset])] if preset else []
    return [*by_preset, setting.command, setting.code]


def _marks(finding: SettingFinding, metric: str, rules: Sequence[Rule], controls: Mapping[str, Estimate]) -> str:
    found = [str(status(rule, finding, controls)) for rule in rules if rule.metric == metric]
    bound = "" if metric not in finding.risks else ", a lower bound"
    known, grown = finding.known.get(metric), finding.growth.get(metric, 0.0)
    stronger = f"; {known.value:.3f} by a stronger attack ({known.data})" if known else ""
    if found and not known and grown >= ROUNDING:
        stronger = f"; more training raised it by {grown:.3f}"
    return f"{bound}{stronger}" + "".join(f"; limit: {one}" for one in found if one != Status.UNKNOWN)


def _miss(one: SettingFinding, rules: Sequence[Rule]) -> float:
    """By how much a setting misses the limits in total, counted at the unfavourable ends of the intervals."""
    total = 0.0
    for rule in rules:
        found = one.worst(rule.metric) if rule.is_risk else one.utility.get(rule.metric)
        end = None if found is None else found.high + one.growth.get(rule.metric, 0.0) if rule.is_risk else found.low
        total += 1.0 if end is None else rule.shortfall(end)
    return total


def committed(setting: Setting, risks: Mapping[str, Estimate], report: str | None = None) -> dict[str, Known]:
    """Committed results that are stronger, for the same view and plan with at most its eps and at most its pixels.

    An attacker who got more from less is the better guide, even on other images. report: the committed report that the
    risks are from, by the name of its data set; what the table has from it is left out.
    """
    pixels = setting.size[0] * setting.size[1]
    like = [
        one
        for one in entries(table_version())
        if one.prune == setting.prune
        and one.epsilon <= setting.epsilon
        and one.pixels <= pixels
        and one.is_family_of(setting.plan)
        and not (one.attack in (ADVISE, SHORT) and report is not None and one.name.startswith(f"{report}-"))
    ]
    found = dict[str, Known]()
    for metric, own in risks.items():
        best = max(like, key=lambda one: _number(one, metric), default=None)
        if best is not None and _number(best, metric) > own.value + ROUNDING:
            found[metric] = Known(metric, _number(best, metric), best.name, best.data)
    return found


def _number(entry: Measured, metric: str) -> float:
    return entry.numbers.get(COMMITTED[metric], -1.0)
