"""Local differential privacy for images: release = rebuild(view(source) XOR mask).

>>> from ldp_slicing import privatize
>>> release = privatize(image, epsilon=2.4)         # doctest: +SKIP

Command line: ``ldp-slicing --help``. Documentation: docs/guide.
"""

from ldp_slicing.card import Card
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.plan import Plan, Slice
from ldp_slicing.slicer import Slicer, privatize
from ldp_slicing.version import __version__

__all__ = ["Card", "LdpSlicingError", "Plan", "Slice", "Slicer", "__version__", "privatize"]
