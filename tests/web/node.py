"""Ask the page's module, running in Node, for its answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ldp_slicing import Plan

WEB = Path(__file__).parents[2] / "web"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed, so the page's module cannot run")


def ask(*questions: dict[str, Any]) -> list[Any]:
    """Return one answer per question: see web/test/answer.mjs."""
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(WEB / "test" / "answer.mjs")], input=json.dumps(questions), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    for question, answer in zip(questions, answers, strict=True):
        assert not isinstance(answer, dict) or "error" not in answer, (question, answer)
    return answers


def spec(plan: Plan) -> dict[str, Any]:
    """Return a plan as a question holds it."""
    parts = [[part.bits, part.epsilon] for part in plan.slices]
    return {"parts": parts, "word_bits": plan.word_bits, "requested": plan.requested}
