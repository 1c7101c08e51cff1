"""Test vectors: the bytes on which NumPy, C and every later implementation must agree."""

from __future__ import annotations

import json

import numpy as np

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.randomness import ImageKey
from tests.cases import backends
from tests.make_vectors import FILE, all_vectors, little_endian, size_of


def test_vectors_file_is_up_to_date() -> None:
    assert json.loads(FILE.read_text()) == all_vectors()


def test_every_backend_reproduces_the_vectors_file() -> None:
    for case in json.loads(FILE.read_text())["vectors"]:
        plan = Plan(
            [Slice(int(bits, 16), float.fromhex(epsilon)) for bits, epsilon in case["slices"]], case["word_bits"]
        )
        shape = (case["height"], case["width"], 3) if plan.is_colour else (case["height"], case["width"])
        source = np.frombuffer(
            bytes.fromhex(case["source"]), "<u2" if plan.word_bits in range(9, 17) else np.uint8
        ).reshape(shape)
        for output, expected in case["release"].items():
            for backend in backends():
                slicer = Slicer(plan, prune=case["prune"], size=size_of(case), output=output, backend=backend)
                release = slicer(source, key=ImageKey(bytes.fromhex(case["key"])))
                assert little_endian(release).hex() == expected, (case["plan"], backend.name)
