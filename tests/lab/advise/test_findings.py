"""Intervals, limits, the order of promise and the answer, without any network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.advise.figures import Axis
from ldp_slicing.lab.advise.findings import (
    NO_LINKAGE,
    SettingFinding,
    Status,
    answer,
    by_promise,
    committed,
    describe,
    front,
    make_rules,
    status,
    survivors,
)
from ldp_slicing.lab.advise.grid import Family, Setting
from ldp_slicing.lab.advise.intervals import Estimate, balanced_accuracy, mean_of, roc_auc, share_of, student_95
from ldp_slicing.measured import entries, table_version


def about(value: float, reach: float = 0.02) -> Estimate:
    return Estimate(value, value - reach, value + reach, 400)


def finding(
    accuracy: float, ssim: float, rank_1: float = 0.5, *, epsilon: float = 5.2, confirmations: int = 2
) -> SettingFinding:
    return SettingFinding(
        Setting("thick", epsilon, None, (16, 16), True),
        utility={"accuracy": about(accuracy), "balanced_accuracy": about(accuracy)},
        risks={"ssim": about(ssim), "rank_1": about(rank_1)},
        growth={"ssim": 0.0, "rank_1": 0.0},
        rounds=1,
        confirmations=confirmations,
    )


STRONG = {"ssim": about(0.95), "rank_1": about(0.9)}  # what the attacks get from unprotected images


def test_a_limit_is_met_by_the_far_end_of_the_interval_only() -> None:
    (rule,) = make_rules(max_ssim=0.6)
    assert status(rule, finding(0.9, 0.57), STRONG) is Status.MET
    assert status(rule, finding(0.9, 0.59), STRONG) is Status.OPEN
    assert status(rule, finding(0.9, 0.63), STRONG) is Status.MISSED
    (rule,) = make_rules(min_accuracy=0.8)
    assert status(rule, finding(0.83, 0.5), STRONG) is Status.MET
    assert status(rule, finding(0.81, 0.5), STRONG) is Status.OPEN
    assert status(rule, finding(0.77, 0.5), STRONG) is Status.MISSED


def test_an_attack_that_still_improves_must_leave_room_for_more() -> None:
    (rule,) = make_rules(max_ssim=0.6)
    for growth, expected in ((0.0, Status.MET), (0.05, Status.MET), (0.1, Status.OPEN)):
        assert status(rule, replace(finding(0.9, 0.5), growth={"ssim": growth}), STRONG) is expected


def test_an_attack_that_fails_on_unprotected_images_shows_nothing() -> None:
    (rule,) = make_rules(max_linkage=0.1)
    small = finding(0.9, 0.5, rank_1=0.05)
    assert status(rule, small, STRONG) is Status.MET
    assert status(rule, small, {"rank_1": about(0.11)}) is Status.BLIND
    assert status(rule, small, {}) is Status.BLIND
    assert status(rule, finding(0.9, 0.5, rank_1=0.2), {"rank_1": about(0.11)}) is Status.MISSED
    found = answer([small], [rule], {"rank_1": about(0.11)})
    assert (found.kind, found.proposal) == ("cannot tell", None)
    assert found.sentence.startswith("Cannot tell: the attack is too weak to test this limit. Even on")


def test_the_answer_is_the_most_useful_confirmed_setting_within_the_limits() -> None:
    rules = make_rules(max_ssim=0.6, min_accuracy=0.7)
    good, better = finding(0.75, 0.5, epsilon=1.0), finding(0.8, 0.55, epsilon=2.4)
    unconfirmed = finding(0.9, 0.4, epsilon=3.0, confirmations=0)
    found = answer([good, better, finding(0.95, 0.9), unconfirmed], rules, STRONG)
    assert (found.kind, found.proposal) == ("proposal", better)
    assert found.sentence.endswith("SSIM of reconstructions at most 0.6 and test accuracy at least 0.7.")


def test_no_setting_is_an_answer_with_the_nearest_ones() -> None:
    rules = make_rules(max_ssim=0.6, min_accuracy=0.9)
    far, near = finding(0.5, 0.9, epsilon=1.0), finding(0.85, 0.55, epsilon=2.4)
    found = answer([far, near], rules, STRONG)
    assert (found.kind, found.sentence) == ("none", "No confirmed setting meets both limits.")
    assert found.nearest == (near, far)
    assert answer([finding(0.5, 0.5, confirmations=0)], rules, STRONG).kind == "unfinished"
    maybe = finding(0.95, 0.5, epsilon=3.0, confirmations=0)
    found = answer([far, near, maybe], rules, STRONG)
    assert (found.kind, found.proposal, found.nearest) == ("none", None, (near, far, maybe))
    assert found.sentence.startswith("No confirmed setting meets both limits. Other settings have met both")
    assert {str(status(rule, maybe, STRONG)) for rule in rules} == {"met so far, not confirmed"}
    assert answer([far, near, maybe], rules, STRONG, confirmed=False).proposal == maybe  # `lab choose`
    assert answer([near], (), STRONG).kind == "no limits"


def test_the_answer_says_why_nothing_is_proposed() -> None:
    (rule,) = make_rules(max_linkage=0.1)
    missed, shown, grows = finding(0.9, 0.5, 0.3), finding(0.9, 0.5, 0.09), finding(0.9, 0.5, 0.05)
    unknown = replace(grows, growth={})  # no training was twice as long as another
    unmeasured = replace(grows, risks={"ssim": about(0.5)})
    for one, kind, words in (
        (missed, "none", "No confirmed setting meets the limit."),
        (shown, "none", "No setting is shown to meet the limit: the intervals"),
        (unknown, "none", "No setting is shown to meet the limit: the intervals"),
        (unmeasured, "cannot tell", "Cannot tell: the rank-1 identification rate was not measured."),
    ):
        found = answer([one], [rule], STRONG)
        assert (found.kind, found.proposal) == (kind, None)
        assert found.sentence.startswith(words)
    assert answer([grows], [rule], STRONG, classes=2).proposal == grows
    guess = replace(grows, utility={"accuracy": about(0.95), "balanced_accuracy": about(0.5)})
    found = answer([guess], [*make_rules(min_accuracy=0.8), rule], STRONG, classes=2)
    assert (found.kind, found.proposal) == ("none", None)
    assert found.sentence.endswith("may be no better than guessing.")


def test_time_is_spent_on_settings_that_can_still_meet_the_limits() -> None:
    over, under = finding(0.99, 0.9, epsilon=5.2), finding(0.4, 0.5, epsilon=1.0)
    assert by_promise([over, under], make_rules(max_ssim=0.6)) == [under, over]
    near = finding(0.5, 0.59, epsilon=2.4)  # its interval contains the limit
    assert by_promise([near, over, under], make_rules(max_ssim=0.6, min_accuracy=0.35)) == [under, near, over]
    worse = finding(0.3, 0.6, epsilon=2.4)
    assert by_promise([worse, over, under], ()) == [over, under, worse]
    assert front([worse, over, under]) == [over, under]


def test_settings_far_within_the_limits_survive_beside_the_most_useful_ones() -> None:
    rules = make_rules(max_ssim=0.6, min_accuracy=0.5)
    settings = [finding(0.5 + 0.05 * i, 0.3 + 0.05 * i, epsilon=float(i)) for i in range(1, 9)]
    within = [one for one in settings if one.risks["ssim"].high <= 0.6 and one.utility["accuracy"].low >= 0.5]
    assert survivors(settings, rules, 3) == [within[-1], within[2], within[0]]
    assert survivors(settings, rules, 7)[:5] == within[::-1]  # and then those that miss the limits by least
    assert survivors(settings, rules, 1) == [within[-1]]
    assert survivors(settings, (), 3) == by_promise(settings, ())[:3]
    hard = make_rules(max_ssim=0.6, min_accuracy=0.99)  # learners are not that far yet
    safe = [one for one in settings if one.risks["ssim"].high <= 0.6]
    assert survivors(settings, hard, 3) == [safe[-1], safe[-2], safe[-3]]


@pytest.mark.parametrize(
    ("family", "epsilon", "size", "expected"),
    [
        ("paper", 20.0, (112, 112), 0.8397),  # measured on LFW at this very setting
        ("paper", 20.0, (32, 32), None),  # faces were measured with more pixels only
        ("thick", 5.2, (28, 28), None),
        ("grey", 20.0, (112, 112), None),
    ],
)
def test_a_stronger_committed_result_overrides(
    family: Family, epsilon: float, size: tuple[int, int], expected: float | None
) -> None:
    setting = Setting(family, epsilon, "haar", size, True)
    known = committed(setting, {"rank_1": about(0.1)})
    assert (known["rank_1"].value if known else None) == expected
    found = SettingFinding(setting, risks={"rank_1": about(0.1)}, known=known)
    worst = found.worst("rank_1")
    assert worst is not None
    assert worst.high == pytest.approx(expected or 0.12)
    assert committed(setting, {"rank_1": about(0.99)}) == {}


def test_a_proposal_says_what_the_table_has_and_whether_linkage_was_measured() -> None:
    rules, linked = make_rules(max_ssim=0.6), finding(0.9, 0.5)
    alone = replace(linked, risks={"ssim": about(0.5)}, growth={"ssim": 0.02})
    for one, is_unknown in ((linked, False), (alone, True)):
        found = answer([one], rules, STRONG)
        assert found.proposal is one
        lines = describe(found, rules, STRONG)
        assert any(line.startswith("At eps 5.2 and ") and "(faces, LFW)" in line for line in lines)
        assert (NO_LINKAGE in lines) is is_unknown
    number = "  SSIM of reconstructions 0.500 (95 % interval 0.480 to 0.520), a lower bound"
    assert f"{number}; more training raised it by 0.020; limit: met" in lines


def test_a_report_is_not_compared_with_what_the_table_has_from_it() -> None:
    advised = next(
        one
        for one in entries(table_version())
        if one.attack == "advise" and one.kind == "identity" and one.data.startswith("chest")
    )
    setting = Setting("thick", 2.4, None, (112, 112), False, 8)
    assert advised.data == "chest X-rays"
    known = committed(setting, {"rank_1": about(0.01)})
    assert known["rank_1"].data == "chest X-rays"
    assert committed(setting, {"rank_1": about(0.01)}, "chest") == {}
    assert committed(setting, {"rank_1": about(known["rank_1"].value - 1e-4)}) == {}


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(0.1, 0.9, [0.2, 0.4, 0.6, 0.8]), (0.7, 1.0, [0.7, 0.8, 0.9, 1])]
)
def test_ticks_are_on_the_axis(least: float, most: float, expected: list[float]) -> None:
    assert Axis("SSIM", "ssim", least, most).ticks() == expected


def test_limits_are_shares() -> None:
    with pytest.raises(LdpSlicingError, match=r"--max-ssim is a number from 0 to 1; got 60"):
        make_rules(max_ssim=60.0)


def test_intervals_count_groups_and_not_images() -> None:
    hits = np.repeat([True, False] * 10, 20)
    groups = np.repeat(np.arange(20), 20)
    alone, grouped = share_of(hits, None), share_of(hits, groups)
    assert alone.value == grouped.value == 0.5
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)
    assert mean_of(np.ones(5), np.zeros(5, np.int64)).low == 0.0  # one group tells nothing
    assert [student_95(n) for n in (3, 5, 30)] == pytest.approx([t.ppf(0.975, n) for n in (3, 5, 30)], rel=0.01)
    scores, labels = np.tile([[0.2, 0.4], [0.6, 0.5]], (100, 1)), np.tile([0, 1], 100)
    scores = scores + np.random.default_rng(0).normal(0, 0.2, scores.shape)
    few = np.where(labels == 1, np.arange(200) // 100, 1000 + np.arange(200))  # two ill patients, 100 healthy ones
    assert roc_auc(scores, labels, few).high - roc_auc(scores, labels, few).low > 0.3
    assert share_of(np.ones(50, bool), groups[:50]).low < 1


def test_balanced_accuracy_and_roc_auc() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    assert balanced_accuracy(labels == 0, labels, None).value == 0.5
    scores = np.random.default_rng(0).normal(size=400) + np.repeat([0.0, 1.0], 200)
    found = roc_auc(np.stack((-scores, scores), 1), np.repeat([0, 1], 200))
    expected = (scores[200:, None] > scores[None, :200]).mean()
    assert found.value == pytest.approx(expected)
    assert found.low < 0.76 < found.high  # the area of two normal distributions that lie one deviation apart
    grouped = roc_auc(np.stack((-scores, scores), 1), np.repeat([0, 1], 200), np.arange(400) // 4)
    assert grouped.value == found.value
    assert grouped.high - grouped.low == pytest.approx(2 * (found.high - found.low), rel=0.05)  # 100 groups
    assert 0.6 < roc_auc(np.eye(2)[[0] * 8 + [1] * 8], np.repeat([0, 1], 8)).low < 0.95  # perfect, on 16 images
    assert roc_auc(np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 0])).value == 1.0
    assert roc_auc(np.ones((4, 2)), np.zeros(4, np.int64)).high == 1.0
