"""What releases say to somebody who knows the plan: the values to expect, instead of the values that were released.

Where a high bit was flipped, a released value is far from the view's, and a learner that takes it as it comes must first find that out.
The plan says how likely every flip is, and the releases together say how often each value occurs in their views, so that the mean of each
value given its release can be computed. That is post-processing: it needs no source, and the guarantee stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.torch.simulate import to_rgb
from ldp_slicing.view import Prune, block_of

ROUNDS, STEPS = 4, 20  # of estimating the prior: between colours and released values, and for each between these and the view's
TOGETHER = 1 << 16  # words whose posteriors are in memory at once
MOST_WORDS = 1 << 20  # of a plan with slices across channels, where every word has a posterior of its own
SPREAD = 32  # of a decoded picture, per standard deviation: four of them fit into a byte on either side
NOTHING = 1e-300  # keeps 0 / 0 at 0


class Decoder:
    """uint8 [N, C, H, W] or [C, H, W] releases (RGB or grey) to uint8 of that shape: Y, Cb, Cr as they are to be expected in the view.

    >>> decoder = Decoder.fit(released, Plan.paper(20.0))                                                    # doctest: +SKIP
    >>> decoder(released)  # 128 is a channel's mean, 32 its standard deviation                              # doctest: +SKIP

    prior: float [C, 256], how often each value occurs in each channel of the views. Channels and pixels are taken to be independent,
    except that in a pruned view the mean of a block is known.
    """

    def __init__(self, plan: Plan, prior: Tensor, *, prune: Prune = "haar") -> None:
        self.plan, self.prune, self.prior = plan, prune, prior.double()
        self._rows, rows = _colours(plan, prior.device)
        chances = _chances(plan, self.prior)
        often = _sums(rows, chances)
        weights = chances / often[rows]
        means, squares = (torch.empty(len(often), len(prior), dtype=torch.float64, device=prior.device) for _ in range(2))
        for c, (mean, variance) in enumerate(_moments(plan, self.prior)):
            means[:, c], squares[:, c] = _sums(rows, weights * mean), _sums(rows, weights * (variance + mean.square()))
        often = often[:, None]
        centre = (means * often).sum(0)
        self._deviation = ((means - centre).square() * often).sum(0).sqrt().float()
        self._means, self._variances, self._centre = means.float(), (squares - means.square()).clamp_min_(0).float(), centre.float()

    @classmethod
    def fit(cls, released: Tensor, plan: Plan, *, prune: Prune = "haar") -> Decoder:
        """A decoder whose prior is the one that makes these uint8 [N, C, H, W] releases most likely, by expectation maximisation."""
        rows_of_colours, rows = _colours(plan, released.device)
        counts = torch.bincount(_looked_up(released, plan, rows_of_colours).flatten(), minlength=int(rows.max()) + 1).double()
        counts /= counts.sum()
        channels = range(channels_of(plan))
        likely, values = [_likelihood(plan, c, released.device) for c in channels], [_values(one, released.device) for one in _kept(plan)]
        shapes = _shapes(prune, released.device)
        prior = shapes[-1:].repeat(len(channels), 1)
        for turn in range(ROUNDS):
            chances = _chances(plan, prior)
            words = ((counts / _sums(rows, chances))[rows] * chances).view([len(some) for some in values])  # how often, it seems
            for c in channels:
                seen = torch.zeros_like(prior[c])
                seen[values[c]] = words.sum([d for d in channels if d != c]) if len(channels) > 1 else words
                if not turn:
                    prior[c] = max(shapes, key=lambda shape: float(seen @ (likely[c] @ shape).clamp_min(NOTHING).log()))
                for _ in range(STEPS):
                    prior[c] *= likely[c].T @ (seen / (likely[c] @ prior[c]).clamp_min(NOTHING))
        return cls(plan, prior, prune=prune)

    def expect(self, released: Tensor) -> Tensor:
        """uint8 [N, C, H, W] releases to float32 [N, C, H, W]: the mean of each value of the view, 0..255, given what was released."""
        rows = _looked_up(released, self.plan, self._rows)
        means, variances = (table[rows].permute(0, 3, 1, 2) for table in (self._means, self._variances))
        return _balanced(means, variances, block_of(self.prune))

    def __call__(self, released: Tensor) -> Tensor:
        if released.ndim == 3:  # one of a data set, so that this can be its transform
            decoded: Tensor = self(released[None])[0]
            return decoded
        centre, deviation = (values.view(1, -1, 1, 1) for values in (self._centre, self._deviation))
        standard = (self.expect(released) - centre) / deviation.clamp_min(1e-6)  # 0 where nothing is known of a channel
        return (128 + SPREAD * standard).round_().clamp_(0, 255).to(torch.uint8)


def posterior(words: Tensor, plan: Plan, prior: Tensor) -> tuple[Tensor, Tensor]:
    """int64 [C, P] released values (Y, Cb, Cr) and float [C, 256] to float [C, P] twice: mean and variance of each, given its word.

    Exact for slices within a channel, and for one slice across channels, if the channels of the prior are independent; several slices
    across channels are taken one after the other.
    """
    channels = range(channels_of(plan))
    values = torch.arange(256, device=words.device)
    differ, numbers = values[:, None] ^ values, values.to(prior.dtype)  # [released, source]
    tables, across = [prior[c] * _likelihood(plan, c, words.device, within=True).to(prior.dtype) for c in channels], []
    for bits in _across(plan):
        miss = float(plan.tables.miss_probability(bits))
        across.append((_masks(plan, bits), miss, (1 - miss) / (1 << bits.bit_count())))
    if not across:  # a channel's release tells it all
        moments = [(_normal(table) @ torch.stack((numbers, numbers.square()), 1))[words[c]] for c, table in enumerate(tables)]
    else:
        beliefs = [_normal(table)[words[c]] for c, table in enumerate(tables)]  # [P, 256] each
        for masks, miss, floor in across:
            same = [(differ & mask == 0).to(prior.dtype)[words[c]] for c, mask in enumerate(masks)]
            agree = [(belief * match).sum(1, keepdim=True) for belief, match in zip(beliefs, same, strict=True)]
            others = [torch.stack([a for d, a in enumerate(agree) if d != c]).prod(0) for c in channels]
            beliefs = [_normal(b * (miss * match * other + floor)) for b, match, other in zip(beliefs, same, others, strict=True)]
        moments = [belief @ torch.stack((numbers, numbers.square()), 1) for belief in beliefs]
    means, squares = torch.stack(moments).unbind(2)
    return means, (squares - means.square()).clamp_min_(0)


def channels_of(plan: Plan) -> int:
    """3 for colour, 1 for 8-bit grey; others are refused."""
    if plan.word_bits not in (8, 24):
        raise LdpSlicingError(f"this takes plans of 24-bit (colour) or 8-bit (grey) words; got {plan.word_bits} bits")
    return plan.word_bits // 8


def _masks(plan: Plan, bits: int) -> list[int]:
    """Some bits of the word, in each channel."""
    return [bits >> shift & 255 for shift in range(plan.word_bits - 8, -1, -8)]


def _across(plan: Plan) -> list[int]:
    """The slices that have bits of several channels."""
    return [part.bits for part in plan.slices if sum(map(bool, _masks(plan, part.bits))) > 1]


def _likelihood(plan: Plan, channel: int, device: torch.device, *, within: bool = False) -> Tensor:
    """float64 [256, 256]: the probability of each released value (row) of a channel for each value of the view.

    ``within``: as far as the slices of this channel alone go, and 1 for every value of dropped bits.
    """
    values = torch.arange(256, device=device)
    differ, likely = values[:, None] ^ values, torch.ones(256, 256, dtype=torch.float64, device=device)
    for part in plan.slices:
        mask = _masks(plan, part.bits)[channel]
        if mask and not (within and mask.bit_count() < part.bits.bit_count()):
            miss = float(plan.tables.miss_probability(part.bits))
            likely *= miss * (differ & mask == 0).double() + (1 - miss) / (1 << mask.bit_count())
    if not within:
        likely *= (values & ~_kept(plan)[channel][0] == _kept(plan)[channel][1])[:, None]
    return likely


def _shapes(prune: Prune, device: torch.device) -> Tensor:
    """float64 [S, 256]: priors to begin with; where a plan drops bits, releases do not tell all, and what they leave open stays as it was.

    Detail of photographs is peaked and has long tails: exp(-|x / width|^0.6), of all widths. Of whole views nothing is known: uniform.
    """
    if block_of(prune) == 1:
        return torch.full((1, 256), 1 / 256, dtype=torch.float64, device=device)
    away = (torch.arange(256, device=device, dtype=torch.float64) - 128).abs()
    widths = torch.exp2(torch.arange(-8, 15, device=device, dtype=torch.float64) / 2)[:, None]
    return _normal(torch.exp(-((away / widths) ** 0.6)))


def _kept(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Of each channel, the bits that are kept, and what the dropped ones are released as."""
    return tuple(zip(_masks(plan, plan.kept_bits), _masks(plan, plan.dropped_value), strict=True))


def _values(kept: tuple[int, int], device: torch.device) -> Tensor:
    """int64: what a channel's released values can be."""
    return torch.tensor([value for value in range(256) if value & ~kept[0] == kept[1]], device=device)


def _words(kept: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    """int64 [C, P]: all words that can be released."""
    return torch.stack(torch.meshgrid([_values(one, device) for one in kept], indexing="ij")).flatten(1)


def _moments(plan: Plan, prior: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each channel, float64 [P] twice: mean and variance of the view's value, for all words that can be released."""
    kept, device = _kept(plan), prior.device
    if _across(plan):
        parts = [posterior(part, plan, prior) for part in torch.split(_words(kept, device), TOGETHER, dim=1)]
        yield from zip(*(torch.cat(found, 1) for found in zip(*parts, strict=True)), strict=True)
        return
    values = [_values(one, device) for one in kept]
    tables = posterior(torch.arange(256, device=device).expand(len(prior), 256), plan, prior)
    for c, some in enumerate(values):  # a channel's release tells it all
        shape = [len(other) if d == c else 1 for d, other in enumerate(values)]
        mean, variance = (table[c][some].view(shape).expand([len(other) for other in values]).flatten() for table in tables)
        yield mean, variance


def _colours(plan: Plan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every colour that can be released has a row: int32, the row of each colour, -1 of the others; int32 [P], the row of each word."""
    count = 1 << plan.kept_bits.bit_count()
    if _across(plan) and count > MOST_WORDS:
        raise LdpSlicingError(f"a plan with slices across channels is decoded up to {MOST_WORDS} different words; this one has {count}")
    return _rows(_kept(plan), device)


@lru_cache(1)  # the same for all plans that drop nothing
def _rows(kept: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    colours = []
    for words in torch.split(_words(kept, device), TOGETHER, dim=1):
        colours.append(_pack(to_rgb(words.int()[None, :, :, None])[0, :, :, 0] if len(kept) == 3 else words).int())
    keys = torch.cat(colours)
    known = torch.zeros(1 << 8 * len(kept), dtype=torch.bool, device=device).index_fill_(0, keys.long(), True)
    rows = torch.where(known, known.cumsum(0) - 1, -1).int()
    return rows, rows[keys]


def _looked_up(released: Tensor, plan: Plan, rows: Tensor) -> Tensor:
    """uint8 [N, C, H, W] to int32 [N, H, W]: the rows of the colours; what is no release of the plan is refused."""
    channels = channels_of(plan)
    if released.dtype != torch.uint8 or released.ndim != 4 or released.shape[1] != channels:
        raise ImageError(f"a release is uint8 [N, {channels}, H, W] or one image of it; got {released.dtype} {tuple(released.shape)}")
    found = rows[_pack(released.transpose(0, 1))]
    if bool((found < 0).any()):
        raise LdpSlicingError(f"there are colours that {plan!r} never releases: another plan, or images changed after their release")
    return found


def _pack(channels: Tensor) -> Tensor:
    """Integers [C, ...] to int64 [...]: one number for a colour."""
    packed = channels[0].long()
    for channel in channels[1:]:
        packed = packed << 8 | channel
    return packed


def _chances(plan: Plan, prior: Tensor) -> Tensor:
    """float64 [P]: how likely every word that can be released is, taken as if its channels were independent."""
    chances = torch.ones(1, dtype=torch.float64, device=prior.device)
    for c, kept in enumerate(_kept(plan)):
        released = (_likelihood(plan, c, prior.device) @ prior[c])[_values(kept, prior.device)]
        chances = (chances[:, None] * released).flatten()
    return chances


def _sums(rows: Tensor, numbers: Tensor) -> Tensor:
    """int32 and float64 [P], of each word, to float64: the sums over each row's words."""
    return torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=rows.device).index_add_(0, rows, numbers)


def _normal(table: Tensor) -> Tensor:
    return table / table.sum(-1, keepdim=True)


def _balanced(means: Tensor, variances: Tensor, block: int) -> Tensor:
    """[N, C, H, W] means and variances of values whose mean over each block is 128, as pruning left it: the means, given that.

    What a block's means have too much is taken from each in proportion to its variance, as is best if they are normally distributed. Blocks
    at the lower and right edges repeat their last rows and columns, which then count as often.
    """
    if block == 1:
        return means
    height, width = means.shape[2:]
    more = (0, -width % block, 0, -height % block)
    often = torch.ones(height, 1, device=means.device), torch.ones(1, width, device=means.device)
    often[0][-1], often[1][0, -1] = 1 + more[3], 1 + more[1]
    weighed = variances * often[0] * often[1]

    def over_blocks(values: Tensor) -> Tensor:
        sums = functional.avg_pool2d(functional.pad(values, more, mode="replicate"), block)
        return sums.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :height, :width]

    return means - weighed * over_blocks(means - 128) / over_blocks(weighed).clamp_min(1e-12)
