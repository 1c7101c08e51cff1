"""Face verification on sets that no network here was trained on: the paper's four benchmarks and its zero-shot test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldp_slicing.errors import DataError
from ldp_slicing.lab.attacks.recognition import load_recogniser
from ldp_slicing.lab.attacks.reconstruct import reconstruct_sources
from ldp_slicing.lab.data.face_sets import VerificationSet, open_face_set
from ldp_slicing.lab.data.folders import list_images, read_images
from ldp_slicing.lab.data.lfw import load_lfw
from ldp_slicing.lab.data.sets import ImageSet, Split, require_folder
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, train_needed
from ldp_slicing.lab.experiments.reconstruction_pages import for_all_budgets
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models import build_embedder, load_weights
from ldp_slicing.lab.learners.recipes import recipe
from ldp_slicing.lab.learners.run import TrainingRun
from ldp_slicing.lab.metrics.verification import fold_accuracy, squared_distances
from ldp_slicing.lab.plans import VIEW_NAMES
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown
from ldp_slicing.plan import BUDGETS, Plan
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune

NAME = "face-sets"  # of the experiment, and of the folder below --data
PAPER = {  # by the names of the files: verification accuracy, %, at the seven budgets
    "agedb_30": (50.95, 54.12, 68.89, 93.70, 96.68, 96.46, 97.45),
    "calfw": (52.31, 53.83, 79.15, 95.33, 96.02, 96.04, 96.05),
    "cplfw": (51.45, 51.85, 71.30, 88.70, 91.08, 91.93, 92.07),
    "vggface2": (48.95, 50.31, 51.71, 66.69, 67.15, 68.99, 70.64),
    "celeba": (49.88, 50.97, 50.84, 75.90, 80.44, 82.68, 84.89),
}
PAPER_CLEAN = {"agedb_30": 97.88, "calfw": 96.05, "cplfw": 92.77}
RECONSTRUCTOR = "reconstructor"  # the method of the row of the network behind "reconstructed"
BATCH = 256


@dataclass(frozen=True, eq=False)
class Recogniser:
    """A network from faces to embeddings. prepare: uint8 or float [N, 3, 112, 112] of 0..255 to its input."""

    name: str
    model: nn.Module
    prepare: Callable[[Tensor], Tensor]


def dlib_recogniser(folder: Path, device: torch.device) -> Recogniser:
    return Recogniser("untuned", load_recogniser(folder, device), lambda x: x.float())


def trained_recogniser(folder: Path, device: torch.device) -> Recogniser:
    """The network of a finished run of `lab train-faces`."""
    model_file, result = folder / "model.pt", folder / "result.json"
    if not model_file.is_file() or not result.is_file():
        raise DataError(f"{folder} holds no finished run of `lab train-faces`: it needs model.pt and result.json")
    how = Row.from_dict(json.loads(result.read_text(encoding="utf-8"))).recipe
    model = build_embedder(str(how.get("model")))[0]
    load_weights(model, model_file)
    mean, std = (255 * torch.tensor(how[name], device=device).view(1, -1, 1, 1) for name in ("mean", "std"))
    return Recogniser(str(how["name"]), model.to(device), lambda x: (x.float() - mean) / std)


def measure(context: ExperimentContext) -> Iterator[Row]:
    root = require_folder(context.data / NAME, "verification sets (.bin files, folders of people or lists)")
    paths = [path for path in sorted(root.iterdir()) if path.suffix in (".bin", ".txt") or path.is_dir()]
    if not paths:
        raise DataError(f"{root} holds no verification set: put .bin files, folders of people or lists there")
    recogniser, plans = dlib_recogniser(context.data, context.device), [Plan.paper(eps) for eps in BUDGETS]
    sets = [open_face_set(path) for path in paths]
    for one in sets:
        yield from verify_set(one, recogniser, (None, *plans), "haar", context)
    public = lambda: load_lfw(context.data).images  # noqa: E731 - read only if a network is trained
    yield from verify_reconstructed(sets, recogniser, plans, "haar", public, context)


def _row(one: VerificationSet, method: str) -> Row:
    return Row(NAME, one.name, method, options={"drawn pairs": one.drawn} if one.drawn else {})


def verify_set(
    one: VerificationSet,
    recogniser: Recogniser,
    plans: Sequence[Plan | None],
    prune: Prune,
    context: ExperimentContext,
) -> Iterator[Row]:
    """A row for each plan that is pending, from one release of each face; None stands for the sources themselves."""
    for plan in plans:
        row = _row(one, recogniser.name)
        if plan is not None:
            row = replace(row, plans=(plan,), prune=prune, release="once", epsilon_spent=plan.realised_epsilon)
        if context.pending(row):
            images = one.images if plan is None else np.asarray(Slicer(plan, prune=prune)(one.images), np.uint8)
            yield _verified(row, one, recogniser, torch.from_numpy(images).permute(0, 3, 1, 2), context)


def verify_reconstructed(
    sets: Sequence[VerificationSet],
    recogniser: Recogniser,
    plans: Sequence[Plan],
    prune: Prune,
    public: Callable[[], NDArray[np.uint8]],
    context: ExperimentContext,
) -> Iterator[Row]:
    """The same, with every face reconstructed from its release by a white box that is trained on public faces."""
    rows = [
        (one, replace(_row(one, f"{recogniser.name}-reconstructed"), plans=(plan,), prune=prune, release="once"))
        for one in sets
        for plan in plans
    ]
    if not [row for _, row in rows if context.wants(row) and not context.is_done(row)]:
        return
    images = public()
    nobody = np.zeros(len(images), np.int64)
    faces = ImageSet("public", 1, Split(images, nobody), Split(images[:0], nobody[:0]))
    trained = list[TrainingRun]()

    def keep(run: TrainingRun, row: Row) -> Row:
        trained.append(run)
        return row

    network = Row(NAME, "", RECONSTRUCTOR, tuple(plans), prune)
    how = for_all_budgets(recipe("white-box-faces"))
    yield from train_needed([context.trial(network, faces, how)], context, keep)
    for one, row in rows:
        if trained and row.plan and context.pending(row):
            sources = torch.from_numpy(one.images).permute(0, 3, 1, 2).to(context.device)
            guesses = reconstruct_sources(trained[0], sources, row.plan)
            done = _verified(row, one, recogniser, guesses, context)
            yield replace(done, epsilon_spent=row.plan.realised_epsilon)


def _verified(
    row: Row, one: VerificationSet, recogniser: Recogniser, images: Tensor, context: ExperimentContext
) -> Row:
    embedded = embed(recogniser.model, images, prepare=recogniser.prepare, batch=BATCH)
    pairs = one.pairs
    apart = squared_distances(embedded[pairs.first], embedded[pairs.second])
    found = fold_accuracy(apart, pairs.same, pairs.folds)
    context.log(f"{row.label}: verification accuracy {100 * found.accuracy:.2f} ± {100 * found.standard_error:.2f} %")
    metrics = {
        "verification_accuracy": found.accuracy,
        "standard_error": found.standard_error,
        "pairs": len(pairs.same),
        "images": len(one.images),
        "per_fold": found.per_fold.tolist(),
    }
    return replace(row, metrics=metrics)


def images_below(path: Path) -> Callable[[], NDArray[np.uint8]]:
    """A reader of all faces in a folder, for ``verify_reconstructed``."""
    return lambda: read_images(list_images(require_folder(path, "public faces of 112 x 112")))


def table(rows: Sequence[Row]) -> str:
    parts = []
    methods = sorted({row.method for row in rows if row.metrics})
    sets = dict.fromkeys((row.dataset, row.options.get("drawn pairs")) for row in rows if row.metrics)
    for name, drawn in sorted(sets, key=str):
        mine = [row for row in select(rows, dataset=name) if row.options.get("drawn pairs") == drawn]
        mine = sorted(mine, key=lambda row: (row.plan.epsilon if row.plan else 1e9, row.prune or ""))
        lines = []
        for plan, prune in dict.fromkeys((row.plan, row.prune) for row in mine):
            cells = [_cell(select(mine, method=method, plan=plan, prune=prune)) for method in methods]
            what = f"{plan.epsilon:g}, {VIEW_NAMES[prune]}" if plan else "without privacy"
            lines.append([what, *cells, _paper(name, plan, prune)])
        counts = mine[0].metrics
        title = f"**{name}** ({counts['pairs']:,} {'drawn ' if drawn else ''}pairs of {counts['images']:,} images)"
        heads = ["eps per released pixel", *(f"{method}, %" for method in methods), "paper (IR-50, MS1MV2), %"]
        parts.append(f"{title}\n\n{markdown(heads, lines)}")
    return "\n".join(parts)


def _paper(name: str, plan: Plan | None, prune: Prune) -> str:
    if plan is None:
        return f"{PAPER_CLEAN[name]:.2f}" if name in PAPER_CLEAN else "-"
    found = dict(zip(BUDGETS, PAPER.get(name, ()), strict=False))
    return f"{found[plan.epsilon]:.2f}" if prune == "haar" and plan.epsilon in found else "-"


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    return f"{100 * rows[0].metrics['verification_accuracy']:.2f} ± {100 * rows[0].metrics['standard_error']:.2f}"


EXPERIMENT = Experiment(
    NAME,
    """
Pairs of faces are verified from one release of every face, in sets that no network was trained on. The table gives mean
and standard error over ten folds; the threshold of a fold comes from the others.

- untuned: dlib's recogniser, never trained on releases. untuned-reconstructed: the same, on faces that a white box
  trained on public faces has reconstructed. All others are networks of `lab train-faces`, named by their recipe.
- For sets without a list of pairs, pairs are drawn: in each fold, as many of one person as of two; nobody is in two
  folds.
- The sets may share people with the public faces and with the training set of dlib's recogniser.
""",
    measure,
    table,
)
