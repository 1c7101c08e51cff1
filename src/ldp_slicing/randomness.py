"""Where keystreams come from. AES-256 through the `cryptography` library; one 256-bit key per image, never kept."""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from ldp_slicing.mask import Blocks

KEY_BYTES = 32
_AES_BLOCK = 16
SLACK = _AES_BLOCK - 1  # bytes of room that the library wants behind what it writes
_ZEROS = memoryview(bytes(1 << 17))  # what CTR adds its keystream to
_COUNTERS = memoryview(
    np.insert(np.arange(3 << 13, dtype=">u8")[:, None], 0, 0, axis=1).tobytes()
)  # 0, 1, ...: for 256 x 256 pixels
_ECB = ECB()  # noqa: S305


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
    """The keystream of one image: AES-256-CTR from counter 0 for the draws, ``size`` bytes of it, the counters from 2^64 on for ties.

    CTR is ECB of the counters. The first of them are the same for every image and lie ready, so a small image needs one cipher
    context, which costs more time than its keystream; a large one has a second for its draws, which counts by itself.
    """

    def __init__(self, key: bytes, size: int) -> None:
        single = Cipher(AES256(key), _ECB).encryptor()
        self.blocks: Blocks = single.update
        self._small, self._done = size <= len(_COUNTERS), 0
        self._stream = single if self._small else Cipher(AES256(key), CTR(bytes(_AES_BLOCK))).encryptor()

    def fill(self, room: memoryview) -> None:
        """Write the next bytes of the draws' keystream, a multiple of 16, to all of ``room`` but its last SLACK bytes."""
        size = len(room) - SLACK
        if self._small:
            written = self._stream.update_into(_COUNTERS[self._done : self._done + size], room)
            if written != size:  # never let a mask be made of what lay in memory
                raise AssertionError(f"{size} bytes of keystream were asked for, {written} were left")
            self._done += size
            return
        for start in range(0, size, len(_ZEROS)):
            self._stream.update_into(_ZEROS[: size - start], room[start:])
