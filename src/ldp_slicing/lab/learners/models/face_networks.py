"""Face recognisers for the 112 x 112 ArcFace crop: IR-50 with the ArcFace head, and dlib's trained ResNet."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import DataError

EMBEDDING = 512


class _ImprovedUnit(nn.Module):
    """BN-Conv-BN-PReLU-Conv-BN beside a shortcut. Nothing follows the sum, so a signal can pass a stage unchanged."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.BatchNorm2d(inside),
            nn.Conv2d(inside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.PReLU(outside),
            nn.Conv2d(outside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x) + self.shortcut(x)
        return out


class Dropout(nn.Module):
    """Dropout that draws from ``generator``, so that a run can be resumed exactly and share its device with others."""

    generator: torch.Generator | None = None

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.rand(x.shape, device=x.device, generator=self.generator) >= self.share
        return x * kept / (1 - self.share)


def ir50(classes: int | None = None, *, channels: int = 3) -> nn.Module:
    """float32 [N, channels, 112, 112] of about -1..1 to embeddings, float32 [N, 512], or to logits [N, classes].

    The improved-residual IR-50 of ArcFace (Deng et al. 2019), 43.6 million parameters at three channels. Embeddings are
    not normalised; train them with ``ArcFaceHead``. With ``classes`` a linear layer follows instead.
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    inside = 64
    for width, units in ((64, 3), (128, 4), (256, 14), (512, 3)):
        for i in range(units):
            layers.append(_ImprovedUnit(inside, width, 2 if i == 0 else 1))
            inside = width
    layers += [
        nn.BatchNorm2d(512),
        Dropout(0.4),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, EMBEDDING),
        nn.BatchNorm1d(EMBEDDING),
    ]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    if classes is not None:
        network.append(nn.Linear(EMBEDDING, classes))
    return network


class ArcFaceHead(nn.Module):
    """float [N, embedding] and int64 [N] labels to float32 [N, classes] logits.

    The logit of the true class is scale x cos(angle + margin), the others are scale x cos(angle). Beyond
    angle = pi - margin the cosine would rise again and reward a worse angle. There the logit is
    scale x (cos(angle) - margin x sin(margin)), which keeps falling (ArcFace's ``easy_margin=False``).
    """

    def __init__(self, classes: int, *, embedding: int = EMBEDDING, scale: float = 64.0, margin: float = 0.4) -> None:
        super().__init__()
        if not 0 <= margin < math.pi:
            raise ValueError(f"margin {margin} is not an angle from 0 to pi")
        self.weight = nn.Parameter(torch.empty(classes, embedding))
        nn.init.normal_(self.weight, std=0.01)
        self.scale, self.margin = scale, margin

    def forward(self, embedding: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(embedding.device.type, enabled=False):  # half precision cannot distinguish small angles
            cosine = functional.linear(
                functional.normalize(embedding.float()), functional.normalize(self.weight.float())
            )
            index = labels.view(-1, 1)
            true_class = self._with_margin(cosine.gather(1, index))
            return self.scale * cosine.scatter(1, index, true_class)

    def _with_margin(self, cosine: Tensor) -> Tensor:
        # The root has an infinite slope at angle 0; the floor keeps that gradient finite.
        sine = (1 - cosine * cosine).clamp(min=1e-9).sqrt()
        turned = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine - self.margin * math.sin(self.margin)
        return torch.where(cosine > -math.cos(self.margin), turned, beyond)


DLIB_SHA256 = "55533b28"  # the start of the digest of dlib_face_recognition_resnet_model_v1.dat
DLIB_MEAN = (122.782, 117.001, 104.298)  # red, green, blue
DLIB_LEFT, DLIB_TOP, DLIB_SIDE, DLIB_SIZE = 6.29, 20.0, 100.58, 150
_DLIB_BLOCKS = (32, 32, 32, 64, 64, 64, 64, 128, 128, 128, 256, 256, 256, 256)
_DLIB_DOWN = (3, 7, 10, 13)  # which of them halve the size


class _Affine(nn.Module):
    """A batch norm whose statistics are folded in: one factor and one offset per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        gamma, beta = (part.to(x.dtype)[:, None, None] for part in (self.gamma, self.beta))  # half precision if x is
        return torch.addcmul(beta, x, gamma)


class _DlibBlock(nn.Module):
    def __init__(self, inside: int, outside: int, down: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, 2 if down else 1, 0 if down else 1)
        self.affine1 = _Affine(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1)
        self.affine2 = _Affine(outside)
        self.down, self.more = down, outside - inside

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.affine2(self.conv2(functional.relu(self.affine1(self.conv1(x)))))
        if self.down:
            x = functional.pad(functional.avg_pool2d(x, 2), (0, 0, 0, 0, 0, self.more))
            # For even sizes pooling keeps one row and column more than the convolution; dlib adds them as zeros.
            out = functional.pad(out, (0, x.shape[3] - out.shape[3], 0, x.shape[2] - out.shape[2]))
        return functional.relu(out + x)


class DlibResNet(nn.Module):
    """dlib's face ResNet, 5,614,592 parameters: float32 [N, 3, 150, 150] from ``dlib_input`` to float32 [N, 128]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 7, 2)
        self.affine = _Affine(32)
        insides = (32, *_DLIB_BLOCKS)
        self.blocks = nn.Sequential(
            *(
                _DlibBlock(inside, outside, i in _DLIB_DOWN)
                for i, (inside, outside) in enumerate(zip(insides, _DLIB_BLOCKS, strict=False))
            )
        )
        self.head = nn.Linear(256, 128, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.affine(self.conv(x))), 3, 2)
        out: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return out

    def load_dlib(self, path: Path, *, check: bool = True) -> None:
        """Load the weights of dlib's ``dlib_face_recognition_resnet_model_v1.dat``, or leave the network unchanged.

        check: refuse any other file of that format.
        """
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if check and not digest.startswith(DLIB_SHA256):
            raise DataError(
                f"{path} has the SHA-256 {digest}; expected {DLIB_SHA256}...: get it again, or use check=False"
            )
        position, found = 0, []
        for shape, parts in self._dlib_tensors():
            values, position = _next_tensor(content, position, shape, path)
            found.append((values, parts))
        with torch.no_grad():
            for values, parts in found:
                for part, piece in zip(
                    parts, np.split(values, np.cumsum([p.numel() for p in parts])[:-1]), strict=True
                ):
                    part.copy_(torch.from_numpy(piece).view(part.shape))

    def _dlib_tensors(self) -> Iterator[tuple[tuple[int, int, int, int], list[Tensor]]]:
        """The tensors of the file, from the input side: their dimensions, and the parameters that each contains."""
        pairs = [(self.conv, self.affine)]
        for block in self.blocks:
            assert isinstance(block, _DlibBlock)  # noqa: S101 - a Sequential forgets the type
            pairs += [(block.conv1, block.affine1), (block.conv2, block.affine2)]
        for conv, affine in pairs:
            assert conv.bias is not None  # noqa: S101 - every convolution here has one
            for parts in ([conv.weight, conv.bias], [affine.gamma, affine.beta]):
                yield (sum(part.numel() for part in parts), 1, 1, 1), list[Tensor](parts)
        yield (256, 128, 1, 1), [self.head.weight.T]  # a transposed view: copying into it fills the weight


def dlib_header(shape: tuple[int, int, int, int]) -> bytes:
    """The header of a tensor in dlib's files: 01 02, then each dimension as a length byte and little-endian bytes."""
    sizes = [(size, max(1, (size.bit_length() + 7) // 8)) for size in shape]
    return b"\x01\x02" + b"".join(bytes([length]) + size.to_bytes(length, "little") for size, length in sizes)


def _next_tensor(
    content: bytes, start: int, shape: tuple[int, int, int, int], path: Path
) -> tuple[NDArray[np.float32], int]:
    """float32 [product of shape] and its end. What lies between tensors (layer names and settings) is skipped."""
    header = dlib_header(shape)
    found = content.find(header, start)
    begin, count = found + len(header), math.prod(shape)
    if found < 0 or begin + 4 * count > len(content):
        raise DataError(
            f"{path} holds no tensor of dimensions {shape} after byte {start}: it is truncated or another network"
        )
    values = np.frombuffer(content, "<f4", count, begin).astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{path} holds infinite or undefined weights in the tensor at byte {found}: it is damaged")
    return values, begin + 4 * count


def dlib_input(images: Tensor) -> Tensor:
    """uint8 [N, 3, 112, 112], RGB, ArcFace crop, to float32 [N, 3, 150, 150], about -0.5..0.6.

    dlib's network expects its own, tighter crop, which reaches below the chin; the border is repeated there. Merely
    resizing the ArcFace crop costs more than ten points of accuracy.
    """
    if images.ndim != 4 or images.shape[1:] != (3, 112, 112):
        raise ValueError(f"images of shape {tuple(images.shape)} are not [N, 3, 112, 112]")
    filled = [torch.full((1, 1), value, device=images.device) for value in DLIB_MEAN]  # on the device, for CUDA graphs
    mean = torch.stack(filled)
    return (dlib_crop(images) - mean) / 256


def dlib_crop(images: Tensor) -> Tensor:
    """[N, C, 112, 112] of the ArcFace crop to float32 [N, C, 150, 150] of dlib's."""
    steps = (torch.arange(DLIB_SIZE, device=images.device, dtype=torch.float32) + 0.5) * (DLIB_SIDE / DLIB_SIZE)
    across, down = (2 * (start + steps) / 112 - 1 for start in (DLIB_LEFT, DLIB_TOP))
    grid = torch.stack(torch.meshgrid(across, down, indexing="xy"), -1).expand(len(images), -1, -1, -1)
    return functional.grid_sample(
        images.to(torch.float32), grid, mode="bilinear", padding_mode="border", align_corners=False
    )


class DlibInput(nn.Module):
    """``dlib_input`` as a layer."""

    def forward(self, images: Tensor) -> Tensor:
        return dlib_input(images)


class DlibCrop(nn.Module):
    """``dlib_crop`` as a layer, for networks that read other things than images."""

    def forward(self, images: Tensor) -> Tensor:
        return dlib_crop(images)


class DlibOfCrop(nn.Module):
    """float [N, 3, 112, 112] of 0..255, the ArcFace crop, to float32 [N, 128]: ``DlibResNet`` behind ``dlib_input``."""

    def __init__(self) -> None:
        super().__init__()
        self.network = DlibResNet()

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.network(dlib_input(images))
        return out

    @torch.no_grad()
    def unfold(self, images: Tensor) -> None:
        """Replace the affine maps by the batch norms that were folded into them, with the statistics of ``images``.

        images: uint8 [N, 3, 112, 112], some hundred. On them the network's output does not change. Noisy images have
        other statistics; without batch norms the network's units die when it is tuned on them.
        """
        inputs = dlib_input(images.to(next(self.parameters()).device))
        for owner, name in [
            (self.network, "affine"),
            *((block, name) for block in self.network.blocks for name in ("affine1", "affine2")),
        ]:
            affine = getattr(owner, name)
            seen: list[Tensor] = []
            hook = affine.register_forward_hook(lambda _module, args, _out, seen=seen: seen.append(args[0]))
            self.network(inputs)
            hook.remove()
            variance, mean = torch.var_mean(seen[0].float(), (0, 2, 3), correction=0)
            norm = nn.BatchNorm2d(len(mean)).to(mean.device)
            for value, known in ((norm.running_mean, mean), (norm.running_var, variance)):
                assert value is not None  # noqa: S101 - it tracks them
                value.copy_(known)
            norm.weight.copy_(affine.gamma * (variance + norm.eps).sqrt())
            norm.bias.copy_(affine.beta + affine.gamma * mean)
            setattr(owner, name, norm)
