"""Where keystreams come from. AES-256 through the `cryptography` library; one 256-bit key per image, never kept."""

from __future__ import annotations

import hashlib
import itertools
import os
from functools import cached_property
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from ldp_slicing.mask import BLOCK_PIXELS, Counters

KEY_BYTES = 32
_AES_BLOCK = 16
_ZEROS = memoryview(bytes(1 << 17))  # what CTR adds its keystream to


class Randomness(Protocol):
    """Gives each image its key. ``secret`` says whether anybody else could know the keys."""

    secret: bool

    def key(self) -> bytes: ...


class Fresh:
    """A new key from the operating system for every image: safe after fork, in threads, and whatever was seeded."""

    secret = True

    def key(self) -> bytes:
        return os.urandom(KEY_BYTES)


class SeededForTests:
    """Repeatable keys. NOT PRIVATE: whoever knows the seed removes the mask. No card is written for such output."""

    secret = False

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = itertools.count()

    def key(self) -> bytes:
        return hashlib.sha256(f"ldp-slicing, seeded for tests: {self._seed}, {next(self._count)}".encode()).digest()


class Keystream:
    """The keystream of one image: AES-256-CTR from counter 0 for the draws, the counters from 2^64 on for ties."""

    def __init__(self, key: bytes, max_lanes: int) -> None:
        self._key = key
        self._stream = Cipher(AES256(key), CTR(bytes(_AES_BLOCK))).encryptor()
        self._buffer = np.empty(2 * BLOCK_PIXELS * max_lanes + _AES_BLOCK - 1, np.uint8)

    def lanes(self, count: int) -> NDArray[np.uint16]:
        """The next ``count`` lanes, uint16 [count, 64], valid until the next call."""
        size = 2 * BLOCK_PIXELS * count
        for start in range(0, size, len(_ZEROS)):
            self._stream.update_into(_ZEROS[: size - start], self._buffer[start:].data)
        return self._buffer[:size].view("<u2").reshape(count, BLOCK_PIXELS)

    def blocks(self, counters: Counters) -> bytes:
        """The keystream's 16 bytes at each counter: CTR at scattered counters is ECB of those counters."""
        return self._single.update(counters.data.cast("B"))

    @cached_property
    def _single(self) -> CipherContext:
        return Cipher(AES256(self._key), ECB()).encryptor()  # noqa: S305
