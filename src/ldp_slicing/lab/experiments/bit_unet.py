"""A U-Net that knows the flip probability of every bit reconstructs sources from releases."""

from __future__ import annotations

from ldp_slicing.lab.experiments.reconstruction_pages import attack_experiment

EXPERIMENT = attack_experiment(
    "bit-unet",
    """
A U-Net maps released bits to sources. For each bit it is given the released value and the expected value, which follows
from the flip probability. It knows what the adversary of `white-box` knows and is simpler. It is trained on public
images with fresh noise in every step. Judging by their names, the attacked images and people are not among the public
ones.
""",
)
