r"""Decoding: the expected value of each pixel of the view, given its release and the plan.

Where a high bit was flipped, a released value is far from the value of the view. An analyst who knows the plan knows
the probability of every flip, and can compute the expected value instead. Decoding uses releases and the plan only. It
is post-processing, so the privacy guarantee is unchanged (docs/proofs.md, 6).

**Likelihood.** Let v be the word of a pixel of the view and r the released word. The plan's tables give P(r | v)
exactly: see ``likelihood``.

**Prior.** The channels v_c of a word are taken to be independent, with the same distribution p_c at every pixel:
p(v) = prod_c p_c(v_c). ``Decoder.fit`` estimates p_c from the releases.

**Posterior mean.** An image shows the colour x = rgb(r). Clamping makes several words show the same colour. For each
colour the decoder tabulates

    E[v_c | x] = sum_{r: rgb(r) = x} sum_v v_c p(v) P(r | v)  /  sum_{r: rgb(r) = x} sum_v p(v) P(r | v)

and the posterior variance.

**Blocks.** Pruning leaves blocks whose mean is 128, up to rounding and clamping. The posterior means of a block are
corrected to have that mean: see ``impose_block_mean``. Otherwise pixels are taken to be independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.card import Card
from ldp_slicing.errors import CardError, ImageError, LdpSlicingError
from ldp_slicing.plan import Plan, check_is_card, kind_of_pixels
from ldp_slicing.torch.colours import colour_rows, look_up_colours, sum_by_row
from ldp_slicing.torch.likelihood import channel_bits, channel_count, likelihood, likelihood_terms, released_values
from ldp_slicing.view import Prune, block_of
from ldp_slicing.wording import counted

FIT_ROUNDS = 4  # how often colours are split into words when the prior is estimated
FIT_STEPS = 20  # steps of expectation maximisation per round
IMAGES_AT_ONCE = 1000
UNITS_PER_DEVIATION = 32  # of a decoded image: four standard deviations fit into a byte on either side
BLOCK_MEAN_VARIANCE = {  # how far rounding and clamping take the mean of a block from 128, squared
    "haar": 0.1,
    "haar2": 1.0,
    "haar4": 10.0,
    "haar8": 100.0,
    "dct": 1.0,
}
MIN_DEVIATION = 1e-4  # a channel that varies less is decoded as 128
TINY = 1e-300  # turns 0 / 0 into 0


class Decoder:
    """Turn releases uint8 [N, C, H, W] or [C, H, W], RGB or grey, into uint8 of that shape: expected Y, Cb, Cr or grey.

    >>> decoder = Decoder.fit(released, Plan.paper(20.0))                                            # doctest: +SKIP
    >>> decoder(released)  # 128 is a channel's mean, and 32 is about one standard deviation          # doctest: +SKIP

    plan
        the plan of the releases, with words of 24 bits (colour) or 8 bits (grey).
    prior
        float [C, 256], not negative: how often each value occurs in each channel of the views. ``Decoder.fit`` makes it
        from releases.
    prune
        the pruning of the releases.

    Decode whole releases, and crop or flip afterwards: pruning blocks start at the upper left corner.
    """

    def __init__(self, plan: Plan, prior: Tensor, *, prune: Prune = "haar") -> None:
        self.plan, self.prune, self.prior = plan, prune, _check_prior(prior, plan)
        self._rows, rows = colour_rows(plan, prior.device)
        frequency = sum_by_row(rows, word_moments(plan, self.prior))
        prior_moments = self.prior @ _powers(prior.device)  # [C, 3]
        moments = [
            [
                torch.where(  # colours that never occur, or too seldom to divide by, get the moments of the prior
                    frequency > TINY,
                    sum_by_row(rows, word_moments(plan, self.prior, c, power)) / frequency.clamp_min(TINY),
                    prior_moments[c, power],
                )
                for power in (1, 2)
            ]
            for c in range(len(prior))
        ]
        means, squares = (torch.stack(some, 1) for some in zip(*moments, strict=True))
        variances, area = (squares - means.square()).clamp_min_(0), block_of(prune) ** 2
        mean, variance = ((some * frequency[:, None]).sum(0) for some in (means, variances))
        # the share of a block's mean, relative to 128, that ``impose_block_mean`` leaves: all of it without pruning
        left = torch.ones_like(mean)
        if area > 1:
            left = area * BLOCK_MEAN_VARIANCE[prune or ""] / (variance + area * BLOCK_MEAN_VARIANCE[prune or ""])
        self._centre = (128 + (mean - 128) * left).float()
        varies = 1 - (1 - left.square()) / area  # less where the mean of a block is known
        self._deviation = (((means - mean).square() * frequency[:, None]).sum(0) * varies).sqrt().float()
        self._means, self._variances = means.float(), variances.float()
        tables = (self._means, self._variances, self._centre, self._deviation)
        if not all(bool(table.isfinite().all()) for table in tables):
            raise LdpSlicingError(f"decoding {plan!r} gave numbers that are not finite")

    def __getstate__(self) -> dict[str, Any]:
        """Return what the tables follow from, 40 kB instead of 170 MB; a process that is spawned shares the tables."""
        if get_spawning_popen() is not None:
            return vars(self)
        return {"plan": replace(self.plan), "prior": self.prior, "prune": self.prune}  # the copy has no tables

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_rows" in state:
            vars(self).update(state)
        else:
            Decoder.__init__(self, **state)

    @classmethod
    def from_card(
        cls,
        card: Card,
        released: Tensor | Iterable[Tensor],
        *,
        bits: int | None = None,
        plan: Plan | None = None,
    ) -> Decoder:
        """Return a decoder with the plan and pruning that a card states, fitted to releases as ``fit`` does.

        >>> releases = open_releases("releases")                                                     # doctest: +SKIP
        >>> decoder = Decoder.from_card(releases.card, releases.images())                            # doctest: +SKIP

        bits: of the words, 24 or 8, if the card has several statements. plan: the plan that you expect; if the card
        states another one, CardError is raised.
        """
        check_is_card(card)
        stated = card.statement(bits)
        if plan is not None:
            check_plan(plan, stated.plan)
        if stated.output != "rgb" and stated.plan.is_colour:
            raise CardError("the card states pixels in Y, Cb, Cr, and a decoder takes RGB: convert them first")
        return cls.fit(released, stated.plan, prune=stated.prune)

    @classmethod
    def fit(cls, released: Tensor | Iterable[Tensor], plan: Plan, *, prune: Prune = "haar") -> Decoder:
        """Return a decoder whose prior is estimated from releases uint8 [N, C, H, W], or several such of any sizes.

        The prior is found by expectation maximisation. Each round estimates how often each word was released, by
        splitting the count of each colour among its words in proportion to their probability under the current prior.
        With q_c the resulting frequencies of channel c and L_c its likelihood, each step sets

            p_c(v)  <-  p_c(v) * sum_r L_c(r | v) q_c(r) / sum_u L_c(r | u) p_c(u)

        which increases the likelihood. The number of steps is small, because a prior that fits perfectly fits the
        noise.
        """
        device, counts = torch.device("cpu"), torch.zeros(0, dtype=torch.float64)
        for part in _parts(released):
            if not len(counts):
                device = part.device
                table, rows = colour_rows(plan, device)
                counts = torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=device)
            found = look_up_colours(part, plan, table).flatten()
            # in place: a bincount has an entry for each of millions of colours, and a part may be one small image
            counts.index_add_(0, found, counts.new_ones(1).expand(len(found)))
        if not counts.any():
            raise ImageError("there are no releases to fit a decoder to")
        channels = range(channel_count(plan))
        likelihoods = [likelihood(plan, c, device) for c in channels]
        values = [released_values(bits, device) for bits in channel_bits(plan)]
        candidates = _initial_priors(prune, device)
        prior = candidates[-1:].repeat(len(channels), 1)
        for fit_round in range(FIT_ROUNDS):
            chances = word_moments(plan, prior)
            row_weights = counts / counts.sum() / sum_by_row(rows, chances).clamp_min(TINY)
            words = (row_weights[rows] * chances).view([len(some) for some in values])  # estimated frequencies
            for c in channels:
                frequency = torch.zeros_like(prior[c])
                frequency[values[c]] = words.movedim(c, 0).reshape(len(values[c]), -1).sum(1)
                if fit_round == 0:  # begin with the candidate that is most likely
                    log_chances = (likelihoods[c] @ candidates.T).clamp_min(TINY).log()
                    prior[c] = candidates[(frequency @ log_chances).argmax()]
                for _ in range(FIT_STEPS):
                    expected = (likelihoods[c] @ prior[c]).clamp_min(TINY)
                    prior[c] *= likelihoods[c].T @ (frequency / expected)
        return cls(plan, prior, prune=prune)

    def expect(self, released: Tensor) -> Tensor:
        """Return float32 [N, C, H, W], 0 to 255: the posterior mean of each value of the view.

        released: uint8 [N, C, H, W].
        """
        rows = look_up_colours(released, self.plan, self._rows)
        means, variances = (table[rows].permute(0, 3, 1, 2) for table in (self._means, self._variances))
        return impose_block_mean(means, variances, self.prune).clamp_(0, 255)

    def __call__(self, released: Tensor) -> Tensor:
        """Return uint8 of the same shape: ``expect``, scaled per channel to mean 128 and standard deviation 32."""
        if isinstance(released, Tensor) and released.ndim == 3:  # one image, so that a decoder can be a transform
            decoded: Tensor = self(released[None])[0]
            return decoded
        return to_standard(self.expect(released), self._centre, self._deviation)


def _parts(released: Tensor | Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the releases that a decoder is fitted to, a limited number of images at once."""
    is_one = isinstance(released, Tensor | np.ndarray) or not isinstance(released, Iterable)
    images: Iterable[object] = [released] if is_one else released
    for some in images:
        if not isinstance(some, Tensor):
            raise ImageError(
                f"a decoder is fitted to uint8 tensors [N, C, H, W] of releases; got {type(some).__name__}: "
                "a data set gives them without labels by its method images()"
            )
        yield from torch.split(some, IMAGES_AT_ONCE)


def to_standard(expected: Tensor, centre: Tensor, deviation: Tensor) -> Tensor:
    """Return uint8 [N, C, H, W]: float [N, C, H, W] scaled so that ``centre`` is 128 and ``deviation`` [C] is 32."""
    centre, deviation = (values.view(1, -1, 1, 1) for values in (centre, deviation))
    standard = torch.where(deviation > MIN_DEVIATION, (expected - centre) / deviation, 0.0)
    return (128 + UNITS_PER_DEVIATION * standard).round_().clamp_(0, 255).to(torch.uint8)


def check_plan(plan: Plan, stated: Plan) -> None:
    """Raise CardError if the plan of a decoder is not that of the releases."""
    if plan != stated:
        raise CardError(
            f"the releases have {_told_apart(stated, plan)}, but the decoder is for {_told_apart(plan, stated)}: its "
            "values would be wrong"
        )


def _told_apart(plan: Plan, other: Plan) -> str:
    """Describe a plan by its eps and by the first slice that the other plan does not have."""
    part = next((part for part in plan.slices if part not in other.slices), plan.slices[0])
    kind, count = kind_of_pixels(plan.word_bits), counted(len(plan.slices), "slice")
    return f"{kind}, epsilon {plan.epsilon:g} in {count} ({plan.slice_name(part)}: {part.epsilon})"


class _Released(Protocol):
    """How releases were made: a slicer, a statement of a card, or the releases of a store."""

    @property
    def plan(self) -> Plan: ...
    @property
    def prune(self) -> Prune: ...


def check_transform(transform: object, stated: Callable[[int], _Released]) -> None:
    """Raise CardError if a transform of releases is, or contains, a decoder for another plan or pruning.

    Compositions such as v2.Compose are searched at any depth. The decoders that a function calls cannot be found.
    stated: returns how releases were made whose words have so many bits.
    """
    plan = getattr(transform, "plan", None)  # Decoder and Reconstructor have one
    if isinstance(plan, Plan):
        released, prune = stated(plan.word_bits), getattr(transform, "prune", None)
        check_plan(plan, released.plan)
        if prune != released.prune:
            raise CardError(
                f"the releases have pruning {released.prune or 'none'}, but the decoder is for pruning "
                f"{prune or 'none'}: make one with Decoder.from_card"
            )
    steps = getattr(transform, "transforms", ())
    for step in steps if isinstance(steps, Iterable) else ():
        check_transform(step, stated)


def posterior_mean(words: Tensor, plan: Plan, prior: Tensor) -> Tensor:
    """Return float [C, ...], 0 to 255: the posterior mean E[v_c | r] of each value, given its released word.

    words: int64 [C, ...], the released words as Y, Cb, Cr or grey. prior: float [C, 256], rows that sum to 1.
    """
    total, means = (torch.zeros(words.shape, dtype=torch.float64, device=words.device) for _ in range(2))
    for weight, tables in _moment_terms(plan, prior):
        found = [table[channel] for table, channel in zip(tables, words, strict=True)]  # [..., 3] per channel
        for c in range(len(words)):
            others = torch.ones_like(found[c][..., 0])
            for d in range(len(words)):
                if d != c:
                    others = others * found[d][..., 0]
            total[c] += weight * others * found[c][..., 0]
            means[c] += weight * others * found[c][..., 1]
    return (means / total.clamp_min(TINY)).to(prior.dtype)


def _powers(device: torch.device) -> Tensor:
    """Return float64 [256, 3]: 1, v and v^2 of each value."""
    return torch.arange(256.0, dtype=torch.float64, device=device)[:, None] ** torch.arange(3, device=device)


def _moment_terms(plan: Plan, prior: Tensor) -> Iterator[tuple[float, list[Tensor]]]:
    """Yield the terms of ``likelihood_terms``, each with a float64 [256, 3] per channel instead.

    The table of a channel holds sum_v v^k p_c(v) L(r_c | v) for k = 0, 1, 2 and each released value r_c.
    """
    for weight, tables in likelihood_terms(plan, prior.device):
        yield weight, [(table * prior[c].double()) @ _powers(prior.device) for c, table in enumerate(tables)]


def word_moments(plan: Plan, prior: Tensor, channel: int = 0, power: int = 0) -> Tensor:
    """Return float64 [P]: sum_v v_c^power p(v) P(r | v) of each word r that can be released.

    With power 0 that is the probability of the word.
    """
    total = torch.zeros(1, dtype=torch.float64, device=prior.device)
    for weight, tables in _moment_terms(plan, prior):
        rows = [
            table[released_values(bits, prior.device)] for table, bits in zip(tables, channel_bits(plan), strict=True)
        ]
        total = total + weight * _outer([row[:, power if c == channel else 0] for c, row in enumerate(rows)])
    return total


def _outer(vectors: Sequence[Tensor]) -> Tensor:
    """Return the flat outer product of the vectors; the index of the last one runs fastest."""
    products = vectors[0]
    for vector in vectors[1:]:
        products = (products[:, None] * vector).flatten()
    return products


def _initial_priors(prune: Prune, device: torch.device) -> Tensor:
    """Return float64 [S, 256]: candidates for the prior to start from.

    Where a plan drops bits, releases do not determine the prior, and what they leave open stays as in the candidate.
    Detail of natural images is peaked with long tails, exp(-|x / width|^0.6) for some width. Without pruning the
    distribution is unknown, and the only candidate is uniform.
    """
    if block_of(prune) == 1:
        return torch.full((1, 256), 1 / 256, dtype=torch.float64, device=device)
    distance = (torch.arange(256, device=device, dtype=torch.float64) - 128).abs()
    widths = torch.exp2(torch.arange(-8, 15, device=device, dtype=torch.float64) / 2)[:, None]
    return _normalise(torch.exp(-((distance / widths) ** 0.6)))


def _check_prior(prior: Tensor, plan: Plan) -> Tensor:
    """Return the prior as float64 [C, 256] with rows that sum to 1; raise LdpSlicingError if it is not a prior."""
    numbers, shape = prior.double(), (channel_count(plan), 256)
    is_valid = numbers.shape == shape and bool((numbers.isfinite() & (numbers >= 0)).all())
    if not is_valid or not bool((numbers.sum(1) > 0).all()):
        raise LdpSlicingError(
            f"a prior must have shape {shape}, no negative numbers and a positive number in every row; "
            f"got shape {tuple(prior.shape)}"
        )
    return _normalise(numbers)


def _normalise(table: Tensor) -> Tensor:
    return table / table.sum(-1, keepdim=True)


def impose_block_mean(means: Tensor, variances: Tensor, prune: Prune) -> Tensor:
    """Return float [N, C, H, W]: the means, given that the mean over each pruned block is about 128."""
    return _impose_block_mean(means, variances, block_of(prune), BLOCK_MEAN_VARIANCE.get(prune or "", 0.0))


def _impose_block_mean(means: Tensor, variances: Tensor, block: int, mean_variance: float) -> Tensor:
    """Return float [N, C, H, W]: the means, given that the mean over each block is 128 with variance ``mean_variance``.

    The values x_i of a block of B x B pixels are taken to be independent and normal with means m_i and variances s_i.
    Their sum S = sum_i n_i x_i is observed to be 128 B^2 with variance B^4 mean_variance. Hence the conditional mean is

        m_i - n_i s_i (sum_j n_j m_j - 128 B^2) / (sum_j n_j^2 s_j + B^4 mean_variance)

    where n_i is 1, or larger in the last row and column of the image if they were repeated to fill a block.
    """
    if block == 1:
        return means
    height, width = means.shape[2:]
    padding = (0, -width % block, 0, -height % block)
    row_counts, column_counts = torch.ones(height, 1, device=means.device), torch.ones(1, width, device=means.device)
    row_counts[-1:], column_counts[:, -1:] = 1 + padding[3], 1 + padding[1]
    weighted = variances * row_counts * column_counts  # n_i s_i

    def block_average(values: Tensor) -> Tensor:
        """Return, at each pixel, sum_i n_i values_i / B^2 of its block."""
        found = functional.avg_pool2d(functional.pad(values, padding, mode="replicate"), block)
        return found.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :height, :width]

    excess, spread = block_average(means - 128), block_average(weighted) + block * block * mean_variance
    return means - weighted * excess / spread.clamp_min(1e-12)
