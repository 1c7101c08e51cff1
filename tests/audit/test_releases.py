from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ldp_slicing import Plan, Slicer
from ldp_slicing.audit.exact import read_groups
from ldp_slicing.audit.faults import sample_image
from ldp_slicing.audit.files import AuditedStatement, summarise
from ldp_slicing.audit.noise import pair_tests
from ldp_slicing.audit.power import detectable, detected_sigma
from ldp_slicing.audit.releases import _check_duplicates, _measure_power, audit_releases
from ldp_slicing.audit.report import ERROR_RATE, Check, Report
from ldp_slicing.audit.shared_masks import Comparison, pair_distances
from ldp_slicing.card import Statement
from ldp_slicing.errors import AuditError
from ldp_slicing.keys import new_key_file
from ldp_slicing.png import encode_png, read_release_png
from ldp_slicing.randomness import SeededForTests
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify
from tests.cases import photographs
from tests.release.helpers import release, write_card

LIMIT = 1e-9


def png(pixels: NDArray[Any]) -> bytes:
    return b"".join(encode_png(pixels))


def by_name(report: Report) -> dict[str, Check]:
    return {check.name: check for check in report.checks}


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Releases of colour, grey and 16-bit grey sources of several sizes, in folders."""
    source = tmp_path / "images"
    (source / "more").mkdir(parents=True)
    for number in range(3):
        (source / f"{number}.png").write_bytes(png(sample_image(number)))
    (source / "more" / "odd.png").write_bytes(png(sample_image(3)[:33, :57]))
    (source / "more" / "grey.png").write_bytes(png(sample_image(4)[..., 0]))
    (source / "more" / "deep.png").write_bytes(png(sample_image(5)[..., 0].astype(np.uint16) * 200))
    target = tmp_path / "releases"
    release(source, target, ReleaseSettings(20.0))
    return target


def test_untouched_releases_pass(folder: Path) -> None:
    report = audit_releases(folder)
    assert report.passed, str(report)
    assert report.subject == f"6 releases in {folder}"
    assert report.error_rate == pytest.approx(ERROR_RATE)
    checks = by_name(report)
    assert list(checks) == ["card", "files", "values", "duplicates", "noise", "parts", "clamped", "shared masks"]
    assert "3 statements" in checks["card"].tested
    assert "3 of 3 pairs" in checks["shared masks"].tested
    assert checks["shared masks"].limit == pytest.approx(ERROR_RATE / 5 / (3 * 3))
    assert checks["clamped"].limit == pytest.approx(ERROR_RATE / 5 / (6 + 3))
    tests = int(checks["parts"].tested.partition(" ")[0].replace(",", ""))
    assert tests > 20
    assert checks["parts"].limit == pytest.approx(ERROR_RATE / 5 / tests)
    assert checks["noise"].limit in [
        pytest.approx(ERROR_RATE / 5 / 3 / (releases + 1) / len(pair_tests(plan)))
        for releases, plan in ((4, Plan.paper(5.0)), (1, Plan.grey(5.0)), (1, Plan.grey(5.0, 16)))
    ]


def test_one_release_with_its_card(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(sample_image(0)))
    release(tmp_path / "a.png", tmp_path / "release.png", ReleaseSettings(20.0, prune="dct"))
    report = audit_releases(tmp_path / "release.png")
    assert report.passed, str(report)
    card, files = (check.tested for check in report.checks[:2])
    assert card.startswith("release.png.card.json: 1 statement")
    assert "manifest.jsonl" not in files
    assert "no manifest" in files
    (tmp_path / "release.png.card.json").unlink()
    with pytest.raises(
        AuditError,
        match=r"has no release\.png\.card\.json: this is not a release, or .* was made from Python without a card",
    ):
        audit_releases(tmp_path / "release.png")


def test_names_cannot_write_lines_of_their_own_into_the_report(tmp_path: Path) -> None:
    """Names come from whoever made the folder, and a terminal obeys control characters."""
    forged = "\x1b[2J\nconsistent with the card"
    folder = tmp_path / "images" / forged
    folder.mkdir(parents=True)
    (folder / f"a{forged}.png").write_bytes(png(sample_image(0)[:8, :8]))
    release(tmp_path / "images", tmp_path / "releases", ReleaseSettings(20.0))
    (tmp_path / "releases" / forged / ".DS_Store").write_bytes(b"left by a file manager")
    report = audit_releases(tmp_path / "releases")
    assert report.outcome == "cannot tell at this budget"
    text = f"{report}\n{report.verdict}"
    assert "\x1b" not in text
    assert not any(line.startswith("consistent") for line in text.splitlines())
    assert r"such as \x1b[2J\nconsistent with the card/a" in text
    assert r"not looked into: \x1b[2J\nconsistent with the card/.DS_Store (22 bytes)" in text


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="neither a folder"):
        audit_releases(tmp_path / "nothing")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        AuditError, match=r"has no card\.json: the run is not finished, or this is not a folder of releases"
    ):
        audit_releases(tmp_path)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda card: card["statements"][0]["levels"][1].update(epsilon=10.0),
        lambda card: card["statements"][0]["levels"][3].update(means="Nobody can tell."),
        lambda card: card["statements"][0]["levels"].pop(),
        lambda card: card["statements"][0]["plan"].update(epsilon_realised=1.0),
        lambda card: card["statements"][0]["plan"].update(epsilon_requested=1.0),
        lambda card: card["statements"][0]["plan"]["slices"].pop(),
        lambda card: card["statements"][0]["plan"]["slices"][0].update(bits="red"),
        lambda card: card["statements"][0].update(releases=5),
        lambda card: card["statements"][0].update(output="ycbcr"),
        lambda card: card["statements"][0]["view"].update(prune="none"),
        lambda card: card["statements"][0]["view"].update(prune="all"),
        lambda card: card["statements"][0].update(plan=7),
        lambda card: card["statements"].pop(),
        lambda card: card.update(card=99),
        lambda card: card.pop("statements"),
        lambda card: card.update(statements=7),
    ],
)
def test_a_card_whose_sums_are_wrong(folder: Path, tamper: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "card.json"
    card = json.loads(path.read_text())
    tamper(card)
    write_card(folder, card)
    report = audit_releases(folder)
    assert failed(report) - {"values"} == {"card"}  # without a slice, bits that are released should be constant
    assert (report.outcome, report.exit_status) == ("refuted", 1)


def test_a_statement_about_missing_releases(folder: Path) -> None:
    (folder / "more" / "grey.png").unlink()
    report = audit_releases(folder)
    assert failed(report) == {"files"}
    assert "files that are missing or wrong are not counted" in by_name(report)["card"].tested


def test_a_card_that_is_not_json(folder: Path) -> None:
    (folder / "card.json").write_text("{")
    assert failed(audit_releases(folder)) == {"card"}


def test_prose_on_a_card_is_checked(folder: Path) -> None:
    true = json.loads((folder / "card.json").read_text())
    write_card(folder, true)
    assert audit_releases(folder).passed
    write_card(folder, true | {"remark": "more"})
    assert failed(audit_releases(folder)) == {"card"}
    true["statements"][0]["levels"][0]["why"] = "other words"
    write_card(folder, true)
    assert failed(audit_releases(folder)) == {"card"}


def test_files_that_are_not_releases(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")
    (folder / ".0123.partial").write_bytes(b"")
    Image.fromarray(sample_image(0)).save(folder / "other.png")
    (folder / "link.png").symlink_to(folder / "0.png")
    (folder / "more" / "card.json").write_text("{}")
    report = audit_releases(folder)
    assert failed(report) == {"files"}
    found = "\n".join(by_name(report)["files"].failures)
    for name in (".0123.partial", "notes.txt", "other.png", "link.png", "more/card.json"):
        assert f"{name}: is " in found


def test_a_name_cannot_write_lines_into_the_report(folder: Path) -> None:
    (folder / "x\n  passes  files.txt").write_text("x")
    assert "x\\n  passes  files.txt: is not in the manifest" in str(audit_releases(folder))


def test_a_file_that_cannot_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def failing(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "1.png":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(AuditError, match=r"1\.png cannot be read: Permission denied"):
        audit_releases(folder)


def test_duplicates_count_by_their_pixels(folder: Path) -> None:
    pixels, _ = read_release_png((folder / "0.png").read_bytes())
    (folder / "2.png").write_bytes(png(pixels) + b"a tail, which is no part of the pixels")
    report = audit_releases(folder)
    assert by_name(report)["duplicates"].failures == ("0.png and 2.png have the same pixels",)


def test_equal_sources_have_equal_releases_under_an_owners_key(tmp_path: Path) -> None:
    new_key_file(tmp_path / "key")
    source = tmp_path / "images"
    source.mkdir()
    for name, number in (("a", 0), ("b", 1), ("copy of a", 0)):
        (source / f"{name}.png").write_bytes(png(sample_image(number)))
    release(source, tmp_path / "out", key=tmp_path / "key")
    report = audit_releases(str(tmp_path / "out"))
    assert report.passed, str(report)
    assert "1 equal to another, as the owner's key makes" in by_name(report)["duplicates"].tested
    assert "1 of 1 pairs" in by_name(report)["shared masks"].tested
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    card["not_protected"].pop()
    write_card(tmp_path / "out", card)
    assert failed(audit_releases(tmp_path / "out")) == {"duplicates", "shared masks"}


def test_copies_under_an_owners_key_add_no_power() -> None:
    """They are trials without counts, so many releases together are not sure to show more than one of them."""
    plan = Plan.paper(20.0)
    sources = [sample_image(number)[:16, :16] for number in range(40)]
    releases = [summarise(PurePath(str(number)), Slicer(plan)(source), plan) for number, source in enumerate(sources)]
    for owners_key, several, pixels in (
        (True, releases, 40 * 256),
        (True, [*releases, *releases], 256),
        (False, [*releases, *releases], 80 * 256),
    ):
        (details,) = _measure_power([AuditedStatement(plan, owners_key, several)], ERROR_RATE).details
        found = detectable(plan, details["limit"])
        assert details["sigma_detected_in_all_together"] == detected_sigma(found, pixels)
        assert detected_sigma(found, 256) != detected_sigma(found, 40 * 256)


@pytest.mark.parametrize(("name", "why"), [("a.jpg", "is not a release"), ("a.card.json", "is a card")])
def test_a_file_that_is_not_a_release_is_refused(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(AuditError, match=why):
        audit_releases(tmp_path / name)


def test_equal_releases_of_single_pixels_may_be_chance(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(2):
        (tmp_path / "images" / f"{number}.png").write_bytes(png(np.full((1, 1, 3), 7, np.uint8)))
    release(tmp_path / "images", tmp_path / "releases", ReleaseSettings(20.0))
    shutil.copy(tmp_path / "releases" / "0.png", tmp_path / "releases" / "1.png")
    report = audit_releases(tmp_path / "releases")
    assert failed(report) == {"files"}  # the copy is not the file that was released
    assert "1 too small to tell from chance" in by_name(report)["duplicates"].tested
    assert report.power.too_little == "2 releases could be unprotected images with a camera's noise"


@pytest.mark.parametrize("count", [2, 300])
def test_all_pairs_of_releases_share_the_error_rate_of_duplicates(count: int) -> None:
    """Of 300 releases, some two may be equal by chance where two single ones may not."""
    plan = Plan.grey(5.0)
    likeliest = math.prod(float(group.largest_probability) for group in read_groups(plan.tables))
    needed = math.log(ERROR_RATE / math.comb(count, 2)) / math.log(likeliest)
    one = summarise(PurePath("0"), np.zeros((4, 4), np.uint8), plan)
    for certain, passed in ((math.floor(needed), True), (math.ceil(needed), False)):
        digests = [bytes(2), *(number.to_bytes(2, "big") for number in range(count - 1))]  # the first two are equal
        several = [dataclasses.replace(one, digest=digest, certain_pixels=certain) for digest in digests]
        assert _check_duplicates([AuditedStatement(plan, False, several)], ERROR_RATE).passed == passed


def test_bits_that_the_plan_drops_are_constant(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(2):
        (tmp_path / "images" / f"{number}.png").write_bytes(png(sample_image(number)))
    settings = ReleaseSettings(epsilon=5.2, weights=(4, 0, 0))  # without chroma
    release(tmp_path / "images", tmp_path / "releases", settings)
    assert audit_releases(tmp_path / "releases").passed
    (tmp_path / "releases" / "1.png").write_bytes(png(Slicer(Plan.paper(5.2))(sample_image(1))))
    assert "values" in failed(audit_releases(tmp_path / "releases"))


def photograph_pieces(side: int) -> list[NDArray[np.uint8]]:
    """Pieces of real photographs."""
    pieces = []
    for photo in photographs().values():
        pieces += [photo[y : y + side, x : x + side] for y, x in ((0, 0), (20, 100), (100, 200), (60, 30))]
    return pieces


def releases_of(images: list[NDArray[np.uint8]], plan: Plan, *, shared: bool) -> Comparison:
    out = []
    for number, image in enumerate(images):
        slicer = Slicer(plan, randomness=SeededForTests(0 if shared else number + 1))
        out.append(summarise(PurePath(f"{number}"), slicer(image), plan))
    return Comparison(out, read_groups(plan.tables))


@pytest.mark.parametrize("epsilon", [5.2, 20.0])
def test_shared_masks_of_photographs_are_found_and_fresh_ones_are_not(epsilon: float) -> None:
    images = photograph_pieces(128)
    fresh, shared = (releases_of(images, Plan.paper(epsilon), shared=how) for how in (False, True))
    assert fresh.has_power(LIMIT)
    smallest, found = fresh.compare(LIMIT)
    assert smallest > LIMIT
    assert found == []
    assert shared.pairs == math.comb(len(images), 2)
    smallest, found = shared.compare(LIMIT)
    assert smallest < LIMIT
    assert len({(each.one.path, each.other.path) for each in found}) > (0.5 if epsilon < 20 else 0.8) * shared.pairs


def test_fresh_masks_of_one_flat_source_are_not_suspected() -> None:
    """Equal sources without detail are the worst case: they reach the bounds and do not pass them."""
    flat = [np.full((128, 128, 3), 128, np.uint8)] * 30
    for plan in (Plan.paper(20.0), Plan.paper(58.0)):
        assert releases_of(flat, plan, shared=False).compare(1e-6 / 3 / 435)[1] == []
    assert len(releases_of(flat[:3], Plan.paper(20.0), shared=True).compare(LIMIT)[1]) == 9


def test_the_bounds_are_those_of_equal_flat_sources() -> None:
    plan = Plan(Plan.grey(20.0).slices[:3], 8)
    flat = np.full((256, 256), 77, np.uint8)
    one, two = (summarise(PurePath("x"), Slicer(plan)(flat), plan) for _ in range(2))
    groups = read_groups(plan.tables)
    equal = math.prod(group.zero_xor_probability(2) for group in groups)
    steps = math.prod(group.zero_xor_probability(4) for group in groups)
    assert np.mean(one.left == one.right) == pytest.approx(
        equal, abs=6 * math.sqrt(equal * (1 - equal) / one.left.size)
    )
    found = np.mean(one.left ^ one.right == two.left ^ two.right)
    assert found == pytest.approx(steps, abs=6 * math.sqrt(steps * (1 - steps) / one.left.size))


def test_clamped_colours_do_not_count() -> None:
    """Clamping makes different words look alike. Counted as equal, they would raise false alarms about fresh masks."""
    saturated = [np.tile(np.array([255, 0, 255], np.uint8), (128, 128, 1))] * 4
    plan = Plan.paper(58.0)
    releases = [
        summarise(PurePath(str(number)), Slicer(plan, prune=None)(image), plan)
        for number, image in enumerate(saturated)
    ]
    assert Comparison(releases, read_groups(plan.tables)).compare(LIMIT)[1] == []
    believed = [dataclasses.replace(release, certain=np.ones_like(release.certain)) for release in releases]
    assert Comparison(believed, read_groups(plan.tables)).compare(LIMIT)[1]
    pair = summarise(PurePath("x"), np.array([[[9, 9, 9], [9, 255, 9], [9, 9, 9], [8, 8, 8]]], np.uint8), plan)
    assert pair.certain.tolist() == [False, True]
    assert pair.certain_pixels == 3


def test_the_probabilities_of_the_equality_tests() -> None:
    plan = Plan.paper(20.0)
    groups = read_groups(plan.tables)
    tests = releases_of(photograph_pieces(16)[:2], plan, shared=False).tests
    two, four = ([group.zero_xor_probability(masks) for group in groups] for masks in (2, 4))
    assert [test.probability for test in tests] == pytest.approx([math.prod(two), math.prod(four), math.prod(four[1:])])


def test_grey_releases_have_no_chroma_and_a_high_epsilon_no_power() -> None:
    grey = [image[..., 1] for image in photograph_pieces(128)]
    assert len(releases_of(grey, Plan.grey(5.2), shared=True).compare(LIMIT)[1]) > 20
    blind = releases_of([image[:4, :4] for image in grey], Plan.grey(58.0), shared=True)
    assert not blind.has_power(LIMIT)


def test_which_pairs_are_compared() -> None:
    assert pair_distances(5, 100) == [1, 2, 3, 4]
    some = pair_distances(3000, 300)
    assert some[:150] == list(range(1, 151))
    assert {1500, 1000, 750, 600, 500, 375} <= set(some)
    assert len(some) <= 300
    assert max(some) < 3000
    assert pair_distances(200, 1)[0] == 1


def test_the_report_states_how_many_pairs_were_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    for number in range(8):
        (tmp_path / "images" / f"{number}.png").write_bytes(png(sample_image(number)[:16, :16]))
    release(tmp_path / "images", tmp_path / "releases", ReleaseSettings(20.0))
    assert "28 of 28 pairs" in by_name(audit_releases(tmp_path / "releases"))["shared masks"].tested
    monkeypatch.setattr("ldp_slicing.audit.shared_masks.COMPARISONS", 128 * 8)
    assert "22 of 28 pairs" in by_name(audit_releases(tmp_path / "releases"))["shared masks"].tested


@pytest.mark.parametrize("lost", ["0.png", "more/odd.png", "more/grey.png"])
def test_a_recorded_loss_passes(folder: Path, lost: str) -> None:
    """The grey release is the only one of its kind; the colour ones are two of four."""
    (folder / lost).unlink()
    assert failed(audit_releases(folder)) == {"files"}  # the manifest does not record the loss
    release(folder.parent / "images", folder, ReleaseSettings(20.0))
    assert audit_releases(folder).passed
    card = folder / "card.json"
    text = card.read_text()
    number = json.loads(text)["statements"][0]["releases"]
    for said, other in (
        (f'"releases": {number}', f'"releases": {number - 1}'),
        (f'"releases": {number}', f'"releases": {number + 1}'),
    ):
        card.write_text(text.replace(said, other, 1))
        assert failed(audit_releases(folder)) == {"card"}
    changed = json.loads(text)
    changed["statements"][1]["levels"][1]["epsilon"] /= 2  # of a source pixel
    write_card(folder, changed)
    assert failed(audit_releases(folder)) == {"card"}
    card.write_text(text)
    (folder / "1.png").unlink()
    assert failed(audit_releases(folder)) == {"files"}


def test_an_invented_loss_does_not_hide_a_false_card(folder: Path) -> None:
    """An invented loss must be counted on the card, and everything else is checked as before."""
    card, manifest = folder / "card.json", folder / "manifest.jsonl"
    true, lines = json.loads(card.read_text()), manifest.read_text()
    invented = {"manifest": 2, "output": "z.png", "sha256": "0" * 64, "status": "lost"}
    invented |= {"width": 1, "height": 1, "word_bits": 24}
    manifest.write_text(lines + json.dumps(invented) + "\n")
    assert failed(audit_releases(folder)) == {"card"}  # it is not counted

    def forged(change: Callable[[dict[str, Any]], object]) -> set[str]:
        false = json.loads(json.dumps(true))
        false["statements"][0]["releases"] += 1
        false["statements"][0]["width"][0] = false["statements"][0]["height"][0] = 1
        change(false["statements"][0])
        write_card(folder, false)
        seen, found = (
            {name for name, _ in verify(LocalStorage(folder)).problems} - {"z.png"},
            failed(audit_releases(folder)),
        )
        assert seen == ({"card.json"} if found else set())
        return found

    assert forged(lambda statement: None) == set()
    assert forged(lambda statement: statement.update(width=[1, 1], height=[1, 1])) == {"card"}
    for level in range(4):
        assert forged(lambda statement, i=level: statement["levels"][i].update(epsilon=0.01)) == {"card"}  # type: ignore[misc]
        assert forged(lambda statement, i=level: statement["levels"][i].update(unit="slice of bread")) == {"card"}  # type: ignore[misc]
    assert forged(lambda statement: statement["levels"][0].update(why="other words")) == {"card"}
    for wrong in ({"width": 0}, {"height": "1"}, {"word_bits": None}, {"width": True}):
        manifest.write_text(lines + json.dumps(invented | wrong) + "\n")
        assert "files" in failed(audit_releases(folder))
    (folder / "z.png").symlink_to("0.png")
    manifest.write_text(lines + json.dumps(invented) + "\n")
    assert ("z.png", "is missing") in verify(LocalStorage(folder)).problems


def test_the_remaining_releases_may_be_smaller_than_a_block(tmp_path: Path) -> None:
    for name, side in (("small.png", 1), ("large.png", 40)):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(png(sample_image(1)[:side, :side]))
    release(tmp_path / "in", tmp_path / "out")
    (tmp_path / "out" / "large.png").unlink()
    release(tmp_path / "in", tmp_path / "out")
    assert audit_releases(tmp_path / "out").passed
    assert [name for name, _ in verify(LocalStorage(tmp_path / "out")).problems] == ["large.png"]


def test_two_statements_cannot_be_about_the_same_releases(folder: Path) -> None:
    lost = "more/odd.png"
    (folder / lost).unlink()
    release(folder.parent / "images", folder, ReleaseSettings(20.0))
    card = folder / "card.json"
    true = json.loads(card.read_text())
    assert audit_releases(folder).passed
    few = Statement.of(
        Plan.paper(0.1), "haar", "rgb", ((57, 33),)
    ).to_dict()  # as if the lost release had been made with another plan
    for first in (True, False):
        false = true | {"statements": [few, *true["statements"]] if first else [*true["statements"], few]}
        write_card(folder, false)
        assert failed(audit_releases(folder)) == {"card"}
        (problem,) = [why for name, why in verify(LocalStorage(folder)).problems if name == "card.json"]
        assert "there are two statements about 24-bit words" in problem
    write_card(folder, true)
    lines = (folder / "manifest.jsonl").read_text()
    many = [json.loads(line) | ({"frames": 10**17} if "lost" in line else {}) for line in lines.splitlines()]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in many))
    audit_releases(folder)
    assert any(name == "card.json" for name, _ in verify(LocalStorage(folder)).problems)
    (folder / "manifest.jsonl").write_text(lines + lines)
    assert ("0.png", "is listed in the manifest more than once") in verify(LocalStorage(folder)).problems
    mixed = [line for line in lines.splitlines() if "lost" in line]
    bare = {key: value for key, value in json.loads(mixed[0]).items() if key not in ("width", "height", "word_bits")}
    mixed.append(json.dumps(bare | {"status": "released"}))
    (folder / "manifest.jsonl").write_text("\n".join(mixed) + "\n")
    assert (lost, "has contradictory lines in the manifest") in verify(LocalStorage(folder)).problems


def test_nothing_passes_if_there_is_no_release_to_look_at(tmp_path: Path) -> None:
    """A release that Pillow saved: that is no evidence against its noise."""
    slicer, image = Slicer(Plan.paper(20.0)), np.zeros((8, 8, 3), np.uint8)
    Image.fromarray(slicer(image)).save(tmp_path / "a.png")
    (tmp_path / "a.png.card.json").write_text(slicer.card(8, 8).to_json())
    report = audit_releases(tmp_path / "a.png")
    assert [(check.name, check.passed) for check in report.checks] == [("card", True), ("files", False)]
    assert (report.outcome, report.exit_status) == ("nothing to audit", 1)
