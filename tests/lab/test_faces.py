from __future__ import annotations

import io
import itertools
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from ldp_slicing.errors import DataError
from ldp_slicing.lab.data.face_pairs import Face, decode_faces, read_bin, read_pairs
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.metrics.verification import best_threshold, fold_accuracy, squared_distances


def brute_threshold(distances: list[float], same: list[bool]) -> float:
    values = sorted(set(distances))
    candidates = [-np.inf, *((a + b) / 2 for a, b in itertools.pairwise(values)), np.inf]
    scores = [sum((d < candidate) == s for d, s in zip(distances, same, strict=True)) for candidate in candidates]
    return float(candidates[scores.index(max(scores))])  # the first of the best is the smallest


@pytest.mark.parametrize("seed", range(40))
def test_protocol_against_brute_force(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count, folds = int(generator.integers(6, 40)), int(generator.integers(2, 6))
    same = generator.random(count) < 0.5
    distances = generator.normal(2 - same, 0.7)
    if seed % 2:
        distances = distances.round(1)  # many ties
    groups = generator.permutation(np.arange(count) % folds)
    result = fold_accuracy(distances, same, groups)
    expected = []
    for fold in range(folds):
        train, test = groups != fold, groups == fold
        threshold = brute_threshold(distances[train].tolist(), same[train].tolist())
        assert result.thresholds[fold] == pytest.approx(threshold)
        expected.append(np.mean((distances[test] < threshold) == same[test]))
    np.testing.assert_allclose(result.per_fold, expected)
    assert result.accuracy == pytest.approx(np.mean(expected))
    assert result.standard_error == pytest.approx(np.std(expected, ddof=1) / folds**0.5)


def test_threshold_at_the_ends_and_between_neighbouring_floats() -> None:
    distances = np.array([1.0, 2.0])
    assert best_threshold(distances, np.array([True, True])) == np.inf
    assert best_threshold(distances, np.array([False, False])) == -np.inf
    assert best_threshold(distances, np.array([True, False])) == 1.5
    assert best_threshold(distances, np.array([False, True])) == -np.inf  # a tie with +inf: the smallest
    for low in (1.0, np.nextafter(1.0, 2)):
        close = np.array([low, np.nextafter(low, 2)])
        threshold = best_threshold(close, np.array([True, False]))
        assert (close < threshold).tolist() == [True, False]


def test_folds_of_neighbours() -> None:
    generator = np.random.default_rng(0)
    distances, same = generator.random(23), generator.random(23) < 0.5
    groups = np.repeat([0, 1, 2, 3], [6, 6, 6, 5])
    np.testing.assert_array_equal(
        fold_accuracy(distances, same, 4).per_fold, fold_accuracy(distances, same, groups).per_fold
    )


@pytest.mark.parametrize(
    ("distances", "same", "folds", "message"),
    [
        ([1.0, 2.0], [True], 2, "differ in length"),
        ([1.0, np.nan], [True, False], 2, "not finite"),
        ([1.0, 2.0], [True, False], [0, 0], "1 folds"),
        ([1.0, 2.0], [True, False], 3, "3 folds cannot"),
    ],
)
def test_protocol_refuses(distances: list[float], same: list[bool], folds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fold_accuracy(distances, same, folds)


def test_embedding_adds_the_mirror() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 8), nn.Dropout(0.5))
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    result = embed(model, images, prepare=lambda x: x.float() / 255, batch=2)
    assert model.training
    model.eval()
    whole = images.float() / 255
    expected = model(whole) + model(whole.flip(3))
    torch.testing.assert_close(result, (expected / expected.norm(dim=1, keepdim=True)).detach())
    torch.testing.assert_close(embed(model, whole, flip=False), nn.functional.normalize(model(whole)).detach())
    torch.testing.assert_close(embed(model, whole), embed(model, whole.flip(3)))


def test_squared_distances() -> None:
    a, b = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(squared_distances(a, b), [2.0, 0.0])
    with pytest.raises(ValueError, match="do not pair up"):
        squared_distances(a, b[:1])


PAIRS = """2\t2
Ada_L\t1\t2
Ada_L\t1\t11
Ada_L\t1\tBob\t3
Bob\t3\tCy\t1
Cy\t1\t2
Cy\t2\t3
Ada_L\t2\tCy\t1
Bob\t1\tCy\t1234
"""


def test_read_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(PAIRS)
    pairs = read_pairs(path)
    assert pairs.first[0] == Face("Ada_L", 1)
    assert pairs.second[1].file() == Path("Ada_L/Ada_L_0011.jpg")
    assert pairs.second[-1].file(".webp") == Path("Cy/Cy_1234.webp")
    assert pairs.same.tolist() == [True, True, False, False] * 2
    assert pairs.folds.tolist() == [0] * 4 + [1] * 4


def test_read_pairs_of_view_1(tmp_path: Path) -> None:
    path = tmp_path / "pairsDevTest.txt"
    path.write_text("1\nAda 1 2\nAda 1 Bob 1\n")
    assert read_pairs(path).folds.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2\t2\n", "", "begins with 'Ada_L 1 2'"),
        ("2\t2\n", "2\t0\n", "begins with"),
        ("2\t2\n", "2\t3\n", "2 x 2 x 3"),
        (PAIRS, "", "begins with ''"),
        ("Ada_L\t1\t2\n", "Ada_L\t1\tBob\t2\n", "pair 1: .*is not 'name number number'"),
        ("Bob\t1\tCy\t1234", "Bob\t1\t2", "pair 8: .*is not 'name number name number'"),
        ("Cy\t1234", "../Cy\t1", "is not a person"),
        ("Cy\t1234", "..\t1", "is not a person"),
        ("Cy\t1234", "Cy\tone", "is not a person"),
    ],
)
def test_read_pairs_refuses(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(PAIRS.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        read_pairs(path)


def encode(pixels: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def some_images(count: int = 4) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 112, 112, 3), np.uint8)


def python2(images: list[bytes], same: list[bool]) -> bytes:
    """What Python 2 writes at protocol 2: byte strings as BINSTRING, which Python 3 would take for text."""
    body = b"".join(b"T" + struct.pack("<i", len(image)) + image for image in images)
    return b"\x80\x02](" + body + b"e](" + b"".join(b"\x88" if one else b"\x89" for one in same) + b"e\x86."


def python2_array(image: bytes) -> bytes:
    """A uint8 array as Python 2's NumPy pickled it."""
    build = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR"
    kind = b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
    return build + b"(I1\n(I%d\nt" % len(image) + kind + b"I00\nT" + struct.pack("<i", len(image)) + image + b"tb"


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("arrays", [False, True])
def test_read_bin(tmp_path: Path, protocol: int, arrays: bool) -> None:
    images = some_images()
    encoded = [encode(image) for image in images]
    stored = [np.frombuffer(content, np.uint8) for content in encoded] if arrays else encoded
    path = tmp_path / "set.bin"
    path.write_bytes(pickle.dumps((stored, [True, np.bool_(False)]), protocol=protocol))
    found, same = read_bin(path)
    assert found == encoded
    assert same.tolist() == [True, False]
    np.testing.assert_array_equal(decode_faces(found), images)


def test_read_bin_from_python_2(tmp_path: Path) -> None:
    encoded = [encode(image, "JPEG") for image in some_images()]
    path = tmp_path / "set.bin"
    path.write_bytes(python2(encoded, [False, True]))
    found, same = read_bin(path)
    assert found == encoded
    assert same.tolist() == [False, True]
    path.write_bytes(b"\x80\x02](" + b"".join(map(python2_array, encoded[:2])) + b"e](\x88e\x86.")
    assert read_bin(path)[0] == encoded[:2]


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_read_bin_runs_nothing(tmp_path: Path, protocol: int) -> None:
    path, target = tmp_path / "evil.bin", tmp_path / "made"
    path.write_bytes(pickle.dumps(([b"a", Evil(target)], [True]), protocol=protocol))
    with pytest.raises(DataError, match="the pickle calls"):
        read_bin(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())  # the file would have worked
    assert target.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "a pair of images and answers"),
        (([b"a"], [True]), "1 images for 1 pairs"),
        (([], []), "0 images for 0 pairs"),
        (([b"a", "b"], [True]), "a str instead of the bytes"),
        (([b"a", np.zeros((2, 2), np.uint8)], [True]), "an array of 2 dimensions instead of the bytes"),
        (([b"a", b"b"], [2]), "2 instead of true or false"),
        (([b"a", b"b"], [None]), "None instead of true or false"),
        ((7, [None]), "0 images"),
    ],
)
def test_read_bin_refuses(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "set.bin"
    path.write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(DataError, match=message):
        read_bin(path)


def test_read_bin_refuses_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    path.write_bytes(pickle.dumps(([b"a", b"b"], [True]))[:-3])
    with pytest.raises(DataError, match="not a pickled verification set"):
        read_bin(path)


def test_decode_faces() -> None:
    grey = some_images(1)[0, :, :, 0]
    np.testing.assert_array_equal(decode_faces([encode(grey)])[0], np.stack([grey] * 3, -1))
    assert decode_faces([]).shape == (0, 112, 112, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encode(some_images(1)[0], "BMP"), "image 1 cannot be decoded"),
        (encode(some_images(1)[0, :96]), "image 1: is 112 x 96, mode RGB"),
        (encode(np.zeros((112, 112, 4), np.uint8)), "mode RGBA"),
        (encode(some_images(1)[0])[:2000], "image 1 cannot be decoded"),
        (b"", "image 1 cannot be decoded"),
    ],
)
def test_decode_faces_refuses(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode_faces([encode(some_images(1)[0]), content])
