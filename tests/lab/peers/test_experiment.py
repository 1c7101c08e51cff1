"""The experiment, from data to page, with small networks; and the adversary's network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from ldp_slicing.lab.attacks.peer_network import reconstruct, train_network
from ldp_slicing.lab.experiments import peers, peers_storage
from ldp_slicing.lab.learners.models import EMBEDDERS
from ldp_slicing.lab.metrics.images import psnr
from ldp_slicing.lab.peers.interface import Guarantee, derive_keys
from ldp_slicing.lab.peers.training import PublicReleases, TrainingSchedule
from ldp_slicing.lab.peers.unprotected import Unprotected
from ldp_slicing.lab.reproduce import reproduce
from ldp_slicing.lab.rows import read_rows
from tests.lab.datasets import tiny, write_lfw
from tests.lab.peers.faces import fitted, keys, people, smooth_images


def test_the_experiment_runs_from_data_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lfw(tmp_path / "data")
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    monkeypatch.setattr(peers, "SYSTEMS", ("none", "dp-pix"))
    monkeypatch.setattr(peers, "LINEAR_ONLY", ("dp-pix:b16-m16-eps0.5", "dp-pix:b4-m1-eps20.8"))
    monkeypatch.setattr(peers, "WIDTH", 4)
    monkeypatch.setattr(Unprotected, "finds_secret", lambda self, release, keys: torch.arange(len(keys)) > 0)
    learned = property(lambda self: self.statistics and Guarantee("image", 1.0, largest=2.0))
    monkeypatch.setattr(Unprotected, "guarantee", learned)  # known once it is fitted, as that of learned budgets
    where = (tmp_path / "data", tmp_path / "results", tmp_path / "work")
    lines: list[str] = []
    done, path = reproduce("peers", *where, epochs=1, device="cpu", say=lines.append)
    rows = read_rows(path)
    assert done
    by_name = {row.options.get("peer"): row for row in rows}
    pixelated = {"dp-pix:b16-m16-eps0.5", "dp-pix:b4-m1-eps20.8", "dp-pix:b4-m1-eps80"}
    assert {*by_name} == {None, "none", *pixelated}
    clear, linear, noisy = (by_name[name] for name in ("none", "dp-pix:b16-m16-eps0.5", "dp-pix:b4-m1-eps80"))
    assert clear.metrics["decoded"]["ssim"] == pytest.approx(1)
    assert clear.metrics["size"]["bytes"] == 3 * 112 * 112
    assert 0 <= noisy.metrics["linkage"]["rank_1"]["share"] <= 1
    assert noisy.metrics["guarantee"] == {"unit": "source pixel", "epsilon": 80.0, "largest": None}
    assert clear.metrics["guarantee"] == {"unit": "image", "epsilon": 1.0, "largest": 2.0}
    assert clear.metrics["utility_redrawn"] is None
    assert noisy.metrics["utility_redrawn"]["pairs"] == 8
    assert {*clear.metrics["dlib"]} == {"shown", "decoded", "reconstructed"}
    assert "linkage" not in linear.metrics
    assert (clear.metrics["secret_found"]["share"], clear.metrics["secret_found"]["count"]) == (15 / 16, 16)
    assert not {"secret_found", "deviations", "hidden_from"} & {*noisy.metrics}
    assert clear.files == ("peers-portrait.png",)
    with Image.open(path.with_name("peers-portrait.png")) as sheet:
        assert sheet.width > 5 * 112
    page = path.with_suffix(".md").read_text()
    assert "| dp-pix:b4-m1-eps80 | eps 80 per source pixel |" in page
    assert page.index("| none |") < page.index("| dp-pix:")
    assert "| none | eps 1 per image, at most 2; hidden from nobody |" in page
    assert "- none: meant to be hidden from nobody; as it is." in page
    assert "Decoding found the secret of none in 93.8 (69.8 to 99.8) % of 16 releases (95 % confidence" in page
    assert page.count("found the secret") == 1
    assert path.with_suffix(".png").is_file()
    lines.clear()
    assert reproduce("peers", *where, epochs=1, device="cpu", say=lines.append)[0]
    assert [line.split(":")[0] for line in lines] == ["nothing was measured"]
    stored = json.loads(path.read_text())
    for row in stored["rows"]:  # as an earlier version has measured them
        row["metrics"].get("dlib", {}).pop("reconstructed", None)
        row["metrics"] |= {"deviations": ["outdated words"], "hidden_from": "outdated people"}
    path.write_text(json.dumps(stored))
    assert reproduce("peers", *where, epochs=1, device="cpu", only="peer=none", say=lines.append)[0]
    page = path.with_suffix(".md").read_text()
    assert "hidden from everybody but the owner; an image whose sides" in page  # what the code says today
    assert "outdated" not in page
    assert "reconstructed" in next(row for row in read_rows(path) if row.options.get("peer") == "none").metrics["dlib"]


def test_sizes_and_times_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lfw(tmp_path / "data")
    monkeypatch.setitem(EMBEDDERS, "dlib", (lambda: tiny(128), 128))
    monkeypatch.setattr(peers_storage, "SYSTEMS", ("none", "dp-pix", "ldp-slicing"))
    monkeypatch.setattr(peers_storage, "LONGEST", 1e-9)
    where = (tmp_path / "data", tmp_path / "results", tmp_path / "work")
    done, path = reproduce("peers-storage", *where, device="cpu", say=lambda _: None)
    assert done
    rows = read_rows(path)
    assert len(rows) == 1 + 3 + 5
    assert all(set(row.metrics["milliseconds"]) == {"1", "256"} for row in rows)  # however long one round takes
    page = path.with_suffix(".md").read_text()
    assert "| none | 37,632 | 1 | uint8 | 37,632 |" in page
    assert "| dp-pix:b4-m1-eps80 | 2,352 | 0.0625 | float32 | 9,408 |" in page


@pytest.mark.parametrize(("longest", "parts"), [(1e-9, [1, 64, 64, 2]), (1e9, [1, 130])])
def test_a_batch_that_takes_long_is_timed_in_parts(
    longest: float, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    protect = Unprotected.protect
    monkeypatch.setattr(Unprotected, "protect", lambda *given: made.append(len(given[1])) or protect(*given))
    monkeypatch.setattr(peers_storage, "BATCHES", (1, 130))
    monkeypatch.setattr(peers_storage, "ROUNDS", 1)
    monkeypatch.setattr(peers_storage, "LONGEST", longest)
    found = peers_storage._timed(Unprotected(), smooth_images(130))
    assert made == parts
    assert set(found) == {"1", "130"}


def test_the_network_reconstructs_what_is_not_protected() -> None:
    public, peer = smooth_images(16, seed=99), fitted(Unprotected(), 16)
    quality = []
    for epochs in (0, 60):
        releases = PublicReleases(peer, public, people(16), "x", redrawn=True)
        network = train_network(releases, TrainingSchedule(epochs, 3e-3, 8), width=8)
        inputs = peer.protect(smooth_images(4), keys(4)).as_input()
        quality.append(psnr(reconstruct(network, inputs), smooth_images(4)).mean())
    assert quality[1] > quality[0] + 4
    assert torch.is_tensor(peer.protect(public[:1], derive_keys("x", 1)).values)
