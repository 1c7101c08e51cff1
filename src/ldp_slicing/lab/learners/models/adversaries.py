"""The adversary's networks. Features of the plan are an input, so that one network serves all budgets of a view."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.bits import evidence, float_rgb, log_odds, mean_words, to_bits, undo_gain
from ldp_slicing.plan import Plan

PLAN_CHANNELS = 64  # of the embedded plan features


class Adversary(Protocol):
    """A network that reconstructs sources from releases.

    takes: whether it takes releases as RGB images or as words.
    """

    takes: Literal["rgb", "ycbcr"]

    def plan_features(self, plan: Plan) -> list[float]:
        """K numbers: what the adversary knows about the plan."""
        ...

    def __call__(self, releases: Tensor, known: Tensor) -> tuple[Tensor, Tensor | None]:
        """uint8 [N, C, H, W] releases and float32 [N, K] features to float32 [N, C, H, W], RGB of about 0..255.

        The second result is float32 [N, 8 C, H, W], the log-odds that each bit of the view is 1, or None.
        """
        ...


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut. The plan features scale and shift what is between them (FiLM)."""

    def __init__(self, inside: int, outside: int, known: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.film = nn.Linear(known, 2 * outside)
        self.shortcut = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()
        nn.init.zeros_(self.film.weight)
        nn.init.zeros_(self.film.bias)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        scale, shift = self.film(known)[:, :, None, None].chunk(2, 1)
        out = functional.relu(self.norm1(self.conv1(x)) * (1 + scale) + shift)
        return functional.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def _pad_and_locate(x: Tensor, multiple: int) -> Tensor:
    """[N, C, H, W] padded with zeros to the next multiple, and two planes with the coordinates of each pixel."""
    height, width = x.shape[2:]
    x = functional.pad(x, (0, -width % multiple, 0, -height % multiple))
    rows, columns = (torch.linspace(-1, 1, side, device=x.device, dtype=x.dtype) for side in x.shape[2:])
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(len(x), -1, -1, -1)
    return torch.cat((x, grid), 1)


def _enlarge(x: Tensor, times: int) -> Tensor:
    return functional.interpolate(x, scale_factor=float(times), mode="nearest")


def _plan_embedding(known: int) -> nn.Module:
    """Plan features [N, known] to the input of the blocks' scales, [N, PLAN_CHANNELS]."""
    return nn.Sequential(nn.Linear(known, PLAN_CHANNELS), nn.SiLU())


class UNet(nn.Module):
    """[N, inside, H, W] of any size and [N, known] to [N, outside, H, W] (Ronneberger et al. 2015)."""

    def __init__(self, inside: int, outside: int, known: int, *, width: int = 48, scales: int = 4) -> None:
        super().__init__()
        widths = [width << i for i in range(scales)]
        self.multiple = 1 << scales - 1
        self.down = nn.ModuleList(_Block(a, b, known) for a, b in zip([inside + 2, *widths], widths, strict=False))
        self.up = nn.ModuleList(_Block(a + b, b, known) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(width, outside, 1)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        height, width = x.shape[2:]
        x, kept = _pad_and_locate(x, self.multiple), list[Tensor]()
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x, known)
            kept.append(x)
        for block, skipped in zip(self.up, kept[-2::-1], strict=True):
            x = block(torch.cat((_enlarge(x, 2), skipped), 1), known)
        out: Tensor = self.head(x)
        return out[:, :, :height, :width]


class FullScaleUNet(nn.Module):
    """A ``UNet`` with the full-scale connections of UNet 3+ (Huang et al. 2020).

    Each scale of the decoder sees all scales: the finer ones of the encoder and the coarser ones of the decoder.
    """

    def __init__(self, inside: int, outside: int, known: int, *, width: int = 48, scales: int = 4) -> None:
        super().__init__()
        widths = [width << i for i in range(scales)]
        self.multiple, together = 1 << scales - 1, width * scales
        self.down = nn.ModuleList(_Block(a, b, known) for a, b in zip([inside + 2, *widths], widths, strict=False))
        # scale i takes encoder scales 0..i and decoder scales i + 1..; the coarsest scale is shared
        self.takes = nn.ModuleList(
            nn.ModuleList(
                nn.Conv2d(widths[j] if j <= i or j == scales - 1 else together, width, 3, padding=1, bias=False)
                for j in range(scales)
            )
            for i in range(scales - 1)
        )
        self.fuse = nn.ModuleList(_Block(together, together, known) for _ in range(scales - 1))
        self.head = nn.Conv2d(together, outside, 1)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        height, width = x.shape[2:]
        x, ways = _pad_and_locate(x, self.multiple), list[Tensor]()
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x, known)
            ways.append(x)
        for i in range(len(ways) - 2, -1, -1):  # ways[i + 1:] are already of the decoder
            takes = self.takes[i]
            assert isinstance(takes, nn.ModuleList)  # noqa: S101 - a ModuleList forgets the type
            sized = [
                functional.max_pool2d(way, 1 << i - j) if j < i else _enlarge(way, 1 << j - i) if j > i else way
                for j, way in enumerate(ways)
            ]
            ways[i] = self.fuse[i](torch.cat([take(way) for take, way in zip(takes, sized, strict=True)], 1), known)
        out: Tensor = self.head(ways[0])
        return out[:, :, :height, :width]


class BlackBox(nn.Module):
    """A U-Net from releases to sources. The adversary can obtain releases and knows their eps, and nothing else."""

    takes: Literal["rgb", "ycbcr"] = "rgb"

    def __init__(self, channels: int = 3, *, width: int = 48, scales: int = 4) -> None:
        super().__init__()
        self.embed_plan = _plan_embedding(1)
        self.network = UNet(channels, channels, PLAN_CHANNELS, width=width, scales=scales)

    def plan_features(self, plan: Plan) -> list[float]:
        return [math.log(plan.epsilon) / 3]

    def forward(self, releases: Tensor, known: Tensor) -> tuple[Tensor, None]:
        out: Tensor = self.network(releases / 127.5 - 1, self.embed_plan(known))
        return 127.5 * (out.float() + 1), None


class _KnowsFlips:
    """What the white boxes share: they take words and know the flip probability of every bit."""

    takes: Literal["rgb", "ycbcr"] = "ycbcr"

    def plan_features(self, plan: Plan) -> list[float]:
        """The log-odds of every bit, in the order of ``to_bits``."""
        return [float(value) for value in log_odds(plan).flatten()]


class BitUNet(_KnowsFlips, nn.Module):
    """A U-Net from the evidence of each released bit to sources."""

    def __init__(self, channels: int = 3, *, width: int = 48, scales: int = 4) -> None:
        super().__init__()
        self.embed_plan = _plan_embedding(8 * channels)
        self.network = UNet(16 * channels, channels, PLAN_CHANNELS, width=width, scales=scales)

    def forward(self, releases: Tensor, known: Tensor) -> tuple[Tensor, None]:
        out: Tensor = self.network(evidence(releases, known), self.embed_plan(torch.log1p(known)))
        return 127.5 * (out.float() + 1), None


class _PlaneAttention(nn.Module):
    """Self-attention over squares of 4 x 4 pixels, for one bit-plane."""

    def __init__(self, features: int, channels: int, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.enter = nn.Conv2d(features + 16 * channels, width, 1)
        self.norm = nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)

    def forward(self, features: Tensor, plane: Tensor) -> Tensor:
        """[N, F, H / 4, W / 4] of the whole word and [N, C, H, W] of the plane to [N, width, H / 4, W / 4]."""
        x = self.enter(torch.cat((features, functional.pixel_unshuffle(plane, 4)), 1))
        tokens = x.flatten(2).transpose(1, 2)
        query, key, value = self.ask(self.norm(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = x + self.answer(seen.transpose(1, 2).flatten(2)).transpose(1, 2).view(x.shape)
        return out


class Denoiser(nn.Module):
    """An autoencoder with eight attention modules side by side, one for each bit-plane: the paper's first stage.

    float32 [N, 8 C, H, W], the log-odds of each bit given its own release, to the log-odds of the bits of the view. The
    network's output is added to its input, as independent evidence adds up.
    """

    def __init__(self, channels: int, known: int, *, width: int = 48) -> None:
        super().__init__()
        self.channels = channels
        self.down = nn.ModuleList(
            _Block(a, b, known) for a, b in ((16 * channels + 2, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.planes = nn.ModuleList(_PlaneAttention(4 * width, channels, width) for _ in range(8))
        self.middle = _Block(8 * width, 4 * width, known)
        self.up = nn.ModuleList(_Block(a, b, known) for a, b in ((6 * width, 2 * width), (3 * width, width)))
        self.head = nn.Conv2d(width, 8 * channels, 1)

    def forward(self, evidence: Tensor, known: Tensor) -> Tensor:
        height, width = evidence.shape[2:]
        # the expected bit (-1 or 1) given its own release, and the released bit, which stays strong under much noise
        x = _pad_and_locate(torch.cat((torch.tanh(evidence / 2), evidence.sign()), 1), 4)
        bits, kept = x[:, : 8 * self.channels], list[Tensor]()
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x, known)
            kept.append(x)
        x = self.middle(torch.cat([attend(x, bits[:, b::8]) for b, attend in enumerate(self.planes)], 1), known)
        for block, skipped in zip(self.up, kept[1::-1], strict=True):
            x = block(torch.cat((_enlarge(x, 2), skipped), 1), known)
        context: Tensor = self.head(x)
        return evidence + context.float()[:, :, :height, :width]


class WhiteBox(_KnowsFlips, nn.Module):
    """The paper's two stages: the denoiser, then a full-scale U-Net that adds the low band to the denoised detail.

    The second stage works on squares of 2 x 2 pixels. Its output may differ within a square, so it can also correct the
    detail, which makes the attack stronger than one that only adds the low band.
    """

    def __init__(self, channels: int = 3, gain: int = 1, *, width: int = 48, scales: int = 4) -> None:
        super().__init__()
        self.gain = gain  # of the view, which is undone
        self.embed_plan = _plan_embedding(8 * channels)
        self.denoiser = Denoiser(channels, PLAN_CHANNELS, width=width)
        self.low = FullScaleUNet(8 * channels, 4 * channels, PLAN_CHANNELS, width=width // 2, scales=scales)

    def forward(self, releases: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        height, width = releases.shape[2:]
        levels = self.embed_plan(torch.log1p(known))
        bits = self.denoiser((2.0 * to_bits(releases) - 1) * known[:, :, None, None], levels)
        detail = mean_words(torch.sigmoid(bits))
        both = torch.cat((detail, releases), 1)  # with the release: under much noise the denoised detail is weak
        filled = functional.pad(both, (0, width % 2, 0, height % 2), mode="replicate")
        low: Tensor = self.low(functional.pixel_unshuffle(filled / 127.5 - 1, 2), levels).float()
        return float_rgb(
            undo_gain(detail, self.gain) + 127.5 * functional.pixel_shuffle(low, 2)[:, :, :height, :width]
        ), bits


# by the recipe's model, from the channels and the gain of the view
NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "unet": lambda channels, _: BlackBox(channels),
    "two-stage": WhiteBox,
    "bit-unet": lambda channels, _: BitUNet(channels),
}
