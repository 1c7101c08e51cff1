from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

from ldp_slicing import LdpSlicingError, Plan, Slice, Slicer
from ldp_slicing.errors import ImageError
from ldp_slicing.torch import Decoder, simulate
from ldp_slicing.torch.colours import colour_rows
from ldp_slicing.torch.decode import _impose_block_mean
from ldp_slicing.torch.likelihood import likelihood
from ldp_slicing.torch.simulate import apply_view, to_rgb
from ldp_slicing.view import Prune
from tests.cases import photographs

KEPT = [3, 70, 131, 200]  # the values that the views of the small examples have
SMALL = {
    "bits of each channel": Plan([Slice(0x800000, 1.0), Slice(0x400000, 0.5), Slice(0x8000, 1.0), Slice(0x80, 0.7)]),
    "one slice across channels": Plan([Slice(0xC08080, 3.0)]),
    "a slice across channels, and others within": Plan(
        [Slice(0xC08080, 3.0), Slice(0x200000, 1.0), Slice(0x000060, 2.0)]
    ),
    "several slices across channels": Plan.sliced(8.0, "Y7+Cb7+Cr7,Y6+Cb6+Cr6"),
    "grey": Plan.grey(5.0, 8),
}


def some_prior(plan: Plan) -> np.ndarray:
    channels = 3 if plan.is_colour else 1
    prior = np.zeros((channels, 256))
    prior[:, KEPT] = np.random.default_rng(0).dirichlet(np.ones(len(KEPT)), channels)
    return prior


def by_hand(plan: Plan, prior: np.ndarray) -> dict[tuple[int, ...], list[float]]:
    """Of every colour: the mean of the view's word, over all words of view and release, which are few."""
    sums: dict[tuple[int, ...], np.ndarray] = {}
    channels = len(prior)
    free = [bit for bit in range(plan.word_bits) if plan.kept_bits >> bit & 1]
    released = [
        plan.dropped_value | sum(1 << bit for bit, on in zip(free, ons, strict=True) if on)
        for ons in product((0, 1), repeat=len(free))
    ]
    for word in released:
        shown = torch.tensor(list(word.to_bytes(channels, "big")), dtype=torch.int32).view(1, channels, 1, 1)
        colour = tuple((to_rgb(shown) if channels == 3 else shown).flatten().tolist())
        for values in product(KEPT, repeat=channels):
            source = int.from_bytes(bytes(values), "big")
            weight = float(np.prod([prior[c, v] for c, v in enumerate(values)]))
            for part in plan.slices:
                miss = float(plan.tables.miss_probability(part.bits))
                weight *= miss * ((word ^ source) & part.bits == 0) + (1 - miss) / 2 ** part.bits.bit_count()
            sums.setdefault(colour, np.zeros(channels + 1))
            sums[colour] += weight * np.array([1, *values])
    return {colour: list(found[1:] / found[0]) for colour, found in sums.items()}


@pytest.mark.parametrize("plan", SMALL.values(), ids=SMALL.keys())
def test_expected_values_are_the_mean_over_all_words(plan: Plan) -> None:
    prior = some_prior(plan)
    decoder = Decoder(plan, torch.from_numpy(prior), prune=None)
    for colour, mean in by_hand(plan, prior).items():
        found = decoder.expect(torch.tensor(colour, dtype=torch.uint8).view(1, -1, 1, 1)).flatten().tolist()
        assert found == pytest.approx(mean, abs=1e-3)


def test_colours_that_are_too_rare_to_divide_by_are_decoded_as_the_mean_of_the_prior() -> None:
    """Sixteen flips of probability 2^-64 are more than 0 and less than any normal float."""
    prior = torch.zeros(3, 256, dtype=torch.float64)
    prior[:, 128] = 1
    decoder = Decoder(Plan.uniform(1060.0), prior, prune=None)
    for flips in (0, 0x010101, 0x3F1F1F, 0x1F1F3F):  # whose colours are not clamped
        word = torch.tensor(list((0x808080 ^ flips).to_bytes(3, "big")), dtype=torch.int32).view(1, 3, 1, 1)
        assert decoder.expect(to_rgb(word).to(torch.uint8)).flatten().tolist() == pytest.approx([128] * 3, abs=1e-3)


def photographs_in_pieces(side: int = 32, count: int = 300) -> torch.Tensor:
    """uint8 [N, 3, side, side]."""
    pieces = [
        image[row : row + side, column : column + side]
        for image in photographs().values()
        if image.ndim == 3
        for row in range(0, image.shape[0] - side, side)
        for column in range(0, image.shape[1] - side, side)
    ]
    chosen = np.random.default_rng(0).permutation(len(pieces))[:count]
    return torch.from_numpy(np.stack([pieces[i] for i in chosen])).permute(0, 3, 1, 2).contiguous()


def explained(found: torch.Tensor, view: torch.Tensor) -> list[float]:
    """Of each channel, the share of its variance that a line through what was found explains."""
    pairs = zip(found.unbind(1), view.unbind(1), strict=True)
    return [float(np.corrcoef(f.flatten().numpy(), v.flatten().numpy())[0, 1] ** 2) for f, v in pairs]


@pytest.mark.parametrize(
    ("plan", "prune"),
    [
        (Plan.paper(20.0), "haar"),
        (Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7"), "haar"),
        (Plan.sliced(5.2, "Y7+Y6+Cb7+Cr7"), "haar4"),
        (Plan.sliced(8.0, "Y7=2,Y6=2,Y5,Cb7,Cr7"), None),
    ],
)
def test_decoding_explains_more_variance_than_raw_releases(plan: Plan, prune: Prune) -> None:
    sources = photographs_in_pieces()
    view = apply_view(sources, prune, colour=True).float()
    released = simulate(sources, plan, torch.Generator().manual_seed(1), prune=prune)
    raw = explained(apply_view(released, None, colour=True).float(), view)
    decoder = Decoder.fit(released, plan, prune=prune)
    fitted = explained(decoder.expect(released), view)
    assert fitted[0] > raw[0] + 0.01
    assert sum(fitted) > sum(raw)
    true = torch.stack([torch.bincount(channel.flatten().long(), minlength=256).double() for channel in view.unbind(1)])
    told = explained(Decoder(plan, true / true.sum(1, keepdim=True), prune=prune).expect(released), view)
    assert fitted == pytest.approx(told, abs=0.1)  # releases alone tell as much of the prior as is needed
    assert explained(decoder(released).float(), view) == pytest.approx(fitted, abs=0.01)  # and bytes are fine enough


def test_grey_releases_are_decoded() -> None:
    sources = photographs_in_pieces()[:, :1].contiguous()
    view, plan = apply_view(sources, "haar", colour=False).float(), Plan.grey(8.0)
    released = simulate(sources, plan, torch.Generator().manual_seed(1))
    assert (
        explained(Decoder.fit(released, plan).expect(released), view)[0] > explained(released.float(), view)[0] + 0.05
    )


def test_the_prior_that_is_found_is_the_views() -> None:
    plan, rng = Plan.grey(20.0), np.random.default_rng(0)
    views = torch.from_numpy(rng.choice([40, 90, 200], p=[0.5, 0.2, 0.3], size=(40, 1, 64, 64)).astype(np.uint8))
    prior = Decoder.fit(simulate(views, plan, torch.Generator().manual_seed(1), prune=None), plan, prune=None).prior[0]
    near = [
        float(prior[value & ~7 : (value & ~7) + 8].sum()) for value in (40, 90, 200)
    ]  # the last bits are as good as noise
    assert near == pytest.approx([0.5, 0.2, 0.3], abs=0.02)
    assert float(prior.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    "plan", [Plan.paper(20.0), Plan.paper(5.2, (4, 0, 0)), Plan([Slice(0xC08080, 5.2)]), Plan.grey(5.0)]
)
def test_the_likelihood_is_that_of_the_mechanism(plan: Plan) -> None:
    device = torch.device("cpu")
    for channel in range(plan.word_bits // 8):
        likely = likelihood(plan, channel, device)
        assert torch.allclose(likely.sum(0), torch.ones(256, dtype=torch.float64))
        source = torch.full((1, plan.word_bits // 8, 300, 300), 77, dtype=torch.uint8)
        view = int(apply_view(source, None, colour=plan.is_colour)[0, channel, 0, 0])
        released = simulate(source, plan, torch.Generator().manual_seed(3), prune=None, output="ycbcr")[0, channel]
        found = torch.bincount(released.flatten(), minlength=256) / released.numel()
        assert torch.allclose(found.double(), likely[:, view], atol=0.01)


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7), (1, 1), (2, 3)])
@pytest.mark.parametrize("block", [2, 8])
def test_the_block_mean_is_imposed_in_proportion_to_variance(height: int, width: int, block: int) -> None:
    rng = torch.Generator().manual_seed(0)
    means, variances = (
        128 + 20 * torch.randn(2, 3, height, width, generator=rng),
        torch.rand(2, 3, height, width, generator=rng) + 0.1,
    )
    corrected = _impose_block_mean(means, variances, block, 0.0)
    whole = torch.nn.functional.pad(corrected, (0, -width % block, 0, -height % block), mode="replicate")
    assert torch.allclose(torch.nn.functional.avg_pool2d(whole, block), torch.tensor(128.0), atol=1e-3)
    corner = slice(0, 1), slice(0, 1), slice(0, min(block, height)), slice(0, min(block, width))
    rows, columns = np.minimum(np.arange(block), height - 1), np.minimum(np.arange(block), width - 1)
    often = np.bincount(rows)[:, None] * np.bincount(columns)
    # what is known: often . x = 128 often.sum(); the best guess moves by the covariance with that
    mean, variance = (values[corner].numpy().reshape(-1) for values in (means, variances))
    moved = (
        variance
        * often.reshape(-1)
        * ((often.reshape(-1) * (mean - 128)).sum() / (often.reshape(-1) ** 2 * variance).sum())
    )
    assert corrected[corner].numpy().reshape(-1) == pytest.approx(mean - moved, abs=1e-3)


def test_a_pickle_holds_what_the_tables_follow_from(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SMALL["one slice across channels"]
    released = simulate(torch.randint(0, 256, (3, 3, 9, 8), dtype=torch.uint8), plan)
    decoder = Decoder.fit(released, plan, prune="haar2")
    assert plan.tables.cells.nbytes > 100_000  # the sampler of NumPy has expanded them
    kept = pickle.dumps(decoder)
    again = pickle.loads(kept)
    assert len(kept) < 20_000
    assert (again.plan, again.prune) == (plan, "haar2")
    assert torch.equal(again.expect(released), decoder.expect(released))
    assert torch.equal(again(released), decoder(released))
    monkeypatch.setattr("ldp_slicing.torch.decode.get_spawning_popen", object)  # a worker process computes no tables
    assert decoder.__reduce_ex__(4)[2]["_rows"] is decoder._rows


def test_one_image_or_a_batch() -> None:
    released = torch.from_numpy(
        np.asarray(Slicer(Plan.sliced(3.0, "Y7+Y4"))(photographs_in_pieces(count=20).permute(0, 2, 3, 1).numpy()))
    )
    released = released.permute(0, 3, 1, 2)
    decoder = Decoder.fit(released, Plan.sliced(3.0, "Y7+Y4"))
    many = decoder(released)
    assert many.dtype == torch.uint8
    assert torch.equal(decoder(released[3]), many[3])
    assert many[:, 1:].unique().tolist() == [128]  # of chroma nothing was released
    assert many[:, 0].float().mean() == pytest.approx(128, abs=4)
    assert many[:, 0].float().std() == pytest.approx(32, rel=0.25)


@pytest.mark.parametrize("prune", ["haar", "haar4", "haar8", "dct"])
def test_imposing_the_block_mean_does_not_increase_the_error(prune: Prune) -> None:
    """Clamping moves the mean of a block; the correction must still not do harm."""
    sources, plan = photographs_in_pieces(), Plan.sliced(8.0, "Y7+Y6+Y5")
    view = apply_view(sources, prune, colour=True)[:, :1].float()
    released = simulate(sources, plan, torch.Generator().manual_seed(1), prune=prune)
    with_it = Decoder.fit(released, plan, prune=prune)
    found = with_it.expect(released)
    with_it.prune = None
    without = with_it.expect(released)
    assert (found[:, :1] - view).square().mean() < 1.001 * (without[:, :1] - view).square().mean()
    assert 0 <= float(found.min()) <= float(found.max()) <= 255


@pytest.mark.parametrize("prune", ["haar", "dct", None])
@pytest.mark.parametrize(
    "plan", [Plan.sliced(0.3, "Y7+Y4+Cb7+Cr7"), Plan.sliced(1.0, "Y7,Y6,Y5"), Plan.sliced(300.0, "Y7,Y6,Y5,Cb7")]
)
def test_decoded_images_have_mean_128_for_every_budget(plan: Plan, prune: Prune) -> None:
    released = simulate(photographs_in_pieces(count=20), plan, torch.Generator().manual_seed(1), prune=prune)
    for decoder in (Decoder.fit(released, plan, prune=prune), Decoder(plan, uniform(), prune=prune)):
        found = decoder(released).float().mean((0, 2, 3))
        if prune:
            assert found.tolist() == pytest.approx([128] * 3, abs=8)
        for c in range(3):
            if not plan.kept_bits >> 8 * (2 - c) & 255:
                assert float(found[c]) == 128


@pytest.mark.parametrize("eps", [5.2, 20.0])
def test_channels_without_content_are_not_saturated(eps: float) -> None:
    """Grey images stored as RGB: Cb and Cr of their views are 128 everywhere, which a prior matches only nearly."""
    sources = photographs_in_pieces(count=20)[:, :1].expand(-1, 3, -1, -1).contiguous()
    released = simulate(sources, Plan.paper(eps), torch.Generator().manual_seed(1))
    found = Decoder.fit(released, Plan.paper(eps))(released).float()
    assert found.mean((0, 2, 3)).tolist() == pytest.approx([128] * 3, abs=4)


@pytest.mark.parametrize("plan", [Plan.grey(200.0), Plan.grey(5000.0), Plan([Slice(0xFF, 400.0)], 8), Plan.grey(0.01)])
def test_very_large_and_very_small_budgets(plan: Plan) -> None:
    sources = photographs_in_pieces(count=3)[:, :1].contiguous()
    released = simulate(sources, plan, torch.Generator().manual_seed(1), prune=None)
    found = Decoder.fit(released, plan, prune=None).expect(released)
    assert bool(found.isfinite().all())
    if plan.epsilon > 100:
        assert (found - sources.float()).abs().mean() < 0.05


WRONG = [
    torch.zeros(1, 3, 4, 4),
    torch.zeros(1, 1, 4, 4, dtype=torch.uint8),
    torch.zeros(0, 3, 4, 4, dtype=torch.uint8),
]


@pytest.mark.parametrize("wrong", WRONG, ids=["float", "grey", "none"])
def test_tensors_that_are_not_releases_are_refused(wrong: torch.Tensor) -> None:
    with pytest.raises(ImageError, match="release"):
        Decoder.fit(wrong, Plan.sliced(3.0, "Y7+Y4"))


def test_what_holds_labels_beside_releases_is_refused() -> None:
    images, plan = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), Plan.sliced(3.0, "Y7+Y4")
    for wrong in (TensorDataset(images, torch.arange(2)), DataLoader(TensorDataset(images, torch.arange(2)))):
        with pytest.raises(ImageError, match=r"got (TensorDataset|list): .* images\(\)"):
            Decoder.fit(wrong, plan)  # type: ignore[arg-type]


class Allocations(TorchFunctionMode):
    """Counts the tensors of at least so many numbers that torch's functions return, except changed arguments."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.count = least, 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        is_new = isinstance(found, torch.Tensor) and not any(found is one for one in args)
        self.count += is_new and found.numel() >= self.least
        return found


def test_fitting_to_single_images_takes_no_more_than_to_a_batch() -> None:
    """``images()`` yields one release at a time, and the paper's plan has 4 million colours."""
    plan = Plan.sliced(9.0, "Y7,Y6,Y5,Y4,Cb7,Cb6,Cr7,Cr6")
    released = simulate(photographs_in_pieces(count=4)[:, :, :4, :4], plan, torch.Generator().manual_seed(1))
    rows, _ = colour_rows(plan, torch.device("cpu"))
    whole, single = Allocations(int(rows.max()) + 1), Allocations(int(rows.max()) + 1)
    assert whole.least > released.numel()
    Decoder.fit(released, plan)  # later ones take the likelihoods of the plan from a cache
    with whole:
        expected = Decoder.fit(released, plan).prior
    with single:
        found = Decoder.fit(released.split(1), plan).prior
    assert torch.equal(found, expected)
    assert single.count == whole.count


def test_an_image_that_is_not_a_tensor_is_refused() -> None:
    with pytest.raises(ImageError, match="Image"):
        Decoder(Plan.sliced(3.0, "Y7+Y4"), uniform())(Image.new("RGB", (4, 4)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "prior",
    [
        torch.ones(1, 256),
        torch.ones(4, 256),
        -torch.ones(3, 256),
        torch.zeros(3, 256),
        torch.full((3, 256), float("nan")),
    ],
)
def test_invalid_priors_are_refused(prior: torch.Tensor) -> None:
    with pytest.raises(LdpSlicingError, match="prior"):
        Decoder(Plan.sliced(3.0, "Y7+Y4"), prior)


def test_a_prior_may_be_counts() -> None:
    released = simulate(photographs_in_pieces(count=5), Plan.sliced(3.0, "Y7+Y4"), torch.Generator().manual_seed(1))
    one, other = (Decoder(Plan.sliced(3.0, "Y7+Y4"), scale * uniform())(released) for scale in (1, 1000))
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    "do", [lambda images, plan: Decoder.fit(images, plan), lambda images, plan: Decoder(plan, uniform())(images)]
)
def test_colours_that_the_plan_never_releases_are_refused(do: object) -> None:
    assert callable(do)
    with pytest.raises(LdpSlicingError, match="never releases"):
        do(photographs_in_pieces(count=2), Plan.sliced(3.0, "Y7+Y4"))


def test_plans_that_cannot_be_decoded_are_refused() -> None:
    many = Plan([Slice(0x010101 << bit, 0.1) for bit in range(8)])
    with pytest.raises(LdpSlicingError, match="so many slices across channels"):
        Decoder(many, uniform())
    with pytest.raises(LdpSlicingError, match="16"):
        Decoder(Plan.grey(5.0, 16), uniform())


def uniform() -> torch.Tensor:
    return torch.full((3, 256), 1 / 256)
