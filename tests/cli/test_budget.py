"""Choosing a budget, as a user does on the command line: nobody gets one without asking, and all are told the risk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldp_slicing import Card, privatize
from ldp_slicing.cli import app
from ldp_slicing.errors import PresetError
from ldp_slicing.ledger import default_ledger
from ldp_slicing.measured import NOTHING
from ldp_slicing.plan import Plan
from ldp_slicing.presets import Preset, presets
from tests.markers import encoded, gradient

FACES = "a network re-identified 84.0 % of 736 people from one release each"


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(encoded(gradient(40, 30), "PNG"))
    return tmp_path / "in"


@pytest.mark.parametrize("command", ["privatize", "plan"])
def test_without_a_budget_a_command_refuses_and_shows_the_presets(command: str, source: Path, tmp_path: Path) -> None:
    arguments = [source, tmp_path / "out"] if command == "privatize" else []
    status, out, err = run(command, *arguments)
    assert (status, out) == (2, "")
    assert "no budget was chosen: give --epsilon NUMBER or --preset NAME" in err
    assert "`ldp-slicing show IMAGE" in err
    assert "`ldp-slicing plan " in err
    assert FACES in err
    assert all(f"{one.name}: {one.setting}" in err for one in presets())
    assert not (tmp_path / "out").exists()
    assert not default_ledger().exists()


def test_slices_alone_are_no_budget(source: Path, tmp_path: Path) -> None:
    status, _, err = run("privatize", source, tmp_path / "out", "--slices", "Y7+Y4")
    assert (status, "no budget was chosen" in err) == (2, True)


def test_presets_are_listed_with_what_an_attacker_got() -> None:
    status, out, _ = run("plan", "--presets")
    assert (status, FACES in out) == (0, True)
    assert "No preset is a promise against recognition" in out
    assert all(sentence in out for one in presets() for sentence in one.measured)
    told = json.loads(run("plan", "--presets", "--json")[1])
    assert told["presets"] == [one.to_dict() for one in presets()]


def test_a_preset_is_a_plan_a_view_and_a_budget(source: Path, tmp_path: Path) -> None:
    status, out, err = run("privatize", source, tmp_path / "out", "--preset", "paper")
    assert (status, FACES in out) == (0, True)
    assert "preset paper: eps 20, the paper's plan, pruning: haar" in err
    assert "The paper's setting. It does not stop recognition of people." in err
    (statement,) = Card.read(tmp_path / "out" / "card.json").statements
    assert (statement.plan, statement.prune) == (Plan.paper(20.0), "haar")


def test_images_unlike_those_of_a_preset_get_a_notice_before_anything_is_spent(source: Path, tmp_path: Path) -> None:
    (source / "b.png").write_bytes(encoded(gradient(40, 30)[..., 0], "PNG"))
    (source / "c.png").write_bytes(encoded(gradient(40, 30)[::-1].copy(), "PNG"))
    chest = ("privatize", source, tmp_path / "out", "--preset", "chest-xrays", "--workers", 1)
    for options in (["--dry-run"], []):
        status, _, err = run(*chest, *options)
        unlike = "has colour pixels, but the preset was measured on 8-bit grey images only: its measurements do not"
        assert (status, err.count(f"notice: a.png: {unlike} apply here")) == (0, 1)
        assert "notice: 2 of 3 images (a.png, ...): has colour pixels" in err
    told = json.loads(run("privatize", source, tmp_path / "again", "--preset", "paper", "--spend", "--json")[1])
    (sources,) = (one["sources"] for one in told["notices"] if "measured on colour images only" in one["notice"])
    assert sources == ["b.png"]


def test_a_plan_for_images_unlike_those_of_a_preset_has_a_notice(tmp_path: Path) -> None:
    status, out, err = run("plan", "--preset", "paper", "--grey", 12)
    unlike = "has 12-bit grey pixels, but the preset was measured on colour images only: its measurements do not apply"
    assert (status, f"notice: an image for this plan {unlike}" in err, "notice" in out) == (0, True, False)
    for same in (("--preset", "paper"), ("--preset", "chest-xrays"), ("--epsilon", 5.2, "--grey", 12)):
        assert "notice" not in run("plan", *same)[2]


def test_a_preset_file_is_used(source: Path, tmp_path: Path) -> None:
    ours = Preset(
        "ours",
        "For us.",
        3.5,
        slices="Y7+Y4",
        prune=None,
        size=20,
        names="random",
        measured=("An attacker got [little].",),
    )
    (tmp_path / "ours.json").write_text(ours.to_json())
    status, out, err = run("privatize", source, tmp_path / "out", "--preset", tmp_path / "ours.json")
    assert (status, NOTHING in out) == (0, True)
    assert f"{tmp_path / 'ours.json'} says, unchecked: An attacker got [little]." in " ".join(err.split())
    card = Card.read(tmp_path / "out" / "card.json")
    (statement,) = card.statements
    assert (statement.plan, statement.prune, card.random_names) == (Plan.sliced(3.5, "Y7+Y4"), None, True)
    assert (statement.width, statement.height, statement.size) == ((15, 15), (20, 20), 20)
    assert run("plan", "--preset", tmp_path / "ours.json", "--size", "40x30")[0] == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--preset", "paper", "--epsilon", "5"], "leave out --epsilon"),
        (["--preset", "paper", "--prune", "none"], "leave out --prune"),
        (["--preset", "paper", "--max-side", "64"], "leave out --max-side"),
        (["--preset", "safe"], "there is no preset 'safe': choose one of paper"),
        (["--preset", "none.json"], "none.json is not a valid preset"),
    ],
)
def test_wrong_choices_are_refused(options: list[str], problem: str, source: Path, tmp_path: Path) -> None:
    status, _, err = run("privatize", source, tmp_path / "out", *options)
    assert (status, problem in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_run_a_card_and_an_audit_end_with_the_same_sentence(source: Path, tmp_path: Path) -> None:
    status, out, _ = run("privatize", source, tmp_path / "out", "--epsilon", "18")
    assert status == 0
    sentence = out.splitlines()[-1]
    assert sentence.startswith(f"At eps 20 and 112 x 112 pixels, {FACES}")
    assert "a smaller budget and fewer pixels, so expect less" in sentence
    (statement,) = json.loads((tmp_path / "out" / "card.json").read_text())["statements"]
    assert statement["measured"]["sentence"] == sentence
    assert statement["measured"]["entry"] == "lfw-112-paper-haar-eps20-identity"
    _, audited, _ = run("audit", tmp_path / "out")
    assert audited.splitlines()[-1] == sentence
    assert json.loads(run("audit", tmp_path / "out", "--json")[1])["measured"] == [sentence]
    assert sentence in run("plan", "--epsilon", "18", "--size", "40x30")[1].replace("\n", "")


def test_an_audit_of_the_installation_never_says_alone_that_the_bound_holds() -> None:
    status, out, _ = run("audit", "--pixels", "65536")
    assert status == 0
    *_, verdict, sentence = out.splitlines()
    assert verdict.startswith("the mathematical bound holds")
    assert FACES in sentence


@pytest.mark.parametrize("options", [("--epsilon", "200"), ("--epsilon", "20", "--slices", "Y7+Y4")])
def test_a_budget_that_makes_noise_pointless_stops_the_run(
    options: tuple[str, ...], source: Path, tmp_path: Path
) -> None:
    status, out, err = run("privatize", source, tmp_path / "out", *options)
    assert (status, out) == (2, "")
    assert "makes the noise pointless" in err
    assert "--force" in err
    assert not (tmp_path / "out").exists()
    assert not default_ledger().exists()
    assert run("privatize", source, tmp_path / "out", *options, "--force")[0] == 0


def test_grey_images_are_refused_where_only_their_plan_is_pointless(source: Path, tmp_path: Path) -> None:
    """At eps 58 the noise still matters in colour; a grey pixel has fewer bits to share the budget."""
    (source / "grey.png").write_bytes(encoded(gradient(9, 7)[..., 0], "PNG"))
    status, out, err = run("privatize", source, tmp_path / "out", "--epsilon", "58")
    assert "grey.png: epsilon 58 makes the noise pointless" in err
    assert "1 of 2 files released" in out
    assert status != 0
    assert run("privatize", source, tmp_path / "out", "--epsilon", "58", "--force")[0] == 0


def test_in_python_a_budget_must_be_chosen_too() -> None:
    image = gradient(40, 30)
    with pytest.raises(PresetError, match=r"no budget was chosen: .*The presets are paper, "):
        privatize(image)
    with pytest.raises(PresetError, match="leave out epsilon"):
        privatize(image, epsilon=5.2, preset="paper")
    assert privatize(image, 5.2).shape == privatize(image, preset="paper").shape == image.shape
    assert max(privatize(image, preset="small-objects").shape) == 32
    assert privatize(image[..., 0], preset="chest-xrays").shape == image.shape[:2]


@pytest.mark.parametrize("command", ["privatize", "plan"])
def test_the_help_says_to_compare_epsilon_within_one_plan(command: str) -> None:
    text = " ".join(run(command, "--help")[1].replace("│", " ").split())
    assert "Compare epsilon only within one plan" in text
