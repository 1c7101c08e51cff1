"""Several releases of one source: the majority or the mean of each bit. It is why a source is released only once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import BATCH, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb, log_odds, mean_words, to_bits, undo_gain
from ldp_slicing.lab.mechanism import SlicingMechanism
from ldp_slicing.lab.rows import Measurement
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.view import Prune, gain_of

COUNTS = (1, 4, 16, 64)  # releases of each source
PIXELS = 1 << 16  # whose 256 values are weighed at once, and to which the prior is fitted
FIT_STEPS = 40


def average(
    sources: Tensor,
    plan: Plan,
    counts: Sequence[int],
    generator: torch.Generator | None = None,
    *,
    prune: Prune = "haar",
    majority: bool = False,
) -> Iterator[tuple[int, Tensor]]:
    """uint8 [N, C, H, W] to (t, float32 [N, C, H, W] of 0..255) for each t of the ascending ``counts``.

    >>> [t for t, _ in average(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), Plan.paper(20.0), (1, 16))]
    [1, 16]

    The second item is the posterior mean of the view, given t releases of each source and the plan's flip
    probabilities. How often each value occurs is estimated from the same releases. Bits are taken to be flipped
    independently, which is exact for slices of one bit. With ``majority`` it is the majority of each bit, and the first
    release decides a tie. With a pruned view both tend to the view: no release contains the low band.
    """
    odds = torch.from_numpy(log_odds(plan)).float().to(sources.device)
    votes = torch.zeros(1, device=sources.device, dtype=torch.int16)
    first, done = votes, 0
    for count in counts:
        while done < count:
            bits = to_bits(simulate(sources, plan, generator, prune=prune, output="ycbcr")).to(torch.int16)
            first = bits if done == 0 else first
            votes = votes + 2 * bits - 1
            done += 1
        if majority:
            words = mean_words(torch.where(votes == 0, first, (votes > 0).to(torch.int16)))
        else:
            words = torch.stack([_posterior_mean(votes[:, 8 * c : 8 * c + 8], one) for c, one in enumerate(odds)], 1)
        yield count, float_rgb(undo_gain(words, gain_of(prune))).clamp_(0, 255)


def _posterior_mean(votes: Tensor, odds: Tensor) -> Tensor:
    """Return float32 [N, H, W], 0 to 255: the posterior mean of one channel.

    votes: [N, 8, H, W], for each bit the releases in which it is 1 minus those in which it is 0. odds: [8], the
    logarithms of P(unchanged) / P(flipped). The prior is fitted by expectation maximisation, from a uniform one.
    """
    values = torch.arange(256, device=votes.device)
    bits = (values >> torch.arange(8, device=votes.device)[:, None] & 1).float()  # [8, 256]
    evidence = votes.movedim(1, 3).flatten(0, 2).float() * odds  # [pixels, 8]
    fitted = (evidence[:: max(1, len(evidence) // PIXELS)] @ bits).log_softmax(1)
    prior = torch.full((256,), 1 / 256, device=votes.device)
    for _ in range(FIT_STEPS):
        prior = (fitted + prior.clamp_min(1e-30).log()).softmax(1).mean(0)
    means = [
        (some @ bits + prior.clamp_min(1e-30).log()).softmax(1) @ values.float()
        for some in torch.split(evidence, PIXELS)
    ]
    return torch.cat(means).view(len(votes), *votes.shape[2:])


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
        for count, images in average(some, mechanism.plan, COUNTS, generator, prune=mechanism.prune, majority=True):
            parts[count].append(images)
    return {count: torch.cat(images) for count, images in parts.items()}
