"""What the rows of ``peers`` say in sentences, and the published numbers that belong beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import percent

NEARLY = 0.9  # of the share without protection
OURS = "ldp-slicing"
SURE = 2.0  # standard errors


PUBLISHED = {  # accuracy on LFW in %, of a system or of one setting; docs/peers-details.md has the sources
    "none": 99.77,
    "ldp-slicing:eps20": 99.75,
    "duetface": 99.82,
    "partialface": 99.80,
    "dctdp:code-learned-eps0.5": 99.48,  # budgets were learned; which noise was measured is not known
    "dctdp:range-learned-eps0.5": 99.48,
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
    found, every = standings(rows), select(rows, method="peer")
    if "none" not in found:
        return []
    clear, guess = found["none"], [row.metrics["reconstruction"]["ssim"] for row in _mean_images(rows)]
    others = {name: one for name, one in found.items() if name not in ("none", "random")}
    sentences = [
        f"Without protection {percent(clear.linked, 1)} % of people are linked, and two images are compared with an "
        f"accuracy of {percent(clear.accuracy, 1)} %. Linked means linked by the strongest attack, and accuracy is "
        "that of the best recogniser."
    ]
    if not _are_reconstructions_compared(rows):
        sentences.append(
            "Two reconstructions by the U-Net were not compared for all systems, so this is not counted as a "
            "recogniser. Systems whose releases are best reconstructed first look less accurate than they are."
        )
    sentences += _sentence(
        f"People are linked at least {NEARLY:g} times as often as without protection, or less often by no more than "
        "two standard errors, in releases of",
        [name for name, one in others.items() if one.linked + SURE * one.linked_error >= NEARLY * clear.linked],
        lambda name: f"{percent(others[name].linked, 1)} %",
    )
    if guess:
        inverted = {str(row.options["peer"]): row.metrics["decoded"]["ssim"] for row in every if row.metrics["decoded"]}
        sentences += _sentence(
            f"Without any training, the inverse is nearer to the source than the mean image (SSIM {guess[0]:.3f}) for",
            [name for name in inverted if name != "none" and inverted[name] > guess[0]],
            lambda name: f"{inverted[name]:.3f}",
        )
    for name, one in others.items():
        if name.startswith(OURS):
            rest = {key: other for key, other in others.items() if not key.startswith(OURS)}
            sentences += _compared(name, one, rest)
    return sentences


@dataclass(frozen=True)
class Standing:
    """Where a system is in the figure: shares, and their standard errors.

    accuracy: of comparing two releases, by whichever recogniser is most accurate: a student of releases that were made
    once or redrawn, the system's own recogniser, or dlib's on releases or on images that were decoded or reconstructed
    from them. Its error is at least that of as many independent pairs: five folds may agree by chance. linked: people
    that are linked to an unprotected image, by whichever attack links most of them.
    """

    accuracy: float
    accuracy_error: float
    linked: float
    linked_error: float

    def beats(self, other: Standing) -> bool:
        """Whether it is better by SURE standard errors in accuracy or in linkage, and in neither worse by as much."""
        gains = (
            (self.accuracy - other.accuracy, SURE * math.hypot(self.accuracy_error, other.accuracy_error)),
            (other.linked - self.linked, SURE * math.hypot(self.linked_error, other.linked_error)),
        )
        return any(gain > enough for gain, enough in gains) and not any(gain < -enough for gain, enough in gains)

    def __str__(self) -> str:
        return f"accuracy {percent(self.accuracy, 1)} %, linked {percent(self.linked, 1)} %"


def standings(rows: Sequence[Row]) -> dict[str, Standing]:
    """By the name of the peer. Reconstructions are compared only if this was measured for all systems."""
    fully = _are_reconstructions_compared(rows)
    return {str(row.options["peer"]): _standing(row, reconstructed=fully) for row in _trained(rows)}


def _trained(rows: Sequence[Row]) -> list[Row]:
    return [row for row in select(rows, method="peer") if "linkage" in row.metrics]


def _are_reconstructions_compared(rows: Sequence[Row]) -> bool:
    return all("reconstructed" in row.metrics.get("dlib", {}) for row in _trained(rows))


def _standing(row: Row, *, reconstructed: bool) -> Standing:
    dlib = [one for name, one in row.metrics.get("dlib", {}).items() if reconstructed or name != "reconstructed"]
    ways = [row.metrics["utility"], row.metrics.get("utility_redrawn"), *dlib]
    best = max((one for one in ways if one), key=lambda one: float(one["accuracy"]))
    attacks = [row.metrics.get(part) for part in ("linkage", "release", "decoded", "reconstruction")]
    rank_1 = max((one["rank_1"] for one in attacks if one), key=lambda one: float(one["share"]))
    accuracy, linked = float(best["accuracy"]), float(rank_1["share"])
    accuracy_error = max(float(best["standard_error"]), _binomial_error(accuracy, best["pairs"]))
    return Standing(accuracy, accuracy_error, linked, _binomial_error(linked, rank_1["count"]))


def _binomial_error(share: float, count: int) -> float:
    likely = (share * count + 1) / (count + 2)  # so that 0 and 1 have an error, too
    return math.sqrt(likely * (1 - likely) / count)


def _mean_images(rows: Sequence[Row]) -> list[Row]:
    return select(rows, method="mean-image")


def _compared(name: str, own: Standing, others: Mapping[str, Standing]) -> list[str]:
    """Which systems this setting is better than, and which are better. Systems that may be guessing are left out."""
    useful = {key: one for key, one in others.items() if one.accuracy > 0.5 + SURE * one.accuracy_error}
    return [
        sentence
        for how, names in (
            ("Better", [other for other, one in useful.items() if one.beats(own)]),
            ("Worse", [other for other, one in useful.items() if own.beats(one)]),
        )
        for sentence in _sentence(
            f"{how} than {name} ({own}) in accuracy or linkage, by two standard errors or more, and not measurably "
            f"{'worse' if how == 'Better' else 'better'} in the other:",
            names,
            lambda other: str(useful[other]),
        )
    ]


def _sentence(start: str, names: Sequence[str], number: Callable[[str], str]) -> list[str]:
    return [f"{start} {', '.join(f'{name} ({number(name)})' for name in names)}."] if names else []
