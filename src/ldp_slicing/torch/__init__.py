"""Releases for PyTorch: a data set that is released once, a decoder for learners, a transform that counts, a simulation for research.

>>> from ldp_slicing.torch import ReleasedDataset
>>> released = ReleasedDataset(CIFAR10(root), Slicer(Plan.paper(20.0)), transform=v2.PILToTensor())        # doctest: +SKIP
"""

from ldp_slicing.torch.dataset import ReleasedDataset
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.simulate import simulate
from ldp_slicing.torch.transform import Privatize, RepeatedReleaseWarning

__all__ = ["Decoder", "Privatize", "ReleasedDataset", "RepeatedReleaseWarning", "simulate"]
