"""Turn our docstrings into Markdown for the API reference: examples into code blocks, parameters into lists."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!$).*)*", re.MULTILINE)  # up to the next empty line
PARAMETER = re.compile(r"^([\w, ]+)\n((?:    .+\n?)+)", re.MULTILINE)  # a name, and its indented description


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401
        if obj.docstring is None:
            return
        text = re.sub(r" *# doctest: \+SKIP", "", obj.docstring.value)
        text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
        obj.docstring.value = PARAMETER.sub(_definition, text)


def _definition(found: re.Match[str]) -> str:
    return f"`{found[1]}`\n:   {found[2].strip()}\n\n"
