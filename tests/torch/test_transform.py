"""The slicer as a torchvision transform, and what it says about releasing again."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.transforms import v2

from ldp_slicing import Plan, Slicer
from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.torch import Privatize, RepeatedReleaseWarning
from tests.cases import random_image

PLAN, GREY, DEEP = Plan.paper(20.0), Plan.grey(20.0), Plan.grey(12.0, 12)
EPSILON = PLAN.realised_epsilon
IMAGE = torch.from_numpy(random_image(PLAN, (8, 6)).transpose(2, 0, 1).copy())


def pixels(image: Any) -> np.ndarray:
    return image.numpy() if isinstance(image, torch.Tensor) else np.asarray(image)


def quiet(plan: Plan = PLAN, **options: Any) -> Privatize:
    """Return a transform that does not warn in these tests."""
    return Privatize(Slicer(plan, **options), dataset_size=1000)


IMAGES: dict[str, tuple[Plan, Any, int]] = {
    "tv_tensors.Image": (PLAN, tv_tensors.Image(IMAGE), 1),
    "a batch of tv_tensors.Image": (PLAN, tv_tensors.Image(torch.stack([IMAGE] * 3)), 3),
    "tv_tensors.Video": (PLAN, tv_tensors.Video(torch.stack([IMAGE] * 4)), 4),
    "a batch of videos": (PLAN, tv_tensors.Video(IMAGE.expand(2, 4, 3, 8, 6)), 8),
    "tensor": (PLAN, IMAGE, 1),
    "tensor, turned": (PLAN, IMAGE.transpose(1, 2), 1),
    "batch": (PLAN, torch.stack([IMAGE] * 5), 5),
    "grey": (GREY, IMAGE[:1], 1),
    "grey batch": (GREY, IMAGE[:, None], 3),
    "deep grey": (DEEP, torch.from_numpy(random_image(DEEP, (1, 8, 6))), 1),
    "PIL RGB": (PLAN, PIL.Image.fromarray(random_image(PLAN, (8, 6))), 1),
    "PIL L": (GREY, PIL.Image.fromarray(random_image(GREY, (8, 6))), 1),
    "PIL I;16": (DEEP, PIL.Image.fromarray(random_image(DEEP, (8, 6))), 1),
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_slicer_with_a_size_gives_smaller_releases(name: str) -> None:
    plan, image, count = IMAGES[name]
    privatize = quiet(plan, size=(4, 3))
    release = privatize(image)
    assert type(release) is type(image)
    assert privatize.releases == count
    leading = pixels(image).shape[:-2] if isinstance(image, torch.Tensor) else ()
    assert pixels(release).shape == ((*leading, 3, 4) if leading else (3, 4, *pixels(image).shape[2:]))


@pytest.mark.parametrize("name", IMAGES)
def test_releases_have_the_type_of_their_sources(name: str) -> None:
    plan, image, count = IMAGES[name]
    before = pixels(image).copy()
    privatize = quiet(plan)
    release = privatize(image)
    assert type(release) is type(image)
    assert privatize.releases == count
    assert np.array_equal(pixels(image), before)
    assert pixels(release).shape == before.shape
    assert pixels(release).dtype == before.dtype
    assert not np.array_equal(pixels(release), before)
    if isinstance(image, PIL.Image.Image):
        assert release.mode == image.mode
    else:
        assert release.is_contiguous()
        images = release.flatten(0, -4) if release.ndim > 3 else release[None]
        assert len({image.numpy().tobytes() for image in images}) == count  # each with a key of its own


def test_the_bytes_are_those_of_the_slicer() -> None:
    batch = torch.stack([IMAGE, IMAGE.flip(1)])
    expected = Slicer(PLAN, randomness=SeededForTests(1))(batch.permute(0, 2, 3, 1).numpy())
    for image in (batch, tv_tensors.Video(batch)):
        assert np.array_equal(quiet(randomness=SeededForTests(1))(image).permute(0, 2, 3, 1).numpy(), expected)
    assert np.array_equal(
        quiet(randomness=SeededForTests(1))(PIL.Image.fromarray(IMAGE.permute(1, 2, 0).numpy())), expected[0]
    )


def test_seeds_do_not_affect_releases() -> None:
    releases = []
    for _ in range(2):
        torch.manual_seed(0)
        releases.append(quiet()(IMAGE))
    assert not torch.equal(*releases)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_device_stays_the_same() -> None:
    for image in (IMAGE.cuda(), tv_tensors.Image(IMAGE).cuda()):
        release = quiet()(image)
        assert release.device == image.device
        assert type(release) is type(image)
        assert not torch.equal(release, image)


def test_everything_but_the_images_stays_the_same() -> None:
    sample = {
        "image": tv_tensors.Image(IMAGE),
        "second": PIL.Image.fromarray(random_image(PLAN, (3, 3))),
        "boxes": tv_tensors.BoundingBoxes([[0, 0, 2, 2]], format="XYXY", canvas_size=(8, 6)),
        "mask": tv_tensors.Mask(IMAGE),
        "labels": [torch.tensor([1, 2]), 3, "cat", None],
    }
    privatize = quiet()
    out = privatize(sample)
    assert list(out) == list(sample)
    for key in ("boxes", "mask"):
        assert type(out[key]) is type(sample[key])
        assert torch.equal(out[key], sample[key])
    assert (out["boxes"].format, out["boxes"].canvas_size) == (sample["boxes"].format, (8, 6))
    assert out["labels"][0].tolist() == [1, 2]
    assert out["labels"][1:] == [3, "cat", None]
    assert not torch.equal(out["image"], sample["image"])
    assert not np.array_equal(out["second"], sample["second"])
    assert privatize.releases == 2


STACK = torch.arange(5 * 8 * 6, dtype=torch.uint8).reshape(5, 8, 6)
RECORD = torch.arange(1 + 3 * 8 * 6, dtype=torch.uint8)  # as CIFAR's binary files have it: the label before the pixels
VIEWS: dict[str, tuple[Any, Any]] = {
    "a number": (RECORD[1:].view(3, 8, 6), RECORD[0]),
    "a mask": (tv_tensors.Image(STACK[:3]), tv_tensors.Mask(STACK[3])),
    "boxes": (STACK[:3], tv_tensors.BoundingBoxes(STACK[3, :, :4], format="XYXY", canvas_size=(8, 6))),
    "deep inside": (STACK[:3], {"x": [STACK[3, 0], (STACK[4, 0, 0],)]}),
    "in a set": (STACK[:3], {STACK[3, 0]}),
    "an array": (STACK[:3], STACK[3, 0].numpy()),
    "an array in a list of a derived class": (STACK[:3], type("Heir", (list,), {})([STACK[3, 0].numpy()])),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_label_does_not_take_its_source_along(name: str) -> None:
    image, label = VIEWS[name]
    file = io.BytesIO()
    torch.save(quiet()(image, label), file)
    file.seek(0)
    release, got = torch.load(file, weights_only=False)
    assert release.shape == (3, 8, 6)
    assert image.numpy().tobytes()[:40] not in file.getvalue()
    leaves, expected = (tree_leaves([*part] if isinstance(part, set | list) else part) for part in (got, label))
    for one, other in zip(leaves, expected, strict=True):
        assert np.array_equal(one, other)
        if isinstance(one, torch.Tensor):
            assert one.untyped_storage().nbytes() == one.nbytes
        else:
            assert one.base is None


def test_containers_of_an_image_are_not_dimensions_of_labels() -> None:
    boxes = [[1, 2, 3, 4], [5, 6, 7, 8]]
    sample = [
        ({"image": [tv_tensors.Image(IMAGE)], "boxes": boxes}, torch.tensor(boxes)),
        (PIL.Image.new("RGB", (2, 2)), [[["a", None]]]),
    ]
    (first, again), (_, words) = quiet()(sample)
    assert first["boxes"] == again.tolist() == boxes
    assert words == [[["a", None]]]


def test_the_first_plain_tensor_is_the_image_if_there_is_no_other() -> None:
    image, label = quiet()(IMAGE, torch.tensor([7]))
    assert not torch.equal(image, IMAGE)
    assert label.tolist() == [7]


REFUSED: dict[str, tuple[Any, str]] = {
    "floats": (
        IMAGE / 255,
        r"no fixed range: release it before v2.ToDtype.*\(image \* 255\).round\(\).to\(torch.uint8\)",
    ),
    "a float image": ({"x": tv_tensors.Image(IMAGE / 255)}, "no fixed range"),
    "integers": (IMAGE.long(), "got torch.int64"),
    "H x W x C": (IMAGE.permute(1, 2, 0), r"got \(8, 6, 3\); image.permute\(2, 0, 1\)"),
    "H x W": (IMAGE[0], "C x H x W"),
    "four channels": (torch.zeros(4, 8, 6, dtype=torch.uint8), "3 channels or 1"),
    "grey under a colour plan": (IMAGE[:1], "needs a grey plan"),
    "a palette": (PIL.Image.new("P", (2, 2)), "mode RGB, L or I;16"),
    "an array": (random_image(PLAN, (8, 6)), r"holds no image, only ndarray: .*v2.ToImage"),
    "labels alone": ({"label": 3}, "holds no image, only int"),
    "nothing": ([], "only nothing"),
    "a label before an array": ((torch.tensor(3), random_image(PLAN, (8, 6))), "among the labels"),
    "a mask alone": (tv_tensors.Mask(IMAGE), "no image"),
    "a second plain tensor": ((IMAGE, IMAGE.clone()), "Tensor of 3 dimensions among the labels"),
    "the same tensor twice": ((IMAGE, IMAGE), "Tensor of 3 dimensions among the labels"),
    "an array beside an image": ((tv_tensors.Image(IMAGE), random_image(PLAN, (8, 6))), "ndarray of 3 dimensions"),
    "an object that holds an image": (
        (IMAGE, SimpleNamespace(x=PIL.Image.new("RGB", (2, 2)))),
        "SimpleNamespace among the labels",
    ),
    "a set of encoded images": ((IMAGE, {b"PNG"}), "bytes among the labels"),
    "an image as lists": ((IMAGE, IMAGE.tolist()), "list of 3 dimensions among the labels"),
    "an image as planes": ((IMAGE, [*IMAGE]), "list of 3 dimensions"),
    "an image as planes in a dict": ({"x": IMAGE, "y": {"z": tuple(IMAGE.numpy())}}, "list of 3 dimensions"),
    "an encoded image as a key": ((IMAGE, {b"PNG": 1}), "bytes among the labels"),
    "an encoded image as the key of an image": ({b"PNG": IMAGE}, "bytes among the labels"),
    "a number that holds an image": ((IMAGE, type("Heir", (int,), {"image": IMAGE})(3)), "Heir among the labels"),
    "a string that holds an image": ((IMAGE, type("Heir", (str,), {"image": IMAGE})("cat")), "Heir among the labels"),
    "an array that holds an image": ((IMAGE, np.ma.array([1, 2])), "MaskedArray among the labels"),
    "an image in an unknown container": (deque([IMAGE]), "deque among the labels"),
    "a float beside an image": ((tv_tensors.Image(IMAGE), IMAGE / 255), "Tensor of 3 dimensions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    sample, message = REFUSED[case]
    privatize = quiet()
    with pytest.raises(ImageError, match=message):
        privatize(sample)
    assert privatize.releases == 0


def test_a_copy_of_a_grey_image_is_refused() -> None:
    for image in (IMAGE[:1], PIL.Image.fromarray(IMAGE[0].numpy()), tv_tensors.Image(IMAGE[:1])):
        with pytest.raises(ImageError, match="Tensor of 2 dimensions"):
            quiet(GREY)(image, IMAGE[0].float())
        with pytest.raises(ImageError, match="list of 2 dimensions"):
            quiet(GREY)(image, IMAGE[0].tolist())
        _, label = quiet(GREY)(image, IMAGE[0, 0])
        assert torch.equal(label, IMAGE[0, 0])


def test_an_unknown_kind_of_tensor_is_refused() -> None:
    class Depth(tv_tensors.TVTensor):
        pass

    for depth in (IMAGE, IMAGE[0]):
        with pytest.raises(ImageError, match=r"Depth|C x H x W"):
            quiet()(tv_tensors.Image(IMAGE), depth.as_subclass(Depth))


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_options_are_checked(size: Any) -> None:
    with pytest.raises(ReleaseError, match="dataset_size"):
        Privatize(Slicer(PLAN), dataset_size=size)
    with pytest.raises(ReleaseError, match="needs a Slicer"):
        Privatize(PLAN)


def release_each(privatize: Privatize, images: list[torch.Tensor]) -> list[str]:
    """Return the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for image in images:
            privatize(image)
    assert all(one.category is RepeatedReleaseWarning for one in told)
    return [str(one.message) for one in told]


def test_it_warns_once_about_repeated_releases() -> None:
    privatize = Privatize(Slicer(PLAN), dataset_size=3)
    privatize(torch.stack([IMAGE] * 3))  # an epoch: nothing to say
    messages = release_each(privatize, [IMAGE] * 4)
    (message,) = messages
    assert privatize.releases == 7
    assert message.startswith("Privatize made 4 releases of 3 sources, so some source was released at least 2 times: ")
    assert f"2 x {EPSILON:.6g} = {2 * EPSILON:.6g} epsilon per released pixel" in message
    assert "ReleasedDataset releases each source once" in message


def test_without_a_size_it_warns_at_the_first_release() -> None:
    privatize = Privatize(Slicer(PLAN))
    (message,) = release_each(privatize, [IMAGE] * 2)
    assert message.startswith("every call of Privatize is a release")
    assert f"t x {EPSILON:.6g} epsilon per released pixel (10 epochs: {10 * EPSILON:.6g})" in message
    assert privatize.releases == 2


def test_a_warning_that_is_an_error_prevents_the_release() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RepeatedReleaseWarning):
            Privatize(Slicer(PLAN))(IMAGE)


def test_compose_pickle_and_repr() -> None:
    privatize = pickle.loads(pickle.dumps(quiet()))
    out = v2.Compose([v2.PILToTensor(), privatize, v2.ToDtype(torch.float32, scale=True)])(PIL.Image.new("RGB", (4, 3)))
    assert out.shape == (3, 3, 4)
    assert out.dtype == torch.float32
    assert out.unique().numel() > 2
    assert repr(privatize) == (
        f"Privatize(epsilon={EPSILON:.6g} per released pixel, word_bits=24, prune='haar', size=None, "
        "output='rgb', dataset_size=1000, releases=1)"
    )


class Transformed(torch.utils.data.Dataset[Any]):
    def __init__(self, privatize: Privatize, words: str = "every call") -> None:
        self.privatize, self.words = privatize, words

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            release = self.privatize(IMAGE)
        return release, i, self.privatize.releases, len([one for one in told if self.words in str(one.message)])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize(
    "made",
    [lambda one: one, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["itself", "copy", "pickle"],
)
def test_workers_count_together(start: str, made: Callable[[Privatize], Privatize]) -> None:
    first = Privatize(Slicer(PLAN), dataset_size=4)
    first(IMAGE)
    privatize = made(first)
    loader = DataLoader(Transformed(privatize), batch_size=1, num_workers=2, multiprocessing_context=start)
    images, indices, counts, _ = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert indices.tolist() == [0, 1, 2, 3]
    assert sorted(counts.tolist())[-1] == privatize.releases == 5
    assert len({image.numpy().tobytes() for image in images}) == 4  # workers share no key
    assert first.releases == (5 if privatize is first else 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("size", "words"), [(None, "every call"), (4, "Privatize made 5 releases of 4 sources")])
def test_only_one_of_all_workers_and_epochs_warns(size: int | None, words: str) -> None:
    privatize = Privatize(Slicer(PLAN), dataset_size=size)
    loader = DataLoader(Transformed(privatize, words), batch_size=1, num_workers=1, multiprocessing_context="fork")
    told = [[int(count) for *_, count in loader] for _ in range(3)]
    assert told == ([[1, 0, 0, 0], [0] * 4, [0] * 4] if size is None else [[0] * 4, [1, 0, 0, 0], [0] * 4])
    assert privatize.releases == 12
