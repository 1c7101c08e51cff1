"""ldp-slicing decode: guesses of what releases show, which nobody can take for releases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ldp_slicing import Plan, Slice, Slicer
from ldp_slicing.cli import app
from ldp_slicing.formats.base import Member
from ldp_slicing.opened import Item
from ldp_slicing.torch import guesses
from ldp_slicing.torch.dataset import ReleasedDataset
from ldp_slicing.torch.decode import Decoder
from ldp_slicing.torch.guesses import REMARK, _grey_table, _names
from ldp_slicing.torch.reconstruct import Reconstructor
from ldp_slicing.torch.store import open_store
from ldp_slicing.view import to_rgb
from tests.formats.dicom_files import dicom, saved
from tests.formats.shards import shard
from tests.markers import encoded
from tests.release.helpers import plant, tree


def wedge(side: int, highest: int = 255) -> np.ndarray:
    return (np.add.outer(np.arange(side), np.arange(side)) * highest // (2 * side - 2)).astype(np.uint16)


def ran(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def released(tmp_path: Path) -> Path:
    grey = encoded(wedge(64).astype(np.uint8), "PNG")
    plant(tmp_path / "in", {"a/1.png": grey, "2.tar": shard({"x/1.png": grey, "x/2.png": grey})})
    status, said = ran("privatize", tmp_path / "in", tmp_path / "releases", "--epsilon", 8, "--prune", "none")
    assert status == 0, said
    return tmp_path / "releases"


def test_guesses_are_nearer_to_the_source_and_marked(released: Path, tmp_path: Path) -> None:
    status, said = ran("decode", released, tmp_path / "guesses")
    assert status == 0
    assert f"3 guesses in {tmp_path / 'guesses'}" in said
    assert "Guesses are neither releases nor sources." in said
    assert tree(tmp_path / "guesses") == ["2.tar/x_1.guess.png", "2.tar/x_2.guess.png", "a/1.guess.png"]
    source = wedge(64).astype(float)
    with Image.open(tmp_path / "guesses/a/1.guess.png") as guess, Image.open(released / "a/1.png") as release:
        assert guess.info["Comment"] == REMARK
        errors = [np.square(np.asarray(image) - source).mean() for image in (guess, release)]
    assert errors[0] < 0.7 * errors[1]


def test_a_public_prior_and_a_network_guess_better(released: Path, tmp_path: Path) -> None:
    plant(tmp_path / "public", {"1.png": encoded((wedge(64) // 3 * 3).astype(np.uint8), "PNG")})
    more = "A network that was trained for the plan usually recovers more"
    status, said = ran("decode", released, tmp_path / "public-guesses", "--public", tmp_path / "public")
    assert (status, more in said) == (0, True)
    release = torch.from_numpy(np.array(Image.open(released / "a/1.png")))[None, None]
    reconstructor = Reconstructor.fit(release, Plan.grey(8.0), prune=None, steps=3)
    torch.save(reconstructor.state_dict(), tmp_path / "reconstructor.pt")
    status, said = ran("decode", released, tmp_path / "network-guesses", "--network", tmp_path / "reconstructor.pt")
    assert (status, more in said) == (0, False)
    guess = np.array(Image.open(tmp_path / "network-guesses/a/1.guess.png"))
    expected = reconstructor.expect(release)[0, 0].round().numpy()
    assert np.abs(guess - expected).max() <= 1  # the command computes several images at once, and rounds otherwise
    with Image.open(tmp_path / "public-guesses/a/1.guess.png") as guess, Image.open(released / "a/1.png") as release:
        errors = [np.square(np.asarray(image) - wedge(64).astype(float)).mean() for image in (guess, release)]
    assert errors[0] < 0.7 * errors[1]


def test_a_network_guesses_images_of_one_size_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would one by one, up to rounding. Other sizes and kinds, and the limit of pixels, end a batch."""
    shapes = [(16, 16)] * 5 + [(16, 8), (8, 16), (8, 16), (40, 40), (16, 16), (16, 16)]
    noise = np.random.default_rng(0)
    sources = {f"{number:02}.png": wedge(40)[:h, :w] + noise.integers(60) for number, (h, w) in enumerate(shapes)}
    plant(tmp_path / "in", {name: encoded(source.astype(np.uint8), "PNG") for name, source in sources.items()})
    status, said = ran("privatize", tmp_path / "in", tmp_path / "releases", "--epsilon", 8, "--prune", "none")
    assert status == 0, said
    releases = {name: torch.from_numpy(np.array(Image.open(tmp_path / "releases" / name))) for name in sources}
    first = torch.stack(list(releases.values())[:5])[:, None]
    reconstructor = Reconstructor.fit(first, Plan.grey(8.0), prune=None, steps=3, width=8)
    torch.save(reconstructor.state_dict(), tmp_path / "reconstructor.pt")
    seen, expect = list[tuple[int, ...]](), Reconstructor.expect

    def watched(self: Reconstructor, released: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(released.shape))
        return expect(self, released)

    monkeypatch.setattr(guesses, "PIXELS_AT_ONCE", 4 * 256)
    monkeypatch.setattr(Reconstructor, "expect", watched)
    status, said = ran("decode", tmp_path / "releases", tmp_path / "out", "--network", tmp_path / "reconstructor.pt")
    assert (status, said.startswith("11 guesses in")) == (0, True), said
    together = [(4, 16, 16), (1, 16, 16), (1, 16, 8), (2, 8, 16), (1, 40, 40), (2, 16, 16)]
    assert seen == [(count, 1, height, width) for count, height, width in together]
    for name, release in releases.items():
        alone = expect(reconstructor, release[None, None])[0, 0].round().numpy()
        guess = np.array(Image.open(tmp_path / "out" / name.replace(".png", ".guess.png")))
        assert np.abs(guess - alone).max() <= 1


def test_a_prior_or_network_that_does_not_fit_is_refused(released: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    status, said = ran("decode", released, tmp_path / "guesses", "--public", tmp_path / "none")
    assert (status, "has no public images" in said) == (2, True)
    status, said = ran("decode", released, tmp_path / "guesses", "--public", tmp_path / "nowhere")
    assert (status, "nowhere is not a folder" in said) == (2, True)
    for data in (b"nothing", encoded(wedge(64), "PNG")):
        plant(tmp_path / "bad", {"1.png": data})
        said = ran("decode", released, tmp_path / "guesses", "--public", tmp_path / "bad")[1]
        assert "bad/1.png is no public image of 8 bits" in said
    bad = ("--network", tmp_path / "bad/1.png")
    said = ran("decode", released, tmp_path / "guesses", *bad)[1]
    assert "holds no reconstructor" in said
    assert "weights_only" not in said
    said = ran("decode", released, tmp_path / "guesses", "--network", tmp_path / "none.pt")[1]
    assert "none.pt is not a file" in said
    both = ("--public", tmp_path / "bad", *bad)
    assert "exclude each other" in ran("decode", released, tmp_path / "guesses", *both)[1]
    for epsilon, prune, problem in ((5.0, None, "the releases have"), (8.0, "haar", "is for pruning haar")):
        plan = Plan.grey(epsilon)
        decoder = Decoder(plan, torch.ones(1, 256), prune=prune)  # type: ignore[arg-type]
        torch.save(Reconstructor(decoder).state_dict(), tmp_path / "reconstructor.pt")
        status, said = ran("decode", released, tmp_path / "guesses", "--network", tmp_path / "reconstructor.pt")
        assert (status, problem in said) == (2, True)
    assert not (tmp_path / "guesses").exists()


def test_verify_refuses_guesses(released: Path, tmp_path: Path) -> None:
    assert ran("decode", released, tmp_path / "guesses")[0] == 0
    status, said = ran("verify", tmp_path / "guesses")
    assert (status, "has no manifest.jsonl" in said) == (2, True)
    guess = tmp_path / "guesses/a/1.guess.png"
    status, said = ran("verify", guess)
    assert (status, "has no 1.guess.png.card.json" in said) == (2, True)
    (released / "a/1.png").write_bytes(guess.read_bytes())  # in place of the release, with the true card
    status, said = ran("verify", released)
    assert (status, "a/1.png has changed since its release" in said) == (1, True)
    guess.with_name(f"{guess.name}.card.json").write_text(Slicer(Plan.grey(8.0), prune=None).card(64, 64).to_json())
    assert ran("verify", guess)[0] == 1
    status, said = ran("decode", guess, tmp_path / "more")
    assert (status, "cannot be read" in said, (tmp_path / "more").exists()) == (2, True, False)


def test_where_guesses_may_not_go(released: Path, tmp_path: Path) -> None:
    assert "guesses must not lie among releases" in ran("decode", released, released / "guesses")[1]
    assert "name a new folder" in ran("decode", released, tmp_path / "in")[1]
    assert "has no card.json" in ran("decode", tmp_path / "in", tmp_path / "guesses")[1]
    status, said = ran("decode", released, tmp_path / "in/2.tar/guesses")
    assert (status, "cannot be written: Not a directory" in said) == (2, True)
    assert not (tmp_path / "guesses").exists()
    assert not (tmp_path / "guesses.partial").exists()


def test_deep_grey(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    plant(tmp_path / "in", {"a.dcm": saved(dicom(wedge(64, 4095), 12))})
    status, said = ran("privatize", tmp_path / "in", tmp_path / "out", "--epsilon", 10, "--prune", "none")
    assert status == 0, said
    assert ran("decode", tmp_path / "out", tmp_path / "guesses")[0] == 0
    with Image.open(tmp_path / "guesses/a.dcm.guess.png") as guess:
        error = np.square(np.asarray(guess) - wedge(64, 4095) / 16.06).mean()
    assert guess.mode == "L"
    assert error < 2000


@pytest.mark.parametrize("kind", ["tensor", "array", "pil"])
def test_a_store_is_decoded_as_files_are(kind: str, tmp_path: Path) -> None:
    source = wedge(64).astype(np.uint8)
    sources = {"tensor": torch.from_numpy(source)[None], "array": source, "pil": Image.fromarray(source)}
    slicer = Slicer(Plan.grey(8.0), prune=None)
    made = ReleasedDataset([(sources[kind], label) for label in range(11)], slicer, store=tmp_path / "store")
    status, said = ran("decode", tmp_path / "store", tmp_path / "guesses")
    assert (status, said.startswith("11 guesses in")) == (0, True), said
    assert tree(tmp_path / "guesses") == [f"{number:02}.guess.png" for number in range(11)]
    releases = torch.cat(list(made.images()))
    expected = Decoder.from_card(made.card, releases).expect(releases)[:, 0].round().numpy()
    for number in (0, 10):
        assert np.array_equal(np.array(Image.open(tmp_path / f"guesses/{number:02}.guess.png")), expected[number])
    assert "guesses must not lie among releases" in ran("decode", tmp_path / "store", tmp_path / "store/guesses")[1]


def test_a_store_loads_colour_as_rgb(tmp_path: Path) -> None:
    source, plan = torch.randint(0, 256, (1, 3, 8, 9), dtype=torch.uint8), Plan.paper(20.0)
    for output in ("rgb", "ycbcr"):
        folder = tmp_path / output
        made = ReleasedDataset(source, Slicer(plan, output=output), store=folder)  # type: ignore[arg-type]
        loaded = open_store(folder).load(0)
        release = made[0].numpy() if output == "rgb" else to_rgb(made[0].numpy())
        assert (loaded.bits, loaded.pixels.shape) == (24, (8, 9, 3))
        assert np.array_equal(loaded.pixels.transpose(2, 0, 1), release)


@pytest.mark.parametrize("plan", [Plan.grey(5.0), Plan([Slice(0xC0, 2.0), Slice(0x10, 0.5)], 8)], ids=["all", "some"])
def test_the_transform_gives_what_the_table_of_all_pairs_gives(plan: Plan) -> None:
    """8-bit grey can be decoded in both ways. Without pruning both begin with a uniform prior."""
    sources = wedge(96).astype(np.uint8)
    release = torch.from_numpy(Slicer(plan, prune=None)(sources))
    table = _grey_table(torch.bincount(release.flatten().long(), minlength=256).double(), plan)
    expected = Decoder.fit(release[None, None], plan, prune=None).expect(release[None, None])[0, 0]
    assert (table[release.long()].float() - expected).abs().max() <= 0.51


def test_names_of_members_lead_nowhere() -> None:
    members = ("../../evil.png", "a/b.png", "a_b.png", "A/B.png", "..", "x" * 300)
    names = list(_names([Item("0.parquet", Member(name, 0)) for name in members]))
    assert names[:5] == [
        "0.parquet/_.._evil.guess.png",
        "0.parquet/a_b.guess.png",
        "0.parquet/a_b-2.guess.png",
        "0.parquet/A_B-3.guess.png",
        "0.parquet/4.guess.png",
    ]
    assert len(names[5]) < 150
