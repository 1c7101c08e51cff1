"""A U-Net that knows the flip probability of every bit reconstructs sources from releases."""

from __future__ import annotations

from ldp_slicing.lab.experiments.reconstruction_pages import attack_experiment

EXPERIMENT = attack_experiment(
    "bit-unet",
    """
A U-Net maps released bits to sources. Of each bit it is given the expected value, by its flip probability, and the
released value. It knows what the adversary of `white-box` knows and is simpler. It is trained on public images with
fresh noise in every step. The attacked images and people are not among the public ones, as far as names tell.
""",
)
