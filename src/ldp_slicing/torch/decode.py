"""What releases say to somebody who knows the plan: the values to expect, instead of the values that were released.

Where a high bit was flipped, a released value is far from the view's, and a learner that takes it as it comes must first find that out.
The plan says how likely every flip is, and the releases together say how often each value occurs in their views, so that the mean of each
value given its release can be computed. That is post-processing: it needs no source, and the guarantee stays as it is.
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

ROUNDS, STEPS = (
    4,
    20,
)  # of estimating the prior: between colours and released values, and for each between these and the view's
TOGETHER = 1 << 16  # words whose colours are worked out at once
MOST_TERMS = 1 << 28  # words, times two for each slice across channels
SPREAD = 32  # of a decoded picture, per standard deviation: four of them fit into a byte on either side
OFF = {
    "haar": 0.1,
    "haar2": 1.0,
    "haar4": 10.0,
    "haar8": 100.0,
    "dct": 1.0,
}  # how far, squared, rounding and clamping take a block's mean
LEAST = 1e-4  # a channel that varies less says nothing, and is 128
NOTHING = 1e-300  # keeps 0 / 0 at 0


class Decoder:
    """uint8 [N, C, H, W] or [C, H, W] releases (RGB or grey) to uint8 of that shape: Y, Cb, Cr as they are to be expected in the view.

    >>> decoder = Decoder.fit(released, Plan.paper(20.0))                                                    # doctest: +SKIP
    >>> decoder(released)  # 128 is a channel's mean, and 32 about its standard deviation                    # doctest: +SKIP

    For whole releases as they are: crops and flips come after. prior: float [C, 256], how often each value occurs in each channel of the
    views. Channels and pixels are taken to be independent, except that pruning leaves blocks with a mean of 128, or close to it.
    """

    def __init__(self, plan: Plan, prior: Tensor, *, prune: Prune = "haar") -> None:
        self.plan, self.prune, self.prior = plan, prune, _checked(prior, plan)
        self._rows, rows = _colours(plan, prior.device)
        often, known = _sums(rows, _joint(plan, self.prior)), self.prior @ _powers(prior.device)  # [C, 3]
        moments = [
            [
                torch.where(
                    often > 0,
                    _sums(rows, _joint(plan, self.prior, c, power)) / often.clamp_min(NOTHING),
                    known[c, power],
                )
                for power in (1, 2)
            ]
            for c in range(len(prior))
        ]
        means, squares = (torch.stack(some, 1) for some in zip(*moments, strict=True))
        mean, area = (means * often[:, None]).sum(0), block_of(prune) ** 2
        free = 1 - 1 / area if area > 1 else 1.0  # of a block's values, all but one are free
        self._deviation = (((means - mean).square() * often[:, None]).sum(0) * free).sqrt().float()
        self._centre = (mean if area == 1 else torch.full_like(mean, 128)).float()
        self._means, self._variances = means.float(), (squares - means.square()).clamp_min_(0).float()
        if not all(
            bool(table.isfinite().all()) for table in (self._means, self._variances, self._centre, self._deviation)
        ):
            raise LdpSlicingError(f"decoding {plan!r} gave numbers that are not finite")

    @classmethod
    def fit(cls, released: Tensor, plan: Plan, *, prune: Prune = "haar") -> Decoder:
        """A decoder whose prior comes from uint8 [N, C, H, W] releases: some steps of expectation and maximisation towards the likeliest.

        They stop early, since a prior that fits to the last digit fits the noise.
        """
        if not isinstance(released, Tensor):
            raise ImageError(
                f"a decoder is fitted to a uint8 tensor [N, C, H, W] of releases; got {type(released).__name__}"
            )
        table, rows = _colours(plan, released.device)
        counts = torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=released.device)
        for part in torch.split(released, 1000) if len(released) else ():
            counts += torch.bincount(_looked_up(part, plan, table).flatten(), minlength=len(counts))
        if not counts.any():
            raise ImageError(f"there are no releases to fit a decoder to: {tuple(released.shape)}")
        channels = range(channel_count(plan))
        likely, values = (
            [_likelihood(plan, c, released.device) for c in channels],
            [_values(one, released.device) for one in _kept(plan)],
        )
        shapes = _shapes(prune, released.device)
        prior = shapes[-1:].repeat(len(channels), 1)
        for turn in range(ROUNDS):
            chances = _joint(plan, prior)
            words = (counts / counts.sum() / _sums(rows, chances).clamp_min(NOTHING))[
                rows
            ] * chances  # how often, it seems
            for c in channels:
                seen = torch.zeros_like(prior[c])
                seen[values[c]] = (
                    words.view([len(some) for some in values]).movedim(c, 0).reshape(len(values[c]), -1).sum(1)
                )
                if not turn:
                    prior[c] = shapes[(seen @ (likely[c] @ shapes.T).clamp_min(NOTHING).log()).argmax()]
                for _ in range(STEPS):
                    prior[c] *= likely[c].T @ (seen / (likely[c] @ prior[c]).clamp_min(NOTHING))
        return cls(plan, prior, prune=prune)

    def expect(self, released: Tensor) -> Tensor:
        """uint8 [N, C, H, W] releases to float32 [N, C, H, W]: the mean of each value of the view, 0..255, given what was released."""
        rows = _looked_up(released, self.plan, self._rows)
        means, variances = (table[rows].permute(0, 3, 1, 2) for table in (self._means, self._variances))
        return _balanced(means, variances, block_of(self.prune), OFF.get(self.prune or "", 0.0)).clamp_(0, 255)

    def __call__(self, released: Tensor) -> Tensor:
        if isinstance(released, Tensor) and released.ndim == 3:  # one of a data set, so that this can be its transform
            decoded: Tensor = self(released[None])[0]
            return decoded
        centre, deviation = (values.view(1, -1, 1, 1) for values in (self._centre, self._deviation))
        standard = torch.where(deviation > LEAST, (self.expect(released) - centre) / deviation, 0.0)
        return (128 + SPREAD * standard).round_().clamp_(0, 255).to(torch.uint8)


def posterior_mean(words: Tensor, plan: Plan, prior: Tensor) -> Tensor:
    """int64 [C, ...] released values (Y, Cb, Cr) and float [C, 256] to float [C, ...]: the mean of each value, given its word."""
    total, means = (torch.zeros(words.shape, dtype=torch.float64, device=words.device) for _ in range(2))
    for weight, tables in _terms(plan, prior):
        found = [table[channel] for table, channel in zip(tables, words, strict=True)]  # [..., 3]
        for c in range(len(words)):
            others = torch.stack(
                [one[..., 0] for d, one in enumerate(found) if d != c] or [torch.ones_like(found[c][..., 0])]
            ).prod(0)
            total[c] += weight * others * found[c][..., 0]
            means[c] += weight * others * found[c][..., 1]
    return (means / total.clamp_min(NOTHING)).to(prior.dtype)


def channel_count(plan: Plan) -> int:
    """3 for colour, 1 for 8-bit grey; others are refused."""
    if plan.word_bits not in (8, 24):
        raise LdpSlicingError(
            f"decoding and attacks take plans of 24-bit (colour) or 8-bit (grey) words; got {plan.word_bits} bits"
        )
    return plan.word_bits // 8


def _masks(plan: Plan, bits: int) -> list[int]:
    """Some bits of the word, in each channel."""
    return [bits >> shift & 255 for shift in range(plan.word_bits - 8, -1, -8)]


def _across(plan: Plan) -> list[int]:
    """The slices that have bits of several channels."""
    return [part.bits for part in plan.slices if sum(map(bool, _masks(plan, part.bits))) > 1]


def _likelihood(plan: Plan, channel: int, device: torch.device, *, within: bool = False) -> Tensor:
    """float64 [256, 256]: the probability of each released value (row) of a channel for each value of the view.

    ``within``: as far as the slices go that have bits of this channel alone, and 1 for every value of dropped bits.
    """
    values = torch.arange(256, device=device)
    likely = torch.ones(256, 256, dtype=torch.float64, device=device)
    for part in plan.slices:
        mask = _masks(plan, part.bits)[channel]
        if mask and not (within and mask.bit_count() < part.bits.bit_count()):
            hit = 1 - plan.tables.miss_probability(part.bits)  # exact, so that the smallest stays more than 0
            likely *= float(1 - hit) * _match(mask, device) + float(hit / (1 << mask.bit_count()))
    if not within:
        kept, dropped = _kept(plan)[channel]
        likely *= (values & ~kept == dropped)[:, None]
    return likely


def _match(mask: int, device: torch.device) -> Tensor:
    """float64 [256, 256]: 1 where two values have the same bits."""
    values = torch.arange(256, device=device)
    return ((values[:, None] ^ values) & mask == 0).double()


def _powers(device: torch.device) -> Tensor:
    """float64 [256, 3]: 1, v and v squared."""
    return torch.arange(256.0, dtype=torch.float64, device=device)[:, None] ** torch.arange(3, device=device)


def _terms(plan: Plan, prior: Tensor) -> Iterator[tuple[float, list[Tensor]]]:
    """A word's likelihood as a sum of products over the channels: a weight, and of each channel float64 [256, 3].

    These are the sums of 1, v and v squared over the values v of the view, each weighed by its prior and by how likely it makes the
    released value (row). A slice across channels was either missed, and then its bits match in every channel, or hit.
    """
    device, across, channels = prior.device, _across(plan), range(channel_count(plan))
    within = [_likelihood(plan, c, device, within=True) for c in channels]
    for missed in product((False, True), repeat=len(across)):
        weight, tables = 1.0, within
        for bits, is_missed in zip(across, missed, strict=True):
            miss = plan.tables.miss_probability(bits)
            weight *= float(miss if is_missed else (1 - miss) / (1 << bits.bit_count()))
            if is_missed:
                tables = [table * _match(mask, device) for table, mask in zip(tables, _masks(plan, bits), strict=True)]
        yield weight, [(table * prior[c].double()) @ _powers(device) for c, table in enumerate(tables)]


def _joint(plan: Plan, prior: Tensor, channel: int = 0, power: int = 0) -> Tensor:
    """float64 [P]: of all words that can be released, how likely each is, times the mean of this power of a channel's value, given it."""
    total = torch.zeros(1, dtype=torch.float64, device=prior.device)
    for weight, tables in _terms(plan, prior):
        vectors = [table[_values(one, prior.device)] for table, one in zip(tables, _kept(plan), strict=True)]
        total = total + weight * _outer([vector[:, power if c == channel else 0] for c, vector in enumerate(vectors)])
    return total


def _outer(vectors: Sequence[Tensor]) -> Tensor:
    """All products of one number of each vector, the last vector's running fastest."""
    products = vectors[0]
    for vector in vectors[1:]:
        products = (products[:, None] * vector).flatten()
    return products


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


def _colours(plan: Plan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every colour that can be released has a row: int32, the row of each colour, -1 of the others; int32 [P], the row of each word."""
    terms = 1 << plan.kept_bits.bit_count() + len(_across(plan))
    if channel_count(plan) and terms > MOST_TERMS:
        raise LdpSlicingError(
            f"a plan with so many slices across channels cannot be decoded: {terms} terms, {MOST_TERMS} at most"
        )
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
    channels = channel_count(plan)
    if (
        not isinstance(released, Tensor)
        or released.dtype != torch.uint8
        or released.ndim != 4
        or released.shape[1] != channels
    ):
        got = f"{released.dtype} {tuple(released.shape)}" if isinstance(released, Tensor) else type(released).__name__
        raise ImageError(f"a release is a uint8 tensor [N, {channels}, H, W]; got {got}")
    found = rows[_pack(released.transpose(0, 1))]
    if bool((found < 0).any()):
        raise LdpSlicingError(
            f"there are colours that {plan!r} never releases: another plan, or images changed after their release"
        )
    return found


def _checked(prior: Tensor, plan: Plan) -> Tensor:
    """float64, rows that add up to 1."""
    numbers, shape = prior.double(), (channel_count(plan), 256)
    if (
        numbers.shape != shape
        or not bool((numbers.isfinite() & (numbers >= 0)).all())
        or not bool((numbers.sum(1) > 0).all())
    ):
        raise LdpSlicingError(
            f"a prior is {shape} numbers that are not negative, with something in every row; got {tuple(prior.shape)}"
        )
    return _normal(numbers)


def _pack(channels: Tensor) -> Tensor:
    """Integers [C, ...] to int64 [...]: one number for a colour."""
    packed = channels[0].long()
    for channel in channels[1:]:
        packed = packed << 8 | channel
    return packed


def _sums(rows: Tensor, numbers: Tensor) -> Tensor:
    """int32 and float64 [P], of each word, to float64: the sums over each row's words."""
    return torch.zeros(int(rows.max()) + 1, dtype=torch.float64, device=rows.device).index_add_(0, rows, numbers)


def _normal(table: Tensor) -> Tensor:
    return table / table.sum(-1, keepdim=True)


def _balanced(means: Tensor, variances: Tensor, block: int, off: float) -> Tensor:
    """[N, C, H, W] means and variances of values whose mean over a block is 128, give or take ``off`` squared: the means, given that.

    What a block's means have too much is taken from each in proportion to its variance, as is best if they are normally distributed. Blocks
    at the lower and right edges repeat their last rows and columns, which then count as often.
    """
    if block == 1:
        return means
    height, width = means.shape[2:]
    more = (0, -width % block, 0, -height % block)
    often = torch.ones(height, 1, device=means.device), torch.ones(1, width, device=means.device)
    often[0][-1:], often[1][:, -1:] = 1 + more[3], 1 + more[1]
    weighed = variances * often[0] * often[1]

    def over_blocks(values: Tensor) -> Tensor:
        found = functional.avg_pool2d(functional.pad(values, more, mode="replicate"), block)
        return found.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :height, :width]

    return means - weighed * over_blocks(means - 128) / (over_blocks(weighed) + block * block * off).clamp_min(1e-12)
