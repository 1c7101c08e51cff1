"""The experiments by name; each is a module."""

from __future__ import annotations

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.experiment import Experiment
from ldp_slicing.lab.experiments import (
    ablation,
    averaging,
    bayes,
    chest,
    curves,
    decoding,
    dpsgd,
    faces,
    fidelity,
    identity,
    overhead,
    psnr,
    reconstruction,
    throughput,
    tradeoff,
    tuning,
)

EXPERIMENTS: dict[str, Experiment] = {
    "fidelity": fidelity.EXPERIMENT,
    "curves": curves.EXPERIMENT,
    "decoding": decoding.EXPERIMENT,
    "tuning": tuning.EXPERIMENT,
    "dp-sgd": dpsgd.EXPERIMENT,
    "ablation": ablation.EXPERIMENT,
    "chest": chest.EXPERIMENT,
    "faces": faces.EXPERIMENT,
    "identity": identity.EXPERIMENT,
    "psnr": psnr.EXPERIMENT,
    "overhead": overhead.EXPERIMENT,
    "throughput": throughput.EXPERIMENT,
    "averaging": averaging.EXPERIMENT,
    "bayes": bayes.EXPERIMENT,
    "black-box": reconstruction.BLACK_BOX,
    "white-box": reconstruction.WHITE_BOX,
    "tradeoff": tradeoff.EXPERIMENT,
}


def experiment(name: str) -> Experiment:
    """By name."""
    if name not in EXPERIMENTS:
        raise LdpSlicingError(f"`ldp-slicing lab reproduce` knows no {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
