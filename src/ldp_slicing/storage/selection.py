"""Which files of a source are meant: glob patterns on names, as rclone's filters have them.

| pattern          | matches                                                          |
|------------------|------------------------------------------------------------------|
| ``*.jpg``        | files whose names end so, in any folder                          |
| ``cats/*.jpg``   | such files in any folder called ``cats``                         |
| ``/cats/*.jpg``  | such files in the folder ``cats`` of the source itself           |
| ``cats/``        | everything below any folder called ``cats``                      |
| ``**``           | any characters; ``*`` and ``?`` do not match a slash             |
| ``[a-z]``        | one character of a set; ``[^a-z]`` one that is not in it         |
| ``*.{jpg,png}``  | alternatives                                                     |

Upper and lower case differ. A backslash takes the meaning from the character after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ldp_slicing.errors import Reason, ReleaseError

_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<deep>\*\*)|(?P<set>\[\^?\]?[^\]]*\])|(?P<other>.)", re.DOTALL)
_SPECIAL = re.compile(r"[\\\[\]&~|]")  # in a set of a regular expression
_MEANING = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


@dataclass(frozen=True)
class Selection:
    """Files that match a pattern of ``include``, or all if there is none, except those that match ``exclude``."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            compiled(pattern)

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def has(self, path: str) -> bool:
        """Return whether the file at ``path`` below the source is selected."""
        return (not self.include or _matches(self.include, path)) and not _matches(self.exclude, path)

    def folder_pattern(self, paths: Iterable[str]) -> str | None:
        """Return a pattern that matches none of these files but a folder of them, which it therefore does not mean."""
        unmatched, folders = {one for one in (*self.include, *self.exclude) if not one.endswith("/")}, set[str]()
        for path in paths:
            unmatched = {one for one in unmatched if not compiled(one).fullmatch(path)}
            folders |= {one for one in unmatched if compiled(f"{one}/").fullmatch(path)}
        return min(folders & unmatched, default=None)


def _matches(patterns: Iterable[str], path: str) -> bool:
    return any(compiled(pattern).fullmatch(path) for pattern in patterns)


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for whole paths that a pattern stands for; refuse a pattern that is malformed."""
    anchored, body = pattern.startswith("/"), pattern.removeprefix("/")
    if not body:
        raise ReleaseError(
            f"{pattern!r} is not a pattern: name files, such as *.jpg, or a folder, such as cats/", Reason.PATTERN
        )
    text, depth = "", 0
    for token in _TOKEN.finditer(body + ("**" if body.endswith("/") else "")):
        other = token["other"]
        depth += {"{": 1, "}": -1}.get(other, 0)
        if (token["set"] or "").startswith("[!"):  # in shells it means the opposite of what it would mean here
            raise ReleaseError(f"{pattern!r} is not a pattern: write [^ instead of [!", Reason.PATTERN)
        if depth not in (0, 1) or other == "[" or (other == "\\"):
            raise ReleaseError(
                f"{pattern!r} is not a pattern: a bracket is not closed, or a backslash ends it", Reason.PATTERN
            )
        if token["escaped"] is not None:
            text += re.escape(token["escaped"])
        elif token["deep"]:
            text += ".*"
        elif token["set"]:
            text += "(?!/)[" + _SPECIAL.sub(r"\\\g<0>", token["set"][1:-1]) + "]"
        else:
            text += "|" if depth and other == "," else _MEANING.get(other, re.escape(other))
    try:
        found = re.compile(text if anchored else f"(?:.*/)?{text}", re.DOTALL)
    except re.error:
        found = None
    if found is None or depth:
        raise ReleaseError(
            f"{pattern!r} is not a pattern: a bracket is not closed, or a range is reversed", Reason.PATTERN
        )
    return found


EVERYTHING = Selection()
