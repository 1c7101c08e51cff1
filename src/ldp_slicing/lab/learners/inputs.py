"""The images of a task on a device, and every step between them and the network's input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from ldp_slicing.lab.learners.decoding import fit_decoder
from ldp_slicing.lab.learners.releases import Splits
from ldp_slicing.lab.learners.task import TrainingTask
from ldp_slicing.torch.reconstruct import Report
from ldp_slicing.torch.simulate import apply_view, simulate, to_rgb

RENEWED_AFTER = 5  # epochs
DECODED_MEAN, DECODED_STD = (128 / 255,), (32 / 255,)  # of decoded images, whatever the recipe says about sources


class Inputs:
    """The task's images on the device.

    padded: uint8 [N, H + 2 pad, W + 2 pad, C], the training images, padded for random crops.
    labels: int64 [N], or the task's targets, float32 [N, D].
    validation, test: uint8 [M, C, H, W] and int64 [M] each.
    """

    def __init__(
        self,
        task: TrainingTask,
        splits: Splits,
        device: torch.device,
        generator: torch.Generator,
        folder: Path | None = None,
        report: Report | None = None,
    ) -> None:
        self.task, self.device, self.generator = task, device, generator
        released = [torch.from_numpy(split.images).to(device) for split in splits]
        self._sources = released[0] if task.release == "every-epoch" and task.mode != "raw" else None
        if self._sources is not None:
            released = [_in_parts(images, self._simulate) for images in released]
        self._decoder = fit_decoder(task, released[0].permute(0, 3, 1, 2), folder, report)
        images, held_out, tested = map(self.prepare, released)
        pad, self._unknown = task.recipe.pad, 128 if self._decoder else 0
        self.padded = functional.pad(images, (0, 0, pad, pad, pad, pad), value=self._unknown)
        labels, held_out_labels, test_labels = (torch.from_numpy(split.labels).to(device) for split in splits)
        self.labels = labels if task.targets is None else torch.from_numpy(task.targets).to(device)
        self.validation = held_out.permute(0, 3, 1, 2), held_out_labels
        self.test = tested.permute(0, 3, 1, 2), test_labels
        scale = (DECODED_MEAN, DECODED_STD) if self._decoder else (task.recipe.mean, task.recipe.std)
        self.mean, self.std = (255 * torch.tensor(values, device=device).view(1, -1, 1, 1) for values in scale)

    def __len__(self) -> int:
        return len(self.labels)

    def begin_epoch(self, epoch: int) -> None:
        """Release public training images again, in every ``RENEWED_AFTER``-th epoch: reconstruction takes time."""
        if self._sources is not None and epoch and epoch % RENEWED_AFTER == 0:
            pad, (height, width) = self.task.recipe.pad, self._sources.shape[1:3]
            images = self.prepare(_in_parts(self._sources, self._simulate))
            self.padded[:, pad : pad + height, pad : pad + width] = images

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 [N, H, W, C] to the same: what the task's mode makes of releases, or the view without noise."""
        if self._decoder:
            return _in_parts(images, self._decoder)
        return _in_parts(images, self._view) if self.task.release == "view" else images

    def _view(self, images: Tensor) -> Tensor:
        colour = images.shape[1] == 3
        viewed = apply_view(images, self.task.prune, colour=colour)
        return (to_rgb(viewed) if colour else viewed).to(torch.uint8)

    def crop(self, index: Tensor) -> Tensor:
        """int64 [B] to uint8 [B, C, H, W]: those training images, cropped, flipped and erased at random."""
        recipe, device, count = self.task.recipe, self.device, len(index)
        height, width = (side - 2 * recipe.pad for side in self.padded.shape[1:3])
        shift = torch.randint(2 * recipe.pad + 1, (2, count, 1), device=device, generator=self.generator)
        rows = shift[0] + torch.arange(height, device=device)
        columns = torch.arange(width, device=device).expand(count, width)
        if recipe.flip:
            flipped = torch.randint(2, (count, 1), device=device, generator=self.generator) == 1
            columns = torch.where(flipped, width - 1 - columns, columns)
        columns = columns + shift[1]
        images = self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        return self._erase(images, recipe.erase) if recipe.erase else images

    def _erase(self, images: Tensor, side: int) -> Tensor:
        """uint8 [B, C, H, W] to the same: a square of each image is blanked. It may reach over the edge."""
        inside = [self._span(len(images), length, side) for length in images.shape[2:]]
        return images.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], self._unknown)

    def _span(self, count: int, length: int, side: int) -> Tensor:
        """bool [count, length]: ``side`` places in a row, around a random place."""
        begin = torch.randint(length, (count, 1), device=self.device, generator=self.generator) - side // 2
        place = torch.arange(length, device=self.device)
        return (place >= begin) & (place < begin + side)

    def noise(self, images: Tensor) -> Tensor:
        """uint8 [N, C, H, W] to the same: new noise if the task releases every batch anew, otherwise unchanged."""
        if self.task.release != "every-epoch" or self.task.mode != "raw":
            return images
        return self._simulate(images)

    def _simulate(self, images: Tensor) -> Tensor:
        assert self.task.plan is not None  # noqa: S101 - the task has checked it
        return simulate(images, self.task.plan, self.generator, prune=self.task.prune)

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 [N, C, H, W] to the network's input, float32 [N, C, H, W]."""
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def _in_parts(images: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """uint8 [N, H, W, C] to the same through ``change``, which maps [N, C, H, W] to the same, 1000 images at a time."""
    if not len(images):
        return images
    parts = [change(part.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) for part in torch.split(images, 1000)]
    return torch.cat(parts).contiguous()
