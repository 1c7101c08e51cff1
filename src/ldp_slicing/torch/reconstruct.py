r"""Reconstruction: the expected value of each pixel of the view, given the whole release and the plan.

``Decoder`` looks at one pixel at a time. A network that has learnt what images look like can also use the pixels around
it. ``Reconstructor.fit`` trains such a network on the releases themselves: it needs no source and no other image. This
is post-processing, because it reads only the releases and the plan, so the promise does not change (docs/proofs.md, 6).

**Prediction.** Every fifth pixel is hidden, and a small U-Net predicts the hidden pixels of the view from the released
bits of the others. Each bit is weighted by the probability that its slice was missed, which is tanh(eps / 2) for a
slice of one bit. The prediction for channel c of pixel i is a distribution over its 256 values, given the other pixels:

    q_ic(v) = a_ic D(v; m_ic, s_ic) + (1 - a_ic) p_c(v)

with D a discretised logistic distribution and p_c the prior that ``Decoder.fit`` estimates. The network computes share,
mean and scale. At first its last layer is zero, and q_ic is close to the prior.

**Loss.** The view of a hidden pixel is unknown, but its release x_i is not, and the plan gives P(x | v) exactly. So the
network is trained by maximum likelihood of the releases:

    loss = - mean_i log sum_v q_i(v) P(x_i | v)

The noise of each pixel is independent of all others, so the hidden pixel's noise cannot be predicted. The expected loss
is smallest where q_i gives the releases of pixel i their true distribution, given the releases of the other pixels.

**Colours.** An image shows x = rgb(r), and clamping makes several words r show the same colour. With s(r | x) the
probability of each of these words under the prior, and K words r_1, ..., r_K drawn from s, the loss is

    - mean_i log (1 / K) sum_k sum_v q_i(v) P(r_k | v) / sum_v p(v) P(r_k | v)

Its expectation is, up to a constant, an upper bound of the loss above (Burda et al. 2016, "Importance weighted
autoencoders"). It is exact for grey images and for colours that are shown by one word only.

**Posterior mean.** After training, each pixel is hidden once. Its posterior is proportional to q_i(v) P(x_i | v): the
prediction from the other pixels, times the likelihood of its own release. Blocks are treated as in ``decode``.

**Public images.** The views of public images are known, so nothing is hidden: the network is given all released bits
and computes the values of the view. The loss is the mean squared error, which is smallest for the posterior mean given
the whole release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.errors import ImageError, LdpSlicingError
from ldp_slicing.plan import Plan
from ldp_slicing.torch.decode import Decoder, impose_block_mean, to_standard
from ldp_slicing.torch.likelihood import channel_count
from ldp_slicing.torch.networks import SmallUNet, track_statistics
from ldp_slicing.torch.posterior import PixelPosterior
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import Prune, block_of

LATTICE = 5  # pixels with the same (2 row + column) mod 5 are hidden together; the eight around each stay visible
STEPS, BATCH, WIDTH, LEARNING_RATE = 6000, 256, 64, 2e-3
WARM_UP = 0.1  # the share of the steps in which the learning rate rises
CLIP = 1.0  # the largest gradient norm
PIXELS_AT_ONCE = 1 << 18
IMAGES_FOR_SCALE = 1000  # by which the scale of the reconstructed channels is chosen
MIN_PRIOR, MIN_SCALE = 0.001, 0.25  # the smallest share of the prior in a prediction, and the smallest scale of D
LOGISTIC_SCALE = 3**0.5 / pi  # of a logistic distribution whose standard deviation is 1
MAX_STRETCH = 4.0  # of the scale relative to the prior's, as a logarithm
NEEDED = ("plan", "prune", "prior", "width", "network", "mean", "deviation", "centre", "spread", "hides")
Report = Callable[[int, float], None]


class Reconstructor:
    """Turn releases uint8 [N, C, H, W] or [C, H, W], RGB or grey, into uint8 of that shape: expected Y, Cb, Cr or grey.

    >>> reconstructor = Reconstructor.fit(released, Plan.paper(20.0))                                # doctest: +SKIP
    >>> reconstructor(released)  # 128 is a channel's mean, and 32 is about one standard deviation   # doctest: +SKIP
    >>> torch.save(reconstructor.state_dict(), "reconstructor.pt")                                   # doctest: +SKIP
    >>> Reconstructor.from_state_dict(torch.load("reconstructor.pt", map_location="cpu"))            # doctest: +SKIP

    decoder
        of the releases: it has the plan, the pruning and the prior.
    width
        of the network: its number of channels at full resolution.
    hides
        whether the network predicts hidden pixels, as one that learns from releases alone must.

    Reconstruct whole releases, and crop or flip afterwards. Everything runs on the device of the decoder's prior.
    """

    def __init__(self, decoder: Decoder, *, width: int = WIDTH, seed: int = 0, hides: bool = True) -> None:
        self.decoder, self.plan, self.prune = decoder, decoder.plan, decoder.prune
        self.width, self.hides = width, hides
        device, channels = decoder.prior.device, channel_count(decoder.plan)
        self._pixels = PixelPosterior(self.plan, decoder.prior)
        self._prior = self._pixels.prior
        self._values = torch.arange(256.0, device=device)
        # the network's outputs are relative to these two: the prior's when it was trained
        self._mean = self._prior @ self._values
        self._deviation = (self._prior * (self._values - self._mean[:, None]).square()).sum(1).sqrt()
        shifts = range(self.plan.word_bits)
        missed = {part.bits: float(self.plan.tables.miss_probability(part.bits)) for part in self.plan.slices}
        weights = [sum(miss for bits, miss in missed.items() if bits >> shift & 1) for shift in shifts]
        self._bit_weights = torch.tensor(weights[::-1], device=device).view(1, -1, 1, 1)  # highest bit of Y first
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = SmallUNet(len(weights) + 1, 3 * channels if hides else channels, width=width)
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network.eval()
        self._centre = torch.full((channels,), 128.0, device=device)
        self._spread = torch.zeros(channels, device=device)

    @classmethod
    def fit(
        cls,
        released: Tensor,
        plan: Plan,
        *,
        prune: Prune = "haar",
        public: Tensor | None = None,
        steps: int = STEPS,
        batch: int = BATCH,
        width: int = WIDTH,
        learning_rate: float = LEARNING_RATE,
        seed: int = 0,
        report: Report | None = None,
    ) -> Self:
        """Return a reconstructor that was trained on uint8 [N, C, H, W] releases, on their device; a GPU is advisable.

        public: uint8 [M, C, h, w] images that need no protection. If given, the network is trained on simulated
        releases of them instead, to predict their views.
        steps, batch: the number of training steps, and of images in each. seed: of weights, order and noise.
        report: called after each hundredth part of the training with the steps done and their mean loss. For releases
        it is in nats per pixel, and 0 is the loss of the decoder's prior. With public images it is the mean squared
        error, and 1 is the variance of the prior.
        """
        if steps < 1 or batch < 1:
            raise LdpSlicingError(f"a reconstructor is trained for 1 or more steps and images; got {steps} and {batch}")
        hides = public is None
        _check_images("releases", released)
        images = released if public is None else _check_images("public images", public).to(released.device)
        reconstructor = cls(Decoder.fit(released, plan, prune=prune), width=width, seed=seed, hides=hides)
        generator = torch.Generator(released.device).manual_seed(seed)

        def loss(index: Tensor, hidden: Tensor) -> Tensor:
            chosen, flip = images[index], torch.rand((), generator=generator, device=images.device) < 0.5
            if not hides or not chosen.shape[3] % block_of(prune):  # a flip must keep the blocks
                chosen = torch.where(flip, chosen.flip(3), chosen)
            if hides:
                return reconstructor._loss_of_releases(chosen, hidden, generator)
            return reconstructor._loss_of_sources(chosen, generator)

        reconstructor._train(loss, images, steps, batch, learning_rate, generator, report)
        reconstructor._fit_scale(released)
        return reconstructor

    def fitted_to(self, released: Tensor) -> Self:
        """Return a reconstructor for other releases of the same plan and pruning, uint8 [N, C, H, W].

        Its network is the same; only the prior and the scale of the output are fitted to them. So a network that was
        trained on public images serves all releases of similar images by that plan.
        """
        other = type(self)(Decoder.fit(released, self.plan, prune=self.prune), width=self.width, hides=self.hides)
        other.network, other._mean, other._deviation = self.network, self._mean, self._deviation
        other._fit_scale(released)
        return other

    def _fit_scale(self, released: Tensor) -> None:
        some = self.expect(released[:IMAGES_FOR_SCALE])
        self._centre, self._spread = some.mean((0, 2, 3)), some.std((0, 2, 3))

    def _train(
        self,
        loss_of: Callable[[Tensor, Tensor], Tensor],
        images: Tensor,
        steps: int,
        batch: int,
        learning_rate: float,
        generator: torch.Generator,
        report: Report | None,
    ) -> None:
        """Train on batches of ``images``. Between reports, the host does not wait for the device."""
        parameters, every, count = list(self.network.parameters()), max(1, steps // 100), len(images)
        lattice = [_hidden(images, shift) for shift in range(LATTICE)]
        optimiser = torch.optim.AdamW(parameters, learning_rate, weight_decay=0.01, fused=images.is_cuda)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, learning_rate, total_steps=steps + 1, pct_start=WARM_UP, cycle_momentum=False
        )
        total = torch.zeros((), device=generator.device)
        track_statistics(self.network, steps)
        self.network.train()
        for step in range(steps):
            index = torch.randint(count, (min(batch, count),), device=generator.device, generator=generator)
            loss = loss_of(index, lattice[step % LATTICE])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimiser.step()
            schedule.step()
            total += loss.detach()
            if (step + 1) % every == 0:
                mean = total.item() / every
                if mean != mean:
                    raise LdpSlicingError(
                        f"the loss of the reconstructor is not a number after {step + 1} steps: use a smaller learning "
                        f"rate than {learning_rate:g}"
                    )
                if report:
                    report(step + 1, mean)
                total.zero_()
        self.network.eval()

    def expect(self, released: Tensor) -> Tensor:
        """Return float32 [N, C, H, W], 0 to 255: the posterior mean of each value of the view.

        released: uint8 [N, C, H, W]. The same releases always give the same values.
        """
        at_once = max(1, PIXELS_AT_ONCE // (released.shape[2] * released.shape[3] or 1)) if released.ndim == 4 else 1
        return torch.cat([self._expect(part) for part in torch.split(released, at_once)])

    @torch.no_grad()
    def _expect(self, released: Tensor) -> Tensor:
        words = self._pixels.draw(released)
        if not self.hides:
            return self._regress(words).clamp_(0, 255)
        means, variances = (torch.empty(released.shape, device=released.device).flatten(2) for _ in range(2))
        for shift in range(LATTICE):
            hidden = _hidden(released, shift)
            mean, variance = self._pixels.combine(self._predict(words, hidden), _pick(words, hidden))
            for found, values in ((means, mean), (variances, variance)):
                found[:, :, hidden] = values.view(len(mean), len(released), len(hidden)).transpose(0, 1)
        return impose_block_mean(means.view(released.shape), variances.view(released.shape), self.prune).clamp_(0, 255)

    def __call__(self, released: Tensor) -> Tensor:
        """Return uint8 of the same shape: ``expect``, scaled per channel to mean 128 and standard deviation 32."""
        if isinstance(released, Tensor) and released.ndim == 3:
            return self(released[None])[0]
        return to_standard(self.expect(released), self._centre, self._spread)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that ``from_state_dict`` needs, for ``torch.save``."""
        return {
            "plan": self.plan.to_dict(),
            "prune": self.prune,
            "prior": self.decoder.prior,
            "width": self.width,
            "hides": self.hides,
            "network": self.network.state_dict(),
            "mean": self._mean,
            "deviation": self._deviation,
            "centre": self._centre,
            "spread": self._spread,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], device: torch.device | str = "cpu") -> Self:
        """Return the reconstructor whose ``state_dict`` this was, on the device."""
        if missing := [name for name in NEEDED if name not in state]:
            raise LdpSlicingError(
                f"a reconstructor cannot be made without {', '.join(missing)}: pass what Reconstructor.state_dict() "
                "returned"
            )
        decoder = Decoder(Plan.from_dict(state["plan"]), state["prior"].to(device), prune=state["prune"])
        reconstructor = cls(decoder, width=state["width"], hides=state["hides"])
        reconstructor.network.load_state_dict(state["network"])
        for name in ("mean", "deviation", "centre", "spread"):
            setattr(reconstructor, f"_{name}", state[name].to(device))
        return reconstructor

    def __getstate__(self) -> dict[str, Any]:
        """Return what the tables follow from, as ``Decoder`` does."""
        return vars(self) if get_spawning_popen() is not None else self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        made = state if "_pixels" in state else vars(self.from_state_dict(state, state["prior"].device))
        vars(self).update(made)

    def _loss_of_releases(self, released: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
        words = self._pixels.draw(released, generator, known=True)  # the decoder was fitted to them
        mean, scale, share = self._parameters(words, hidden)
        steepness = scale.reciprocal()[..., None]
        below = torch.sigmoid(torch.addcmul(-mean[..., None] * steepness, self._values - 0.5, steepness))
        return -self._pixels.log_gain_of_mixture(below, share, _pick(words, hidden)).mean()

    def _loss_of_sources(self, sources: Tensor, generator: torch.Generator) -> Tensor:
        released = simulate(sources, self.plan, generator, prune=self.prune)
        view = apply_view(sources, self.prune, colour=self.plan.is_colour)
        error = self._regress(self._pixels.draw(released, generator, known=True)) - view
        return (error / self._deviation.view(-1, 1, 1)).square().mean()

    def _regress(self, words: Tensor) -> Tensor:
        """Return float32 [N, C, H, W]: the network's values of the view, given all bits of uint8 [K, N, C, H, W]."""
        mean, deviation = (values.view(-1, 1, 1) for values in (self._mean, self._deviation))
        bits = self._weighted_bits(words)
        values = mean + deviation * self._run(torch.cat((bits, torch.ones_like(bits[:, :1])), 1))  # 1: not padding
        return impose_block_mean(values, deviation.square().expand_as(values), self.prune)

    def _predict(self, words: Tensor, hidden: Tensor) -> Tensor:
        """Return float32 [C, M, 256]: the distribution of each value at the hidden pixels of uint8 [K, N, C, H, W]."""
        mean, scale, share = (values[..., None] for values in self._parameters(words, hidden))
        below = functional.pad(torch.sigmoid((self._values[1:] - 0.5 - mean) / scale), (1, 0))
        logistic = functional.pad(below, (0, 1), value=1.0).diff(dim=-1)
        return torch.lerp(self._prior[:, None], logistic, share)

    def _parameters(self, words: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return float32 [C, M] each: mean and scale of D, and its share, at the hidden pixels of [K, N, C, H, W]."""
        visible = torch.ones(words.shape[3] * words.shape[4], device=words.device).index_fill_(0, hidden, 0.0)
        visible = visible.view(1, 1, *words.shape[3:]).expand(words.shape[1], -1, -1, -1)
        outputs = self._run(torch.cat((self._weighted_bits(words) * visible, 1 - visible), 1))
        chosen = outputs.flatten(2).index_select(2, hidden).transpose(0, 1).flatten(1)  # [3 C, M]
        shift, stretch, share = chosen.view(3, len(self._mean), chosen.shape[1]).unbind()
        deviation = self._deviation[:, None]
        scale = deviation * LOGISTIC_SCALE * stretch.clamp(-MAX_STRETCH, MAX_STRETCH).exp()
        mean = self._mean[:, None] + deviation * shift
        return mean, scale.clamp_min(MIN_SCALE), (1 - MIN_PRIOR) * torch.sigmoid(share)

    def _weighted_bits(self, words: Tensor) -> Tensor:
        """Return float32 [N, B, H, W], -1 to 1: each bit of uint8 [K, N, C, H, W], by how much it tells."""
        shifts = torch.arange(7, -1, -1, device=words.device, dtype=torch.uint8).view(1, 1, 1, 8, 1, 1)
        ones = (words[:, :, :, None] >> shifts & 1).sum(0, dtype=torch.float32).flatten(1, 2)  # of K bits
        return (2 / len(words) * ones - 1) * self._bit_weights

    def _run(self, inputs: Tensor) -> Tensor:
        """Return float32, the network's outputs; in half precision on a GPU."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=inputs.is_cuda):
            outputs: Tensor = self.network(inputs.contiguous(memory_format=torch.channels_last))
        return outputs.float()


def _check_images(what: str, images: object) -> Tensor:
    """Return uint8 [N, C, H, W] as they are; raise ImageError for anything else, before anything takes time."""
    if not isinstance(images, Tensor):
        raise ImageError(
            f"a reconstructor needs {what} as one uint8 tensor [N, C, H, W]; got {type(images).__name__}: join images "
            "of one size, such as those of a data set, with torch.cat(list(data_set.images()))"
        )
    if images.dtype != torch.uint8 or images.ndim != 4 or not len(images):
        raise ImageError(
            f"a reconstructor needs {what} as one uint8 tensor [N, C, H, W]; got {images.dtype} {tuple(images.shape)}"
        )
    return images


def _hidden(images: Tensor, shift: int) -> Tensor:
    """Return int64 [M]: the flat positions of the pixels of [N, C, H, W] that are hidden together."""
    height, width = images.shape[2:]
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    return ((2 * rows[:, None] + columns) % LATTICE == shift).flatten().nonzero()[:, 0]


def _pick(words: Tensor, hidden: Tensor) -> Tensor:
    """Return int64 [C, K, N M]: the values of integers [K, N, C, H, W] at M flat positions."""
    return words.flatten(3)[..., hidden].permute(2, 0, 1, 3).flatten(2).long()
