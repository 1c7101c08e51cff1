"""Any attack, on any set, under any plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageChops
from typer.testing import CliRunner

from ldp_slicing import Plan, Slice
from ldp_slicing.cli import app
from ldp_slicing.errors import LdpSlicingError
from ldp_slicing.lab.attack_command import ATTACKS, AttackRequest, open_attacked, result_table, run_attack
from ldp_slicing.lab.attacks import averaging, bayes
from ldp_slicing.lab.attacks.contact_sheet import OWNERS, RED, contact_sheet
from ldp_slicing.lab.data.sets import ImageSet, Split
from ldp_slicing.lab.learners import objectives
from ldp_slicing.lab.learners.models import adversaries as networks
from ldp_slicing.lab.learners.models.adversaries import BlackBox, WhiteBox
from ldp_slicing.lab.learners.training import Limits
from ldp_slicing.lab.rows import Row
from tests.lab.datasets import tiny, write_cifar, write_lfw

RNG = np.random.default_rng(9)
THICK = Plan([Slice(0xC08080, 5.2)])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.NETWORKS, "unet", lambda channels, gain: BlackBox(channels, width=4, scales=2))
    monkeypatch.setitem(
        networks.NETWORKS, "two-stage", lambda channels, gain: WhiteBox(channels, gain, width=4, scales=2)
    )
    monkeypatch.setattr(objectives, "wide_resnet28", lambda classes, width, channels: tiny(classes, channels))
    monkeypatch.setattr(averaging, "COUNTS", (1, 3))
    monkeypatch.setattr(bayes, "STRENGTHS", (0.0, 1.0))
    monkeypatch.setattr(bayes, "REACH", 1)


def images(channels: int = 3, height: int = 17, width: int = 20) -> ImageSet:
    parts = [
        Split(RNG.integers(0, 256, (count, height, width, channels), dtype=np.uint8), np.arange(count) % 2)
        for count in (12, 8)
    ]
    return ImageSet("things", 2, *parts)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_any_set_under_any_plan(name: str, tmp_path: Path) -> None:
    row = run_attack(AttackRequest(name, images(), THICK, None, epochs=1), tmp_path, Limits(), device="cpu")
    assert row is not None
    written = Row.from_dict(json.loads((tmp_path / "result.json").read_text()))
    hidden = row.training and replace(row.training, data_digest=None)
    assert written == replace(row, training=hidden)
    assert row.plan == THICK
    assert row.prune is None
    head, lines = result_table(row)
    assert all(len(line) == len(head) for line in lines)
    if name == "identity":
        assert lines[0][0] == "32"
        return
    made_from = ["1 release", "3 releases"] if name == "averaging" else ["release", "reconstruction"]
    assert [line[0] for line in lines] == ["no release (mean image)", *made_from]
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 6 * 17
        assert all(sheet.getpixel((x, 0)) == RED for x in (0, sheet.width - 1))  # the banner: it shows sources


def test_a_banner_is_added_above_and_fits() -> None:
    columns = {"one": torch.zeros(2, 1, 8, 8)}
    plain, warned = contact_sheet(columns), contact_sheet(columns, OWNERS)
    assert RED not in {colour for _, colour in plain.getcolors(99999)}  # what reproduce shows is public
    high = warned.height - plain.height
    assert high > 0
    assert ImageChops.difference(warned.crop((0, high, plain.width, warned.height)), plain).getbbox() is None
    assert warned.getpixel((warned.width - 2, high // 2)) == RED  # the words end before the sheet does


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "identity"])
def test_grey_images_are_attacked_too(name: str, tmp_path: Path) -> None:
    row = run_attack(
        AttackRequest(name, images(1), Plan.grey(5.2, 8), "haar", epochs=1), tmp_path, Limits(), device="cpu"
    )
    assert row is not None
    assert 0 <= row.measurements[0].metrics["reconstruction"]["psnr_db"] <= 100
    assert (tmp_path / "sheet.png").is_file()


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LdpSlicingError, match="available: averaging, bayes"):
        AttackRequest("guessing", images(), THICK)
    with pytest.raises(LdpSlicingError, match="colour"):
        AttackRequest("identity", images(1), Plan.grey(5.2, 8))
    run_attack(AttackRequest("averaging", images(), THICK), tmp_path, Limits(), device="cpu")
    with pytest.raises(LdpSlicingError, match="was begun with other images: name another --out"):
        run_attack(
            AttackRequest("averaging", images(), THICK), tmp_path, Limits(), device="cpu"
        )  # of the same name, and other ones
    with pytest.raises(LdpSlicingError, match="was begun with --prune haar, and this command is with --prune none"):
        run_attack(AttackRequest("averaging", images(), THICK, None), tmp_path, Limits(), device="cpu")


def test_on_the_command_line(tmp_path: Path) -> None:
    write_cifar(tmp_path / "data")

    def attack(*words: str) -> tuple[int, str]:
        found = CliRunner().invoke(app, ["lab", "attack", "--device", "cpu", *words, "--data", str(tmp_path / "data")])
        return found.exit_code, found.output

    place = ("--out", str(tmp_path / "out"))
    code, output = attack(
        "black-box", "cifar10", *place, "--epsilon", "5.2", "--prune", "none", "--epochs", "2", "--minutes", "0"
    )
    assert (code, "run the same command again" in output) == (0, True)
    code, output = attack("black-box", "cifar10", *place, "--epsilon", "5.2", "--prune", "none", "--epochs", "2")
    assert code == 0, output
    assert "SSIM" in output
    assert "steps on" in output
    assert "too few steps to learn much" in output  # two epochs of a few disc_images
    assert "result.json" in output
    assert "sheet.png, for the owner only: it shows sources" in output
    code, output = attack("bayes", "cifar10", "--out", str(tmp_path / "new"), "--device", "cuda:77")
    assert (code, "no device 'cuda:77' on this machine; available: cpu" in output) == (2, True)
    assert not (tmp_path / "new").exists()
    code, output = attack("guessing", "cifar10", *place)
    assert (code, "no attack 'guessing'" in output) == (2, True)


def test_faces_are_a_set_to_attack(tmp_path: Path) -> None:
    write_lfw(tmp_path)
    found = open_attacked("lfw", tmp_path)
    assert found.train.images.shape[1:] == found.test.images.shape[1:] == (112, 112, 3)
    public, tested = ({image.tobytes() for image in split.images} for split in (found.train, found.test))
    assert not public & tested
    assert len(np.unique(found.test.labels)) == found.test.labels.max() + 1
    words = ["lab", "attack", "averaging", "lfw", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, [*words, "--device", "cpu"])
    assert ran.exit_code == 0, ran.output
    assert "3 releases" in ran.stdout
    public, tested = len(found.train.labels), len(found.test.labels)
    counts = f"the adversary has {public} images to train on, and attacks {tested} others"
    assert ran.stderr.startswith(f"reading lfw in {tmp_path}\nattack averaging: {counts}\n")
