from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ldp_slicing.errors import DataError
from ldp_slicing.lab.learners.models import face_networks as faces
from ldp_slicing.lab.learners.models.classify import resnet50_grey, wide_resnet28
from ldp_slicing.lab.learners.models.face_networks import ArcFaceHead, DlibResNet, dlib_header, dlib_input, ir50


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def assert_trains(network: nn.Module, loss: Tensor) -> None:
    """Every parameter gets a gradient that is finite and not zero throughout."""
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


def test_ir50_with_arcface() -> None:
    torch.manual_seed(0)
    network = nn.ModuleDict({"body": ir50(), "head": ArcFaceHead(5)})
    assert count(network["body"]) == 43_590_848
    images = 2 * torch.rand(3, 3, 112, 112) - 1
    embedding = network["body"](images)
    assert embedding.shape == (3, 512)
    logits = network["head"](embedding, torch.tensor([0, 1, 2]))
    assert logits.shape == (3, 5)
    assert_trains(network, nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])))


def test_ir50_takes_other_channels_and_classes() -> None:
    with torch.device("meta"):
        network = ir50(7, channels=189)
        assert network(torch.empty(2, 189, 112, 112)).shape == (2, 7)
        assert count(network) == count(ir50()) + 186 * 64 * 9 + 512 * 7 + 7


@pytest.mark.parametrize("angle", [0.05, 1.0, math.pi / 2, math.pi - 0.41, math.pi - 0.39, math.pi - 0.05])
def test_arcface_logits_at_known_angles(angle: float) -> None:
    head = ArcFaceHead(2, embedding=2, scale=30.0, margin=0.4)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.5]]))  # lengths must not matter
    embedding = 7 * torch.tensor([[math.cos(angle), math.sin(angle)]])
    logits = head(embedding, torch.tensor([0]))[0]
    right = math.cos(angle + 0.4) if angle < math.pi - 0.4 else math.cos(angle) - 0.4 * math.sin(0.4)
    assert logits.tolist() == pytest.approx([30 * right, 30 * math.sin(angle)], abs=1e-4)


def test_arcface_logit_of_the_true_class_never_rises_with_the_angle() -> None:
    head = ArcFaceHead(1, embedding=2, margin=0.4)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0]]))
    angles = torch.linspace(0.01, math.pi - 0.01, 500)
    logits = head(torch.stack([angles.cos(), angles.sin()], 1), torch.zeros(500, dtype=torch.int64))[:, 0]
    assert (logits.diff() < 0).all()


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_arcface_is_safe_at_the_poles(sign: float, dtype: torch.dtype) -> None:
    head = ArcFaceHead(3, embedding=4)
    embedding = (sign * head.weight.detach()[:1]).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(embedding, torch.tensor([0]))
    logits.sum().backward()
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()
    assert head.weight.grad is not None
    assert embedding.grad is not None
    assert torch.isfinite(head.weight.grad).all()
    assert torch.isfinite(embedding.grad).all()


def test_arcface_refuses_a_margin_that_is_no_angle() -> None:
    with pytest.raises(ValueError, match="margin 4"):
        ArcFaceHead(2, margin=4.0)


def test_wide_resnet28() -> None:
    with torch.device("meta"):
        assert count(wide_resnet28(10)) == 36_479_194
    torch.manual_seed(0)
    network = wide_resnet28(4, width=1, channels=1)
    with torch.no_grad():
        assert network(torch.randn(1, 1, 48, 40)).shape == (1, 4)
    assert_trains(network, nn.functional.cross_entropy(network(torch.randn(4, 1, 32, 32)), torch.arange(4)))


def test_resnet50_grey() -> None:
    torch.manual_seed(0)
    network = resnet50_grey()
    assert count(network) == 23_505_858
    logits = network(torch.randn(4, 1, 64, 64))
    assert logits.shape == (4, 2)
    assert_trains(network, nn.functional.cross_entropy(logits, torch.tensor([0, 1, 0, 1])))


def test_dlib_resnet_shapes_and_gradients() -> None:
    torch.manual_seed(0)
    network = DlibResNet()
    assert count(network) == 5_614_592
    prepared = dlib_input(torch.randint(0, 256, (1, 3, 112, 112), dtype=torch.uint8))
    assert prepared.shape == (1, 3, 150, 150)
    embedding = network(prepared)
    assert embedding.shape == (1, 128)
    assert_trains(network, embedding.square().sum())


def test_dlib_input_cuts_the_crop() -> None:
    across = torch.arange(112, dtype=torch.uint8).expand(3, 112, 112)
    images = torch.stack([across, across.transpose(1, 2)])
    pixels = dlib_input(images) * 256 + torch.tensor(faces.DLIB_MEAN)[:, None, None]
    centres = (np.arange(150) + 0.5) * 100.58 / 150 - 0.5
    np.testing.assert_allclose(pixels[0, 0, 70], 6.29 + centres, atol=1e-3)
    np.testing.assert_allclose(
        pixels[1, 2, :, 70], np.minimum(20 + centres, 111), atol=1e-3
    )  # below the chin the border goes on
    with pytest.raises(ValueError, match=r"\(1, 3, 96, 112\)"):
        dlib_input(torch.zeros(1, 3, 96, 112, dtype=torch.uint8))


def write_dlib(path: Path, seed: int = 0) -> list[np.ndarray]:
    """Random tensors in dlib's format with other bytes between them, each as (first half, second half)."""
    generator = np.random.default_rng(seed)
    widths = [32] * 3 + [64] * 4 + [128] * 3 + [256] * 4
    convolutions = [(32, 3, 7)]
    for inside, outside in zip([32, *widths], widths, strict=False):
        convolutions += [(outside, inside, 3), (outside, outside, 3)]
    pieces, content = [], b"some name \x01\x02 of a layer"
    for outside, inside, size in convolutions:
        for first, second in (((outside, inside, size, size), outside), ((outside,), outside)):
            parts = [generator.standard_normal(first, np.float32), generator.standard_normal(second, np.float32)]
            pieces += parts
            content += dlib_header((sum(part.size for part in parts), 1, 1, 1)) + b"".join(
                part.astype("<f4").tobytes() for part in parts
            )
            content += b"\x01\x03con_\x02"
    pieces.append(generator.standard_normal((256, 128), np.float32))
    path.write_bytes(content + dlib_header((256, 128, 1, 1)) + pieces[-1].astype("<f4").tobytes() + b"the end")
    return pieces


def flat(network: DlibResNet) -> list[Tensor]:
    return [parameter.detach() for parameter in network.parameters()]


def test_dlib_file_round_trip(tmp_path: Path) -> None:
    pieces = write_dlib(tmp_path / "net.dat")
    network = DlibResNet()
    network.load_dlib(tmp_path / "net.dat", check=False)
    *loaded, head = flat(
        network
    )  # torch keeps conv, affine, conv, affine in the order in which they were made, which is the file's
    for parameter, piece in zip(loaded, pieces[:-1], strict=True):
        np.testing.assert_array_equal(parameter, piece)
    np.testing.assert_array_equal(head, pieces[-1].T)
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_dlib_header_bytes() -> None:
    assert dlib_header((9248, 1, 1, 1)) == b"\x01\x02\x02\x20\x24\x01\x01\x01\x01\x01\x01"
    assert dlib_header((256, 128, 1, 1)) == b"\x01\x02\x02\x00\x01\x01\x80\x01\x01\x01\x01"


def test_dlib_file_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.dat"
    write_dlib(path)
    network = DlibResNet()
    before = [parameter.clone() for parameter in flat(network)]
    with pytest.raises(DataError, match="SHA-256"):
        network.load_dlib(path)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(DataError, match="truncated"):
        network.load_dlib(path, check=False)
    path.write_bytes(content[:-11] + np.float32(np.nan).tobytes() + content[-7:])
    with pytest.raises(DataError, match="damaged"):
        network.load_dlib(path, check=False)
    assert all(torch.equal(a, b) for a, b in zip(before, flat(network), strict=True))
    path.write_bytes(content)
    monkeypatch.setattr(faces, "DLIB_SHA256", hashlib.sha256(content).hexdigest()[:8])
    network.load_dlib(path)
