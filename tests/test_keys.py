from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Plan, Slicer
from ldp_slicing.digests import frame, source_digest
from ldp_slicing.errors import KeyFileError
from ldp_slicing.keys import Secret, destroy_key_file, new_key_file, read_key_file
from ldp_slicing.randomness import ImageKey
from ldp_slicing.view import Padded, Size, shrinking_of, to_rgb
from tests.cases import PLANS
from tests.make_key_vectors import FILE, all_vectors
from tests.make_vectors import source_of

RUN, OWNER = Secret(bytes(range(32)), is_owners=False), Secret(bytes(range(32)), is_owners=True)
IMAGE = source_of(Plan.paper(20.0), 6, 4)
SHRINKINGS = {  # top, left, height and width of the rectangle; released height and width
    ("7", 9, 20): (0, 0, 9, 20, 3, 7),
    ("[4, 3]", 9, 20): (0, 4, 9, 12, 3, 4),
    ("[9, 10]", 19, 11): (3, 0, 12, 11, 10, 9),
    ("[12, 6]", 9, 5): (1, 0, 6, 5, 6, 12),  # padded
    ("[23, 15]", 9, 20): (0, 0, 9, 20, 15, 23),
}


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "big")


def framed(*parts: bytes) -> bytes:
    return b"".join(number(len(part)) + part for part in parts)


def test_vectors_file_is_up_to_date() -> None:
    assert json.loads(FILE.read_text()) == all_vectors()


@pytest.mark.parametrize(
    "case",
    json.loads(FILE.read_text())["vectors"],
    ids=lambda case: f"{case['plan']}, {case['prune']}, {case.get('size')}",
)
def test_vectors_follow_from_the_standard_library_alone(case: dict[str, Any]) -> None:
    """Recompute each vector from its definition, without keys.py."""
    plan, source = PLANS[case["plan"]], bytes.fromhex(case["source"])
    channels, bits = (3, 8) if plan.is_colour else (1, plan.word_bits)
    shape = b"".join(map(number, (case["height"], case["width"], channels, bits)))
    digest = hashlib.sha256(framed(b"ldp-slicing source 1", shape, source)).digest()
    assert digest.hex() == case["source_digest"]
    tables = plan.tables
    arrays = [
        tables.first.tobytes(),
        tables.rest.astype("<u8").tobytes(),
        tables.outcome.tobytes(),
        tables.uniform.tobytes(),
    ]
    groups = b"".join(number(group, 4) for group in tables.group_bits)
    drawn = hashlib.sha256(framed(b"ldp-slicing tables 1", number(plan.word_bits, 4), groups, *arrays)).digest()
    assert drawn.hex() == case["tables_digest"]
    seen = [(case["prune"] or "none").encode(), b"YCbCr" if plan.is_colour else b"grey"]
    if "size" in case:
        seen.append(b"".join(map(number, SHRINKINGS[str(case["size"]), case["height"], case["width"]])))
    view = framed(*seen)
    rest, secret, name = (digest, drawn, view, number(1, 4)), bytes.fromhex(case["secret"]), bytes.fromhex(case["name"])
    assert (
        hmac.digest(secret, framed(b"ldp-slicing run key 1", name, *rest), "sha256").hex() == case["image_key_of_run"]
    )
    assert (
        hmac.digest(secret, framed(b"ldp-slicing owner's key 1", *rest), "sha256").hex() == case["image_key_of_owner"]
    )
    assert hmac.digest(secret, framed(b"ldp-slicing output name 1", name), "sha256").hex()[:32] == case["output_name"]


PARTS = st.lists(st.binary(max_size=12), max_size=5)


@given(PARTS, PARTS)
def test_different_lists_of_parts_have_different_frames(one: list[bytes], two: list[bytes]) -> None:
    assert (frame(*one) == frame(*two)) == (one == two)


def test_key_changes_with_secret_name_source_plan_and_view() -> None:
    grey, other = IMAGE[..., 0], IMAGE.copy()
    other[5, 3, 2] ^= 1
    sources = [
        source_digest(IMAGE, 8),
        source_digest(other, 8),
        source_digest(grey, 8),
        source_digest(grey.astype(np.uint16), 16),
    ]
    sources += [
        source_digest(IMAGE.reshape(4, 6, 3), 8),
        source_digest(IMAGE.reshape(12, 2, 3), 8),
        source_digest(grey.astype(np.uint16), 12),
    ]
    plans = [
        Plan.paper(20.0),
        Plan.paper(20.0, (2, 1, 1)),
        Plan.paper(np.nextafter(19.0, 0)),
        Plan.grey(20.0),
        Plan.grey(20.0, 16),
    ]
    sizes = (1, 2, 3, 5, (2, 2), (4, 4), (3, 2), Padded(4, 7), Padded(4, 8))
    shrinkings = [None, *(shrinking_of(size, 6, 4) for size in sizes)]
    assert len(set(shrinkings)) == 10
    views = list(itertools.product(("haar", "dct", None), shrinkings))
    keys = {
        secret.image_key(name, source, plan, *view).take()
        for secret in (RUN, Secret(bytes(32), is_owners=False))
        for name, source, plan, view in itertools.product((b"a", b"b", b""), sources, plans, views)
    }
    assert len(keys) == 2 * 3 * 7 * 5 * 30
    owners = {
        OWNER.image_key(name, source, plan, "haar", shrinking).take()
        for name, source, plan, shrinking in itertools.product((b"a", b"b"), sources, plans, shrinkings)
    }
    assert len(owners) == 7 * 5 * 10
    assert not owners & keys


def test_key_does_not_change_with_memory_layout_or_output() -> None:
    deep = (IMAGE[..., 0].astype(np.uint16) << 4) + 3
    assert (
        source_digest(deep, 16) == source_digest(deep.astype(">u2"), 16) == source_digest(np.asfortranarray(deep), 16)
    )
    digest = source_digest(IMAGE, 8)
    one, two = (RUN.image_key(b"a", digest, Plan.paper(20.0), "haar", None).take() for _ in range(2))
    assert one == two
    again = [Slicer(Plan.paper(20.0), output=output)(IMAGE, key=ImageKey(one)) for output in ("rgb", "ycbcr")]
    np.testing.assert_array_equal(again[0], np.moveaxis(to_rgb(np.moveaxis(again[1], -1, 0)), 0, -1))


def test_key_depends_on_the_size_that_results_and_not_on_how_it_was_asked_for() -> None:
    digest, plan = source_digest(IMAGE, 8), Plan.paper(20.0)

    def key(size: Size) -> bytes:
        return OWNER.image_key(b"a", digest, plan, "haar", Slicer(plan, size=size).shrinking(6, 4)).take()

    assert key(None) == key(6) == key(1000) == key((4, 6)) == key(Padded(4, 6))
    assert key(3) == key((2, 3)) == key(Padded(2, 3)) != key(None)
    assert key((4, 4)) not in (key(4), key(None))


def test_key_file_is_readable_by_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "my.key"
    os.umask(before := os.umask(0))
    key = new_key_file(path)
    os.umask(before)
    assert len(key) == 32
    assert read_key_file(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "key" not in repr(Secret(key, is_owners=True)).replace("is_owners", "")
    with pytest.raises(KeyFileError, match="never overwritten"):
        new_key_file(path)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="mode 0640"):
        read_key_file(path)
    path.chmod(0o600)
    with open(path, "rb") as held:
        destroy_key_file(path)
        assert set(held.read()) == {0}
    assert not path.exists()
    with pytest.raises(KeyFileError, match="No such file"):
        read_key_file(path)
    with pytest.raises(KeyFileError, match="cannot be written"):
        new_key_file(tmp_path / "nowhere" / "key")


@pytest.mark.parametrize(
    "content", [b"", b"secret", b"ldp-slicing key 1\n", b"ldp-slicing key 1\n" + b"ab" * 31, bytes(90), b"ab" * 32]
)
def test_malformed_key_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="not a key file"):
        read_key_file(path)
