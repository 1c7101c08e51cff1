"""Several releases of one source: the majority of each bit. It is the reason for releasing a source only once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import BATCH, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb, mean_words, to_bits, undo_gain
from ldp_slicing.lab.mechanism import SlicingMechanism
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
    """uint8 [N, C, H, W] to (t, float32 [N, C, H, W] of 0..255) for each t of the ascending ``counts``.

    >>> [t for t, _ in average(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0), (1, 16))]
    [1, 16]

    The second item is the majority of t releases. All releases of a source have the same flip probabilities, so every
    vote has the same weight; the first release decides a tie. With a pruned view the majority tends to the view: no
    release contains the low band.
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


def attack_by_averaging(target: AttackTarget, mechanism: SlicingMechanism) -> Outcome:
    """What t releases of each source reveal, for each t of ``COUNTS``."""
    generator, found = torch.Generator(target.sources.device).manual_seed(0), list[Measurement]()
    release: object = None
    for count, images in _reconstructions(target.sources, mechanism, generator).items():
        reached = target.score(images)
        release = release or reached  # the majority vote over one release is that release
        found.append(Measurement({"release": release, "reconstruction": reached}, mechanism.plan, count))
    examples = _reconstructions(example_sources(target), mechanism, generator)
    return Outcome(tuple(found), {count: (examples[COUNTS[0]], images) for count, images in examples.items()})


def _reconstructions(sources: Tensor, mechanism: SlicingMechanism, generator: torch.Generator) -> dict[int, Tensor]:
    """For each number of releases, float32 [N, C, H, W]."""
    parts = defaultdict[int, list[Tensor]](list)
    for some in torch.split(sources, BATCH):
        for count, images in average(some, mechanism.plan, COUNTS, generator, prune=mechanism.prune):
            parts[count].append(images)
    return {count: torch.cat(images) for count, images in parts.items()}
