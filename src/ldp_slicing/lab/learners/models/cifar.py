"""Networks for 32 x 32 images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters (He et al. 2016, option A)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.stride, self.more = stride, outside - inside

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.more:
            x = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2)
            )
        return functional.relu(out + x)


class _ResNet(nn.Module):
    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        layers: list[nn.Module] = []
        inside = 16
        for width, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range(blocks):
                layers.append(_Block(inside, width, stride if i == 0 else 1))
                inside = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.stem(x)).mean((2, 3)))
        return out


def resnet56(classes: int) -> nn.Module:
    """ResNet-56 for CIFAR, 0.85 million parameters, option-A shortcuts: the paper's classifier."""
    return _ResNet(9, classes)


def _unit(inside: int, outside: int, pool: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(_unit(width, width, False), _unit(width, width, False))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(x)
        return out


def resnet9(classes: int, width: int = 64) -> nn.Module:
    """A small, fast residual network, to compare many plans; 2.4 million parameters at width 64, 0.6 at 32."""
    return nn.Sequential(
        _unit(3, width, False),
        _unit(width, 2 * width, True),
        _Residual(2 * width),
        _unit(2 * width, 4 * width, True),
        _unit(4 * width, 4 * width, True),
        _Residual(4 * width),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def narrow_resnet9(classes: int) -> nn.Module:
    """``resnet9`` of half the width, for small sets and processors."""
    return resnet9(classes, 32)
