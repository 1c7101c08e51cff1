"""A network that is told eps and nothing else about the mechanism reconstructs sources from releases."""

from __future__ import annotations

from ldp_slicing.lab.experiments.reconstruction_pages import attack_experiment

EXPERIMENT = attack_experiment(
    "black-box",
    """
A U-Net maps releases (RGB) to sources. It is trained on public images with fresh noise in every step, and is told eps
but nothing else about the mechanism. Judging by their names, the attacked images and people are not among the public
ones.
""",
)
