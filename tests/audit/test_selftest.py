from __future__ import annotations

import dataclasses

import pytest

from ldp_slicing.audit import selftest
from ldp_slicing.audit.faults import BUILD_FAULTS, FOLDER_FAULTS
from ldp_slicing.audit.selftest import self_test
from ldp_slicing.release.settings import ReleaseSettings

STATISTICS = {
    "flip rates",
    "bits of one pixel",
    "neighbouring pixels",
    "two releases",
    "repeated masks",
    "epsilon of each slice",
}


def test_every_known_fault_is_rejected_and_the_controls_are_not() -> None:
    report = self_test(ReleaseSettings())
    assert report.holds, str(report)
    found = {check.name: set(check.details["rejected_by"]) for check in report.checks}
    assert len(found) == len(BUILD_FAULTS) + len(FOLDER_FAULTS)
    assert found["nothing"] == found["releases, nothing"] == set()
    assert {name for name, by in found.items() if not by} == {"nothing", "releases, nothing"}
    assert not found["thresholds off by 2^-20"] & STATISTICS  # as it says
    assert "every fault is found" in report.verdict


def test_without_pruning_at_another_epsilon() -> None:
    report = self_test(ReleaseSettings(epsilon=12.0, weights=(1, 1, 1), prune=None), pixels=1 << 16)
    assert report.holds, str(report)


@pytest.mark.parametrize("index", [0, 1])
def test_a_fault_that_is_not_found_and_a_control_that_is_rejected_fail(
    monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    control, fault = BUILD_FAULTS[:2]
    planted = [dataclasses.replace(control, by=fault.by), dataclasses.replace(fault, by=frozenset())][index]
    monkeypatch.setattr(selftest, "BUILD_FAULTS", (planted,))
    monkeypatch.setattr(selftest, "FOLDER_FAULTS", ())
    report = self_test(ReleaseSettings(), pixels=1 << 16)
    assert not report.holds
    assert report.checks[0].complaints == (["should be rejected by flip rates", "should be accepted"][index],)
    assert "A FAULT IS NOT FOUND" in report.verdict
