"""Classifiers other than those of ``cifar``: Wide ResNet for small colour images, and networks for grey ones."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import resnet50  # type: ignore[import-untyped]

from ldp_slicing.lab.learners.models.face_networks import Dropout


class _WideBlock(nn.Module):
    """BN-ReLU-Conv twice. If the width or size changes, the shortcut starts from the activated input, as published."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inside)
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside or stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.norm1(x))
        out: Tensor = self.conv2(functional.relu(self.norm2(self.conv1(active))))
        return out + (x if self.shortcut is None else self.shortcut(active))


def wide_resnet28(classes: int, width: int = 10, channels: int = 3) -> nn.Module:
    """float32 [N, channels, H, W], H and W at least 32, to float32 [N, classes] logits.

    WRN-28-width (Zagoruyko and Komodakis 2016) without dropout; 36.5 million parameters at width 10 and ten classes.
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, 1, 1, bias=False)]
    inside = 16
    for outside, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        for i in range(4):  # (28 - 4) / 6
            layers.append(_WideBlock(inside, outside, stride if i == 0 else 1))
            inside = outside
    layers += [nn.BatchNorm2d(inside), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    return network


def resnet50_grey(classes: int = 2) -> nn.Module:
    """float32 [N, 1, H, W], made for 224 x 224, to float32 [N, classes] logits.

    torchvision's ResNet-50, untrained, with a one-channel stem.
    """
    network: nn.Module = resnet50(weights=None, num_classes=classes)
    stem = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out")
    network.conv1 = stem
    return network


def five_blocks_grey(classes: int = 2) -> nn.Module:
    """float32 [N, 1, H, W], made for 112 x 112, to float32 [N, classes] logits.

    Five blocks of two 3 x 3 convolutions, each but the last followed by pooling; 5.3 million parameters. Features are
    averaged over 3 x 3 parts of the image, so that the network knows where it has found something.
    """
    widths, layers = (48, 96, 192, 384, 384), list[nn.Module]()
    inside = 1
    for i, outside in enumerate(widths):
        for _ in range(2):
            layers += [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
            inside = outside
        if i + 1 < len(widths):
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    layers += [nn.AdaptiveAvgPool2d(3), nn.Flatten(), Dropout(0.3), nn.Linear(9 * inside, classes)]
    return nn.Sequential(*layers)
