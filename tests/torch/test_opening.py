"""open_releases: what ``ldp-slicing privatize`` wrote, opened by its card."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import v2
from typer.testing import CliRunner

from ldp_slicing import Card, Plan, Slice, Slicer
from ldp_slicing.cli import app
from ldp_slicing.errors import CardError, ReleaseError
from ldp_slicing.formats.base import Options
from ldp_slicing.torch import Decoder, Reconstructor, ReleasedDataset, ReleasedFiles, open_releases
from ldp_slicing.torch.decode import check_plan
from tests.formats.dicom_files import SLICE, STACK, dicom, saved
from tests.formats.parquet_files import table
from tests.formats.shards import shard
from tests.formats.videos import FRAMES, frames_of, video
from tests.markers import encoded, gradient
from tests.release.helpers import pixels, plant, small_images

BY_CLASS = {
    f"{part}/{name}/{i}.png": encoded(gradient(6 + i, 8), "PNG")
    for part in ("test", "train")
    for i, name in enumerate(("cat", "dog", "eel"))
}


def privatize(source: Path, target: Path, *options: str) -> Path:
    result = CliRunner().invoke(app, ["privatize", str(source), str(target), "--epsilon", "20", *options])
    assert result.exit_code == 0, result.output
    return target


def opened(path: Path | str, **options: object) -> ReleasedFiles:
    found = open_releases(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, ReleasedFiles)
    return found


@pytest.fixture
def by_class(tmp_path: Path) -> Path:
    return privatize(plant(tmp_path / "in", BY_CLASS), tmp_path / "out")


def test_a_folder_by_class(by_class: Path) -> None:
    found = opened(by_class)
    assert (len(found), found.classes, found.names[0]) == (6, ("cat", "dog", "eel"), "test/cat/0.png")
    for number, name in enumerate(found.names):
        image, label = found[number]
        assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels(by_class / name))
        assert found.classes[label] == name.split("/")[1]
    assert found[-1][0].shape == (3, 8, 8)
    for index in (6, -7):
        with pytest.raises(IndexError, match=f"no release {index}: the data set has 6, numbered from 0"):
            found[index]
        with pytest.raises(IndexError, match=f"no release {index}: the data set has 6"):
            found.about(index)
    assert len(list(found)) == 6  # which relies on IndexError


def test_a_part_of_a_folder(by_class: Path) -> None:
    train, one = opened(by_class / "train"), opened(by_class / "train" / "dog" / "1.png")
    assert (train.names, train.classes) == (
        [f"train/{name}" for name in ("cat/0.png", "dog/1.png", "eel/2.png")],
        ("cat", "dog", "eel"),
    )
    assert torch.equal(one[0], train[1][0])  # no label: it is not in a folder below what was opened
    assert isinstance(opened(by_class / "train" / "dog")[0], torch.Tensor)


def test_one_file_with_its_card(tmp_path: Path) -> None:
    plant(tmp_path, {"a.png": encoded(gradient(5, 7), "PNG")})
    target = privatize(tmp_path / "a.png", tmp_path / "b.png")
    (image,) = opened(target)
    assert image.shape == (3, 5, 7)


def test_workers_and_pickles_see_the_same_items(by_class: Path) -> None:
    found = opened(by_class, transform=v2.Resize((4, 4)))
    batches = [label.tolist() for _, label in DataLoader(found, batch_size=4, num_workers=2)]
    assert batches == [[0, 1, 2, 0], [1, 2]]
    assert torch.equal(pickle.loads(pickle.dumps(found))[3][0], found[3][0])


def test_a_shard_with_labels(tmp_path: Path) -> None:
    samples = {
        "a/1.jpg": encoded(gradient(9, 9), "JPEG"),
        "a/1.cls": b"7",
        "a/1.json": b'{"box": [1, 2]}',
        "a/2.left.png": encoded(gradient(5, 6), "PNG"),
        "a/2.right.png": encoded(gradient(6, 5), "PNG"),
        "a/2.cls": b"3",
        "a/2.json": b"[]",
    }
    source = plant(
        tmp_path / "in",
        {
            "0.tar": shard(samples),
            "1.tar": shard({"b.png": encoded(gradient(4, 4), "PNG"), "b.cls": b"5", "b.json": b"0"}),
        },
    )
    one = opened(privatize(source, tmp_path / "one", "--keep", "cls"))
    assert [label for _, label in one] == [7, 3, 3, 5]
    assert one.names == ["0.tar/a/1.png", "0.tar/a/2.left.png", "0.tar/a/2.right.png", "1.tar/b.png"]
    assert one[2][0].shape == (3, 6, 5)
    both = opened(privatize(source, tmp_path / "two", "--keep", "cls", "--keep", "json", "--spend"))
    assert both[0][1] == {"cls": 7, "json": {"box": [1, 2]}}
    assert opened(tmp_path / "two", label="cls")[3][1] == 5
    with pytest.raises(ReleaseError, match="no label 'txt'; it has: cls, json"):
        open_releases(tmp_path / "two", label="txt")
    plain = opened(privatize(source, tmp_path / "three", "--spend"))
    assert isinstance(plain[0], torch.Tensor)


def test_kept_data_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"0.tar": shard({"a.png": encoded(gradient(4, 4), "PNG"), "a.cls": b"seven"})})
    found = opened(privatize(source, tmp_path / "out", "--keep", "cls"))
    with pytest.raises(ReleaseError, match=r"0.tar/a.png cannot be read: has kept data .cls that is not what"):
        found[0]


def test_a_hugging_face_repository(tmp_path: Path) -> None:
    images = [encoded(gradient(4 + i % 5, 6), "PNG") for i in range(120)]
    source = plant(
        tmp_path / "in", {"data/train-0.parquet": table(images[:115]), "data/test-0.parquet": table(images[115:])}
    )
    target = privatize(source, tmp_path / "out", "--keep", "label")
    (target / "README.md").write_text("a data card")
    found = opened(target)
    assert (len(found), found.classes) == (120, ("cat", "dog"))
    assert [found[i][1] for i in (0, 1, 5, 6, 119)] == [0, 1, 0, 1, 0]
    train = opened(target / "data" / "train-0.parquet")
    assert len(train) == 115
    assert train[103][0].shape == (3, 4 + 103 % 5, 6)
    reader = __import__("ldp_slicing.formats.parquet", fromlist=["read"])
    with (target / "data/train-0.parquet").open("rb") as file:
        for number, entry in enumerate(reader.read(file, Options())):
            assert np.array_equal(train[number][0].permute(1, 2, 0).numpy(), entry.pixels)


@pytest.fixture
def bucket() -> Iterator[str]:
    name = f"memory://bucket-{uuid.uuid4().hex}"
    yield name
    system, root = fsspec.core.url_to_fs(name)
    system.rm(root, recursive=True)


def test_a_remote_folder(by_class: Path, bucket: str) -> None:
    system, root = fsspec.core.url_to_fs(bucket)
    system.put(str(by_class), root, recursive=True)
    here, there = opened(by_class), opened(bucket)
    assert here.names == there.names
    assert all(torch.equal(a, b) and i == j for (a, i), (b, j) in zip(here, there, strict=True))


def test_dicom_series(tmp_path: Path) -> None:
    files = {
        f"{i}.dcm": saved(dicom(SLICE + i & 4095, 12, SOPInstanceUID=f"1.2.{i}", InstanceNumber=9 - i))
        for i in range(3)
    }
    files["stack.dcm"] = saved(dicom(STACK, 12, SOPInstanceUID="1.9", SeriesInstanceUID="1.7", InstanceNumber=1))
    source = plant(tmp_path / "in", files)
    found = opened(privatize(source, tmp_path / "out", "--keep", "InstanceNumber", "--keep", "Modality"))
    image, label = found[0]
    assert (image.dtype, image.shape, label) == (torch.uint16, (1, 12, 15), {"InstanceNumber": 9, "Modality": "CT"})
    assert found.names[3:] == [f"stack.dcm/{frame}" for frame in (1, 2, 3)]
    assert sorted(found.series.values()) == [[2, 1, 0], [3, 4, 5]]
    reader = __import__("ldp_slicing.formats.dicom", fromlist=["read"])
    for name, first in (("0.dcm", 0), ("stack.dcm", 3)):
        entries = list(reader.read(io.BytesIO((tmp_path / "out" / name).read_bytes()), Options()))
        for number, entry in enumerate(entries):
            assert np.array_equal(found[first + number][0][0].numpy(), entry.pixels)
    assert Plan.from_card(found.card).word_bits == 12


def test_a_video(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.mkv": video(FRAMES)})
    found = opened(privatize(source, tmp_path / "out"))
    assert (len(found), found.names[6]) == (7, "a.mkv/7")
    for image, frame in zip(found, frames_of(tmp_path / "out/a.mkv"), strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), frame)


def test_a_store(tmp_path: Path) -> None:
    sources = TensorDataset(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
    made = ReleasedDataset(sources, Slicer(Plan.paper(20.0)), store=tmp_path / "store")
    found = open_releases(tmp_path / "store")
    assert isinstance(found, ReleasedDataset)
    assert found.card == made.card
    assert torch.equal(torch.cat(list(found.images())), torch.stack([image for image, _ in made]))
    with pytest.raises(ReleaseError, match="leave out label"):
        open_releases(tmp_path / "store", label="folder")


def test_what_is_missing_or_more_is_refused(by_class: Path) -> None:
    shutil.copy(by_class / "train/cat/0.png", by_class / "copy.png")
    with pytest.raises(ReleaseError, match=r"holds 7 releases, and its card states 6: .* `ldp-slicing verify`"):
        open_releases(by_class)
    (by_class / "copy.png").unlink()
    (by_class / "manifest.jsonl").unlink()  # the card is enough
    assert len(opened(by_class)) == 6
    (by_class / "train/cat/0.png").unlink()
    with pytest.raises(ReleaseError, match="holds 5 releases, and its card states 6"):
        open_releases(by_class)


def test_a_damaged_or_foreign_image_is_refused(by_class: Path) -> None:
    (by_class / "test/cat/0.png").write_bytes(encoded(gradient(6, 8), "PNG"))
    with pytest.raises(ReleaseError, match=r"test/cat/0.png cannot be read: was not written by this software"):
        opened(by_class)[0]


def test_folders_without_a_card_are_refused(tmp_path: Path) -> None:
    plant(tmp_path / "in", small_images(2))
    with pytest.raises(ReleaseError, match=r"in has no card.json: these are not releases"):
        open_releases(tmp_path / "in")
    with pytest.raises(ReleaseError, match="nowhere does not exist"):
        open_releases(tmp_path / "nowhere")
    (tmp_path / "in" / "card.json").write_text(json.dumps({"card": 3}))
    with pytest.raises(CardError, match=r"card.json is not a valid card"):
        open_releases(tmp_path / "in")


def test_plans_slicers_and_decoders_from_a_card(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "in", {"a.png": encoded(gradient(40, 30), "PNG"), "b.png": encoded(gradient(30, 9), "PNG")}
    )
    target = privatize(source, tmp_path / "out", "--prune", "none", "--max-side", "20")
    card = Card.read(target / "card.json")
    assert Plan.from_card(card) == Plan.from_card(card, 24) == Plan.paper(20.0)
    slicer = Slicer.from_card(card)
    assert (slicer.plan, slicer.prune, slicer.size, slicer.output) == (Plan.paper(20.0), None, 20, "rgb")
    assert slicer.card(40, 30).statements[0].levels[2].epsilon == card.statements[0].levels[2].epsilon
    found = opened(target)
    decoder = Decoder.from_card(card, found.images())
    assert (decoder.plan, decoder.prune) == (Plan.paper(20.0), None)
    assert decoder(found[0]).shape == found[0].shape
    assert opened(target, transform=decoder)[1].shape == found[1].shape
    with pytest.raises(CardError, match="statements about words of 24 bits, none about 8 bits"):
        Plan.from_card(card, 8)
    for path in (target / "card.json", str(target / "card.json")):
        for read in (Plan.from_card, Slicer.from_card, lambda path: Decoder.from_card(path, found.images())):
            with pytest.raises(CardError, match=r"from_card needs a card, such as Card\.read\('.*/out/card\.json'\)"):
                read(path)


@pytest.mark.parametrize(
    ("plan", "stated", "said"),
    [
        (Plan.paper(12.0), Plan.paper(20.0), r"colour, epsilon 20 in 24 slices \(Y7: 3\.\d+\), .* epsilon 12 in 24"),
        (Plan.paper(20.0), Plan.paper(20.0, (2, 1, 1)), r"epsilon 20 in 24 slices \(Y7: 2.* epsilon 20 .*\(Y7: 3"),
        (Plan.sliced(5.2, "Y7+Cb7"), Plan.sliced(5.2, "Y7+Cr7"), r"1 slice \(Y7\+Cr7: 5\.2\), .* \(Y7\+Cb7: 5\.2\)"),
        (Plan([Slice(0x80, 1)], 8), Plan([Slice(0x80, 1), Slice(0x40, 1)], 8), r"in 2 slices \(bit 6: .* in 1 slice"),
        (Plan.grey(20.0), Plan.paper(20.0), r"releases have colour, epsilon 20 .* is for 8-bit grey, epsilon 20"),
    ],
)
def test_a_refused_decoder_is_told_what_differs(plan: Plan, stated: Plan, said: str) -> None:
    with pytest.raises(CardError, match=said) as refused:
        check_plan(plan, stated)
    assert len(str(refused.value)) < 250


def test_a_decoder_of_another_plan_is_refused(by_class: Path) -> None:
    found = opened(by_class)
    other = Decoder.fit(found.images(), Plan.paper(12.0))
    with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
        open_releases(by_class, transform=other)
    with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
        open_releases(by_class, transform=v2.Compose([other, v2.RandomHorizontalFlip()]))
    with pytest.raises(CardError, match=r"the releases have pruning haar, but the decoder is for pruning none"):
        open_releases(by_class, transform=Decoder.fit(found.images(), Plan.paper(20.0), prune=None))
    with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
        Decoder.from_card(found.card, found.images(), plan=Plan.paper(12.0))
    assert Decoder.from_card(found.card, found.images(), plan=Plan.paper(20.0)).plan == Plan.paper(20.0)


def test_a_decoder_of_another_plan_is_found_at_any_depth_and_when_assigned(tmp_path: Path) -> None:
    grey = {f"{name}/0.png": encoded(gradient(6, 8)[..., 0], "PNG") for name in ("cat", "dog")}
    files = opened(privatize(plant(tmp_path / "in", grey), tmp_path / "out"))
    sources = TensorDataset(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.arange(2))
    made = ReleasedDataset(sources, Slicer(Plan.grey(20.0)), store=tmp_path / "store")
    right, other = (Decoder.fit(files.images(), Plan.grey(epsilon)) for epsilon in (20.0, 12.0))
    for path, found in ((tmp_path / "out", files), (tmp_path / "store", made)):
        for wrong in (other, Reconstructor(other, width=8), v2.RandomApply([v2.Identity(), v2.Compose([other])])):
            for transform in (wrong, v2.Compose([v2.Compose([wrong])])):
                with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
                    open_releases(path, transform=transform)
                with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
                    found.transform = transform
        assert found.transform is None
        found.transform = v2.Compose([v2.Compose([right])])
        assert torch.equal(found[1][0], right(list(found.images())[1][0]))
    with pytest.raises(CardError, match=r"the releases have .* but the decoder is for"):
        ReleasedDataset(sources, Slicer(Plan.grey(20.0)), store=tmp_path / "new", transform=v2.Compose([other]))
    assert not (tmp_path / "new").exists()


def test_a_card_with_several_plans(tmp_path: Path) -> None:
    files = {"a.png": encoded(gradient(6, 6), "PNG"), "b.png": encoded(gradient(6, 6)[..., 0], "PNG")}
    found = opened(privatize(plant(tmp_path / "in", files), tmp_path / "out"))
    assert [image.shape[0] for image in found] == [3, 1]
    with pytest.raises(CardError, match="words of 24, 8 bits, so pass bits=24 or 8"):
        Plan.from_card(found.card)
    assert Slicer.from_card(found.card, 8).plan == Plan.from_card(found.card, 8)
    kinds = {3: 24, 1: 8}  # as in docs/guide/learning.md
    decoders = {
        channels: Decoder.from_card(found.card, found.images(bits), bits=bits) for channels, bits in kinds.items()
    }
    decoded = opened(tmp_path / "out", transform=lambda image: decoders[len(image)](image))
    assert [image.shape for image in decoded] == [(3, 6, 6), (1, 6, 6)]
    with pytest.raises(CardError, match="none about 16 bits"):
        next(found.images(16))
