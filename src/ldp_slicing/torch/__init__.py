"""Releases for PyTorch.

>>> from ldp_slicing.torch import open_releases
>>> image, label = open_releases("releases")[0]  # of a folder with a folder per class               # doctest: +SKIP

>>> from ldp_slicing.torch import ReleasedDataset
>>> released = ReleasedDataset(CIFAR10(root), Slicer(Plan.paper(20.0)))                              # doctest: +SKIP

``open_releases`` opens what ``privatize`` wrote; it reads the plan and the view from the card. ``ReleasedDataset``
releases each item of a data set once. ``Privatize`` is a transform that releases on every call and counts its releases.
``Decoder`` computes expected pixel values from releases. ``Reconstructor`` also uses the pixels around each pixel, with
a network that is trained on the releases themselves. ``simulate`` is the mechanism for research.
"""

from ldp_slicing.torch.dataset import ReleasedDataset
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.opening import ReleasedFiles, open_releases
from ldp_slicing.torch.reconstruct import Reconstructor
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.torch.transform import Privatize, RepeatedReleaseWarning

__all__ = [
    "Decoder",
    "Privatize",
    "Reconstructor",
    "ReleasedDataset",
    "ReleasedFiles",
    "RepeatedReleaseWarning",
    "open_releases",
    "simulate",
]
