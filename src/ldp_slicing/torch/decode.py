r"""Decoding: the expected value of each pixel of the view, given its release and the plan.

Where a high bit was flipped, a released value is far from the value of the view. An analyst who knows the plan knows
the probability of every flip, and can compute the expected value instead. Decoding uses releases and the plan only. It
is post-processing, so the privacy guarantee is unchanged (docs/proofs.md, 6).

**Likelihood.** Let v be the word of a pixel of the view and r the released word. Slice s has m_s bits and is hit with
probability h_s, which the plan's tables give exactly. A slice that is hit is replaced by a uniform value. Hence

    P(r | v) = prod_s [ (1 - h_s) 1{r and v agree on the bits of s} + h_s / 2^m_s ]

and 0 if a dropped bit of r differs from its constant.

**Prior.** The channels v_c of a word are taken to be independent, with the same distribution p_c at every pixel:
p(v) = prod_c p_c(v_c). ``Decoder.fit`` estimates p_c from the releases.

**Posterior mean.** An image shows the colour x = rgb(r). Clamping makes several words show the same colour. For each
colour the decoder tabulates

    E[v_c | x] = sum_{r: rgb(r) = x} sum_v v_c p(v) P(r | v)  /  sum_{r: rgb(r) = x} sum_v p(v) P(r | v)

and the posterior variance. A slice with bits of several channels couples them. The bracket of each such slice is
expanded into its two terms, missed and hit, so that P(r | v) is a sum of 2^j products over channels for j such slices.

**Blocks.** Pruning leaves blocks whose mean is 128, up to rounding and clamping. The posterior means of a block are
corrected to have that mean: see ``_impose_block_mean``. Otherwise pixels are taken to be independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import to_rgb
from ldp_slicing.view import Prune, block_of

FIT_ROUNDS = 4  # how often colours are split into words when the prior is estimated
FIT_STEPS = 20  # steps of expectation maximisation per round
IMAGES_AT_ONCE = 1000
WORDS_AT_ONCE = 1 << 16
MAX_TERMS = 1 << 28  # number of words, times two for each slice across channels
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
        self._rows, rows = _colour_rows(plan, prior.device)
        frequency = _sum_by_row(rows, _word_moments(plan, self.prior))
        prior_moments = self.prior @ _powers(prior.device)  # [C, 3]
        moments = [
            [
                torch.where(  # colours that never occur get the moments of the prior
                    frequency > 0,
                    _sum_by_row(rows, _word_moments(plan, self.prior, c, power)) / frequency.clamp_min(TINY),
                    prior_moments[c, power],
                )
                for power in (1, 2)
            ]
            for c in range(len(prior))
        ]
        means, squares = (torch.stack(some, 1) for some in zip(*moments, strict=True))
        mean, area = (means * frequency[:, None]).sum(0), block_of(prune) ** 2
        degrees = 1 - 1 / area if area > 1 else 1.0  # the mean of a block is known, so it varies less
        self._deviation = (((means - mean).square() * frequency[:, None]).sum(0) * degrees).sqrt().float()
        self._centre = (mean if area == 1 else torch.full_like(mean, 128)).float()
        self._means, self._variances = means.float(), (squares - means.square()).clamp_min_(0).float()
        tables = (self._means, self._variances, self._centre, self._deviation)
        if not all(bool(table.isfinite().all()) for table in tables):
            raise LdpSlicingError(f"decoding {plan!r} gave numbers that are not finite")

    @classmethod
    def fit(cls, released: Tensor, plan: Plan, *, prune: Prune = "haar") -> Decoder:
        """Return a decoder whose prior is estimated from uint8 [N, C, H, W] releases.

        The prior is found by expectation maximisation. Each round estimates how often each word was released, by
        splitting the count of each colour among its words in proportion to their probability under the current prior.
        With q_c the resulting frequencies of channel c and L_c its likelihood, each step sets

            p_c(v)  <-  p_c(v) * sum_r L_c(r | v) q_c(r) / sum_u L_c(r | u) p_c(u)

        which increases the likelihood. The number of steps is small, because a prior that fits perfectly fits the
        noise.
        """
        if not isinstance(released, Tensor):
            raise ImageError(
                f"a decoder is fitted to a uint8 tensor [N, C, H, W] of releases; got {type(released).__name__}"
            )
        device = released.device
        table, rows = _colour_rows(plan, device)
        counts = torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=device)
        for part in torch.split(released, IMAGES_AT_ONCE) if len(released) else ():
            counts += torch.bincount(_look_up_colours(part, plan, table).flatten(), minlength=len(counts))
        if not counts.any():
            raise ImageError(f"there are no releases to fit a decoder to: got shape {tuple(released.shape)}")
        channels = range(channel_count(plan))
        likelihoods = [likelihood(plan, c, device) for c in channels]
        values = [_released_values(bits, device) for bits in _channel_bits(plan)]
        candidates = _initial_priors(prune, device)
        prior = candidates[-1:].repeat(len(channels), 1)
        for fit_round in range(FIT_ROUNDS):
            chances = _word_moments(plan, prior)
            row_weights = counts / counts.sum() / _sum_by_row(rows, chances).clamp_min(TINY)
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
        rows = _look_up_colours(released, self.plan, self._rows)
        means, variances = (table[rows].permute(0, 3, 1, 2) for table in (self._means, self._variances))
        mean_variance = BLOCK_MEAN_VARIANCE.get(self.prune or "", 0.0)
        return _impose_block_mean(means, variances, block_of(self.prune), mean_variance).clamp_(0, 255)

    def __call__(self, released: Tensor) -> Tensor:
        """Return uint8 of the same shape: ``expect``, scaled per channel to mean 128 and standard deviation 32."""
        if isinstance(released, Tensor) and released.ndim == 3:  # one image, so that a decoder can be a transform
            decoded: Tensor = self(released[None])[0]
            return decoded
        centre, deviation = (values.view(1, -1, 1, 1) for values in (self._centre, self._deviation))
        standard = torch.where(deviation > MIN_DEVIATION, (self.expect(released) - centre) / deviation, 0.0)
        return (128 + UNITS_PER_DEVIATION * standard).round_().clamp_(0, 255).to(torch.uint8)


def posterior_mean(words: Tensor, plan: Plan, prior: Tensor) -> Tensor:
    """Return float [C, ...], 0 to 255: the posterior mean E[v_c | r] of each value, given its released word.

    words: int64 [C, ...], the released words as Y, Cb, Cr or grey. prior: float [C, 256], rows that sum to 1.
    """
    total, means = (torch.zeros(words.shape, dtype=torch.float64, device=words.device) for _ in range(2))
    for weight, tables in _likelihood_terms(plan, prior):
        found = [table[channel] for table, channel in zip(tables, words, strict=True)]  # [..., 3] per channel
        for c in range(len(words)):
            others = torch.ones_like(found[c][..., 0])
            for d in range(len(words)):
                if d != c:
                    others = others * found[d][..., 0]
            total[c] += weight * others * found[c][..., 0]
            means[c] += weight * others * found[c][..., 1]
    return (means / total.clamp_min(TINY)).to(prior.dtype)


def channel_count(plan: Plan) -> int:
    """Return 3 for a colour plan and 1 for a plan of 8-bit grey words; raise LdpSlicingError for other plans."""
    if plan.word_bits not in (8, 24):
        raise LdpSlicingError(
            f"decoding and attacks take plans of 24-bit (colour) or 8-bit (grey) words; got {plan.word_bits} bits"
        )
    return plan.word_bits // 8


def likelihood(plan: Plan, channel: int, device: torch.device, *, exclusive: bool = False) -> Tensor:
    """Return float64 [256, 256]: P(r_c | v_c) of each released value (row) and each value of the view (column).

    exclusive: use only the slices whose bits are all in this channel, and do not require dropped bits to be constant.
    """
    values = torch.arange(256, device=device)
    chances = torch.ones(256, 256, dtype=torch.float64, device=device)
    for part in plan.slices:
        mask = _split_word(plan, part.bits)[channel]
        if mask and not (exclusive and mask.bit_count() < part.bits.bit_count()):
            hit = 1 - plan.tables.miss_probability(part.bits)  # a fraction, so that the smallest stays above 0
            chances *= float(1 - hit) * _agree(mask, device) + float(hit / (1 << mask.bit_count()))
    if not exclusive:
        kept, dropped = _channel_bits(plan)[channel]
        chances *= (values & ~kept == dropped)[:, None]
    return chances


def _split_word(plan: Plan, word: int) -> list[int]:
    """Return the bits of a word in each channel."""
    return [word >> shift & 255 for shift in range(plan.word_bits - 8, -1, -8)]


def _channel_bits(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Return the kept bits of each channel, and the released value of its dropped bits."""
    return tuple(zip(_split_word(plan, plan.kept_bits), _split_word(plan, plan.dropped_value), strict=True))


def _joint_slices(plan: Plan) -> list[int]:
    """Return the bits of the slices that have bits of several channels."""
    return [part.bits for part in plan.slices if sum(map(bool, _split_word(plan, part.bits))) > 1]


def _agree(mask: int, device: torch.device) -> Tensor:
    """Return float64 [256, 256]: 1 where two values agree on the bits of the mask."""
    values = torch.arange(256, device=device)
    return ((values[:, None] ^ values) & mask == 0).double()


def _powers(device: torch.device) -> Tensor:
    """Return float64 [256, 3]: 1, v and v^2 of each value."""
    return torch.arange(256.0, dtype=torch.float64, device=device)[:, None] ** torch.arange(3, device=device)


def _likelihood_terms(plan: Plan, prior: Tensor) -> Iterator[tuple[float, list[Tensor]]]:
    """Yield the 2^j terms into which the j joint slices expand P(r | v): a weight, and per channel a float64 [256, 3].

    The table of a channel holds sum_v v^k p_c(v) L(r_c | v) for k = 0, 1, 2 and each released value r_c. A joint slice
    was missed, and then its bits agree in every channel, or hit, and then they are uniform.
    """
    device, joint, channels = prior.device, _joint_slices(plan), range(channel_count(plan))
    exclusive = [likelihood(plan, c, device, exclusive=True) for c in channels]
    for missed in product((False, True), repeat=len(joint)):
        weight, tables = 1.0, exclusive
        for bits, is_missed in zip(joint, missed, strict=True):
            miss = plan.tables.miss_probability(bits)
            weight *= float(miss if is_missed else (1 - miss) / (1 << bits.bit_count()))
            if is_missed:
                masks = _split_word(plan, bits)
                tables = [table * _agree(mask, device) for table, mask in zip(tables, masks, strict=True)]
        yield weight, [(table * prior[c].double()) @ _powers(device) for c, table in enumerate(tables)]


def _word_moments(plan: Plan, prior: Tensor, channel: int = 0, power: int = 0) -> Tensor:
    """Return float64 [P]: sum_v v_c^power p(v) P(r | v) of each word r that can be released.

    With power 0 that is the probability of the word.
    """
    total = torch.zeros(1, dtype=torch.float64, device=prior.device)
    for weight, tables in _likelihood_terms(plan, prior):
        rows = [
            table[_released_values(bits, prior.device)] for table, bits in zip(tables, _channel_bits(plan), strict=True)
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


def _released_values(bits: tuple[int, int], device: torch.device) -> Tensor:
    """Return int64: the values that a channel can be released with. bits: see ``_channel_bits``."""
    kept, dropped = bits
    return torch.tensor([value for value in range(256) if value & ~kept == dropped], device=device)


def _colour_rows(plan: Plan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a row number for every colour that can be released.

    First int32 [256^C]: the row of each packed colour, -1 if it is never released. Then int32 [P]: the row of each word
    that can be released.
    """
    channels, terms = channel_count(plan), 1 << plan.kept_bits.bit_count() + len(_joint_slices(plan))
    if channels and terms > MAX_TERMS:
        raise LdpSlicingError(
            f"a plan with so many slices across channels cannot be decoded: it needs {terms} terms, and {MAX_TERMS} "
            "are the limit"
        )
    return _cached_colour_rows(_channel_bits(plan), device)


@lru_cache(1)  # the same for all plans that drop nothing
def _cached_colour_rows(bits: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    grids = torch.meshgrid([_released_values(one, device) for one in bits], indexing="ij")
    colours = []
    for words in torch.split(torch.stack(grids).flatten(1), WORDS_AT_ONCE, dim=1):  # [C, at most WORDS_AT_ONCE]
        shown = to_rgb(words.int()[None, :, :, None])[0, :, :, 0] if len(bits) == 3 else words
        colours.append(_pack(shown).int())
    packed = torch.cat(colours)
    is_released = torch.zeros(1 << 8 * len(bits), dtype=torch.bool, device=device).index_fill_(0, packed.long(), True)
    rows = torch.where(is_released, is_released.cumsum(0) - 1, -1).int()
    return rows, rows[packed]


def _look_up_colours(released: Tensor, plan: Plan, rows: Tensor) -> Tensor:
    """Return int32 [N, H, W]: the rows of the colours of uint8 [N, C, H, W].

    Raises an error if the images cannot be releases of the plan. rows: the first result of ``_colour_rows``.
    """
    channels = channel_count(plan)
    if not isinstance(released, Tensor):
        raise ImageError(f"a release must be a uint8 tensor [N, {channels}, H, W]; got {type(released).__name__}")
    if released.dtype != torch.uint8 or released.ndim != 4 or released.shape[1] != channels:
        raise ImageError(
            f"a release must be a uint8 tensor [N, {channels}, H, W]; got {released.dtype} {tuple(released.shape)}"
        )
    found = rows[_pack(released.transpose(0, 1))]
    if bool((found < 0).any()):
        raise LdpSlicingError(
            f"the images have colours that {plan!r} never releases: they were released by another plan, or changed "
            "after their release"
        )
    return found


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


def _pack(channels: Tensor) -> Tensor:
    """Return int64 [...]: one number per colour, of integers [C, ...]."""
    packed = channels[0].long()
    for channel in channels[1:]:
        packed = packed << 8 | channel
    return packed


def _sum_by_row(rows: Tensor, numbers: Tensor) -> Tensor:
    """Return float64 [R]: the sums of float64 [P] ``numbers`` over the words of each row. rows: int32 [P]."""
    return torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=rows.device).index_add_(0, rows, numbers)


def _normalise(table: Tensor) -> Tensor:
    return table / table.sum(-1, keepdim=True)


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
