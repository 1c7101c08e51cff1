"""The page's module computes what the package computes, to the last bit. It runs in Node here; see test_browsers."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing import Card, Plan, Slice, Slicer
from ldp_slicing.card.statement import Statement
from ldp_slicing.png import encode_png, read_release_png
from ldp_slicing.randomness import ImageKey
from ldp_slicing.storage import LocalStorage
from ldp_slicing.tables import hit_weight, ln_up, round_up
from ldp_slicing.verify import verify
from ldp_slicing.version import __version__
from ldp_slicing.view import Padded, Size, block_of, shrink, to_rgb, to_ycbcr
from ldp_slicing.wording import number
from tests.cases import PLANS, random_image
from tests.make_vectors import FILE, little_endian
from tests.web.node import WEB, ask, needs_node, spec

pytestmark = needs_node

EPSILONS = [0.001, 0.5, 1, 2.4, 5.2, 12, 20, 32, 58, 100, 700, 3000]


def test_all_vectors_and_table_checksums() -> None:
    (found,) = ask({"ask": "vectors", "file": str(FILE)})
    assert found["wrong"] == []
    assert found["checked"] > 400


def test_numbers_are_written_as_python_writes_them() -> None:
    rng = random.Random(1)
    values = [
        1e-5,
        0.0001,
        1e15,
        1e16,
        100000.5,
        9999.9999,
        1e22,
        5.2,
        1 / 3,
        *(10 ** rng.uniform(-8, 20) for _ in EPSILONS * 9),
    ]
    (found,) = ask({"ask": "numbers", "values": values})
    assert found == [[repr(value), f"{value:.6g}", number(value)] for value in values]


def test_probabilities_and_logarithms_are_exact() -> None:
    rng = random.Random(2)
    pairs = [(1 << rng.randint(1, 24), 10 ** rng.uniform(-9, 3)) for _ in range(150)]
    pairs += [(2, 5e-324), (2, 1e-300), (4, 1000.0), (2, 709.0)]
    ratios = [Fraction(1, 1)]
    for _ in range(150):
        below = rng.getrandbits(rng.randint(1, 64)) + 1
        ratios.append(Fraction(below + rng.getrandbits(rng.randint(1, 64)) + 1, below))
    hits, logarithms = ask(
        {"ask": "hits", "pairs": pairs},
        {"ask": "logarithms", "ratios": [[str(one.numerator), str(one.denominator)] for one in ratios]},
    )
    assert list(map(int, hits)) == [hit_weight(*pair) for pair in pairs]
    assert list(map(Fraction, logarithms)) == list(map(ln_up, ratios))


def plans() -> list[tuple[dict[str, Any], Plan]]:
    """Return plans as the module is asked for them, and as Python makes them."""
    found = [(spec(plan), plan) for plan in PLANS.values()]
    for epsilon in EPSILONS:
        weights, slices, grey = (2, 1, 1.5), "Y7+Y6=3,Cb7=0.25", "11+10,3"
        found += [
            ({"kind": "paper", "epsilon": epsilon}, Plan.paper(epsilon)),
            ({"kind": "paper", "epsilon": epsilon, "weights": weights}, Plan.paper(epsilon, weights)),
            ({"kind": "uniform", "epsilon": epsilon}, Plan.uniform(epsilon)),
            ({"kind": "grey", "epsilon": epsilon, "bits": 12}, Plan.grey(epsilon, 12)),
            ({"kind": "grey", "epsilon": epsilon, "bits": 1}, Plan.grey(epsilon, 1)),
            ({"kind": "sliced", "epsilon": epsilon, "slices": slices}, Plan.sliced(epsilon, slices)),
            (
                {"kind": "sliced", "epsilon": epsilon, "slices": grey, "bits": 12},
                Plan.sliced(epsilon, grey, 12),
            ),
        ]
    tiny = [Plan([Slice(1 << b, 2.0**-k) for b in range(8)], 8) for k in (50, 51, 52, 53, 54)]  # from 2^-53 on: uniform
    tiny += [Plan([Slice(0x80, 1.0), *(Slice(1 << b, 1e-18) for b in range(7))], 8), Plan([Slice(0x1FF, 1e-30)], 9)]
    return found + [(spec(plan), plan) for plan in tiny]


def test_plans_their_realised_eps_and_their_remarks() -> None:
    wanted = plans()
    found = ask(*({"ask": "plan", "plan": asked} for asked, _ in wanted))
    for (asked, plan), answer in zip(wanted, found, strict=True):
        assert answer == {
            "realised": repr(plan.realised_epsilon),
            "slices": [[part.bits, repr(part.epsilon)] for part in plan.slices],
            "remark": plan.remark,
        }, asked


def test_aes_for_ties_is_aes() -> None:
    """Node's AES comes from OpenSSL. tests/web/test_browsers.py compares with WebCrypto."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        question = {"key": rng.bytes(32).hex(), "blocks": rng.bytes(16 * 400).hex()}
        ours, theirs = ask({"ask": "aes", **question}, {"ask": "ecb", **question})
        assert ours == theirs


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(little_endian(array)).hexdigest()


@pytest.mark.parametrize(
    ("name", "shape", "prune", "size"),
    [
        ("paper 20", (1201, 1003), "haar", None),  # above a megapixel
        ("paper 200 (eight groups)", (300, 411), "haar4", None),
        ("thick, across channels", (333, 501), "haar", None),  # four bits per pixel in the PNG
        ("top planes", (333, 501), None, 100),
        ("wide and narrow", (129, 500), "dct", (99, 100)),
        ("grey 20", (400, 300), "haar", None),
        ("grey 16", (130, 515), "haar", 200),
        ("grey 12", (130, 515), None, None),
    ],
)
def test_releases_and_their_files_are_equal(
    name: str, shape: tuple[int, int], prune: Any, size: Any, tmp_path: Path
) -> None:
    plan, key = PLANS[name], hashlib.sha256(name.encode()).digest()
    source = random_image(plan, shape)
    (tmp_path / "source").write_bytes(little_endian(source))
    (found,) = ask(
        {
            "ask": "release",
            "plan": spec(plan),
            "prune": prune,
            "size": size,
            "key": key.hex(),
            "file": str(tmp_path / "source"),
            "width": shape[1],
            "height": shape[0],
            "channels": 3 if plan.is_colour else 1,
            "deep": source.dtype == np.uint16,
        }
    )
    release = Slicer(plan, prune=prune, size=size)(source, key=ImageKey(key))
    png = b"".join(encode_png(release, plan))
    assert (found["height"], found["width"]) == release.shape[:2]
    assert found["pixels"] == digest(release)
    assert found["png"] == hashlib.sha256(png).hexdigest()


def test_the_package_releases_an_image_and_makes_its_card(tmp_path: Path) -> None:
    source = random_image(Plan.paper(20.0), (40, 60))
    opaque = np.concatenate([source, np.full((40, 60, 1), 255, np.uint8)], 2)
    (tmp_path / "rgba").write_bytes(opaque.tobytes())
    question = {"ask": "privatize", "width": 60, "height": 40, "size": 30, "file": str(tmp_path / "rgba")}
    (one, _), (noisy, again) = ask({**question, "epsilon": 1000.0}, {**question, "epsilon": 20.0})
    plan = Plan.paper(1000.0)
    released, extras = read_release_png(base64.b64decode(one["png"]), plan)
    wanted = np.moveaxis(to_rgb(to_ycbcr(np.moveaxis(shrink(source, 30), 2, 0).astype(np.uint8))), 0, 2)
    assert (np.mean(released == wanted) > 0.98, extras) == (True, [])
    assert one["card"] == Slicer(plan, prune=None, size=30).card(60, 40).to_json()
    assert noisy["png"] != again["png"], "each call has a fresh key"  # at eps 1000 there may be no noise in either
    assert json.loads((WEB / "package.json").read_text())["version"] == __version__


def test_cards_have_the_same_text() -> None:
    cases = [
        (asked, plan, prune, sizes)
        for asked, plan in plans()
        for prune, sizes in (("haar", [(112, 112)]), (None, [(1, 1)]), ("dct", [(5, 900), (40, 3)]))
    ]
    found = ask(*({"ask": "card", "plan": asked, "prune": prune, "sizes": sizes} for asked, _, prune, sizes in cases))
    for (_, plan, prune, sizes), text in zip(cases, found, strict=True):
        card = Card((Statement.of(plan, prune, "rgb", sizes),))  # type: ignore[arg-type]
        assert text == card.to_json()
        assert Card.from_json(text) == card


@pytest.mark.parametrize(
    ("size", "asked"),
    [(64, 64), ((40, 30), [40, 30]), (Padded(40, 30), {"width": 40, "height": 30, "pad": True})],
    ids=str,
)
def test_cards_of_shrunk_releases_have_the_same_text(size: Size, asked: object) -> None:
    plan, sizes = Plan.paper(20.0), [(40, 30)]
    (text,) = ask({"ask": "card", "plan": spec(plan), "prune": "haar", "sizes": sizes, "size": asked})
    assert text == Card((Statement.of(plan, "haar", "rgb", sizes, size=size),)).to_json()


def test_a_card_about_colour_and_grey_has_the_same_text() -> None:
    grey, colour, sizes = Plan.sliced(5.2, "7+6", 8), Plan.paper(20.0), [(40, 30), (9, 9)]
    (text,) = ask(
        {"ask": "mixedCard", "plans": [spec(grey), spec(colour)], "prune": "haar", "sizes": sizes, "size": 40}
    )
    statements = tuple(Statement.of(plan, "haar", "rgb", sizes, size=40) for plan in (grey, colour))
    assert text == Card(statements).to_json()


A, B = Plan.paper(20.0), Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7")
SMALL, LARGE = (40, 30), (64, 48)


@pytest.mark.parametrize(
    ("released", "sizes", "sources", "times"),
    [
        ([("a", A, "haar", SMALL)], [SMALL], ["a"], 1),
        ([("a", A, "haar", SMALL)] * 3, [SMALL], ["a"], 3),
        (
            [("a", A, "haar", SMALL), ("b", A, "haar", LARGE), ("a", A, "haar", SMALL)],
            [SMALL, LARGE, SMALL],
            ["a", "b", "a"],
            2,
        ),
        ([("a", A, "haar", SMALL), ("a", A, "haar", LARGE)], [SMALL], ["a"], 2),
        ([("a", B, None, SMALL), ("a", A, "haar", SMALL)], [SMALL], ["a"], 2),
        ([("a", B, "dct", LARGE), ("a", B, None, SMALL), ("a", A, "haar", SMALL)], [SMALL], ["a"], 3),
        ([("a", B, None, SMALL)] * 1000 + [("a", A, "haar", SMALL)], [SMALL], ["a"], 1001),
        ([("other", B, "dct", LARGE), ("a", A, "haar", SMALL)], [SMALL], ["a"], 1),
    ],
    ids=[
        "once",
        "again",
        "in one folder",
        "another size",
        "another plan",
        "plans and views",
        "often",
        "another source",
    ],
)
def test_what_was_released_before_is_on_the_card(
    released: list[tuple[str, Plan, Any, tuple[int, int]]], sizes: list[tuple[int, int]], sources: list[str], times: int
) -> None:
    asked = [(source, spec(plan), prune, size) for source, plan, prune, size in released]
    (text,) = ask(
        {"ask": "history", "released": asked, "plan": spec(A), "prune": "haar", "sizes": sizes, "sources": sources}
    )
    spent = [[Fraction(0)] * 3 for _ in set(sources)]
    for source, plan, prune, (width, height) in released:
        if source in sources:
            factors = (1, block_of(prune) ** 2, width * height)
            mine = spent[sorted(set(sources)).index(source)]
            mine[:] = [total + Fraction(plan.realised_epsilon) * one for total, one in zip(mine, factors, strict=True)]
    most = [round_up(max(totals)) for totals in zip(*spent, strict=True)]
    most[2] = max(most[2], round_up(Fraction(most[0]) * max(width * height for width, height in sizes)))
    card = Card((Statement.of(A, "haar", "rgb", sizes, times=times, spent=(most[0], most[1], most[2])),))
    assert text == card.to_json()
    assert Card.from_json(text) == card


def test_verify_accepts_a_folder_from_the_page(tmp_path: Path) -> None:
    plan, releases = Plan.sliced(5.2, "Y7+Y4+Cb7+Cr7"), []
    for i, shape in enumerate([(30, 41), (8, 9), (64, 64)]):
        (tmp_path / f"{i}").write_bytes(random_image(plan, shape).tobytes())
        key = hashlib.sha256(b"%d" % i).hexdigest()
        name, file = f"release-{3 - i}.png", str(tmp_path / f"{i}")
        releases.append({"name": name, "key": key, "file": file, "width": shape[1], "height": shape[0]})
    (content,) = ask({"ask": "folder", "plan": spec(plan), "prune": "haar", "releases": releases})
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(content))) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "folder")
    report = verify(LocalStorage(tmp_path / "folder"))
    assert (report.problems, report.releases) == ([], 3)
    with Image.open(tmp_path / "folder" / "release-3.png") as image:
        assert image.size == (41, 30)


def test_words_are_those_of_the_package() -> None:
    scope: dict[str, Any] = {"__file__": str(WEB / "make_words.py"), "__name__": "words"}
    exec((WEB / "make_words.py").read_text(), scope)
    assert (WEB / "src" / "words.js").read_text() == scope["words"](), "run `python web/make_words.py`"
