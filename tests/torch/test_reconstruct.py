from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ldp_slicing import LdpSlicingError, Plan
from ldp_slicing.errors import ImageError
from ldp_slicing.torch import Decoder, Reconstructor, simulate
from ldp_slicing.torch.decode import posterior_mean
from ldp_slicing.torch.likelihood import likelihood
from ldp_slicing.torch.posterior import CANDIDATES, PixelPosterior
from ldp_slicing.torch.reconstruct import LATTICE, _hidden, _pick
from ldp_slicing.torch.simulate import to_rgb
from ldp_slicing.view import Prune

GREY = Plan.grey(5.0, 8)
PLANS = {
    "grey": GREY,
    "grey, a thick slice": Plan.sliced(3.0, "7+6+5", 8),
    "one-bit slices": Plan.sliced(8.0, "Y7,Y6,Cb7,Cr7"),
    "a thick slice in a channel": Plan.sliced(5.2, "Y7+Y6,Cb7,Cr7"),
    "slices across channels": Plan.sliced(8.0, "Y7+Cb7+Cr7,Y6+Cb6"),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())


def channels_of(plan: Plan) -> int:
    return 3 if plan.is_colour else 1


def smooth_images(channels: int, *, count: int = 96, seed: int = 0) -> Tensor:
    """uint8 [count, channels, 16, 16] without edges."""
    coarse = 255 * torch.rand(count, channels, 4, 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, size=16, mode="bicubic").clamp(0, 255).to(torch.uint8)


def some_prior(plan: Plan, seed: int = 0) -> Tensor:
    chances = torch.rand(channels_of(plan), 256, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return chances / chances.sum(1, keepdim=True)


def small_fit(
    released: Tensor, plan: Plan, *, steps: int = 4, public: Tensor | None = None, seed: int = 0
) -> Reconstructor:
    return Reconstructor.fit(
        released, plan, prune=None, public=public, steps=steps, batch=16, width=8, learning_rate=5e-3, seed=seed
    )


@each_plan
def test_a_prediction_is_combined_with_a_release_as_the_decoder_combines_its_prior(plan: Plan) -> None:
    prior = some_prior(plan)
    pixels = PixelPosterior(plan, prior)
    images = torch.randint(256, (2, channels_of(plan), 8, 8), dtype=torch.uint8)
    words = simulate(images, plan, prune=None, output="ycbcr").transpose(0, 1).flatten(1).long()  # [C, M]
    predicted = pixels.prior[:, None].expand(-1, words.shape[1], -1)
    mean, variance = pixels.combine(predicted, words[:, None])
    assert torch.allclose(mean, posterior_mean(words, plan, pixels.prior), atol=0.01)
    assert bool((variance > 0).all())
    assert torch.allclose(pixels.log_gain(predicted, words[:, None]), torch.zeros(()), atol=1e-4)


@pytest.mark.parametrize("plan", [PLANS["grey"], PLANS["grey, a thick slice"]])
def test_the_gain_is_the_logarithm_of_a_ratio_of_likelihoods(plan: Plan) -> None:
    prior, predicted, words = some_prior(plan), some_prior(plan, 1), torch.arange(256)
    pixels, table = PixelPosterior(plan, prior), likelihood(plan, 0, torch.device("cpu"))
    released = words[(words & 255 & ~plan.kept_bits) == plan.dropped_value]
    found = pixels.log_gain(predicted.float()[:, None].expand(-1, len(released), -1), released[None, None])
    expected = (table @ predicted[0]).log() - (table @ pixels.prior[0].double()).log()
    assert torch.allclose(found, expected[released].float(), atol=1e-4)


@each_plan
def test_training_uses_the_likelihood_of_the_predicted_distribution(plan: Plan) -> None:
    images = torch.randint(256, (2, channels_of(plan), 8, 8), dtype=torch.uint8)
    released = simulate(images, plan, torch.Generator().manual_seed(0), prune=None)
    reconstructor = Reconstructor(Decoder(plan, some_prior(plan), prune=None), width=4)
    for parameter in reconstructor.network.head.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    hidden = _hidden(released, 2)
    words = reconstructor._pixels.draw(released, torch.Generator().manual_seed(3))
    with torch.no_grad():
        predicted, picked = reconstructor._predict(words, hidden), _pick(words, hidden)
        expected = reconstructor._pixels.log_gain(predicted, picked)
        found = reconstructor._loss_of_releases(released, hidden, torch.Generator().manual_seed(3))
        assert float(found) == pytest.approx(-float(expected.mean()), abs=1e-4)
    assert torch.allclose(predicted.sum(2), torch.ones(()), atol=1e-4)


@each_plan
def test_candidates_show_the_released_colour(plan: Plan) -> None:
    pixels = PixelPosterior(plan, some_prior(plan))
    released = simulate(smooth_images(channels_of(plan), count=4), plan, prune=None)
    for generator in (None, torch.Generator().manual_seed(0)):
        for words in pixels.draw(released, generator):
            shown = to_rgb(words.int()) if plan.is_colour else words
            assert torch.equal(shown.to(torch.uint8), released)


def test_candidates_are_drawn_in_proportion_to_their_probability() -> None:
    plan = Plan.sliced(9.0, "Y7,Y6,Y5,Cb7,Cb6,Cb5,Cr7,Cr6,Cr5")
    prior = some_prior(plan)
    pixels = PixelPosterior(plan, prior)
    chances = [likelihood(plan, c, torch.device("cpu")) @ pixels.prior[c].double() for c in range(3)]
    colours: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    for y, cb, cr in torch.cartesian_prod(*(torch.arange(16, 256, 32),) * 3).tolist():
        colour = tuple(to_rgb(torch.tensor([[y], [cb], [cr]], dtype=torch.int32)[None]).flatten().tolist())
        colours.setdefault(colour, {})[y, cb, cr] = float(chances[0][y] * chances[1][cb] * chances[2][cr])
    colour, words = max(colours.items(), key=lambda item: len(item[1]))
    assert len(words) > 2
    one = torch.tensor(colour, dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 50, 50)
    drawn = pixels.draw(one, torch.Generator().manual_seed(0)).transpose(1, 2).transpose(0, 1).flatten(1)
    for word, chance in words.items():
        share = (drawn == torch.tensor(word)[:, None]).all(0).float().mean()
        assert float(share) == pytest.approx(chance / sum(words.values()), abs=0.02)
    assert drawn.shape[1] == CANDIDATES * 2500


def test_a_perfect_prediction_has_a_smaller_loss_than_the_prior() -> None:
    images = smooth_images(1)
    released = simulate(images, GREY, torch.Generator().manual_seed(0), prune=None)
    pixels = PixelPosterior(GREY, torch.full((1, 256), 1 / 256, dtype=torch.float64))
    perfect = torch.nn.functional.one_hot(images.flatten().long(), 256)[None].float()
    assert (
        float(pixels.log_gain(perfect, released.flatten().long()[None, None]).mean()) > 0.1
    )  # the loss is its negative


def test_a_prediction_does_not_depend_on_the_release_of_the_pixel_itself() -> None:
    released = simulate(smooth_images(1, count=16), GREY, torch.Generator().manual_seed(0), prune=None)
    reconstructor = small_fit(released, GREY)
    for shift in range(LATTICE):
        hidden, changed = _hidden(released, shift), released.clone()
        changed.flatten(2)[:, :, hidden] ^= 255
        with torch.no_grad():
            one, other = (reconstructor._predict(words[None], hidden) for words in (released, changed))
        assert torch.equal(one, other)
    assert sum(len(_hidden(released, shift)) for shift in range(LATTICE)) == 16 * 16


def test_reconstructing_from_releases_alone_is_closer_to_the_view_than_decoding(tmp_path: Path) -> None:
    images = smooth_images(1)
    released = simulate(images, GREY, torch.Generator().manual_seed(1), prune=None)

    def error(expected: Tensor) -> float:
        return float((expected - images).square().mean().sqrt())

    reconstructor = small_fit(released, GREY, steps=60)
    decoded = Decoder.fit(released, GREY, prune=None).expect(released)
    assert error(reconstructor.expect(released)) < 0.75 * error(decoded)
    reconstructed = reconstructor(released)
    assert reconstructed.shape == released.shape
    assert reconstructed.dtype == torch.uint8
    assert float(reconstructed.float().std()) == pytest.approx(32, abs=2)
    assert float(reconstructed.float().mean()) == pytest.approx(128, abs=2)
    assert torch.equal(reconstructor(released[3]), reconstructed[3])
    torch.save(reconstructor.state_dict(), tmp_path / "reconstructor.pt")
    again = Reconstructor.from_state_dict(torch.load(tmp_path / "reconstructor.pt", weights_only=True))
    assert torch.equal(again(released), reconstructed)
    kept = pickle.dumps(reconstructor)
    assert len(kept) < 1.1 * (tmp_path / "reconstructor.pt").stat().st_size
    assert torch.equal(pickle.loads(kept)(released), reconstructed)


def test_reconstructing_learns_from_public_images() -> None:
    images, public = smooth_images(1, count=32), smooth_images(1, seed=1)
    released = simulate(images, GREY, torch.Generator().manual_seed(1), prune=None)
    decoded = Decoder.fit(released, GREY, prune=None).expect(released)
    reconstructed = small_fit(released, GREY, steps=60, public=public).expect(released)
    assert (reconstructed - images).square().mean() < 0.75 * (decoded - images).square().mean()


def test_a_network_trained_on_public_images_serves_other_releases_of_the_plan(tmp_path: Path) -> None:
    images, public = smooth_images(1, count=32), smooth_images(1, seed=1)
    simulated = simulate(public, GREY, torch.Generator().manual_seed(2), prune=None)
    trained = small_fit(simulated, GREY, steps=60, public=public)
    released = simulate(images, GREY, torch.Generator().manual_seed(1), prune=None)
    fitted = trained.fitted_to(released)
    decoded = Decoder.fit(released, GREY, prune=None)
    assert torch.equal(fitted.decoder.prior, decoded.prior)
    assert torch.equal(fitted.expect(released), trained.expect(released))
    error, other = (float((one.expect(released) - images).square().mean()) for one in (fitted, decoded))
    assert error < 0.75 * other
    assert float(fitted(released).float().std()) == pytest.approx(32, abs=2)
    torch.save(fitted.state_dict(), tmp_path / "reconstructor.pt")
    again = Reconstructor.from_state_dict(torch.load(tmp_path / "reconstructor.pt", weights_only=True))
    assert torch.equal(again(released), fitted(released))


@each_plan
def test_training_depends_on_its_seed_only(plan: Plan) -> None:
    images = smooth_images(channels_of(plan), count=16)[:, :, :13, :11]  # no multiple of anything
    released = simulate(images, plan, torch.Generator().manual_seed(0), prune=None)
    before = torch.get_rng_state()
    first, same, other = (small_fit(released, plan, seed=seed).expect(released) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 255


def test_reconstructed_blocks_have_the_mean_of_pruned_blocks() -> None:
    released = simulate(smooth_images(1, count=16), GREY, torch.Generator().manual_seed(0), prune="haar")
    reconstructor = Reconstructor.fit(released, GREY, prune="haar", steps=4, batch=16, width=8)
    means = torch.nn.functional.avg_pool2d(reconstructor.expect(released), 2)
    assert torch.allclose(means, torch.tensor(128.0), atol=1.0)


@pytest.mark.parametrize("hides", [True, False], ids=["from releases", "from public images"])
@pytest.mark.parametrize("prune", [None, "haar"])
@each_plan
def test_no_releases_and_one_pixel_are_reconstructed_as_a_decoder_decodes_them(
    plan: Plan, prune: Prune, hides: bool
) -> None:
    """With less than five pixels, some of the five sets of hidden pixels are empty."""
    decoder = Decoder(plan, some_prior(plan), prune=prune)
    reconstructor = Reconstructor(decoder, width=4, hides=hides)
    for count, side in ((0, 8), (2, 1)):
        sources = torch.zeros(count, channels_of(plan), side, side, dtype=torch.uint8)
        released = simulate(sources, plan, prune=prune) if count else sources
        for found, decoded in (
            (reconstructor(released), decoder(released)),
            (reconstructor.expect(released), decoder.expect(released)),
        ):
            assert (found.shape, found.dtype) == (decoded.shape, decoded.dtype)


def test_an_incomplete_state_is_refused() -> None:
    state = Reconstructor(Decoder(GREY, some_prior(GREY), prune=None), width=4).state_dict()
    with pytest.raises(LdpSlicingError, match="without plan, prune, prior, width, network, mean, deviation, centre, "):
        Reconstructor.from_state_dict({})
    with pytest.raises(LdpSlicingError, match="without plan, prune"):  # the most likely confusion
        Reconstructor.from_state_dict(state["network"])
    del state["spread"]
    with pytest.raises(LdpSlicingError, match=r"without spread: pass what Reconstructor.state_dict\(\) returned"):
        Reconstructor.from_state_dict(state)
    del state["hides"], state["prior"]
    with pytest.raises(LdpSlicingError, match="without prior, spread, hides:"):
        Reconstructor.from_state_dict(state)


def test_refusals() -> None:
    released = simulate(smooth_images(1, count=2), GREY, prune=None)
    with pytest.raises(LdpSlicingError, match="1 or more steps"):
        Reconstructor.fit(released, GREY, steps=0)
    with pytest.raises(
        ImageError, match=r"needs releases as one uint8 tensor \[N, C, H, W\]; got torch.uint8 \(0, 1, "
    ):
        Reconstructor.fit(released[:0], GREY)
    with pytest.raises(ImageError, match=r"needs public images as one .* got torch.uint8 \(0, 1, "):
        Reconstructor.fit(released, GREY, public=released[:0])
    for several in ([released, released], iter(released[:, None])):  # a decoder takes both
        with pytest.raises(ImageError, match=r"got \w+: join images .* with torch.cat\(list\("):
            Reconstructor.fit(several, GREY)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="must be a uint8 tensor"):
        small_fit(released, GREY)(released.float())
