"""How the time is spent: costs of measurements, rounds of successive halving, and what can be afforded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ldp_slicing.lab.advise.grid import Setting, ViewKey, size_name

KEPT = 3  # one of so many settings survives a round
ROUNDS = 3  # at most
CONFIRMED = 3  # settings that are confirmed, at most
SEEDS = (1, 2)  # of the confirmation; the rounds use 0
CONFIRMATION = 0.5  # the share of the time that is kept for it
AFTER_ONE_ROUND = 0.6  # the same if there is one round: settings with two seeds take longer than a few with one
JUDGE = 0.06  # the share of the time in which the judge of linkage is trained, for each seed
FEWEST, MOST = 120, 8000  # steps of training
LONGER = 2  # times as long as in any round is training in the confirmation, so that it shows what more brings
RESERVE = 0.88  # the share of the time that is planned; reading, checking and writing take the rest
ENOUGH = 6  # settings for the first round; larger images than these are measured only if so many can be afforded


@dataclass
class Costs:
    """Seconds of measurements by kind, such as "learn 32x32": what comes before and after training, and one step."""

    known: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, kind: str, seconds: float, training: float, steps: int) -> None:
        """Record what a measurement took. The latest one is the best guess for the next."""
        self.known[kind] = max(0.0, seconds - training), training / max(1, steps)

    def seconds(self, kinds: Sequence[str], steps: int) -> float:
        """What these measurements take with so many steps each."""
        return sum(fixed + steps * each for fixed, each in (self.known[kind] for kind in kinds))

    def scaled(self, *, attack: float = 1.0, score: float = 1.0, learn: float = 1.0) -> Costs:
        """The costs for other sizes, by what grows: steps of attacks and learners, and the scoring of attacks.

        What comes before the training of a learner does not grow: most of it is fitting a decoder to counts.
        """
        before = {"score": score}
        step = {"attack": attack, "learn": learn}
        return Costs(
            {
                kind: (before.get(kind.split()[0], 1.0) * fixed, step.get(kind.split()[0], 1.0) * each)
                for kind, (fixed, each) in self.known.items()
            }
        )

    def of_size(self, before: tuple[int, int], size: tuple[int, int]) -> dict[str, tuple[float, float]]:
        """The costs of one size of releases, from those of another one.

        Steps of learners grow with the pixels. Attacks work at the size of the sources, whatever that of releases is.
        """
        old, new = size_name(before), size_name(size)
        grown = self.scaled(learn=size[0] * size[1] / (before[0] * before[1]))
        return {kind.replace(old, new): one for kind, one in grown.known.items() if old in kind.split()}

    def steps(self, kinds: Sequence[str], seconds: float, most: int | None = None) -> int:
        """The steps that each of these measurements can have within ``seconds``; a quarter of FEWEST, at least."""
        if not kinds:
            return 0
        each = sum(self.known[kind][1] for kind in kinds)
        limit = MOST if most is None else most
        return max(FEWEST // 4, min(limit, math.floor((seconds - self.seconds(kinds, 0)) / max(each, 1e-9))))


def rounds_of(settings: int) -> list[int]:
    """How many settings each round measures, such as [30, 10, 4]."""
    counts = [settings]
    while len(counts) < ROUNDS and counts[-1] > 2 * CONFIRMED:
        counts.append(max(CONFIRMED, -(-counts[-1] // KEPT)))
    return counts


@dataclass(frozen=True)
class Shares:
    """Shares of the time: of one round, of the confirmation, of the judge for one seed."""

    round: float
    confirmation: float
    judge: float

    @classmethod
    def of(cls, rounds: int, *, judge: bool) -> Shares:
        each = JUDGE if judge else 0.0
        confirmation = CONFIRMATION if rounds > 1 else AFTER_ONE_ROUND
        return cls((1 - confirmation - each * (1 + len(SEEDS))) / rounds, confirmation, each)


def learner_kind(setting: Setting) -> str:
    return f"learn {size_name(setting.size)} {setting.family}"


def attack_kind(view: ViewKey) -> str:
    return f"attack {size_name(view[0])}"


def scoring_kind(setting: Setting) -> str:
    return f"score {size_name(setting.size)}"


def kinds_of(settings: Sequence[Setting], *, learns: bool) -> tuple[list[str], list[str]]:
    """The kinds of the measurements that settings need: of learners; and of attacks, which serve a view, and scores."""
    learners = [learner_kind(one) for one in settings] if learns else []
    attacks = [attack_kind(view) for view in dict.fromkeys(one.view for one in settings)]
    return learners, attacks + [scoring_kind(one) for one in settings]


def seconds_needed(costs: Costs, settings: Sequence[Setting], *, learns: bool, judge: bool) -> float:
    """The time in which all these settings can have the fewest steps in the first round.

    One of them can then be confirmed with LONGER times as many, beside unprotected images.
    """
    shares = Shares.of(len(rounds_of(len(settings))), judge=judge)
    first = sum(costs.seconds(kinds, FEWEST) for kinds in kinds_of(settings, learns=learns))
    learners, attacks = kinds_of(settings[:1], learns=learns)
    last = len(SEEDS) * costs.seconds([*learners, *learners, *attacks, *attacks], LONGER * FEWEST)
    return max(first / shares.round, last / shares.confirmation)


def most_settings(costs: Costs, settings: Sequence[Setting], seconds: float, *, learns: bool, judge: bool) -> int:
    """How many of the settings, taken from the beginning, can be measured within ``seconds``; 0 if fewer than 2."""
    for count in range(len(settings), 0, -1):
        if seconds_needed(costs, settings[:count], learns=learns, judge=judge) <= seconds:
            return count if count > 1 else 0
    return 0


def stage_steps(
    costs: Costs,
    settings: Sequence[Setting],
    seconds: float,
    *,
    learns: bool,
    seeds: int = 1,
    control: ViewKey | None = None,
    unprotected: bool = False,
    most: int | None = None,
) -> tuple[int, int]:
    """Steps of every learner and of every attack of a stage.

    Learners get half of the time and attacks the rest, unless one of them needs more for the fewest steps.
    control: the view of unprotected images, if they are attacked too. unprotected: whether a learner learns from them.
    most: steps of attacks, at most.
    """
    learners, attacks = kinds_of(settings, learns=learns)
    if unprotected and learners:  # they have the full size, which the settings of this stage may not have
        full = [kind for kind in costs.known if kind.startswith("learn ")]
        learners.append(max(full, key=lambda kind: costs.known[kind][1]))
    if control is not None and attack_kind(control) not in attacks:
        attacks.append(attack_kind(control))
    learners, attacks = ([kind for kind in kinds if kind in costs.known] * seeds for kinds in (learners, attacks))
    least, least_of_attacks = (costs.seconds(kinds, FEWEST) for kinds in (learners, attacks))
    half = seconds / 2
    share = min(max(half, least), seconds - least_of_attacks) if least + least_of_attacks <= seconds else half
    learning = costs.steps(learners, share)
    return learning, costs.steps(attacks, max(seconds - share, seconds - costs.seconds(learners, learning)), most)
