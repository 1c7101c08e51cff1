from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from ldp_slicing import Plan
from ldp_slicing.lab.experiments import MODULES, ablation, fidelity, load_experiment, tradeoff
from ldp_slicing.lab.experiments.peer_findings import standings
from ldp_slicing.lab.figures import label_points, label_with_lines, panels
from ldp_slicing.lab.rows import Row, read_rows

ROOT = Path(__file__).parents[2]

MEASURED = [name for name in MODULES if (ROOT / "results" / f"{name}.json").exists()]


def rows_by_experiment() -> dict[str, list[Row]]:
    return {path.stem: read_rows(path) for path in (ROOT / "results").glob("*.json")}


def figure_of(name: str) -> Figure:
    draw = load_experiment(name).figure
    assert draw is not None
    return draw(rows_by_experiment())


def test_no_label_of_the_tradeoff_covers_another_or_a_marker() -> None:
    rows = read_rows(ROOT / "results" / "tradeoff.json")
    figure = tradeoff.figure({"tradeoff": rows})
    figure.draw_without_rendering()
    axis = figure.axes[0]
    words = [text.get_window_extent() for text in axis.texts]
    reach = 2 * figure.dpi / 72  # of a marker
    markers = [
        Bbox([dot - reach, dot + reach])
        for line in axis.get_lines()
        for dot in axis.transData.transform(line.get_xydata())
        if line.get_marker() != "None"
    ]
    assert not [pair for pair in itertools.combinations(words, 2) if pair[0].overlaps(pair[1])]
    assert not [(word, marker) for word in words for marker in markers if word.overlaps(marker)]
    labels, front = [text.get_text() for text in axis.texts], tradeoff.best(tradeoff.points(rows))
    assert len(labels) >= len(front)
    assert {f"{one.epsilon:g}" for one in front} <= set(labels)


def test_every_system_has_a_label_that_covers_no_other_and_no_marker() -> None:
    drawn = figure_of("peers")
    drawn.draw_without_rendering()
    axis = drawn.axes[0]
    assert -3 < axis.get_xlim()[0] < 0  # no part of the panel is for labels alone
    words = [Text.get_window_extent(text) for text in axis.texts]  # without the line to the point
    assert len(words) == len(standings(rows_by_experiment()["peers"]))
    assert not [pair for pair in itertools.combinations(words, 2) if pair[0].overlaps(pair[1])]
    dots = [axis.transData.transform(text.xy) for text in axis.texts if isinstance(text, Annotation)]
    assert not [(word, dot) for word in words for dot in dots if word.padded(2).contains(*dot)]


def test_systems_have_a_line_of_their_own_in_the_figure_of_the_identity_attack() -> None:
    drawn = figure_of("peers-identity")
    drawn.draw_without_rendering()
    for axis in drawn.axes:
        names = axis.get_yticklabels()
        assert {"none", "duetface"} < {name.get_text() for name in names}
        places = [name.get_window_extent() for name in names]
        assert not [pair for pair in itertools.combinations(places, 2) if pair[0].overlaps(pair[1])]


def test_labels_without_room_are_omitted() -> None:
    _, (axis,) = panels(1, logarithmic=False)
    omitted = label_points(axis, [(0.5, 0.5, "a word", "black")] * 40)
    assert 1 < len(axis.texts) < 40
    assert len({text.get_position() for text in axis.texts}) == len(axis.texts)
    assert len(axis.texts) + len(omitted) == 40
    label_with_lines(axis, omitted[:3])
    assert len({text.get_position() for text in axis.texts}) == len(axis.texts) == 43 - len(omitted)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_labels_of_points_in_the_right_half_are_beside_the_panel(logarithmic: bool) -> None:
    _, (axis,) = panels(1, logarithmic=logarithmic)
    axis.set_xlim(1, 100)  # the middle is 10 on a logarithmic axis, and 50.5 on a linear one
    label_with_lines(axis, [(x, 0.5, str(x), "black") for x in (9, 11, 49, 52)])
    beside = {text.get_text() for text in axis.texts if text.get_position()[0] > 1}
    assert beside == ({"11", "49", "52"} if logarithmic else {"52"})


@pytest.mark.parametrize("name", MEASURED)
def test_no_figure_is_cut_off(name: str) -> None:
    if load_experiment(name).figure is None:
        assert not (ROOT / "results" / f"{name}.png").exists()
        return
    figure = figure_of(name)
    figure.draw_without_rendering()
    assert figure.get_tightbbox().width <= figure.get_figwidth()
    assert figure.get_tightbbox().height <= figure.get_figheight()
    assert figure.axes[0].get_window_extent().width > 0.2 * figure.bbox.width / len(figure.axes)
    for axis in figure.axes:  # on a logarithmic axis, the length of a bar means nothing
        bars = [one for one in axis.containers if isinstance(one, BarContainer)]
        assert {axis.get_xscale() if one.orientation == "horizontal" else axis.get_yscale() for one in bars} <= {
            "linear"
        }


@pytest.mark.parametrize("name", ["chest", "faces", "identity", "sizes"])
def test_what_we_measured_has_error_bars(name: str) -> None:
    figure = figure_of(name)
    for axis in figure.axes:
        lines = [one for one in axis.containers if isinstance(one, ErrorbarContainer)]
        ours = [one for one in lines if not str(one.get_label()).lstrip("_").startswith("paper")]
        assert ours
        assert all(one.has_yerr for one in ours)


def test_times_name_the_machines_that_they_were_measured_on() -> None:
    left, _ = figure_of("overhead").axes
    labels = [one.get_text() for one in left.get_yticklabels()]
    assert ["one thread" in one for one in labels] == [True, True, False, False]
    assert ["(" in one for one in labels] == [True] * 4


def test_the_ablation_names_eps_per_source_pixel() -> None:
    (axis,) = ablation.figure({"ablation": read_rows(ROOT / "results" / "ablation.json")}).axes[:1]
    labels = [one.get_text().partition("\n") for one in axis.get_yticklabels()]
    told = {title[:2]: eps for title, _, eps in labels if ":" in title[:2]}
    assert told == {
        "A:": "eps 1 x 20 per source pixel",
        "B:": "eps 4 x 20 per source pixel",
        "C:": "eps 64 x 20 per source pixel",
        "D:": "eps 4 x 20 per source pixel",
    }


def test_runs_of_50_epochs_are_not_joined_with_those_of_250() -> None:
    rows = read_rows(ROOT / "results" / "fidelity.json")
    full = next(row for row in rows if row.plan)
    others = [*map(Plan.paper, fidelity.OTHERS), fidelity.UNIFORM]
    short = [replace(full, plans=(plan,), recipe={**full.recipe, "name": "short"}) for plan in others]
    *_, axis, _ = fidelity.figure({"fidelity": [*rows, *short]}).axes
    lines = {one.get_label(): one[0].get_xdata() for one in axis.containers}
    assert {label: len(found) for label, found in lines.items()} == {
        "best test epoch of 50": 6,
        "best test epoch of 250": 1,
        "`uniform` of the authors' code, eps 480: of 50": 1,
        "paper: best test epoch of 250": 7,
    }


@pytest.mark.parametrize("name", ["bayes", "bit-unet", "black-box", "white-box"])
def test_figures_of_attacks_show_what_was_attacked_and_the_intervals_of_shares(name: str) -> None:
    attacked = {row.dataset for row in rows_by_experiment()[name] if row.measurements}
    figure = figure_of(name)
    assert len(figure.axes) == 2 * ("lfw" in attacked) + ("cifar10" in attacked)
    for axis in figure.axes:
        lines = [one for one in axis.containers if isinstance(one, ErrorbarContainer)]
        assert lines
        assert all(len(one[0].get_xdata()) for one in lines)  # no label without a line
        assert {one.has_yerr for one in lines} == {"rank-1" in axis.get_ylabel()}


def test_releases_of_several_sizes_and_plans_are_not_joined() -> None:
    labels = [[one.get_label() for one in axis.containers] for axis in figure_of("sizes").axes]
    assert labels[0] == labels[1]
    assert len(set(labels[0])) == len(labels[0]) == 4
    assert all(len(one[0].get_xdata()) == 1 for axis in figure_of("sizes").axes for one in axis.containers)
