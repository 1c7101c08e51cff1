"""ReleasedDataset: every item is released once."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, TensorDataset
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from ldp_slicing import Plan, Slicer
from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import CardError, ImageError, LdpSlicingError, ReleaseError
from ldp_slicing.randomness import Fresh, ImageKey, SeededForTests
from ldp_slicing.torch import ReleasedDataset, dataset
from tests.cases import random_image

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 on

COLOUR, GREY, DEEP = Plan.paper(20.0), Plan.grey(20.0), Plan.grey(12.0, 12)
SLICER = Slicer(COLOUR)


class Counted(Fresh):
    """Counts the keys that are requested."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def key(self) -> ImageKey:
        self.keys.append(super().key().take())
        return ImageKey(self.keys[-1])


class Sources(Dataset[Any]):
    """A data set that counts how often each item is read."""

    def __init__(self, items: list[Any], broken: int | None = None) -> None:
        self.items, self.broken, self.reads = items, broken, [0] * len(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        self.reads[i] += 1
        if i == self.broken:
            raise RuntimeError("the disk is gone")
        return self.items[i]


@dataclass(frozen=True)
class Holder:
    image: Any


def tensors(count: int = 7) -> torch.Tensor:
    return torch.stack(
        [torch.from_numpy(random_image(COLOUR, (8, 6), seed).transpose(2, 0, 1).copy()) for seed in range(count)]
    )


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and values(a).dtype == values(b).dtype and np.array_equal(values(a), values(b))


def values(image: Any) -> np.ndarray:
    return image.numpy() if isinstance(image, torch.Tensor) else np.asarray(image)


def pil(plan: Plan, shape: tuple[int, int] = (5, 4)) -> PIL.Image.Image:
    return PIL.Image.fromarray(random_image(plan, shape))


KINDS: dict[str, tuple[Plan, Callable[[], Any]]] = {
    "PIL RGB": (COLOUR, lambda: pil(COLOUR)),
    "PIL L": (GREY, lambda: pil(GREY)),
    "PIL I;16": (DEEP, lambda: pil(DEEP)),
    "tensor, colour": (COLOUR, lambda: tensors(1)[0]),
    "tensor, grey": (GREY, lambda: torch.from_numpy(random_image(GREY, (1, 5, 4)))),
    "tensor, deep": (DEEP, lambda: torch.from_numpy(random_image(DEEP, (1, 5, 4)))),
    "tv_tensor": (COLOUR, lambda: tv_tensors.Image(tensors(1)[0])),
    "array, colour": (COLOUR, lambda: random_image(COLOUR, (5, 4))),
    "array, H x W": (GREY, lambda: random_image(GREY, (5, 4))),
    "array, H x W x 1": (GREY, lambda: random_image(GREY, (5, 4, 1))),
    "array, deep": (DEEP, lambda: random_image(DEEP, (5, 4))),
}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_releases_have_the_type_of_their_sources(kind: str, stored: bool, tmp_path: Path) -> None:
    plan, make = KINDS[kind]
    source = make()
    released = ReleasedDataset([source, source], Slicer(plan), store=tmp_path / "s" if stored else None)
    first, second = released
    for release in (first, second):
        assert type(release) is type(PIL.Image.Image() if "PIL" in kind else source)
        assert values(release).shape == values(source).shape
        assert values(release).dtype == values(source).dtype
        assert not same(release, source)
    if "PIL" in kind:
        assert first.mode == source.mode
    assert not same(first, second)
    assert same(first, released[0])
    assert same(second, released[-1])
    statement = released.card.to_dict()["statements"][0]
    assert (statement["releases"], statement["most_releases_of_one_source"]) == (2, 2)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_slicer_with_a_size_gives_smaller_releases(kind: str, stored: bool, tmp_path: Path) -> None:
    plan, make = KINDS[kind]
    source = make()
    slicer = Slicer(plan, size=(3, 2))
    released = ReleasedDataset([source, source], slicer, store=tmp_path / "s" if stored else None)
    shape, first = values(source).shape, values(released[0])
    assert first.shape == ((shape[0], 2, 3) if "tensor" in kind else (2, 3, *shape[2:]))
    assert first.dtype == values(source).dtype
    assert released.card.to_dict()["statements"] == slicer_card(slicer, times=2)
    if stored:
        assert same(ReleasedDataset.open(tmp_path / "s")[1], released[1])


def slicer_card(slicer: Slicer, times: int) -> Any:
    """Return the statements of a card for so many releases of one source of 3 x 2 pixels."""
    sizes = ((3, 2),) * times
    return Card(
        (Statement.of(slicer.plan, slicer.prune, slicer.output, sizes, times=times, size=slicer.size),)
    ).to_dict()["statements"]


def test_a_source_that_is_too_small_is_named(tmp_path: Path) -> None:
    sources = [*tensors(2), tensors(1)[0][:, :4]]
    with pytest.raises(ImageError, match="item 2: the image has 6 x 4 pixels"):
        ReleasedDataset(sources, Slicer(COLOUR, size=(5, 5)), store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("stored", [False, True])
def test_the_card_counts_equal_sources(stored: bool, tmp_path: Path) -> None:
    images = [random_image(GREY, (6, 5), seed) for seed in range(4)]
    items = [
        images[0],
        images[1],
        images[0].copy(),
        np.asfortranarray(images[2]),
        images[0],
        images[2],
        images[3].T.copy().T,
    ]
    store = tmp_path / "s" if stored else None
    released = ReleasedDataset(items, Slicer(GREY), store=store)
    for found in (released, ReleasedDataset.open(store) if store else released):
        (statement,) = found.card.to_dict()["statements"]
        assert statement["most_releases_of_one_source"] == 3
        assert statement["most_spent_on_one_source"]["released_pixel"] == pytest.approx(3 * GREY.realised_epsilon)
        assert "image, 3 releases" in str(found.card)
    (statement,) = ReleasedDataset(images, Slicer(GREY)).card.to_dict()["statements"]
    assert statement["most_releases_of_one_source"] == 1


def test_the_bytes_are_those_of_the_slicer() -> None:
    image = random_image(COLOUR, (5, 4))
    expected = Slicer(COLOUR, randomness=SeededForTests(1))(image)
    for source in (image, PIL.Image.fromarray(image)):
        assert np.array_equal(
            np.asarray(ReleasedDataset([source], Slicer(COLOUR, randomness=SeededForTests(1)))[0]), expected
        )
    tensor = ReleasedDataset([torch.from_numpy(image).permute(2, 0, 1)], Slicer(COLOUR, randomness=SeededForTests(1)))[
        0
    ]
    assert np.array_equal(tensor.permute(1, 2, 0).numpy(), expected)
    words = ReleasedDataset([PIL.Image.fromarray(image)], Slicer(COLOUR, output="ycbcr", randomness=SeededForTests(1)))[
        0
    ]
    assert words.mode == "YCbCr"
    assert np.array_equal(words, Slicer(COLOUR, output="ycbcr", randomness=SeededForTests(1))(image))


def test_each_item_is_read_once_and_has_one_key() -> None:
    randomness, steps = Counted(), []
    sources = Sources([(image, i) for i, image in enumerate(tensors())])
    released = ReleasedDataset(
        sources, Slicer(COLOUR, randomness=randomness), progress=lambda *step: steps.append(step)
    )
    assert steps == [(i, 7) for i in range(1, 8)]
    for _ in range(3):
        assert [label for _, label in released] == list(range(7))
    assert sources.reads == [1] * 7
    assert len(set(randomness.keys)) == 7 == len(randomness.keys)


@pytest.mark.parametrize("room", [1, 121, 400, 3 << 18])
@pytest.mark.parametrize(
    "kind", ["PIL RGB", "PIL L", "tensor, colour", "tensor, deep", "array, colour", "array, H x W", "array, deep"]
)
def test_releases_do_not_depend_on_batching(kind: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "BATCH_BYTES", room)
    plan = KINDS[kind][0]
    arrays = [random_image(plan, (side, 5), side) for side in (4, 4, 7, 4, 4, 4, 7, 7)]
    one_by_one = Slicer(plan, randomness=SeededForTests(3))
    expected = [one_by_one(array) for array in arrays]
    if "PIL" in kind:
        items: list[Any] = [PIL.Image.fromarray(array) for array in arrays]
    elif "tensor" in kind:
        items = [torch.from_numpy(array.reshape(*array.shape[:2], -1).transpose(2, 0, 1).copy()) for array in arrays]
        expected = [array.reshape(*array.shape[:2], -1).transpose(2, 0, 1) for array in expected]
    else:
        items = [array.astype(array.dtype.newbyteorder(">")) for array in arrays]
    steps: list[int] = []
    released = ReleasedDataset(
        items, Slicer(plan, randomness=SeededForTests(3)), progress=lambda done, of: steps.append(done)
    )
    assert steps == [*range(1, 9)]
    for release, wanted in zip(released, expected, strict=True):
        assert values(release).dtype == wanted.dtype
        assert np.array_equal(values(release), wanted)


def test_a_data_set_may_reuse_its_memory() -> None:
    class Again(Sources):
        def __getitem__(self, i: int) -> Any:
            memory[:] = self.items[i]
            return memory

    arrays = [random_image(COLOUR, (5, 4), seed) for seed in range(6)]
    memory = np.empty_like(arrays[0])
    expected = Slicer(COLOUR, randomness=SeededForTests(2))(np.stack(arrays))
    released = ReleasedDataset(Again(arrays), Slicer(COLOUR, randomness=SeededForTests(2)))
    assert np.array_equal(np.stack([*released]), expected)


def test_refused_items_use_no_key() -> None:
    randomness = Counted()
    deep = random_image(DEEP, (5, 4))
    for items, plan, message in (
        ([IMAGE, IMAGE / 255], COLOUR, "item 1: an image of dtype torch.float32 has no fixed range"),
        ([IMAGE, (IMAGE, 1)], COLOUR, "item 1: .* must agree"),
        ([deep, deep, deep | 4096], DEEP, "item 2: the image has the value"),
    ):
        with pytest.raises(LdpSlicingError, match=message):
            ReleasedDataset(items, Slicer(plan, randomness=randomness))
    assert randomness.keys == []


def test_memory_does_not_grow_with_the_data_set(tmp_path: Path) -> None:
    sources = TensorDataset(torch.zeros(1, 3, 32, 32, dtype=torch.uint8).expand(3000, -1, -1, -1))
    ReleasedDataset(sources, SLICER, store=tmp_path / "first")
    tracemalloc.start()
    ReleasedDataset(sources, SLICER, store=tmp_path / "s")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6  # the releases are 9.2 MB


def test_sources_and_slicer_are_not_kept() -> None:
    whole = torch.zeros(4, 3 * 8 * 8 + 1, dtype=torch.uint8)  # labels that lie beside the pixels would keep them alive
    sources = Sources([(row[1:].view(3, 8, 8), row[0]) for row in whole])
    slicer = Slicer(COLOUR)
    gone = [weakref.ref(thing) for thing in (sources, slicer, sources.items[0][0])]
    released = ReleasedDataset(sources, slicer)
    del sources, slicer
    gc.collect()
    assert [thing() for thing in gone] == [None] * 3
    assert released[0][1].untyped_storage().nbytes() == 1


def test_changing_an_item_does_not_change_the_release(tmp_path: Path) -> None:
    for store in (None, tmp_path / "s"):
        released = ReleasedDataset(TensorDataset(tensors(), torch.arange(7)), SLICER, store=store)
        image, label = released[2]
        kept = image.clone()
        image.zero_()
        label += 5
        assert same(released[2][0], kept)
        assert released[2][1] == 2
    array = ReleasedDataset([random_image(GREY, (4, 4))], Slicer(GREY))
    array[0][:] = 0
    assert array[0].any()


def test_seeds_do_not_affect_releases() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        runs.append(ReleasedDataset([tensors(1)[0]], SLICER)[0])
    assert not same(*runs)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_and_epochs_see_the_same_releases(context: str, stored: bool, tmp_path: Path) -> None:
    sources = Sources([(image, i) for i, image in enumerate(tensors())])
    released = ReleasedDataset(sources, SLICER, store=tmp_path / "s" if stored else None)
    here = torch.stack([image for image, _ in released])
    if stored:
        assert len(pickle.dumps(released)) < 1000  # where it is, not what it holds
    loader = DataLoader(released, batch_size=2, num_workers=2, multiprocessing_context=context, persistent_workers=True)
    for _ in range(2):
        images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
        assert torch.equal(images, here)
        assert labels.tolist() == list(range(7))
    assert sources.reads == [1] * 7


def test_two_ranks_see_disjoint_parts_of_the_same_releases() -> None:
    released = ReleasedDataset(TensorDataset(tensors(6), torch.arange(6)), SLICER)
    seen: list[int] = []
    for rank in range(2):
        sampler = DistributedSampler(released, num_replicas=2, rank=rank, seed=3)
        for images, labels in DataLoader(released, batch_size=3, sampler=sampler):
            seen += labels.tolist()
            assert all(same(image, released[i][0]) for image, i in zip(images, labels.tolist(), strict=True))
    assert sorted(seen) == list(range(6))


def test_the_transform_is_applied_to_the_release_on_every_access(tmp_path: Path) -> None:
    plain = ReleasedDataset(tensors(), SLICER, store=tmp_path / "s")
    calls = []
    released = ReleasedDataset.open(tmp_path / "s", transform=lambda image: calls.append(image) or 255 - image)
    assert [same(255 - plain[1], released[1]) for _ in range(3)] == [True] * 3
    assert all(same(image, plain[1]) for image in calls)
    flips = ReleasedDataset.open(tmp_path / "s", transform=v2.RandomHorizontalFlip())
    assert {same(flips[0], plain[0]) for _ in range(64)} == {True, False}


def test_an_image_folder_and_a_subset_of_it(tmp_path: Path) -> None:
    for i, name in enumerate(["a/0", "a/1", "b/2"]):
        path = tmp_path / "sources" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(random_image(COLOUR, (4 + i, 9))).save(path)
    sources = Subset(ImageFolder(tmp_path / "sources"), [2, 0])
    released = ReleasedDataset(sources, SLICER, store=tmp_path / "s")
    assert [(image.size, image.mode, label) for image, label in released] == [((9, 6), "RGB", 1), ((9, 4), "RGB", 0)]
    (statement,) = released.card.to_dict()["statements"]
    assert (statement["width"], statement["height"]) == ([9, 9], [4, 6])
    assert statement["levels"][-1]["epsilon"] >= 54 * COLOUR.realised_epsilon
    assert np.load(tmp_path / "s" / "pixels.npy").shape == ((6 + 4) * 9 * 3,)


LABELS: list[tuple[Any, ...]] = [
    (3, -0.5, True),
    (torch.tensor(7), torch.tensor([0.1, 2.0]), torch.tensor([[1], [2]], dtype=torch.uint8)),
    (np.int64(4), np.array([1.5], np.float32)),
    (),
]


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("container", [tuple, list])
def test_a_store_opens_as_it_was_written(labels: tuple[Any, ...], container: type, tmp_path: Path) -> None:
    images = tensors(3)
    written = ReleasedDataset(
        [container((image, *labels)) for image in images], Slicer(COLOUR, prune="dct"), store=tmp_path / "new" / "s"
    )
    opened = ReleasedDataset.open(tmp_path / "new" / "s")
    assert len(opened) == 3
    for a, b in zip(written, opened, strict=True):
        assert type(a) is type(b) is container
        assert len(a) == 1 + len(labels)
        assert all(same(x, y) for x, y in zip(a, b, strict=True))
        assert all(same(x, y) for x, y in zip(a[1:], labels, strict=True))
    assert opened.card == written.card
    assert json.loads((tmp_path / "new" / "s" / "card.json").read_text()) == opened.card.to_dict()
    assert np.load(tmp_path / "new" / "s" / "pixels.npy").shape == (3, 3, 8, 6)
    assert not list(tmp_path.rglob("*.partial"))


def test_labels_in_memory_may_be_of_many_types() -> None:
    label = {
        "boxes": tv_tensors.BoundingBoxes([[0, 0, 1, 1]], format="XYXY", canvas_size=(8, 6)),
        "lists": [[1, 2, 3, 4], [5, 6, 7, 8]],
        "objects": [{"outline": [[0, 1.5, 2], [3, 4]], 7: [[["deep"]]]}],
        "names": ["a", ("b",), {"c"}, frozenset({1}), None, True, 1j, np.float32(2), np.array(["d"])],
    }
    mask = tv_tensors.Mask(torch.ones(2, 8, 6, dtype=torch.bool))
    _, one, two = ReleasedDataset([(tensors(1)[0], label, mask)], SLICER)[0]
    for key in ("lists", "objects", "names"):
        assert one[key] == label[key]
        assert one[key] is not label[key]
    assert one["names"][2] is not label["names"][2]
    assert same(one["boxes"], label["boxes"])
    assert same(two, mask)


def test_a_store_is_not_released_again(tmp_path: Path) -> None:
    sources = Sources([(image, 1) for image in tensors()])
    store = tmp_path / "s"
    store.mkdir()  # an empty folder is fine
    ReleasedDataset(sources, SLICER, store=store)
    before = {path: path.read_bytes() for path in store.iterdir()}
    with pytest.raises(ReleaseError, match=r"already released: use ReleasedDataset.open\(.*spend again"):
        ReleasedDataset(sources, SLICER, store=store)
    assert {path: path.read_bytes() for path in store.iterdir()} == before
    assert sources.reads == [1] * 7


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the disk is gone"):
        ReleasedDataset(Sources([*tensors()], broken=5), SLICER, store=tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def crash(store: Path) -> None:
    ReleasedDataset(tensors(), SLICER, store=store, progress=lambda done, _: os._exit(9) if done == 5 else None)


def test_a_crash_leaves_no_store_that_opens(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=crash, args=(tmp_path / "s",))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert [path.name for path in tmp_path.iterdir()] == ["s.partial"]
    for path in (tmp_path / "s", tmp_path / "s.partial"):
        with pytest.raises(ReleaseError, match="no complete releases"):
            ReleasedDataset.open(path)
    sources = Sources([*tensors()])
    with pytest.raises(ReleaseError, match=r"interrupted.*remove that folder and release again"):
        ReleasedDataset(sources, SLICER, store=tmp_path / "s")
    assert sources.reads == [0] * 7


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("pixels.npy", lambda data: data[:-1], "damaged"),
        ("pixels.npy", lambda data: b"", "damaged"),
        ("labels-0.npy", lambda data: data[:-8], "damaged"),
        ("index.json", lambda data: data.replace(b'"version": 2', b'"version": 9'), "layout 9"),
        (
            "card.json",
            lambda data: data.replace(b'"epsilon_realised": 19', b'"epsilon_realised": 18'),
            "card.json is not a valid card: .*epsilon_realised is 18",
        ),
        ("card.json", lambda data: data.replace(b'"word_bits": 24', b'"word_bits": 25'), "damaged"),
        ("card.json", None, "damaged"),
    ],
)
def test_a_damaged_store_does_not_open(
    name: str, change: Callable[[bytes], bytes] | None, message: str, tmp_path: Path
) -> None:
    ReleasedDataset([(image, 1) for image in tensors()], SLICER, store=tmp_path / "s")
    path = tmp_path / "s" / name
    before = path.read_bytes()
    path.unlink()
    if change:
        assert change(before) != before
        path.write_bytes(change(before))
    with pytest.raises(LdpSlicingError, match=message):
        ReleasedDataset.open(tmp_path / "s")


@pytest.mark.parametrize("name", ["pixels", "shapes", "labels-0"])
def test_inconsistent_files_do_not_open(name: str, tmp_path: Path) -> None:
    ReleasedDataset([(image, 1) for image in tensors()], SLICER, store=tmp_path / "s")
    path = tmp_path / "s" / f"{name}.npy"
    np.save(path, np.load(path)[:-1])
    with pytest.raises(ReleaseError, match=r"damaged: its \d shapes do not fit"):
        ReleasedDataset.open(tmp_path / "s")


def test_seeded_releases_get_no_card_and_no_store(tmp_path: Path) -> None:
    seeded = Slicer(COLOUR, randomness=SeededForTests(1))
    with pytest.raises(ReleaseError, match="not private"):
        ReleasedDataset(tensors(), seeded, store=tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CardError, match="seeded output gets no card"):
        _ = ReleasedDataset(tensors(), seeded).card


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([IMAGE])

    def __len__(self) -> int:
        return 1


IMAGE = tensors(1)[0]
REFUSED: dict[str, tuple[Any, str]] = {
    "floats": ([IMAGE, IMAGE / 255], r"item 1: an image of dtype torch.float32 .*ToTensor \(use v2.PILToTensor"),
    "integers": ([IMAGE.int()], "dtype torch.uint8.*got torch.int32"),
    "a batch": ([tensors(2)], r"one image tensor has 3 dimensions.*\(2, 3, 8, 6\)"),
    "a batch of arrays": ([random_image(COLOUR, (2, 5, 4))], "one image array has 3 dimensions"),
    "H x W x C tensor": ([IMAGE.permute(1, 2, 0)], r"permute\(2, 0, 1\)"),
    "a palette": ([pil(COLOUR).convert("P")], "mode RGB, L or I;16; got 'P'"),
    "grey under a colour plan": ([pil(GREY)], "needs a grey plan"),
    "a mask as the image": ([tv_tensors.Mask(IMAGE)], "a Mask cannot be released"),
    "nothing": ([()], "got tuple"),
    "text": (["cat.png"], "got str"),
    "no items": ([], "must have a length of at least 1"),
    "a stream": (Stream(), "got Stream: turn it into a list"),
    "no length": (iter([IMAGE]), "must have a length"),
    "two kinds": ([IMAGE, pil(COLOUR)], "item 1: .*all items must agree"),
    "missing label": ([(IMAGE, 1), (IMAGE,)], "item 1: .*all items must agree"),
    "the image as its own label": ([(IMAGE, IMAGE)], "a Tensor of 3 dimensions among the labels may be an image"),
    "an image deep in a label": ([(IMAGE, {"x": [pil(COLOUR)]})], "among the labels"),
    "an image inside an object": (
        [(IMAGE, Holder(pil(COLOUR)))],
        "a Holder among the labels may be an image or hold one",
    ),
    "an image in an array of objects": ([(IMAGE, np.array([Holder(pil(COLOUR))]))], "a ndarray among the labels"),
    "an image in a record": ([(IMAGE, np.zeros(1, [("x", "u1", (8, 6))])[0])], "a void among the labels"),
    "an encoded image": ([(IMAGE, {"x": {b"PNG"}})], "a bytes among the labels"),
    "an encoded image as a key": ([(IMAGE, {b"PNG": 1})], "a bytes among the labels"),
    "the image as lists": ([(IMAGE, IMAGE.tolist())], "a list of 3 dimensions among the labels"),
    "the planes of the image": ([(IMAGE, [*IMAGE])], "a list of 3 dimensions"),
    "the rows of the image": ([(IMAGE, [[*plane] for plane in IMAGE.numpy()])], "a list of 3 dimensions"),
    "a number with an image": ([(IMAGE, type("Heir", (int,), {"image": IMAGE})(3))], "a Heir among the labels"),
    "a tensor of an unknown class": (
        [(IMAGE, IMAGE[0].as_subclass(type("Depth", (torch.Tensor,), {})))],
        "a Depth among the labels",
    ),
    "a tv_tensor image as a label": ([(IMAGE, tv_tensors.Image(IMAGE))], "among the labels"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("stored", [False, True])
def test_refusals(case: str, stored: bool, tmp_path: Path) -> None:
    sources, message = REFUSED[case]
    with pytest.raises((ImageError, ReleaseError), match=message):
        ReleasedDataset(sources, SLICER, store=tmp_path / "s" if stored else None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [kind for kind, (plan, _) in KINDS.items() if not plan.is_colour])
def test_a_copy_of_a_grey_source_is_refused_as_a_label(kind: str) -> None:
    plan, make = KINDS[kind]
    source = make()
    copies = values(source).reshape(5, 4)
    for label in (copies, torch.from_numpy(copies.astype(np.int64)), [*copies.astype(np.float32)], copies.tolist()):
        with pytest.raises(ImageError, match="among the labels"):
            ReleasedDataset([(source, label)], Slicer(plan))
    _, mask, line = ReleasedDataset([(source, tv_tensors.Mask(copies.astype(np.int64)), copies[0])], Slicer(plan))[0]
    assert mask.shape == (5, 4)
    assert line.shape == (4,)


def test_a_grey_array_is_refused_as_a_label_of_a_grey_array() -> None:
    grey = random_image(GREY, (4, 4))
    with pytest.raises(ImageError, match="among the labels"):
        ReleasedDataset([(grey, grey)], Slicer(GREY))


@pytest.mark.parametrize(
    "label", ["cat", None, 1 << 63, 1j, torch.tensor(1j), torch.tensor(1.0).bfloat16(), [1], np.array(["a"])]
)
def test_only_numbers_can_be_stored_as_labels(label: Any, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"item 0: labels in a store must be numbers.*store=None"):
        ReleasedDataset([(IMAGE, label)], SLICER, store=tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="needs a Slicer"):
        ReleasedDataset([IMAGE], lambda image: image)
    with pytest.raises(IndexError):
        ReleasedDataset([IMAGE], SLICER)[1]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ReleaseError, match="holds something else"):
        ReleasedDataset([IMAGE], SLICER, store=tmp_path)
    with pytest.raises(ReleaseError, match="holds something else"):
        ReleasedDataset([IMAGE], SLICER, store=tmp_path / "notes.txt")
    with pytest.raises(ReleaseError, match="no complete releases"):
        ReleasedDataset.open(tmp_path)


def test_a_folder_of_privatize_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(ReleaseError, match=r"holds files that `ldp-slicing privatize` released: use open_releases"):
        ReleasedDataset.open(tmp_path)


@pytest.mark.parametrize("store", [None, "store"])
def test_items_that_are_dicts(tmp_path: Path, store: str | None) -> None:
    """As data sets of Hugging Face have them."""
    image = PIL.Image.new("RGB", (6, 4))
    items = [{"label": i, "image": image, "score": i / 2} for i in range(3)]
    made = ReleasedDataset(items, Slicer(Plan.paper(20.0)), store=store and tmp_path / store)
    found = made if store is None else ReleasedDataset.open(tmp_path / store)
    assert [(one["label"], one["score"]) for one in found] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert (found[0]["image"].mode, found[0]["image"].size) == ("RGB", (6, 4))
    assert found.card.statements[0].times == 3
    arrays = ReleasedDataset([{"img": np.zeros((4, 6), np.uint8), "y": 1}], Slicer(Plan.grey(8.0)))
    assert (arrays[0]["img"].shape, arrays[0]["y"]) == ((4, 6), 1)


@pytest.mark.parametrize(
    "item",
    [
        {"a": PIL.Image.new("RGB", (4, 4)), "b": PIL.Image.new("RGB", (4, 4))},
        {"image": np.zeros((4, 4, 3), np.uint8), "img": np.zeros((4, 4, 3), np.uint8)},
        {"pixels": np.zeros((4, 4, 3), np.uint8)},
        {0: PIL.Image.new("RGB", (4, 4))},
    ],
    ids=["two", "two keys", "unknown key", "no string"],
)
def test_dicts_without_one_image_are_refused(item: dict[Any, Any]) -> None:
    with pytest.raises(ImageError, match=r"must have one image|must be strings"):
        ReleasedDataset([item], Slicer(Plan.paper(20.0)))


def test_an_index_without_an_item_is_named() -> None:
    made = ReleasedDataset([np.zeros((4, 4, 3), np.uint8)] * 2, Slicer(Plan.paper(20.0)))
    with pytest.raises(IndexError, match="no release 2: the data set has 2, numbered from 0"):
        made[2]


def test_an_array_beside_the_image_is_refused() -> None:
    item = {"image": PIL.Image.new("RGB", (4, 4)), "copy": np.zeros((4, 4, 3), np.uint8)}
    with pytest.raises(ImageError, match="may be an image"):
        ReleasedDataset([item], Slicer(Plan.paper(20.0)))
