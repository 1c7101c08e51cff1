"""Releases for PyTorch.

>>> from ldp_slicing.torch import ReleasedDataset
>>> released = ReleasedDataset(CIFAR10(root), Slicer(Plan.paper(20.0)))                              # doctest: +SKIP

``ReleasedDataset`` releases each item of a data set once. ``Privatize`` is a transform that releases on every call and
counts its releases. ``Decoder`` computes expected pixel values from releases. ``simulate`` is the mechanism for
research.
"""

from ldp_slicing.torch.dataset import ReleasedDataset
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.torch.transform import Privatize, RepeatedReleaseWarning

__all__ = ["Decoder", "Privatize", "ReleasedDataset", "RepeatedReleaseWarning", "simulate"]
