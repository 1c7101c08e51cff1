from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from matplotlib.transforms import Bbox

from ldp_slicing.lab.experiments import MODULES, load_experiment, tradeoff
from ldp_slicing.lab.figures import label_points, label_with_lines, panels
from ldp_slicing.lab.rows import read_rows

ROOT = Path(__file__).parents[2]

MEASURED = [name for name in MODULES if (ROOT / "results" / f"{name}.json").exists()]


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
    beside = {text.get_text() for text in axis.texts if text.anncoords == "axes fraction"}
    assert beside == ({"11", "49", "52"} if logarithmic else {"52"})


@pytest.mark.parametrize("name", MEASURED)
def test_no_figure_is_cut_off(name: str) -> None:
    draw = load_experiment(name).figure
    if draw is None:
        assert not (ROOT / "results" / f"{name}.png").exists()
        return
    figure = draw({path.stem: read_rows(path) for path in (ROOT / "results").glob("*.json")})
    figure.draw_without_rendering()
    assert figure.get_tightbbox().width <= figure.get_figwidth()
    assert figure.get_tightbbox().height <= figure.get_figheight()
    assert figure.axes[0].get_window_extent().width > 0.2 * figure.bbox.width / len(figure.axes)
