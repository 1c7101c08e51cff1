"""What the rows of ``peers`` say in sentences, and the published numbers that belong beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import percent

NEARLY = 0.9  # of the share without protection
OURS = "ldp-slicing"


@dataclass(frozen=True)
class Published:
    """Accuracy on LFW in %, and the SSIM of a U-Net in PartialFace's and in MinusFace's paper."""

    accuracy: float
    ssim: tuple[float, ...] = ()


PUBLISHED = {  # by the system, or by its setting where that matters; docs/peers.md says where the numbers come from
    "none": Published(99.77),
    "ldp-slicing:eps20": Published(99.75),
    "duetface": Published(99.82, (0.866, 0.84)),
    "partialface": Published(99.80, (0.591, 0.59)),
    "dctdp": Published(99.48),  # at mean eps 0.5; SSIM was published at 1 alone
    "minusface": Published(99.78, (0.50,)),
    "instahide:k2": Published(96.53),
    "peep": Published(98.41),
    "pro-face": Published(98.27, (0.87,)),
    "cloak": Published(98.91),
    "ppfr-fd-like": Published(99.69, (0.713, 0.70)),
    "advface-like": Published(98.45, (0.85,)),
}


def published(name: str) -> Published | None:
    """What was published about a peer of this name."""
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
        f"Without protection {percent(clear, 1)} % of people are linked, and a student's accuracy is "
        f"{percent(accuracy(trained['none']), 1)} %. Linked means by the attack that links most people."
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
    found += _sentence(
        "A reconstruction has a higher SSIM than the published attacks for",
        [name for name in others if _exceeds(name, others[name])],
        lambda name: f"{_best_ssim(others[name]):.3f}, published {_ssim_text(name)}",
    )
    for name, row in others.items():
        if name.startswith(OURS):
            found += _compared(name, row, {key: one for key, one in others.items() if not key.startswith(OURS)})
    return found


def accuracy(row: Row) -> float:
    """Verification accuracy of the student that was taught with one release per image."""
    return float(row.metrics["utility"]["accuracy"])


def linked(row: Row) -> float:
    """The share of people that are linked to an unprotected image, by whichever attack links most of them.

    A student that reads releases, or dlib's recogniser on releases or on images that were reconstructed from them.
    """
    parts = (row.metrics.get(part) for part in ("linkage", "release", "decoded", "reconstruction"))
    return max(float(part["rank_1"]["share"]) for part in parts if part)


def _mean_images(rows: Sequence[Row]) -> list[Row]:
    return select(rows, method="mean-image")


def _compared(name: str, row: Row, others: Mapping[str, Row]) -> list[str]:
    """Which systems are at least as good on both axes, and on which this setting is."""

    def beats(a: Row, b: Row) -> bool:
        return (
            accuracy(a) >= accuracy(b)
            and linked(a) <= linked(b)
            and (accuracy(a), linked(a)) != (accuracy(b), linked(b))
        )

    def numbers(other: str) -> str:
        return f"{percent(accuracy(others[other]), 1)} % and {percent(linked(others[other]), 1)} %"

    own = f"{name} (accuracy {percent(accuracy(row), 1)} %, linked {percent(linked(row), 1)} %)"
    better = _sentence(
        f"At least as accurate as {own}, and not linked more often:",
        [other for other in others if beats(others[other], row)],
        numbers,
    )
    worse = _sentence(
        f"Not more accurate than {own}, and linked at least as often:",
        [other for other in others if beats(row, others[other])],
        numbers,
    )
    return better + worse


def _best_ssim(row: Row) -> float:
    parts = (row.metrics.get(part) for part in ("decoded", "reconstruction"))
    return max(float(part["ssim"]) for part in parts if part)


def _exceeds(name: str, row: Row) -> bool:
    known = published(name)
    return known is not None and bool(known.ssim) and _best_ssim(row) > max(known.ssim)


def _ssim_text(name: str) -> str:
    known = published(name)
    return " and ".join(f"{value:g}" for value in known.ssim) if known else ""


def _sentence(start: str, names: Sequence[str], number: Callable[[str], str]) -> list[str]:
    return [f"{start} {', '.join(f'{name} ({number(name)})' for name in names)}."] if names else []
