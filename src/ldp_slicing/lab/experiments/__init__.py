"""The experiments by name. Each is a module, which is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.experiment import Experiment

MODULES = {
    "fidelity": "fidelity",
    "curves": "curves",
    "decoding": "decoding",
    "tuning": "tuning",
    "augmentation": "augmentation",
    "small-sets": "small_sets",
    "dp-sgd": "dpsgd",
    "ablation": "ablation",
    "chest": "chest",
    "faces": "faces",
    "face-sets": "face_sets",
    "identity": "identity",
    "psnr": "psnr",
    "overhead": "overhead",
    "throughput": "throughput",
    "averaging": "averaging",
    "bayes": "bayes",
    "black-box": "black_box",
    "white-box": "white_box",
    "bit-unet": "bit_unet",
    "sizes": "sizes",
    "tradeoff": "tradeoff",
    "peers": "peers",
    "peers-storage": "peers_storage",
    "peers-identity": "peers_identity",
    "map2v": "map2v",
}


def load_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in MODULES:
        raise LdpSlicingError(f"there is no experiment {name!r}; there are {', '.join(MODULES)}")
    found: Experiment = import_module(f"{__package__}.{MODULES[name]}").EXPERIMENT
    return found
