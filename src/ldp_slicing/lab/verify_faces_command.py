"""`lab verify-faces`: verification accuracy on any set of aligned faces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ldp_slicing.lab import results
from ldp_slicing.lab.attacks.recognition import WEIGHTS
from ldp_slicing.lab.data.face_sets import PAIRS, open_face_set
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.experiments import face_sets
from ldp_slicing.lab.learners.training import Limits, find_device
from ldp_slicing.lab.provenance import provenance, stamped
from ldp_slicing.lab.rows import Row, read_rows
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.view import Prune


def verify_sets(
    paths: Sequence[Path],
    recogniser: Path,
    folder: Path,
    *,
    epsilons: Sequence[float] | None = None,
    prune: Prune = "haar",
    public: Path | None = None,
    count: int = PAIRS,
    minutes: float = float("inf"),
    device: str = "",
    say: Callable[[str], None] = print,
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[bool, Path]:
    """Whether everything was measured, and the page in ``folder``. Rows that are there are not measured again.

    recogniser: a folder with dlib's weights, or of a run of `lab train-faces`. public: a folder of public faces, if
    faces are to be reconstructed first. count: of matching pairs in a fold, where pairs are drawn.
    """
    place, plans = find_device(device), [Plan.paper(eps) for eps in epsilons or BUDGETS]
    sets = [open_face_set(path, count=count) for path in paths]
    load = face_sets.dlib_recogniser if (recogniser / WEIGHTS).is_file() else face_sets.trained_recogniser
    network = load(recogniser, place)
    limits = Limits(60 * minutes, stop_requested=stop_requested)
    done = tuple(read_rows(folder / f"{face_sets.NAME}.json"))
    context = ExperimentContext(folder, folder / "work", place, limits, done, log=say, results=folder)

    def measure() -> Iterator[Row]:
        for one in sets:
            yield from face_sets.verify_set(one, network, (None, *plans), prune, context)
        if public is not None:
            read = face_sets.images_below(public)
            yield from face_sets.verify_reconstructed(sets, network, plans, prune, read, context)

    complete, made_by, began = True, provenance(place), time.monotonic()
    for row in measure():
        results.keep_row(stamped(row, made_by, time.monotonic() - began), folder)
        complete, began = complete and row.finished, time.monotonic()
    page = folder / f"{face_sets.NAME}.md"
    if (folder / f"{face_sets.NAME}.json").is_file():
        page = results.write_page(face_sets.EXPERIMENT, folder)[0]
    return complete and not context.postponed, page
