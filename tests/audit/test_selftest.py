from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ldp_slicing.audit import selftest
from ldp_slicing.audit.faults import FOLDER_FAULTS, INSTALLATION_FAULTS, make_releases
from ldp_slicing.audit.selftest import self_test
from ldp_slicing.plan import Plan
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify

STATISTICS = {
    "flip rates",
    "bits of one pixel",
    "neighbouring pixels",
    "two releases",
    "repeated masks",
    "epsilon of each slice",
}


def test_every_known_fault_is_rejected_and_the_controls_are_not() -> None:
    report = self_test(Plan.paper(20.0), "haar")
    assert report.passed, str(report)
    found = {check.name: set(check.details["rejected_by"]) for check in report.checks}
    assert len(found) == len(INSTALLATION_FAULTS) + len(FOLDER_FAULTS)
    assert found["nothing"] == found["releases, nothing"] == set()
    assert {name for name, by in found.items() if not by} == {"nothing", "releases, nothing"}
    assert not found["thresholds off by 2^-20"] & STATISTICS  # too small for them, as its description says
    assert "every fault is found" in report.verdict


def test_without_pruning_at_another_epsilon() -> None:
    report = self_test(Plan.paper(12.0, (1, 1, 1)), None, pixels=1 << 16)
    assert report.passed, str(report)


def test_the_folder_in_which_faults_are_planted_is_a_complete_set_of_releases(tmp_path: Path) -> None:
    make_releases(tmp_path, Plan.paper(20.0), "haar")
    report = verify(LocalStorage(tmp_path))
    assert (report.problems, report.releases) == ([], 6)


@pytest.mark.parametrize("index", [0, 1])
def test_a_fault_that_is_not_found_and_a_control_that_is_rejected_fail(
    monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    control, fault = INSTALLATION_FAULTS[:2]
    planted = [
        dataclasses.replace(control, rejected_by=fault.rejected_by),
        dataclasses.replace(fault, rejected_by=frozenset()),
    ][index]
    monkeypatch.setattr(selftest, "INSTALLATION_FAULTS", (planted,))
    monkeypatch.setattr(selftest, "FOLDER_FAULTS", ())
    report = self_test(Plan.paper(20.0), "haar", pixels=1 << 16)
    assert not report.passed
    assert report.checks[0].failures == (["should be rejected by flip rates", "should be accepted"][index],)
    assert "A FAULT IS NOT FOUND" in report.verdict
