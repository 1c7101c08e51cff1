"""An attack without training: the posterior of each pixel under a public prior, then non-local means.

The prior is the histogram of each channel in the views of public images. The plan's tables give the exact probability
of every flip, so the posterior of each pixel is exact if the channels of the prior are independent. For a pruned view
the attack reconstructs only the detail: neither a release nor this prior contains the low band.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.attacks.attack_target import BATCH, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb, undo_gain
from ldp_slicing.lab.mechanism import SlicingMechanism
from ldp_slicing.lab.rows import Measurement
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import posterior_mean
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import Prune, gain_of

PUBLIC, PIXELS = 500, 500 * 112 * 112  # public images that the attack is fitted to, and their pixels, at most
PATCH, REACH = 5, 7  # of non-local means: patches of 5 x 5, compared up to 7 pixels away
STRENGTHS = (0.0, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)  # its h, in standard deviations of the noise


@dataclass(frozen=True)
class Bayes:
    """The attack on a plan and view, fitted to public images.

    prior: float32 [C, 256]. strength: of the non-local means.
    noise: float32 [C], the standard deviation of the posterior mean around a line through the true values.
    lines: float32 [C, 2], offset and slope. The posterior mean of a noisy pixel lies near the mean of the prior, and
        averaging over neighbours does not correct that; a line per channel, fitted to public images, does.
    """

    plan: Plan
    prune: Prune
    prior: Tensor
    noise: Tensor
    strength: float
    lines: Tensor

    def reconstruct(self, released: Tensor) -> Tensor:
        """Releases as uint8 [N, C, H, W] of words (Y, Cb, Cr) to float32 [N, C, H, W], RGB of 0..255."""
        smooth = _smooth(_means(released, self.plan, self.prior), self.noise, self.strength)
        return float_rgb(undo_gain(_along(self.lines, smooth), gain_of(self.prune))).clamp_(0, 255)


def prepare(public: Tensor, plan: Plan, generator: torch.Generator | None = None, *, prune: Prune = "haar") -> Bayes:
    """Fit prior, strength and lines to uint8 [N, C, H, W] public images."""
    seen = apply_view(public, prune, colour=plan.is_colour)
    prior = torch.stack([torch.bincount(channel.flatten(), minlength=256) + 1.0 for channel in seen.unbind(1)])
    prior = prior / prior.sum(1, keepdim=True)
    mean = _means(simulate(public, plan, generator, prune=prune, output="ycbcr"), plan, prior)
    noise = (mean - _along(_fit(seen, mean), seen)).square().mean((0, 2, 3)).sqrt().clamp_min(0.01)
    tried = []
    for strength in STRENGTHS:
        smooth = _smooth(mean, noise, strength)
        lines = _fit(smooth, seen)
        tried.append(((_along(lines, smooth) - seen).square().mean().item(), strength, lines))
    _, strength, lines = min(tried, key=lambda one: one[0])
    return Bayes(plan, prune, prior, noise, strength, lines)


def _means(released: Tensor, plan: Plan, prior: Tensor) -> Tensor:
    """uint8 [N, C, H, W] released words to float32 [N, C, H, W]."""
    return posterior_mean(released.transpose(0, 1).long(), plan, prior).transpose(0, 1)


def _smooth(mean: Tensor, noise: Tensor, strength: float) -> Tensor:
    """Non-local means of [N, C, H, W]; channels are compared in units of their own noise."""
    if strength == 0:
        return mean
    units = noise.view(1, -1, 1, 1)
    return (
        torch.cat(
            [non_local_means(part / units, strength, patch=PATCH, reach=REACH) for part in torch.split(mean, 256)]
        )
        * units
    )


def non_local_means(images: Tensor, strength: float, *, patch: int, reach: int) -> Tensor:
    """float32 [N, C, H, W] to the same: every pixel becomes a mean of its neighbours, weighted by patch similarity.

    The weight is exp(-d / strength^2), d the mean squared difference of the patches (Buades et al. 2005).
    """
    half, (height, width) = patch // 2, images.shape[2:]
    around = functional.pad(images, (reach + half,) * 4, mode="reflect")
    centre = around[:, :, reach : reach + height + 2 * half, reach : reach + width + 2 * half]
    total, weights = torch.zeros_like(images), torch.zeros_like(images[:, :1])
    for down in range(2 * reach + 1):
        for right in range(2 * reach + 1):
            moved = around[:, :, down : down + height + 2 * half, right : right + width + 2 * half]
            apart = functional.avg_pool2d((moved - centre).square().mean(1, keepdim=True), patch, 1)
            weight = torch.exp(-apart / strength**2)
            total += weight * moved[:, :, half : half + height, half : half + width]
            weights += weight
    return total / weights


def _fit(found: Tensor, wanted: Tensor) -> Tensor:
    """Two [N, C, H, W] to float32 [C, 2]: for each channel the least-squares line from the first to the second."""
    x, y = (values.transpose(0, 1).flatten(1).double() for values in (found, wanted))
    centred = x - x.mean(1, keepdim=True)
    slope = (centred * y).mean(1) / centred.square().mean(1).clamp_min(1e-9)
    return torch.stack((y.mean(1) - slope * x.mean(1), slope), 1).float()


def _along(lines: Tensor, values: Tensor) -> Tensor:
    return lines[:, 0].view(1, -1, 1, 1) + lines[:, 1].view(1, -1, 1, 1) * values


def attack_by_posterior(target: AttackTarget, mechanism: SlicingMechanism) -> Outcome:
    """What the posterior of each pixel reveals, and what was fitted to public images for it."""
    device = target.sources.device
    generator = torch.Generator(device).manual_seed(0)
    count, height, width = target.public.shape[:3]
    chosen = np.linspace(0, count - 1, min(count, PUBLIC, -(-PIXELS // (height * width)))).astype(int)
    public = torch.from_numpy(target.public[chosen]).permute(0, 3, 1, 2).to(device)
    ready = prepare(public, mechanism.plan, generator, prune=mechanism.prune)
    releases, guesses = [], []
    for some in (example_sources(target), *torch.split(target.sources, BATCH)):
        words = mechanism.protect(some, generator)
        releases.append(mechanism.to_rgb(words))
        guesses.append(ready.reconstruct(words))
    releases_score, guesses_score = (target.score(torch.cat(images[1:])) for images in (releases, guesses))
    reached = {"release": releases_score, "reconstruction": guesses_score}
    fitted = {"public_images": len(chosen), "strength": ready.strength, "lines": ready.lines.tolist()}
    return Outcome((Measurement(reached, mechanism.plan),), {mechanism.plan.epsilon: (releases[0], guesses[0])}, fitted)
