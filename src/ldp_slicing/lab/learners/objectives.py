"""What a network is trained for: each objective builds the network, computes the loss of a batch and measures accuracy.

A loss is part of a CUDA graph: it must not copy anything to or from the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.bits import repeat_pixels, to_bits
from ldp_slicing.lab.learners.graph import half_precision
from ldp_slicing.lab.learners.inputs import Inputs
from ldp_slicing.lab.learners.models import build, build_embedder, load_weights, widen
from ldp_slicing.lab.learners.models.adversaries import NETWORKS, Adversary
from ldp_slicing.lab.learners.models.classify import wide_resnet28
from ldp_slicing.lab.learners.models.face_networks import ArcFaceHead
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.plan import Plan
from ldp_slicing.torch.likelihood import channel_count
from ldp_slicing.torch.simulate import apply_view, simulate
from ldp_slicing.view import gain_of

SSIM_WEIGHT = 0.5  # of 1 - SSIM, beside the mean absolute error
BATCH = 500  # images in one forward pass when accuracy is measured


@dataclass(frozen=True)
class Loss:
    """A scalar, and how many images of the batch were classified correctly; None if the objective has no classes."""

    value: Tensor
    correct: Tensor | None = None


class Objective:
    """The base of all objectives: a network on the device of its inputs.

    counts_correct: whether ``loss`` counts correct classifications.
    tests_every_epoch: whether ``accuracy`` can be measured on the test set.
    """

    counts_correct: ClassVar[bool] = True
    tests_every_epoch: ClassVar[bool] = True
    head: nn.Module | None = None  # layers that are trained with the network and not part of it

    def __init__(self, task: TrainingTask, inputs: Inputs) -> None:
        self.task, self.inputs = task, inputs
        model = self.build()
        if task.weights:
            load_weights(model, task.weights)
        self.model: nn.Module = model.to(inputs.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._training_model: Callable[..., Any] = self.model  # shares its weights with the model if it is compiled

    def build(self) -> nn.Module:
        """A new network."""
        model = build(self.task.recipe.model, self.task.data.classes)
        return widen(model, 2) if self.task.beside_decoded else model

    def compile(self) -> None:
        """Train with fused kernels. Compiling takes a minute, which pays in long runs of deep, narrow networks."""
        self._training_model = torch.compile(self.model, dynamic=False)  # every step has the same shapes

    def forward(self, images: Tensor) -> Tensor:
        """uint8 or float32 [N, C, H, W], 0..255, to the network's output, float32."""
        with half_precision(self.inputs.device):
            model = self._training_model if self.model.training else self.model
            outputs: Tensor = model(self.inputs.normalise(images))
        return outputs.float()

    def loss(self, index: Tensor) -> Loss:
        """int64 [B], the training images of a batch, to their loss."""
        raise NotImplementedError

    def _outputs(self, index: Tensor) -> Tensor:
        return self.forward(self.inputs.noise(self.inputs.crop(index)))

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """The share of uint8 [N, C, H, W] images that are classified correctly, with new noise as in training."""
        self.model.eval()
        correct = torch.zeros((), device=self.inputs.device)
        for part, answers in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
            correct += (self.forward(self.inputs.noise(part)).argmax(1) == answers).sum()
        self.model.train()
        return correct.item() / len(images)


class ClassificationObjective(Objective):
    """Cross-entropy of the labels."""

    def __init__(self, task: TrainingTask, inputs: Inputs) -> None:
        super().__init__(task, inputs)
        self.class_weights: Tensor | None = None
        if task.recipe.class_weights:
            counts = torch.bincount(inputs.labels, minlength=task.data.classes)
            self.class_weights = len(inputs) / (task.data.classes * counts.clamp_min(1))

    def loss(self, index: Tensor) -> Loss:
        recipe, labels = self.task.recipe, self.inputs.labels[index]
        options: dict[str, Any] = {"weights": self.class_weights, "smoothing": recipe.smoothing}
        if not recipe.mix:
            return classification_loss(self._outputs(index), labels, **options)
        images = self.inputs.noise(self.inputs.crop(index)).float()
        share = recipe.mix * torch.rand(len(index), device=images.device, generator=self.inputs.generator)
        mixed = images.lerp(images.roll(1, 0), share.view(-1, 1, 1, 1))  # the order of a batch is random already
        return classification_loss(self.forward(mixed), labels, other_share=share, **options)


class ArcFaceObjective(Objective):
    """Embeddings trained through an ArcFace head, which is dropped afterwards."""

    tests_every_epoch = False

    def build(self) -> nn.Module:
        model, size = build_embedder(self.task.recipe.model)
        head = ArcFaceHead(self.task.data.classes, embedding=size, margin=self.task.recipe.margin)
        self.head = head.to(self.inputs.device)
        return model

    def loss(self, index: Tensor) -> Loss:
        assert self.head is not None  # noqa: S101 - build has made it
        labels = self.inputs.labels[index]
        return classification_loss(self.head(self._outputs(index), labels), labels)


class DistillationObjective(Objective):
    """Embeddings that resemble those of a teacher, the task's targets."""

    counts_correct = False
    tests_every_epoch = False

    def build(self) -> nn.Module:
        return build_embedder(self.task.recipe.model)[0]

    def loss(self, index: Tensor) -> Loss:
        return Loss(distillation_loss(self._outputs(index), self.inputs.labels[index], self.task.recipe.temperature))


class Partners:
    """Draws another image for each of some images: of its class in half of the cases, of another class in the others.

    labels: int64 [N] on the device of the generator.
    """

    def __init__(self, labels: Tensor, classes: int, generator: torch.Generator) -> None:
        self.labels, self.generator = labels, generator
        self.members = torch.argsort(labels, stable=True)  # the images, class by class
        self.count = torch.bincount(labels, minlength=classes)
        if int(self.count.min()) < 2 or classes < 2:
            raise LdpSlicingError("pairs need at least two classes with at least two training images each")
        self.begin = torch.cumsum(self.count, 0) - self.count
        self.place = torch.empty_like(self.members)  # of each image among the members of its class
        places = torch.arange(len(labels), device=labels.device)
        self.place[self.members] = places - self.begin[labels[self.members]]

    def draw(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """int64 [B] images to int64 [B] other images, and int64 [B]: 1 where both are of the same class."""
        size, own, total = len(index), self.labels[index], len(self.members)
        same = self._number(size) % 2
        beside = (self.place[index] + 1 + self._number(size) % (self.count[own] - 1)) % self.count[own]
        # Any image of another class, not an image of any other class: else a large class would give the answer away.
        others = (self.begin[own] + self.count[own] + self._number(size) % (total - self.count[own])) % total
        return self.members[torch.where(same == 1, self.begin[own] + beside, others)], same

    def _number(self, size: int) -> Tensor:
        return torch.randint(1 << 30, (size,), device=self.labels.device, generator=self.generator)


class PairObjective(Objective):
    """The paper's identity attack: a Wide-ResNet-28 on a release and a public image, six channels. Half of them match.

    Training pairs are drawn anew in every step from the training images, which are taken to be public. With
    release="every-epoch" the first image of a pair gets new noise. An image is never paired with its own release.
    """

    counts_correct = False

    def __init__(self, task: TrainingTask, inputs: Inputs) -> None:
        super().__init__(task, inputs)
        self.partners = Partners(inputs.labels, task.data.classes, inputs.generator)

    def build(self) -> nn.Module:
        if self.task.recipe.model != "wrn28":
            raise LdpSlicingError(f"the loss 'pairs' needs the model wrn28; got {self.task.recipe.model!r}")
        return wide_resnet28(2, width=self.task.recipe.width, channels=6)

    def loss(self, index: Tensor) -> Loss:
        partner, same = self.partners.draw(index)
        released = self.inputs.noise(self.inputs.crop(index))
        return classification_loss(self.compare(released, self.inputs.crop(partner)), same)

    def compare(self, released: Tensor, public: Tensor) -> Tensor:
        """Two uint8 [N, 3, H, W] to logits [N, 2]: different class, same class."""
        return self.forward(torch.cat((released, public), 1))

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """The share of the task's test pairs that are classified correctly; each released image is released once."""
        del labels
        assert self.task.pairs is not None  # noqa: S101 - the task has checked it
        self.model.eval()
        first, second, same = torch.from_numpy(self.task.pairs).to(self.inputs.device).unbind(1)
        wanted, where = torch.unique(first, return_inverse=True)
        released = torch.cat([self.inputs.noise(images[part]) for part in torch.split(wanted, BATCH)])
        parts = [
            (self.compare(released[a], images[b]).argmax(1) == s).sum()
            for a, b, s in zip(*(torch.split(x, BATCH // 2) for x in (where, second, same)), strict=True)
        ]
        self.model.train()
        return int(torch.stack(parts).sum()) / len(same)


class ReconstructionObjective(Objective):
    """Sources from releases under the task's plans; every plan gets an equal share of every batch.

    The task's images belong to the adversary, who may release them as often as it likes: task.release is "none".
    """

    counts_correct = False
    tests_every_epoch = False

    def __init__(self, task: TrainingTask, inputs: Inputs) -> None:
        super().__init__(task, inputs)
        self.plans, size = task.plans, min(task.recipe.batch, len(inputs))
        self.shares = [
            self.plans[i * len(self.plans) // size] for i in range(size)
        ]  # the plan of each image of a batch
        self.known = torch.tensor([self.adversary.plan_features(plan) for plan in self.shares], device=inputs.device)

    def build(self) -> nn.Module:
        return NETWORKS[self.task.recipe.model](channel_count(self.task.plans[0]), gain_of(self.task.prune))

    @property
    def adversary(self) -> Adversary:
        return cast("Adversary", self.model)

    def release(self, sources: Tensor, plan: Plan | Sequence[Plan]) -> Tensor:
        """uint8 [N, C, H, W] to new releases in the form that the adversary's network takes, RGB or words.

        The pixels of releases that were shrunk are repeated, so that the network reconstructs the size of the sources.
        """
        task, takes = self.task, self.adversary.takes
        released = simulate(sources, plan, self.inputs.generator, prune=task.prune, size=task.size, output=takes)
        return repeat_pixels(released, sources.shape[2:])

    def guess(self, releases: Tensor, known: Tensor) -> tuple[Tensor, Tensor | None]:
        """Reconstructions, and the log-odds of the bits of the view if the network predicts them."""
        with half_precision(self.inputs.device):
            return self.adversary(releases.contiguous(memory_format=torch.channels_last), known)

    def loss(self, index: Tensor) -> Loss:
        """Mean absolute error and 1 - SSIM; plus the cross-entropy of the bits, weighted by their squared errors."""
        images = self.inputs.crop(index)
        guessed, bits = self.guess(self.release(images, self.shares), self.known)
        if bits is None:
            return Loss(reconstruction_loss(images, guessed))
        view = apply_view(images, self.task.prune, colour=images.shape[1] == 3, size=self.task.size)
        truth = to_bits(repeat_pixels(view, images.shape[2:]).to(torch.uint8))
        return Loss(reconstruction_loss(images, guessed, bits, truth))

    @torch.no_grad()
    def reconstruct(self, releases: Tensor, plan: Plan) -> Tensor:
        """uint8 [N, C, H, W] from ``release`` to reconstructions, float32 [N, C, H, W], RGB of 0..255."""
        self.model.eval()
        known = torch.tensor([self.adversary.plan_features(plan)], device=self.inputs.device)
        guessed = [self.guess(part, known.expand(len(part), -1))[0] for part in torch.split(releases, BATCH // 2)]
        self.model.train()
        return torch.cat(guessed).clamp_(0, 255)


def reconstruction_loss(
    images: Tensor, guessed: Tensor, bits: Tensor | None = None, truth: Tensor | None = None
) -> Tensor:
    """Mean absolute error and 1 - SSIM; plus the cross-entropy of the bits, weighted by their squared errors.

    images, guessed: [N, C, H, W], 0..255. bits, truth: [N, 8 C, H, W], log-odds of the bits of the view, and the bits.
    """
    loss = (guessed - images).abs().mean() / 255 + SSIM_WEIGHT * (1 - ssim(guessed, images).mean())
    if bits is None or truth is None:
        return loss
    squared_errors = 4.0 ** torch.arange(8, device=bits.device).repeat(images.shape[1])
    weights = (squared_errors / squared_errors.sum()).view(1, -1, 1, 1)
    each = functional.binary_cross_entropy_with_logits(bits, truth.float(), reduction="none")
    return loss + (each * weights).sum(1).mean()


def classification_loss(
    outputs: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
    other_share: Tensor | None = None,
) -> Loss:
    """Logits [B, classes] and int64 [B] to their cross-entropy. weights: float32 [classes], 1 on average.

    other_share: float32 [B], how much of the image before it in the batch is mixed into each image.
    """
    correct = (outputs.detach().argmax(1) == labels).sum()
    if other_share is None:
        return Loss(functional.cross_entropy(outputs, labels, weights, label_smoothing=smoothing), correct)
    own, other = (
        functional.cross_entropy(outputs, wanted, weights, label_smoothing=smoothing, reduction="none")
        for wanted in (labels, labels.roll(1))
    )
    return Loss(own.lerp(other, other_share).mean(), correct)


def distillation_loss(outputs: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Two [B, D] to a scalar: each output should resemble the batch's targets as its own target does.

    It separates the rows of a batch. A plain distance to the target is small already for one answer to all images.
    """
    targets = functional.normalize(targets)
    wanted = functional.softmax(targets @ targets.T / temperature, dim=1)
    return functional.cross_entropy(functional.normalize(outputs) @ targets.T / temperature, wanted)


OBJECTIVES: dict[str, type[Objective]] = {  # by the recipe's loss
    "classes": ClassificationObjective,
    "arcface": ArcFaceObjective,
    "teacher": DistillationObjective,
    "pairs": PairObjective,
    "source": ReconstructionObjective,
}
