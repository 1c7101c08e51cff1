"""The posterior of a pixel of the view, given its release and a prediction: the arithmetic of ``reconstruct``."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.plan import Plan
from ldp_slicing.torch.colours import colour_rows, look_up_colours, sum_by_row
from ldp_slicing.torch.decode import word_moments
from ldp_slicing.torch.likelihood import channel_bits, likelihood_terms, released_values

CANDIDATES = 8  # words drawn for each colour
UNIFORM = 0.01  # share of a uniform distribution in the prior, so that no value is impossible
TINY = 1e-30


class PixelPosterior:
    """The words that a colour may stand for, and their likelihood.

    plan: of the releases. prior: float64 [C, 256], as in ``Decoder``.
    """

    def __init__(self, plan: Plan, prior: Tensor) -> None:
        self.plan, device = plan, prior.device
        mixed = (1 - UNIFORM) * prior + UNIFORM / 256
        self.prior = mixed.float()
        self._values = torch.arange(256.0, device=device) - 128  # small, so that squares keep their precision
        terms = list(likelihood_terms(plan, device))
        self._log_weights = torch.tensor([weight for weight, _ in terms], device=device).log()[:, None, None]
        # float32 [T, C, 256, 256] by value of the view and released value
        self._likelihood = torch.stack([torch.stack(tables).mT for _, tables in terms]).float()
        self._prior_terms = (self.prior[:, None] @ self._likelihood)[:, :, 0].clamp_min(TINY)  # [T, C, 256]
        self._log_prior_terms = self._prior_terms.log()
        # float32 [T, C, 256, 256]: how much the likelihood changes from one value of the view to the next
        self._slopes = functional.pad(self._likelihood.diff(dim=2), (0, 0, 1, 0))
        self._channel_values = [released_values(bits, device) for bits in channel_bits(plan)]
        self._rows, rows = colour_rows(plan, device)
        chances = word_moments(plan, mixed)
        shares = chances / sum_by_row(rows, chances)[rows]
        self._order = rows.argsort(stable=True)  # the words, colour by colour
        self._count = torch.bincount(rows)
        self._first = self._count.cumsum(0) - self._count
        self._below = shares[self._order].cumsum(0)  # and how probable the words up to each are, added up
        self._base = self._below[self._first] - shares[self._order[self._first]]

    def draw(self, released: Tensor, generator: torch.Generator | None = None, *, known: bool = False) -> Tensor:
        """Return uint8 [K, N, C, H, W]: K words for each pixel of uint8 [N, C, H, W], drawn given its colour.

        known: as in ``look_up_colours``.

        The draws of a pixel are spread evenly over the distribution (systematic sampling), beginning at a random place
        or, without a generator, in the middle. Each draw alone has the distribution s(r | x) of ``reconstruct``.
        """
        rows = look_up_colours(released, self.plan, self._rows, known=known).long()
        if released.shape[1] == 1:  # a grey value stands for itself
            return released[None]
        start = torch.full(rows.shape, 0.5, dtype=torch.float64, device=rows.device)
        if generator is not None:
            start = torch.rand(rows.shape, dtype=torch.float64, device=rows.device, generator=generator)
        steps = torch.arange(CANDIDATES, device=rows.device).view(-1, 1, 1, 1)
        found = torch.searchsorted(self._below, self._base[rows] + (steps + start) / CANDIDATES)
        first = self._first[rows]
        words = self._order[found.clamp(first, first + self._count[rows] - 1)]
        channels = list[Tensor]()
        for values in reversed(self._channel_values):  # the index of the last channel runs fastest
            channels.append(values[words % len(values)].to(torch.uint8))
            words = words // len(values)
        return torch.stack(channels[::-1], 2)

    def log_gain(self, predicted: Tensor, words: Tensor) -> Tensor:
        """Return float32 [M]: log (1 / K) sum_k P(r_k | predicted) / P(r_k | prior) of M pixels.

        predicted: float32 [C, M, 256], the distributions of the values of the view. words: int64 [C, K, M], r_k.
        """
        return self._log_gain(self._moment(predicted, words), words)

    def log_gain_of_mixture(self, below: Tensor, share: Tensor, words: Tensor) -> Tensor:
        """Return ``log_gain`` of the prediction share D + (1 - share) prior, without the distribution D itself.

        below: float32 [C, M, 256], the probability under D of less than each value. share: float32 [C, M]. Summing by
        parts gives the probability of a release: sum_v D(v) L(v) = L(255) - sum_v below(v) (L(v) - L(v - 1)).
        """
        found = self._likelihood[:, :, -1:] - below @ self._slopes  # [T, C, M, 256] by released value
        chances = _pick(found, words).clamp_min(0)  # rounding may take it below
        prior = _pick(self._prior_terms[:, :, None].expand(found.shape), words)
        return self._log_gain(torch.lerp(prior, chances, share[:, None]), words)

    def _log_gain(self, chances: Tensor, words: Tensor) -> Tensor:
        gains = self._log_evidence(chances).logsumexp(0) - self._log_prior(words)
        return gains.logsumexp(0) - log(len(gains))

    def combine(self, predicted: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return float32 [C, M] twice: mean and variance of each value of the view, given prediction and release."""
        chances = self._moment(predicted, words)
        logarithms = self._log_evidence(chances) - self._log_prior(words)  # [T, K, M]
        weights = logarithms.flatten(0, 1).softmax(0).view(logarithms.shape)[:, None] / chances.clamp_min(TINY)
        moments = [(self._moment(predicted, words, power) * weights).sum((0, 2)) for power in (1, 2)]
        return 128 + moments[0], (moments[1] - moments[0].square()).clamp_min(0)

    def _log_prior(self, words: Tensor) -> Tensor:
        """Return float32 [K, M]: log P(r_k | prior)."""
        terms = self._log_weights
        for channel, values in enumerate(words):
            terms = terms + self._log_prior_terms[:, channel, values]
        return terms.logsumexp(0)

    def _log_evidence(self, chances: Tensor) -> Tensor:
        """Return float32 [T, K, M]: the logarithm of each term of P(r_k | predicted), of float32 [T, C, K, M]."""
        return self._log_weights + chances.clamp_min(TINY).log().sum(1)

    def _moment(self, predicted: Tensor, words: Tensor, power: int = 0) -> Tensor:
        """Return float32 [T, C, K, M]: sum_v (v - 128)^power q(v) L_t(r_k | v) of each term and channel."""
        return _pick((predicted * self._values**power if power else predicted) @ self._likelihood, words)


def _pick(found: Tensor, words: Tensor) -> Tensor:
    """Return [T, C, K, M]: the entries of [T, C, M, 256] at the released values int64 [C, K, M]."""
    return found.gather(3, words.mT.expand(len(found), -1, -1, -1)).mT
