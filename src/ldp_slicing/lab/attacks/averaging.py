"""Several releases of one source: the majority of each bit. It is the reason for releasing a source once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import BATCH, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb, mean_words, to_bits, undo_gain
from ldp_slicing.lab.rows import Measurement
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.view import Prune, gain_of

COUNTS = (1, 4, 16, 64)  # releases of each source


def average(
    sources: Tensor,
    plan: Plan,
    counts: Sequence[int],
    generator: torch.Generator | None = None,
    *,
    prune: Prune = "haar",
) -> Iterator[tuple[int, Tensor]]:
    """uint8 [N, C, H, W] to (t, float32 [N, C, H, W] of 0..255) for each t of ``counts``, which rise: what t releases of each give away.

    >>> [t for t, _ in average(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0), (1, 16))]
    [1, 16]

    All releases of a source have the same flip probabilities, so that every vote weighs the same. A draw is settled by the first release.
    With a pruned view this tends to the view: the low band is in no release.
    """
    votes = torch.zeros(1, device=sources.device, dtype=torch.int16)
    first, done = votes, 0
    for count in counts:
        while done < count:
            bits = to_bits(simulate(sources, plan, generator, prune=prune, output="ycbcr")).to(torch.int16)
            first = bits if done == 0 else first
            votes = votes + 2 * bits - 1
            done += 1
        majority = torch.where(votes == 0, first, (votes > 0).to(torch.int16))
        yield count, float_rgb(undo_gain(mean_words(majority), gain_of(prune))).clamp_(0, 255)


def attack_by_averaging(target: AttackTarget, plan: Plan, prune: Prune) -> Outcome:
    """What t releases of each source reveal, for each t of ``COUNTS``."""
    generator, found = torch.Generator(target.sources.device).manual_seed(0), list[Measurement]()
    release: object = None
    for count, images in _reconstructions(target.sources, plan, prune, generator).items():
        reached = target.score(images)
        release = release or reached  # the majority vote over one release is that release
        found.append(Measurement({"release": release, "reconstruction": reached}, plan, count))
    examples = _reconstructions(example_sources(target), plan, prune, generator)
    return Outcome(tuple(found), {count: (examples[COUNTS[0]], images) for count, images in examples.items()})


def _reconstructions(sources: Tensor, plan: Plan, prune: Prune, generator: torch.Generator) -> dict[int, Tensor]:
    """For each number of releases, float32 [N, C, H, W]."""
    parts = defaultdict[int, list[Tensor]](list)
    for some in torch.split(sources, BATCH):
        for count, images in average(some, plan, COUNTS, generator, prune=prune):
            parts[count].append(images)
    return {count: torch.cat(images) for count, images in parts.items()}
