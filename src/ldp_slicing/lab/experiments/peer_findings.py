"""What the rows of ``peers`` say in sentences, and the published numbers that belong beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import percent

NEARLY = 0.9  # of the share without protection
OURS = "ldp-slicing"
SURE = 2.0  # standard errors
PEOPLE = 736  # in the gallery


PUBLISHED = {  # accuracy on LFW in %, of a system or of one setting; docs/peers.md says where the numbers come from
    "none": 99.77,
    "ldp-slicing:eps20": 99.75,
    "duetface": 99.82,
    "partialface": 99.80,
    "dctdp": 99.48,  # at mean eps 0.5
    "minusface": 99.78,
    "instahide:k2": 96.53,
    "peep": 98.41,
    "pro-face": 98.27,
    "cloak:100": 98.91,
    "ppfr-fd-like": 99.69,
    "advface-like": 98.45,
}


def published(name: str) -> float | None:
    """The accuracy that was published for a peer of this name."""
    return PUBLISHED.get(name, PUBLISHED.get(name.partition(":")[0]))


def findings(rows: Sequence[Row]) -> list[str]:
    """Sentences that follow from the finished rows. Without a row for no protection, nothing can be compared."""
    every = {str(row.options["peer"]): row for row in select(rows, method="peer")}
    trained = {name: row for name, row in every.items() if "linkage" in row.metrics}
    if "none" not in trained:
        return []
    clear, guess = linked(trained["none"]), [row.metrics["reconstruction"]["ssim"] for row in _mean_images(rows)]
    others = {name: row for name, row in trained.items() if name not in ("none", "random")}
    found = [
        f"Without protection {percent(clear, 1)} % of people are linked, and two images are compared with an accuracy "
        f"of {percent(accuracy(trained['none']), 1)} %. Linked means by the attack that links most people, and "
        "accuracy is that of the recogniser that does best."
    ]
    found += _sentence(
        f"People are linked at least {NEARLY:g} times as often as without protection in releases of",
        [name for name in others if linked(others[name]) >= NEARLY * clear],
        lambda name: f"{percent(linked(others[name]), 1)} %",
    )
    if guess:
        inverted = {name: row.metrics["decoded"]["ssim"] for name, row in every.items() if row.metrics.get("decoded")}
        found += _sentence(
            f"Without any training, the inverse is nearer to the source than the mean image (SSIM {guess[0]:.3f}) for",
            [name for name in inverted if name != "none" and inverted[name] > guess[0]],
            lambda name: f"{inverted[name]:.3f}",
        )
    for name, row in others.items():
        if name.startswith(OURS):
            found += _compared(name, row, {key: one for key, one in others.items() if not key.startswith(OURS)})
    return found


def verified(row: Row) -> Mapping[str, float]:
    """How well two releases are compared, by whichever recogniser is most accurate: its accuracy and standard error.

    A student of releases that were made once or redrawn, the system's own recogniser, or dlib's on releases or on
    images that were decoded or reconstructed from them.
    """
    ways = [row.metrics.get("utility"), row.metrics.get("utility_redrawn"), *row.metrics.get("dlib", {}).values()]
    best: Mapping[str, float] = max((one for one in ways if one), key=lambda one: float(one["accuracy"]))
    return best


def accuracy(row: Row) -> float:
    """The accuracy of the recogniser that does best."""
    return float(verified(row)["accuracy"])


def linked(row: Row) -> float:
    """The share of people that are linked to an unprotected image, by whichever attack links most of them.

    A student that reads releases, or dlib's recogniser on releases or on images that were reconstructed from them.
    """
    parts = (row.metrics.get(part) for part in ("linkage", "release", "decoded", "reconstruction"))
    return max(float(part["rank_1"]["share"]) for part in parts if part)


def _mean_images(rows: Sequence[Row]) -> list[Row]:
    return select(rows, method="mean-image")


def _compared(name: str, row: Row, others: Mapping[str, Row]) -> list[str]:
    """Which systems are better on one axis and not worse on the other, and on which this setting is.

    Differences count from two standard errors on. A system whose releases cannot be told apart is left out.
    """
    useful = {key: one for key, one in others.items() if accuracy(one) > 0.5 + SURE * verified(one)["standard_error"]}

    def numbers(other: str) -> str:
        return f"{percent(accuracy(others[other]), 1)} % and {percent(linked(others[other]), 1)} %"

    own = f"{name} (accuracy {percent(accuracy(row), 1)} %, linked {percent(linked(row), 1)} %)"
    better = _sentence(
        f"Better than {own} in accuracy or linkage, and not worse in the other:",
        [other for other in useful if _beats(useful[other], row)],
        numbers,
    )
    worse = _sentence(
        f"Worse than {own} in accuracy or linkage, and not better in the other:",
        [other for other in useful if _beats(row, useful[other])],
        numbers,
    )
    return better + worse


def _beats(one: Row, other: Row) -> bool:
    """Whether one is better by SURE standard errors in accuracy or in linkage, and in neither worse by as much."""
    gains = []
    for values, errors in (
        ((accuracy(one), accuracy(other)), [verified(row)["standard_error"] for row in (one, other)]),
        ((linked(other), linked(one)), [math.sqrt(linked(row) * (1 - linked(row)) / PEOPLE) for row in (one, other)]),
    ):
        gains.append((values[0] - values[1]) / max(math.hypot(*errors), 1e-9))
    return max(gains) > SURE and min(gains) > -SURE


def _sentence(start: str, names: Sequence[str], number: Callable[[str], str]) -> list[str]:
    return [f"{start} {', '.join(f'{name} ({number(name)})' for name in names)}."] if names else []
