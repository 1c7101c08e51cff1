from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import KeyFileError
from ldp_slicing.keys import Secret, destroy_key_file, frame, new_key_file, read_key_file, source_digest
from ldp_slicing.randomness import ImageKey
from ldp_slicing.view import to_rgb
from tests.cases import PLANS
from tests.make_key_vectors import FILE, all_vectors
from tests.make_vectors import source_of

RUN, OWNER = Secret(bytes(range(32)), is_owners=False), Secret(bytes(range(32)), is_owners=True)
IMAGE = source_of(Plan.paper(20.0), 6, 4)


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "big")


def framed(*parts: bytes) -> bytes:
    return b"".join(number(len(part)) + part for part in parts)


def test_vectors_file_is_up_to_date() -> None:
    assert json.loads(FILE.read_text()) == all_vectors()


@pytest.mark.parametrize(
    "case", json.loads(FILE.read_text())["vectors"], ids=lambda case: f"{case['plan']}, {case['prune']}"
)
def test_vectors_follow_from_the_standard_library_alone(case: dict[str, str]) -> None:
    """Recompute each vector from its definition, without keys.py."""
    plan, source = PLANS[case["plan"]], bytes.fromhex(case["source"])
    channels, bits = (3, 8) if plan.is_colour else (1, plan.word_bits)
    digest = hashlib.sha256(
        framed(b"ldp-slicing source 1", number(5) + number(3) + number(channels) + number(bits), source)
    ).digest()
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
    view = framed((case["prune"] or "none").encode(), b"YCbCr" if plan.is_colour else b"grey")
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


def test_key_changes_with_secret_name_source_plan_and_pruning() -> None:
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
    keys = {
        secret.image_key(name, source, plan, prune).take()
        for secret in (RUN, Secret(bytes(32), is_owners=False))
        for name, source, plan, prune in itertools.product((b"a", b"b", b""), sources, plans, ("haar", "dct", None))
    }
    assert len(keys) == 2 * 3 * 7 * 5 * 3
    owners = {
        OWNER.image_key(name, source, plan, "haar").take()
        for name in (b"a", b"b")
        for source in sources
        for plan in plans
    }
    assert len(owners) == 7 * 5
    assert not owners & keys


def test_key_does_not_change_with_memory_layout_or_output() -> None:
    deep = (IMAGE[..., 0].astype(np.uint16) << 4) + 3
    assert (
        source_digest(deep, 16) == source_digest(deep.astype(">u2"), 16) == source_digest(np.asfortranarray(deep), 16)
    )
    digest = source_digest(IMAGE, 8)
    one, two = (RUN.image_key(b"a", digest, Plan.paper(20.0), "haar").take() for _ in range(2))
    assert one == two
    again = [Slicer(Plan.paper(20.0), output=output)(IMAGE, key=ImageKey(one)) for output in ("rgb", "ycbcr")]
    np.testing.assert_array_equal(again[0], np.moveaxis(to_rgb(np.moveaxis(again[1], -1, 0)), 0, -1))


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
