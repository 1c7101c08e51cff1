from __future__ import annotations

from ldp_slicing import Plan
from ldp_slicing.audit.pixel_words import Words
from ldp_slicing.audit.report import ERROR_RATE
from ldp_slicing.audit.statistics import MaskDistribution, mask_tests, release_pair_tests


def failed_tests(masks: Words, plan: Plan, other: Words | None = None) -> list[str]:
    """The tests of the audit that these masks fail, at one error rate for all of them together."""
    expected = MaskDistribution(plan)
    tests = list(mask_tests(expected, masks))
    if other is not None:
        tests.append(release_pair_tests(expected, masks, other))
    limit = ERROR_RATE / sum(len(several.names) for several in tests)
    return [failure for several in tests for failure in several.failures(limit)]
