"""Image keys, the keystream of an image, and where keys come from.

The keystream is AES-256 from the `cryptography` library. Each image has its own 256-bit key, which is never stored.

Proofs: docs/proofs.md, 10. Tests: tests/test_randomness.py.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from ldp_slicing.errors import ImageKeyError
from ldp_slicing.mask import Blocks

KEY_BYTES = 32
_AES_BLOCK = 16
SLACK = _AES_BLOCK - 1  # extra bytes that update_into requires at the end of its buffer
_ZEROS = memoryview(bytes(1 << 17))  # CTR mode XORs its keystream onto these
# The counters 0, 1, ..., 3 * 2^13 - 1: enough for 256 x 256 pixels of the paper's plan.
_COUNTERS = memoryview(np.insert(np.arange(3 << 13, dtype=">u8")[:, None], 0, 0, axis=1).tobytes())
_ECB = ECB()  # noqa: S305


class ImageKey:
    """The 256-bit key of one image. It can be used once: two images released under one key would reveal their XOR.

    >>> key = ImageKey(os.urandom(32))
    >>> release = slicer(image, key=key)        # doctest: +SKIP

    ``is_secret`` is False for keys that somebody else may know, such as seeded ones; a Slicer whose randomness is
    secret refuses those. Copies are refused too, because each copy could be used once more.
    """

    __slots__ = ("_unused", "is_secret")

    def __init__(self, key: bytes, *, is_secret: bool = True) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ImageKeyError(f"an image key has {KEY_BYTES} bytes; got {type(key).__name__} of another length")
        self._unused = [key]
        self.is_secret = is_secret

    def take(self) -> bytes:
        """Return the key's bytes, the first time. A second call raises ImageKeyError."""
        try:
            return self._unused.pop()  # atomic, so two threads cannot both get it
        except IndexError:
            raise ImageKeyError("this image key has been used; derive a new key for each image") from None

    def __repr__(self) -> str:
        return "ImageKey(...)"

    def __reduce__(self) -> NoReturn:
        raise ImageKeyError("an image key cannot be copied or pickled; derive it where it is used")


class Randomness(Protocol):
    """A source of image keys. ``secret`` says whether its keys are unknown to everybody else."""

    secret: bool

    def key(self) -> ImageKey: ...


class Fresh:
    """A new key from the operating system for every image. Safe after fork, in threads and under any seed."""

    secret = True

    def key(self) -> ImageKey:
        return ImageKey(os.urandom(KEY_BYTES))


class SeededForTests:
    """Repeatable keys. NOT PRIVATE: anybody who knows the seed can remove the mask. Such output gets no card."""

    secret = False

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = itertools.count()

    def key(self) -> ImageKey:
        text = f"ldp-slicing, seeded for tests: {self._seed}, {next(self._count)}"
        return ImageKey(hashlib.sha256(text.encode()).digest(), is_secret=False)


class Keystream:
    """The keystream of one image: AES-256-CTR. Counters from 0 serve the draws, counters from 2^64 the ties.

    ``size`` is the number of bytes that the draws need. CTR is ECB of the counters. A small image encrypts the
    precomputed counters with the cipher context that also serves the ties, because creating a second context would
    take longer than its keystream. A large image has a second context in CTR mode.
    """

    def __init__(self, key: bytes, size: int) -> None:
        single = Cipher(AES256(key), _ECB).encryptor()
        self.blocks: Blocks = single.update
        self._small, self._done = size <= len(_COUNTERS), 0
        self._stream = single if self._small else Cipher(AES256(key), CTR(bytes(_AES_BLOCK))).encryptor()

    def fill(self, room: memoryview) -> None:
        """Write the next ``len(room) - SLACK`` bytes of the draws' keystream to ``room``: a multiple of 16 bytes."""
        size = len(room) - SLACK
        if self._small:
            written = self._stream.update_into(_COUNTERS[self._done : self._done + size], room)
            if written != size:  # uninitialised memory must never become a mask
                raise AssertionError(f"the keystream has only {written} of the {size} bytes that were requested")
            self._done += size
            return
        for start in range(0, size, len(_ZEROS)):
            self._stream.update_into(_ZEROS[: size - start], room[start:])
