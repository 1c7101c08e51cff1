from __future__ import annotations

import io
import json

import numpy as np
import pytest

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.audit import backends
from ldp_slicing.audit.backends import audit_sources, release_in_new_process, serve_request, this_installation
from ldp_slicing.audit.faults import default_backend
from ldp_slicing.audit.installation import VERDICTS, audit_backends, audit_installation
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.errors import AuditError
from ldp_slicing.kernel import VARIANTS
from tests.cases import PLANS


def test_this_installation_keeps_its_promise_on_every_backend() -> None:
    steps: list[str] = []
    report = audit_installation(this_installation(Plan.paper(20.0), "haar"), pixels=1 << 16, progress=steps.append)
    assert report.passed, str(report)
    names = {check.backend for check in report.checks if check.backend}
    assert names == {"reference", *(f"kernel ({variant})" for variant in VARIANTS)}
    assert steps == ["tables", *(name for name in steps if name in names), "new processes"]
    assert 0 < report.error_rate <= ERROR_RATE * (1 + 1e-9)
    content = json.loads(report.to_json())
    assert (content["audit"], content["verdict"]) == (2, report.outcome)
    assert {check["backend"] for check in content["checks"]} == {None, *names}
    assert len(content["checks"]) == len(report.checks) == 7 + 7 * len(names)
    assert "the mathematical bound holds" in report.verdict
    flips = next(check for check in report.checks if check.name == "flip rates")
    assert flips.limit == pytest.approx(flips.error_rate / 24)


def test_each_backend_is_the_one_that_its_name_says() -> None:
    installation = this_installation(Plan.paper(20.0), "haar")
    made = {name: make() for name, make in installation.backends.items()}
    assert all(isinstance(slicer, Slicer) and slicer.backend.name.startswith(name) for name, slicer in made.items())
    assert len(made) == 1 + len(VARIANTS)


@pytest.mark.parametrize("name", ["grey 12", "wide and narrow", "paper, chroma dropped", "paper 200 (eight groups)"])
def test_other_plans(name: str) -> None:
    checks = audit_backends(default_backend(PLANS[name], None), 1 << 15, ERROR_RATE)
    assert [check.name for check in checks if not check.passed] == []


def test_the_report_says_what_was_not_tested() -> None:
    checks = {
        check.name: check for check in audit_backends(default_backend(Plan.paper(5000.0), None), 1 << 13, ERROR_RATE)
    }
    assert "NOT TESTED" in checks["repeated masks"].tested
    assert checks["repeated masks"].error_rate == 0


def test_too_few_pixels_are_refused() -> None:
    with pytest.raises(AuditError, match="4096 pixels are needed for each backend; got 7"):
        audit_installation(this_installation(Plan.paper(20.0), None), pixels=7)


def test_a_new_process_makes_releases_of_the_same_kind() -> None:
    plan, source = Plan.grey(20.0, 12), np.full((9, 11), 3000, np.uint16)
    one, two = (release_in_new_process(plan, "haar", source) for _ in range(2))
    assert one.shape == source.shape
    assert one.dtype == source.dtype
    assert not np.array_equal(one, two)


def test_the_request_to_a_new_process() -> None:
    image = io.BytesIO()
    np.save(image, np.zeros((2, 3, 3), np.uint8))
    request = json.dumps({"plan": Plan([Slice(0x800000, 100.0)]).to_dict(), "prune": None})
    release = np.load(io.BytesIO(serve_request(request, image.getvalue())))
    assert (release == [0x40, 0x80, 0x80]).all()  # a black source; all bits but the highest of Y are dropped


def test_the_failure_of_a_new_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "PROGRAM", "raise SystemExit('no such thing')")
    with pytest.raises(AuditError, match="no such thing"):
        release_in_new_process(Plan.paper(20.0), None, np.zeros((2, 2, 3), np.uint8))


@pytest.mark.parametrize("name", ["paper 20", "grey 12", "grey, 1 bit"])
def test_audit_sources_have_every_value_and_one_occurs_twice(name: str) -> None:
    plan = PLANS[name]
    images = audit_sources(plan, 1 << 14)
    highest = 255 if plan.is_colour else (1 << plan.word_bits) - 1
    assert images[0] is images[1]
    assert set(np.unique(images[0])) <= set(range(highest + 1))
    assert len(np.unique(images[0])) > 0.6 * (highest + 1)
    assert abs(sum(image[..., 0].size if plan.is_colour else image.size for image in images) - (1 << 14)) < 600


def check(name: str, holds: bool = True, value: float | None = None, backend: str = "", relation: str = "<=") -> Check:
    return Check(
        "section",
        name,
        "tested",
        holds,
        "number",
        value,
        relation,
        1.0,
        1e-9,
        backend,
        () if holds else tuple("abcdefg"),
    )


def test_the_text_has_one_line_for_a_check_that_holds_everywhere_and_every_failure() -> None:
    rows = [check("a", True, 0.25, "one"), check("a", True, 0.75, "two"), check("a", False, 3.0, "three"), check("b")]
    report = Report("something\nodd", tuple(rows), ("not this",), 2.0, VERDICTS)
    lines = str(report).splitlines()
    assert lines[0] == "audit of something\\nodd"
    assert [line.split()[:2] for line in lines if line.startswith(("  passes", "  FAILS"))] == [
        ["passes", "a"],
        ["FAILS", "a"],
        ["passes", "b"],
    ]
    assert "number 0.75 <= 1   worst of 3 backends: tested" in lines[3]
    assert "number 3 not <= 1  three: tested" in lines[4]
    assert lines[5:11] == [f"          {letter}" for letter in "abcde"] + ["          and 2 more"]
    assert lines[-2:] == ["not detected by this audit", "  not this"]
    assert report.verdict.startswith("THE MATHEMATICAL BOUND DOES NOT HOLD: 1 of 4")
    smaller_is_nearer = Report(
        "x", (check("p", True, 0.5, "one", ">="), check("p", True, 0.1, "two", ">=")), (), 0.0, VERDICTS
    )
    assert "number 0.1 >= 1" in str(smaller_is_nearer)
