"""Attacks: unprotected images with a card and a manifest that fit them must not be certified."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing import Plan, view
from ldp_slicing.audit.rebuilt import rebuilt
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.audit.report import Report
from ldp_slicing.card import Card, Statement
from ldp_slicing.manifest import write_manifest
from ldp_slicing.png import SIGNATURE, encode_chunk, encode_png
from ldp_slicing.storage import LocalStorage
from tests.cases import photographs

SIDE = 128
Image8 = NDArray[Any]


def portrait() -> Image8:
    return np.asarray(Image.fromarray(photographs()["astronaut"]).resize((SIDE, SIDE)))


def with_noise(image: Image8, sigma: float) -> Image8:
    noise = np.random.default_rng(0).normal(0, sigma, image.shape)
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def with_changed_levels(image: Image8) -> Image8:
    changed = image.copy()
    changed[np.random.default_rng(0).random(image.shape[:2]) < 0.05] ^= 1
    return changed


def without_red(image: Image8) -> Image8:
    return image * np.array([0, 1, 1], np.uint8)


def through_a_jpeg_decoder(image: Image8) -> Image8:
    """The arithmetic of a JPEG decoder is that of ``rebuild``, so every value is one that a release can have."""
    return np.moveaxis(view.to_rgb(view.to_ycbcr(np.moveaxis(image, -1, 0))), 0, -1)


def pruned(image: Image8) -> Image8:
    """The view without its mask."""
    channels = view.to_ycbcr(np.moveaxis(image, -1, 0))
    return np.moveaxis(view.to_rgb(np.stack([view.prune_low(one, "haar", 8) for one in channels])), 0, -1)  # type: ignore[arg-type]


def is_released(image: Image8, plan: Plan) -> bool:
    """Whether the plan can release every value, so that its palette has them."""
    return not rebuilt(plan).impossible(image.reshape(-1, *image.shape[2:])).any()


def audit(folder: Path, plan: Plan, *images: Image8, output: str = "rgb") -> Report:
    """Audit a folder of images that claims to be releases of a plan."""
    lines = []
    for number, image in enumerate(images):
        data = b"".join(encode_png(image, plan if is_released(image, plan) else None))
        (folder / f"{number:03}.png").write_bytes(data)
        lines.append({"output": f"{number:03}.png", "sha256": hashlib.sha256(data).hexdigest(), "status": "released"})
    write_manifest(LocalStorage(folder), lines)
    sizes = tuple((image.shape[1], image.shape[0]) for image in images)
    (folder / "card.json").write_text(Card((Statement.of(plan, "haar", output, sizes),)).to_json())
    return audit_releases(folder)


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (lambda image: image, {"values", "noise", "parts", "clamped"}),
        (lambda image: with_noise(image, 5), {"values", "noise", "parts", "clamped"}),
        (with_changed_levels, {"values", "noise", "parts", "clamped"}),
        (without_red, {"values", "clamped"}),
        (through_a_jpeg_decoder, {"noise", "parts", "clamped"}),
        (lambda image: through_a_jpeg_decoder(with_noise(image, 5)), {"noise", "parts", "clamped"}),
        (lambda image: through_a_jpeg_decoder(with_noise(image, 20)), {"noise", "parts", "clamped"}),
        (lambda image: pruned(with_noise(image, 5)), {"noise", "parts", "clamped"}),
    ],
    ids=["itself", "noise", "5 % of levels", "no red", "JPEG", "noise, JPEG", "strong noise, JPEG", "pruned"],
)
def test_an_unprotected_portrait_at_epsilon_20(
    tmp_path: Path, change: Callable[[Image8], Image8], by: set[str]
) -> None:
    report = audit(tmp_path, Plan.paper(20.0), change(portrait()))
    assert (failed(report), report.outcome, report.exit_status) == (by, "refuted", 1)


@pytest.mark.parametrize("epsilon", [1.0, 5.2, 32.0, 58.0])
def test_a_noisy_portrait_at_other_budgets(tmp_path: Path, epsilon: float) -> None:
    report = audit(tmp_path, Plan.paper(epsilon), through_a_jpeg_decoder(with_noise(portrait(), 5)))
    assert failed(report) == ({"noise", "parts", "clamped"} if epsilon < 58 else {"noise", "parts"})


def test_a_grey_portrait_is_refuted_or_the_audit_cannot_tell(tmp_path: Path) -> None:
    """From epsilon 20 the noise of a grey plan is weaker than the differences between neighbours of a portrait.

    At epsilon 20 its smooth parts still show.
    """
    grey = with_noise(portrait().mean(axis=-1), 3)
    for name in ("low", "middle", "high"):
        (tmp_path / name).mkdir()
    assert failed(audit(tmp_path / "low", Plan.grey(5.2), grey)) == {"noise", "parts"}
    assert failed(audit(tmp_path / "middle", Plan.grey(20.0), grey)) == {"parts"}
    report = audit(tmp_path / "high", Plan.grey(58.0), grey)
    assert (report.outcome, report.exit_status) == ("cannot tell at this budget", 3)
    assert "could be an unprotected image with noise of sigma 3, such as 000.png" in str(report)


def test_under_a_thick_plan_single_bits_show_what_the_slice_hides(tmp_path: Path) -> None:
    plan = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")
    assert "values" in failed(audit(tmp_path, plan, portrait()))
    words = view.to_ycbcr(np.moveaxis(portrait(), -1, 0))
    kept = np.array([plan.kept_bits >> shift & 255 for shift in (16, 8, 0)], np.uint8)[:, None, None]
    dropped = np.array([plan.dropped_value >> shift & 255 for shift in (16, 8, 0)], np.uint8)[:, None, None]
    report = audit(tmp_path, plan, np.moveaxis(view.to_rgb(words & kept | dropped), 0, -1))
    assert failed(report) == {"noise", "parts"}
    assert report.exit_status == 1


def test_many_small_images_show_together_what_none_shows_alone(tmp_path: Path) -> None:
    whole = through_a_jpeg_decoder(with_noise(portrait(), 5))
    pieces = [whole[y : y + 4, x : x + 6] for y in range(0, SIDE - 4, 8) for x in range(0, SIDE - 6, 8)]
    report = audit(tmp_path, Plan.paper(20.0), *pieces)
    assert failed(report) >= {"noise"}
    assert any("all releases together" in line for check in report.checks for line in check.failures)


def test_a_card_that_says_ycbcr_is_refuted(tmp_path: Path) -> None:
    """In YCbCr every value is possible, so a PNG file with such a card would escape the exact check."""
    assert "card" in failed(audit(tmp_path, Plan.paper(20.0), portrait(), output="ycbcr"))


@pytest.mark.parametrize("card_too", [False, True])
def test_a_png_that_declares_more_pixels_than_it_holds_takes_little_memory(tmp_path: Path, card_too: bool) -> None:
    audit(tmp_path, Plan.paper(20.0), portrait())
    header = struct.pack(">IIBBBBB", 40_000, 33_000, 8, 2, 0, 0, 0)
    stream = zlib.compressobj(9)
    body = b"".join([*(stream.compress(bytes(1 << 20)) for _ in range(256)), stream.flush()])
    chunks = ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    data = SIGNATURE + b"".join(piece for chunk in chunks for piece in encode_chunk(*chunk))
    (tmp_path / "000.png").write_bytes(data)
    line = {"output": "000.png", "sha256": hashlib.sha256(data).hexdigest(), "status": "released"}
    write_manifest(LocalStorage(tmp_path), [line])
    if card_too:
        card = Card((Statement.of(Plan.paper(20.0), "haar", "rgb", ((40_000, 33_000),)),))
        (tmp_path / "card.json").write_text(card.to_json())
    tracemalloc.start()
    try:
        report = audit_releases(tmp_path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "files" in failed(report)
    assert most < 100 << 20
