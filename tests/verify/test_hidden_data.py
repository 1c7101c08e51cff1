"""Attacks on verify: data hidden in a set of releases, with every checksum in the manifest recomputed."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.formats.tar import leads_out
from ldp_slicing.manifest import read_manifest, write_manifest
from ldp_slicing.png import chunks_of, encode_chunk, encode_png, read_release_png
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from tests.formats.shards import members_of, shard
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, manifest_of, plant, release, verified

JPEG = encoded(gradient(16, 16), "JPEG")
THICK = ReleaseSettings(5.2, slices="Y7+Y4+Cb7+Cr7")


@pytest.fixture(params=[ReleaseSettings(20.0), THICK], ids=["colour", "palette"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with an image and a shard of two images."""
    files = {"a.png": PNG, "b.tar": shard({"0.png": PNG, "1.png": encoded(gradient(11, 5), "PNG")})}
    release(plant(tmp_path / "in", files), tmp_path / "out", request.param)
    assert verified(tmp_path / "out") == []
    return tmp_path / "out"


def forge(target: Path, name: str, data: bytes) -> None:
    """Replace a file and enter its checksum into the manifest."""
    (target / name).write_bytes(data)
    place, digest = LocalStorage(target), hashlib.sha256(data).hexdigest()
    lines = [line | ({"sha256": digest} if line["output"] == name else {}) for line in read_manifest(place)]
    write_manifest(place, lines)


def png_with(data: bytes, **bodies: bytes) -> bytes:
    """Return the PNG with other bodies of some of its chunks, and right checksums."""
    chunks = [(chunk.kind, bodies.get(chunk.kind.decode(), bytes(chunk.body))) for chunk in chunks_of(data)]
    return data[:8] + b"".join(b"".join(encode_chunk(kind, body)) for kind, body in chunks)


def stream_of(data: bytes) -> bytes:
    return next(bytes(chunk.body) for chunk in chunks_of(data) if chunk.kind == b"IDAT")


def same_pixels(one: bytes, other: bytes) -> bool:
    first, second = (np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in (one, other))
    return np.array_equal(first, second)


def behind_the_stream(data: bytes) -> bytes:
    return png_with(data, IDAT=stream_of(data) + JPEG)


def in_the_end(data: bytes) -> bytes:
    return png_with(data, IEND=JPEG)


def in_a_checksum(data: bytes) -> bytes:
    return data[:-4] + JPEG[:4]


def in_empty_blocks(data: bytes) -> bytes:
    """Hide a JPEG, five bits at a time, in the padding bits of empty stored blocks."""
    bits = np.unpackbits(np.frombuffer(JPEG, np.uint8))
    fives = np.packbits(np.pad(bits, (0, -len(bits) % 5)).reshape(-1, 5), axis=1)[:, 0]  # in the upper five bits
    stream = stream_of(data)
    return png_with(data, IDAT=stream[:2] + b"".join(bytes([five]) + b"\0\0\xff\xff" for five in fives) + stream[2:])


def in_a_text_chunk(data: bytes) -> bytes:
    return data[:33] + b"".join(encode_chunk(b"tEXt", b"Comment\0" + JPEG)) + data[33:]


def behind_the_file(data: bytes) -> bytes:
    return data + JPEG


def encoded_again(data: bytes) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.save(file, "PNG", optimize=True)
    return file.getvalue()


PNG_ATTACKS = [
    behind_the_stream,
    in_the_end,
    in_a_checksum,
    in_empty_blocks,
    in_a_text_chunk,
    behind_the_file,
    encoded_again,
]


@pytest.mark.parametrize("attack", PNG_ATTACKS)
def test_nothing_is_hidden_in_a_png(attack: Callable[[bytes], bytes], target: Path) -> None:
    honest = (target / "a.png").read_bytes()
    forged = attack(honest)
    if attack is not in_a_checksum:
        assert same_pixels(honest, forged)
    forge(target, "a.png", forged)
    assert [file for file, _ in verified(target)] == ["a.png"]


@pytest.mark.parametrize("attack", PNG_ATTACKS)
def test_nothing_is_hidden_in_a_png_of_a_shard(attack: Callable[[bytes], bytes], target: Path) -> None:
    members = members_of(target / "b.tar")
    forged = shard(members | {"1.png": attack(members["1.png"])}, tarfile.GNU_FORMAT, mtime=0, uname="", uid=0)
    forge(target, "b.tar", forged)
    problems = verified(target)
    assert any(file == "b.tar" and problem.startswith("1.png ") for file, problem in problems), problems


def test_a_jpeg_hidden_in_empty_blocks_can_be_recovered(target: Path) -> None:
    """The attack works: ordinary readers see the release, and the JPEG is all there."""
    stream = stream_of(in_empty_blocks((target / "a.png").read_bytes()))
    zlib.decompress(stream)
    fives = [stream[at] for at in range(2, len(stream), 5)][: -(-len(JPEG) * 8 // 5)]
    bits = np.unpackbits(np.array(fives, np.uint8)[:, None], axis=1)[:, :5].reshape(-1)
    assert np.packbits(bits).tobytes()[: len(JPEG)] == JPEG


def test_a_file_that_was_encoded_again_is_not_ours(target: Path) -> None:
    (target / "a.png").write_bytes(encoded_again((target / "a.png").read_bytes()))
    problems = dict(verified(target))
    assert problems["a.png"].startswith("pixels intact, not our file")


def test_other_pixels_are_not_called_intact(target: Path) -> None:
    pixels, _ = read_release_png((target / "a.png").read_bytes())
    changed = pixels.copy()
    changed[0, 0] ^= 1
    (target / "a.png").write_bytes(encoded(changed, "PNG"))
    assert "has changed since its release" in dict(verified(target))["a.png"]


@pytest.mark.parametrize("recomputed", [True, False])
def test_a_decompression_bomb_takes_little_memory(recomputed: bool, target: Path) -> None:
    """4 MB of zlib stream hold 4 GB of pixels."""
    rows = zlib.compressobj(9)
    stream = b"".join(rows.compress(bytes(1 << 24)) for _ in range(8)) + rows.flush()
    header = struct.pack(">IIBBBBB", 40_000, 33_000, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", stream), (b"IEND", b""))
    bomb = PNG[:8] + b"".join(b"".join(encode_chunk(kind, body)) for kind, body in chunks)
    if recomputed:
        forge(target, "a.png", bomb)
    else:
        (target / "a.png").write_bytes(bomb)
    tracemalloc.start()
    problems = dict(verified(target))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a.png" in problems
    assert peak < 16 << 20


def behind_a_shard(data: bytes) -> bytes:
    return data + JPEG


def in_the_final_zeros(data: bytes) -> bytes:
    return data[: -len(JPEG)] + JPEG


def one_record_more(data: bytes) -> bytes:
    return data + bytes(10240)


def in_the_padding_of_a_member(data: bytes) -> bytes:
    end = 512 + int(data[124:135], 8)
    assert end % 512
    return data[:end] + b"x" + data[end + 1 :]


def with_header(data: bytes, at: int, content: bytes) -> bytes:
    """Return the shard with ``content`` at ``at`` of its first header, and a right checksum."""
    header = bytearray(data[:512])
    header[at : at + len(content)] = content
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


def in_a_link_name(data: bytes) -> bytes:
    return with_header(data, 157, b"Anna Smith, born 1970")


def in_the_time(data: bytes) -> bytes:
    return with_header(data, 136, b"14001234567")


def in_the_owner(data: bytes) -> bytes:
    return with_header(data, 265, b"anna")


def in_the_end_of_a_header(data: bytes) -> bytes:
    return with_header(data, 500, b"Anna")


def after_the_name(data: bytes) -> bytes:
    return with_header(data, 50, b"Anna")


def in_a_pax_header(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in _members(data).items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"comment": "Anna Smith"}
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def member_of_another_sample(data: bytes) -> bytes:
    return shard({**_members(data), "Anna Smith.cls": b"1"}, tarfile.GNU_FORMAT, mtime=0, uname="", uid=0)


@pytest.mark.parametrize(
    "attack",
    [
        behind_a_shard,
        in_the_final_zeros,
        one_record_more,
        in_the_padding_of_a_member,
        in_a_link_name,
        in_the_time,
        in_the_owner,
        in_the_end_of_a_header,
        after_the_name,
        in_a_pax_header,
        member_of_another_sample,
    ],
)
def test_nothing_is_hidden_in_a_shard(attack: Callable[[bytes], bytes], target: Path) -> None:
    honest = (target / "b.tar").read_bytes()
    forged = attack(honest)
    assert _members(forged).items() >= _members(honest).items()  # tar sees nothing
    forge(target, "b.tar", forged)
    assert "b.tar" in dict(verified(target))


@pytest.mark.parametrize(
    ("size", "why"), [(b"77777777777", "cut off"), (b"00000001000", ""), (b"Anna Smith\0", "header")]
)
def test_a_shard_that_declares_gigabytes_takes_no_memory(size: bytes, why: str, target: Path) -> None:
    forge(target, "b.tar", with_header((target / "b.tar").read_bytes(), 124, size))
    tracemalloc.start()
    problem = dict(verified(target))["b.tar"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert why in problem
    assert peak < 16 << 20


def test_nothing_is_hidden_in_the_checksums_of_a_shard(target: Path) -> None:
    """A shard has one line for each of its images, and all have its checksum."""
    place = LocalStorage(target)
    *lines, last = read_manifest(place)
    write_manifest(place, [*lines, last | {"sha256": JPEG[:32].hex()}])
    assert "contradictory" in dict(verified(target))["b.tar"]


def test_nothing_is_hidden_in_the_order_of_the_manifest(target: Path) -> None:
    place = LocalStorage(target)
    first, *lines = read_manifest(place)
    write_manifest(place, [*lines, first])
    assert "out of order" in dict(verified(target))["a.png"]


def test_names_of_empty_folders_and_hidden_files_are_reported(target: Path) -> None:
    (target / "Anna Smith" / "born 1970").mkdir(parents=True)
    plant(target, {".hidden": b"", "sub/.DS_Store": b"Anna"})
    assert dict(verified(target)) == {
        "Anna Smith/born 1970": "is a folder without a release, and none needs it: remove it",
        ".hidden": "is not in the manifest",
        "sub": "is a folder without a release, and none needs it: remove it",
    }


@pytest.mark.parametrize("name", [".", "a.png", "card.json", "sub"])
def test_extended_attributes_are_reported(name: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.png": PNG, "sub/b.png": PNG}), tmp_path / "out")
    try:
        os.setxattr(tmp_path / "out" / name, "user.comment", JPEG[:64])
    except (AttributeError, OSError):
        pytest.skip("this file system has no extended attributes")
    ((file, problem),) = verified(tmp_path / "out")
    assert (file, "user.comment" in problem) == (name, True)


def sparse_shard(size: int) -> bytes:
    """A shard of 1.5 KB with a GNU sparse member that declares ``size`` bytes."""
    member = tarfile.TarInfo("w.png")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[386:410] = b"%011o\0%011o\0" % (0, 0)
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def test_a_sparse_shard_is_refused_by_the_reader(tmp_path: Path) -> None:
    data = sparse_shard(8**11 - 1)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getmember("w.png").size == 8**11 - 1
    tracemalloc.start()
    ran = release(plant(tmp_path / "in", {"a.tar": data, "b.png": PNG}), tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "sparse" in ran.problems["a.tar"]
    assert peak < 64 << 20
    assert verified(tmp_path / "out") == []


def test_a_sparse_shard_is_refused_by_verify(target: Path) -> None:
    forge(target, "b.tar", sparse_shard(8**11 - 1))
    assert "header" in dict(verified(target))["b.tar"]


OUTSIDE = ["..\\w.png", "a\\..\\..\\w.png", "../w.png", "/w.png", "\\w.png", "C:\\w.png", "c:/w.png", "a/../../w.png"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_that_lead_out_of_a_shard_are_not_released(name: str, tmp_path: Path) -> None:
    assert leads_out(name)
    release(plant(tmp_path / "in", {"s.tar": shard({"a.png": PNG, name: PNG})}), tmp_path / "out")
    assert list(members_of(tmp_path / "out" / "s.tar")) == ["a.png"]
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize("name", OUTSIDE)
def test_verify_refuses_paths_that_lead_out_of_a_shard(name: str, target: Path) -> None:
    members = members_of(target / "b.tar")
    forged = shard({name: members["0.png"], "1.png": members["1.png"]}, tarfile.GNU_FORMAT, mtime=0, uname="", uid=0)
    forge(target, "b.tar", forged)
    assert "header that this software does not write" in dict(verified(target))["b.tar"]


def test_names_with_two_dots_that_stay_inside_are_allowed() -> None:
    names = ["a..b.png", "..a.png", "a:b.png", "a/b..png"]
    assert not any(map(leads_out, names))


@pytest.mark.parametrize(
    "settings", [ReleaseSettings(20.0, keep=("cls",)), ReleaseSettings(5.2, keep=("cls",), slices="Y7")]
)
def test_honest_shards_are_verified(settings: ReleaseSettings, tmp_path: Path) -> None:
    members = dict[str, bytes]()
    for length in (1, 96, 97, 100, 101, 300):
        for side in (1, 9, 150):
            sample = f"{length:0{length}}" + str(side)
            members |= {f"{sample}.jpg": encoded(gradient(side, side + 1), "JPEG"), f"{sample}.cls": b"7" * length}
    release(plant(tmp_path / "in", {"s.tar": shard(members)}), tmp_path / "out", settings)
    assert len(members_of(tmp_path / "out" / "s.tar")) == len(members)
    assert verified(tmp_path / "out") == []


def test_a_shard_has_the_bytes_that_tarfile_writes(tmp_path: Path) -> None:
    """Our headers are those of Python's tarfile at the time of writing, so that every tar reads them."""
    files = {"a.png": PNG, f"{'long' * 50}.png": PNG}
    release(plant(tmp_path / "in", {"s.tar": shard(files)}), tmp_path / "out")
    data = (tmp_path / "out" / "s.tar").read_bytes()
    assert data == shard(_members(data), tarfile.GNU_FORMAT, mtime=0, uname="", uid=0)


def test_a_file_with_no_name_before_its_suffix_is_audited(tmp_path: Path) -> None:
    """``verify`` and ``audit`` agree on the suffix of ".png", so that an unprotected image under that name is found."""
    release(
        plant(tmp_path / "in", {f"{i}.png": encoded(gradient(64, 64 + i), "PNG") for i in range(2)}), tmp_path / "out"
    )
    data = b"".join(encode_png(gradient(64, 64)))
    (tmp_path / "out" / "0.png").unlink()
    (tmp_path / "out" / ".png").write_bytes(data)
    lines = manifest_of(tmp_path / "out")
    lines[0] |= {"output": ".png", "sha256": hashlib.sha256(data).hexdigest()}
    write_manifest(LocalStorage(tmp_path / "out"), lines)
    assert not audit_releases(tmp_path / "out").passed


@pytest.mark.parametrize("output", ["./0.png", "a//0.png", "a/./0.png"])
def test_a_manifest_names_each_file_by_one_path(output: str, tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"0.png": PNG}), tmp_path / "out")
    lines = manifest_of(tmp_path / "out")
    write_manifest(LocalStorage(tmp_path / "out"), [line | {"output": output} for line in lines])
    assert "is not a path inside the folder" in str(verified(tmp_path / "out"))


def test_a_problem_cannot_pass_for_a_recorded_loss(tmp_path: Path) -> None:
    """The name of a member is chosen by whoever made the shard."""
    release(plant(tmp_path / "in", {"a.tar": shard({"0.png": PNG})}), tmp_path / "out")
    path = tmp_path / "out" / "a.tar"
    with tarfile.open(path, "a") as tar:
        tar.addfile(tarfile.TarInfo("is lost, as the manifest records.cls"))
    lines = manifest_of(tmp_path / "out")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_manifest(LocalStorage(tmp_path / "out"), [line | {"sha256": digest} for line in lines])
    assert not audit_releases(tmp_path / "out").passed
