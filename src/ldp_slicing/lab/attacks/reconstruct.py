"""Reconstruction by a trained network: the black box and the white box."""

from __future__ import annotations

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import BATCH, AttackTarget
from ldp_slicing.lab.attacks.outcome import Outcome, example_sources
from ldp_slicing.lab.bits import float_rgb
from ldp_slicing.lab.learners.objectives import ReconstructionObjective
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.rows import Measurement
from ldp_slicing.plan import Plan


def reconstruction_of(run: TrainingRun) -> ReconstructionObjective:
    """The objective of a run whose recipe has the loss "source"."""
    if not isinstance(run.objective, ReconstructionObjective):
        raise TypeError(f"a run with the loss {run.task.recipe.loss!r} does not reconstruct")
    return run.objective


def reconstruct_sources(run: TrainingRun, sources: Tensor, plan: Plan) -> Tensor:
    """uint8 [N, C, H, W] to float32 [N, C, H, W], 0..255: each source released once and reconstructed."""
    network = reconstruction_of(run)
    return torch.cat([network.reconstruct(network.release(part, plan), plan) for part in torch.split(sources, BATCH)])


def attack_with_network(run: TrainingRun, target: AttackTarget) -> Outcome:
    """The trained network on one release of each source, for every plan that it was trained for."""
    network, found, examples = reconstruction_of(run), list[Measurement](), {}
    for plan in run.task.plans:
        parts = (example_sources(target), *torch.split(target.sources, BATCH))
        releases = [network.release(part, plan) for part in parts]
        images = [_to_rgb(part, network) for part in releases]
        guesses = [network.reconstruct(part, plan) for part in releases]
        scores = {
            "release": target.score(torch.cat(images[1:])),
            "reconstruction": target.score(torch.cat(guesses[1:])),
        }
        found.append(Measurement(scores, plan))
        examples[plan.epsilon] = (images[0], guesses[0])
    return Outcome(tuple(found), examples)


def _to_rgb(releases: Tensor, network: ReconstructionObjective) -> Tensor:
    return float_rgb(releases.float()).clamp_(0, 255) if network.adversary.takes == "ycbcr" else releases
