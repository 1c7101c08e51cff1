"""A network that knows the mechanism reconstructs sources from releases."""

from __future__ import annotations

from ldp_slicing.lab.experiments.reconstruction_pages import attack_experiment

EXPERIMENT = attack_experiment(
    "white-box",
    """
This attack has two stages, like the paper's; the recipes state the differences. It is given the released words and the
flip probability of every bit. An autoencoder with eight attention modules, one for each bit-plane, predicts the bits
of the view. A full-scale U-Net then adds the low band, and may correct the detail. Both are trained together on public
images with fresh noise in every step. Judging by their names, the attacked images and people are not among the public
ones. The sheets of pruned releases also show the low band of each reconstruction, which is the mean of each 2 x 2
block: no release contains it.
""",
)
