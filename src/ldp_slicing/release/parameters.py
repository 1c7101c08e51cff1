"""Is it the same run? A run is resumed with the parameters, the ledger and the sources that it was begun with.

Sources may lie elsewhere by then, on a disk that is mounted under another name: they are the same if every source that
was released is there under its name, with the content that was released.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ldp_slicing.errors import ImageError, Reason, ReleaseError
from ldp_slicing.files import digest_of
from ldp_slicing.ledger import Ledger
from ldp_slicing.release.state import RunState
from ldp_slicing.release.target import ReleasePaths
from ldp_slicing.storage import LocalStorage
from ldp_slicing.wording import number

LONG = re.compile(r"[0-9]+\.[0-9]{7,}")  # the eps of a slice, as it is compared


def check_parameters(paths: ReleasePaths, state: RunState, ledger: Ledger, parameters: dict[str, Any]) -> None:
    """Record the parameters of a new run; refuse other parameters for one that is resumed."""
    before = state.get("parameters")
    if before is None:  # new, or killed before it had begun
        if isinstance(paths.target, LocalStorage) and not paths.target.root.exists():
            paths.target.root.mkdir(parents=True)
            state.set_durably("created target", True)
        state.set_durably("ledger path", str(ledger.path.resolve()))
        state.set_durably("parameters", {**parameters, "ledger": ledger.identity})
        return
    if before["ledger"] not in ledger.keys:
        raise wrong_ledger(state, f"not with {ledger.path}")
    differences = {name: before.get(name) for name, value in parameters.items() if before.get(name) != value}
    if differences.keys() == {"sources"}:
        _check_moved(paths, state, ledger, before["sources"])
    elif differences:
        values = "; ".join(
            f"{name}: {_shown(value)} then, {_shown(parameters[name])} now" for name, value in differences.items()
        )
        raise ReleaseError(
            f"the run of {paths.location} was begun with other parameters ({values}): use the same ones, or choose "
            "another target. With another target, sources that were released by this run need --spend",
            Reason.PARAMETERS,
        )
    if (now := {**parameters, "ledger": ledger.identity}) != before:  # the sources have moved, or ledgers were merged
        state.set_durably("ledger path", str(ledger.path.resolve()))
        state.set_durably("parameters", now)


def wrong_ledger(state: RunState, but: str) -> ReleaseError:
    begun = state.get("ledger path")
    return ReleaseError(
        f"this release was begun with the ledger {begun}, {but}: name that one with --ledger. If it is lost, "
        "`ldp-slicing ledger rebuild` makes it again",
        Reason.LEDGER,
    )


def _check_moved(paths: ReleasePaths, state: RunState, ledger: Ledger, before: Sequence[str]) -> None:
    """Refuse sources in another place unless they are those that were released."""
    then, now = _shown(before), _shown(paths.source_names)
    for path, digest in state.released_sources():
        problem = None
        try:
            if digest is None:
                problem = "cannot be compared with what was released"
            elif digest not in ledger.keyed_each("file", digest_of(paths.source.open(path))):
                problem = "differs from what was released"
        except (ImageError, OSError):
            problem = "is missing, or cannot be read"
        if problem:
            raise ReleaseError(
                f"this release was begun with the sources in {then}, and {now} does not hold the same: {path} "
                f"{problem}. Use the former place, or another target. With another target, sources that were "
                "released by this run need --spend",
                Reason.PARAMETERS,
            )


def _shown(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, list | tuple):
        return LONG.sub(lambda found: number(float(found[0])), str(value))
    if all(isinstance(part, str) for part in value):
        return " and ".join(value) or "none"
    return ":".join(f"{part:g}" for part in value)
