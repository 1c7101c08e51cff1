"""The interface of every system that is compared: a ``Peer`` protects images, a ``Release`` is what leaves the device.

All randomness of a release comes from the image's key. A torch generator is seeded with a digest of the key; that makes
releases repeatable, and is NOT secret enough for anything but research. The product's guarantee does not rest on it.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.peers.fusing import fused

STATISTICS = 256  # public images, at least, that the statistics of a peer's inputs are computed from
BATCH = 64


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy with this eps for one unit, such as "released pixel", "source pixel" or "coefficient".

    largest: if units have different eps, of which ``epsilon`` is the mean, the largest of them.
    """

    unit: str
    epsilon: float
    largest: float | None = None


@dataclass(frozen=True)
class Size:
    """What one image's release takes up: numbers, bytes in ``dtype``, and bytes after zlib (a mean over images)."""

    values: int
    bytes: int
    zlib_bytes: float
    dtype: str


@dataclass(frozen=True, eq=False)
class PublicStatistics:
    """What everybody may know about a peer's releases, because it was computed from public images.

    mean, deviation: float32 [C', 1, 1] of the inputs, per channel. mean_image: float32 [3, H, W], 0..255, of the
    sources.
    """

    mean: Tensor
    deviation: Tensor
    mean_image: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Peer(ABC):
    """A system that protects images. It is immutable; ``fit`` returns a fitted copy.

    A subclass must define ``name``, ``deviations``, ``release_values`` and ``image_of``. It may override ``guarantee``,
    ``is_random``, ``hidden_from``, ``train``, ``input_of``, ``input_weights``, ``decode``, ``finds_secret`` and
    ``recognise``.
    """

    statistics: PublicStatistics | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The system, and its setting after a colon. A stand-in's system ends in "-like"."""

    @property
    @abstractmethod
    def deviations(self) -> tuple[str, ...]:
        """How this differs from what was published. Printed on the page of ``peers``."""

    @property
    def revision(self) -> int:
        """Rises with every change after which rows have to be measured again."""
        return 1

    @property
    def guarantee(self) -> Guarantee | None:
        """What is promised, or None."""
        return None

    @property
    def is_random(self) -> bool:
        """Whether another key gives another release. If not, there is no use in releasing an image twice."""
        return True

    @property
    def hidden_from(self) -> str:
        """Who must not see the sources."""
        return "everybody but the owner"

    @abstractmethod
    def release_values(
        self, images: Tensor, generators: Sequence[torch.Generator], people: Tensor | None = None
    ) -> Tensor:
        """Return [N, ...]: everything that leaves the device, for uint8 [N, 3, H, W] images on the same device.

        generators: one per image, each used for that image alone. people: int64 [N], for systems whose training
        releases depend on the identity.
        """

    def train(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """Return a trained copy. Systems without training return themselves."""
        del public, people, teacher
        return self

    def input_of(self, release: Release) -> Tensor:
        """Return float32 [N, C', H, W], not standardised: what a network reads. By default the values themselves."""
        return release.values.float()

    @property
    def input_weights(self) -> Tensor | None:
        """float32 [C', 1, 1] or [C', H, W]: factors of standardised inputs by how much of them is signal; None for 1.

        A network that starts from random weights does not find a few clear channels among many that are noise.
        """
        return None

    @abstractmethod
    def image_of(self, release: Release) -> Tensor:
        """Return float [N, 3, H, W] of about 0..255: the release as somebody would look at it."""

    def decode(self, release: Release) -> Tensor | None:
        """Return float [N, 3, H, W] of about 0..255: a reconstruction without any training. None if there is none."""
        del release
        return None

    def finds_secret(self, release: Release, keys: Sequence[bytes]) -> Tensor | None:
        """Return bool [N]: whether ``decode`` finds the secret of each image. None if it searches for none.

        keys: those that the images were released with, without ``people``. The secrets are derived from them.
        """
        del release, keys
        return None

    def recognise(self, release: Release) -> Tensor | None:
        """Return float [N, D]: embeddings by the system's own recogniser. None if that must be trained."""
        del release
        return None

    def fit(self, public: Tensor, people: Tensor, teacher: nn.Module) -> Self:
        """Return a copy that was trained, and whose inputs can be standardised. It sees public images alone.

        public: uint8 [N, 3, H, W]. people: int64 [N]. teacher: float [N, 3, H, W] of 0..255 to embeddings [N, D].
        Everything happens on the device of ``public``.
        """
        mean_image = torch.stack([part.float().mean(0) * len(part) for part in torch.split(public, BATCH)]).sum(0)
        unscaled = (torch.zeros(1, device=public.device), torch.ones(1, device=public.device))
        first = PublicStatistics(*unscaled, mean_image / len(public))  # training may use the mean image
        trained = replace(self, statistics=first).train(public, people, teacher)
        some = slice(None, None, max(1, len(public) // STATISTICS))
        keys = derive_keys("statistics", len(public[some]))
        total = squares = torch.zeros((), dtype=torch.float64, device=public.device)
        count = 0
        for i in range(0, len(keys), BATCH):
            chosen = slice(i, i + BATCH)
            release = trained.protect(public[some][chosen], keys[chosen], people[some][chosen])
            seen = trained.input_of(release).double()
            total, squares = total + seen.sum((0, 2, 3)), squares + seen.square().sum((0, 2, 3))
            count += seen.numel() // seen.shape[1]
        mean = total / count
        deviation = (squares / count - mean.square()).clamp_min(1e-18).sqrt()
        mean, deviation = (part.float()[:, None, None] for part in (mean, deviation))
        return replace(trained, statistics=PublicStatistics(mean, deviation, first.mean_image))

    def protect(self, images: Tensor, keys: Sequence[bytes], people: Tensor | None = None) -> Release:
        """Release each of the uint8 [N, 3, H, W] images under its key.

        The same key gives the same release on the same kind of device, up to the rounding of batches of another size.
        """
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise LdpSlicingError(
                f"a peer protects uint8 [N, 3, H, W] images; got {images.dtype} {tuple(images.shape)}"
            )
        if len(keys) != len(images):
            raise LdpSlicingError(f"every image needs a key of its own; got {len(keys)} for {len(images)} images")
        with torch.no_grad():
            values = self.release_values(images, self._generators(keys, images.device), people)
        height, width = images.shape[2:]
        return Release(values, self, (height, width))

    def _generators(self, keys: Sequence[bytes], device: torch.device) -> list[torch.Generator]:
        return [_generator(self.name, key, device) for key in keys]

    @property
    def public_statistics(self) -> PublicStatistics:
        """The statistics, or an error if the peer was not fitted."""
        if self.statistics is None:
            raise LdpSlicingError(f"{self.name} was not fitted: call fit(public, people, teacher) first")
        return self.statistics

    @property
    def mean_image(self) -> Tensor | None:
        """float32 [3, H, W] of 0..255: the mean of the public images, if the peer was fitted."""
        return self.statistics.mean_image if self.statistics else None


@dataclass(frozen=True, eq=False)
class Release:
    """What leaves the device for a batch of images: values [N, ...]. shape: height and width of the sources."""

    values: Tensor
    peer: Peer
    shape: tuple[int, int]

    def as_input(self) -> Tensor:
        """float32 [N, C', H, W]: what every network reads.

        Standardised per channel with the public statistics, then multiplied by the peer's weights, if it has any.
        """
        known, weights = self.peer.public_statistics, self.peer.input_weights
        deviation = known.deviation if weights is None else known.deviation / weights.clamp_min(1e-6)
        return _standardised(self.peer.input_of(self), known.mean, deviation)

    def as_image(self) -> Tensor:
        """uint8 [N, 3, H, W]: the release as an image, to look at."""
        return to_bytes(self.peer.image_of(self))

    def decode(self) -> Tensor | None:
        """uint8 [N, 3, H, W]: a reconstruction of the sources without any training. None if there is none."""
        found = self.peer.decode(self)
        return None if found is None else to_bytes(found)

    def size(self) -> Size:
        """The size of one image's release."""
        sent = [one.contiguous().cpu().numpy().tobytes() for one in self.values]
        packed = sum(len(zlib.compress(one)) for one in sent) / len(sent)
        values, kind = math.prod(self.values.shape[1:]), str(self.values.dtype).removeprefix("torch.")
        return Size(values, len(sent[0]), packed, kind)


def derive_keys(label: str, count: int) -> list[bytes]:
    """Keys that belong to a label, one per image: for experiments, where releases must be repeatable."""
    return [_digest(label, i.to_bytes(8, "big")) for i in range(count)]


def draw(generators: Sequence[torch.Generator], shape: tuple[int, ...], kind: str, device: torch.device) -> Tensor:
    """float32 [N, *shape] of independent noise, image i from generator i. kind: "uniform", "normal" or "laplace"."""
    noise = torch.empty((len(generators), *shape), device=device)
    for one, generator in zip(noise, generators, strict=True):
        if kind == "normal":
            one.normal_(generator=generator)
        else:
            one.uniform_(generator=generator)
    return noise if kind != "laplace" else laplace(noise)


def laplace(uniform: Tensor) -> Tensor:
    """Laplace noise of scale 1 from uniform numbers of [0, 1)."""
    centred = uniform - 0.5
    return -centred.sign() * torch.log1p(-2 * centred.abs().clamp_max(0.5 - 2**-25))


@fused
def _standardised(values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return (values - mean) / deviation


def to_bytes(image: Tensor) -> Tensor:
    """float of about 0..255 to uint8, rounded."""
    return image.round().clamp(0, 255).to(torch.uint8)


def _generator(name: str, key: bytes, device: torch.device) -> torch.Generator:
    seed = int.from_bytes(_digest(name, key)[:8], "big", signed=True)
    return torch.Generator(device).manual_seed(seed)


def _digest(label: str, content: bytes) -> bytes:
    return hashlib.sha256(f"ldp-slicing peers: {label}\n".encode() + content).digest()
