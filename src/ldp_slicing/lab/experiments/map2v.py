"""Faces found with a prior of our own from one release of each victim: the paper's Map2V figure, with numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from ldp_slicing.lab.attacks.face_prior import (
    SHOWN,
    FacePrior,
    PcaPrior,
    StylePrior,
    enlarge_images,
    nearest_public,
    reduce_images,
    train_style_prior,
)
from ldp_slicing.lab.attacks.map2v import (
    Access,
    Embed,
    EmbedReleases,
    Search,
    embed_inputs,
    embed_unprotected,
    find_faces,
)
from ldp_slicing.lab.attacks.recognition import rank_1
from ldp_slicing.lab.experiment import Experiment, ExperimentContext
from ldp_slicing.lab.experiments.map2v_pages import figure, table
from ldp_slicing.lab.experiments.peer_faces import PeerFaces, revised
from ldp_slicing.lab.experiments.peer_sheet import example_source, keep_example, read_example, write_sheet
from ldp_slicing.lab.experiments.peers import STUDENT
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.learners.models.style import StyleGenerator
from ldp_slicing.lab.metrics.images import ssim
from ldp_slicing.lab.metrics.shares import share_within
from ldp_slicing.lab.metrics.verification import squared_distances
from ldp_slicing.lab.peers import load_peer, systems_first
from ldp_slicing.lab.peers.fusing import fused_kernels
from ldp_slicing.lab.peers.interface import Peer, Release, derive_keys, to_bytes
from ldp_slicing.lab.peers.training import PublicReleases, TrainingSchedule, distil, frozen
from ldp_slicing.lab.rows import Row, read_rows, select
from ldp_slicing.lab.tables import percent

PEERS = ("none", "ldp-slicing:eps20", "duetface", "partialface", "dctdp:code-eps0.5", "dctdp:range-eps0.5")
VICTIMS = 100
PENALTIES = (0.0, 0.01, 0.03, 0.1, 0.3)  # of faces far from the prior's mean
TUNED_ON = 32  # public people, on whose releases a penalty is chosen; nothing is trained on them
SEARCHES: dict[Access, Search] = {"gradients": Search(steps=300), "scores": Search(steps=200)}
FALSE_ACCEPTANCE = 1e-3
WIDTHS: dict[int, int] | None = None  # of the prior; the network's own by default
SHEET, EXAMPLES = "map2v-portrait.png", "map2v-portrait"


@dataclass(frozen=True, eq=False)
class _Victims:
    """One image of each victim, and an unprotected one of everybody in the gallery, as dlib's recogniser sees them.

    images: uint8 [V, 3, H, W]. own: float32 [V, D]. gallery: float32 [G, D], the victims first. radius: the squared
    distance below which 1 of 1000 pairs of two people falls.
    """

    recogniser: nn.Module
    images: Tensor
    own: Tensor
    gallery: Tensor
    radius: float

    @classmethod
    def of(cls, half: PeerFaces, count: int) -> _Victims:
        known = half.recognition
        probes = known.first[known.probes]
        originals, gallery = known.originals[probes], known.second[known.probes]
        apart = 2 - 2 * originals @ gallery.T
        strangers = apart[~torch.eye(len(apart), dtype=torch.bool)]
        radius = float(strangers.sort().values[int(FALSE_ACCEPTANCE * len(strangers))])
        images = half.target.sources[torch.from_numpy(probes[:count]).to(half.images.device)]
        return cls(known.model, images, originals[: len(images)], gallery, radius)

    def score(self, faces: Tensor) -> dict[str, Any]:
        """uint8 [V, 3, H, W], one for each victim: whom dlib's recogniser takes them for, and how they look."""
        seen = embed(self.recogniser, faces, prepare=lambda x: x.float(), batch=256)
        others = self.gallery[: len(seen)]
        return {
            "type_1": share_within(squared_distances(seen, self.own), self.radius).row(),
            "type_2": share_within(squared_distances(seen, others), self.radius).row(),
            "rank_1": rank_1(seen, self.gallery).row(),
            "gallery": len(self.gallery),
            "perceptual_distance": float(squared_distances(seen, self.own).mean()) / 2,
            "ssim": float(ssim(faces, self.images).mean()),
        }


def measure(context: ExperimentContext) -> Iterator[Row]:
    limit = context.epochs
    student = STUDENT if limit is None else replace(STUDENT, epochs=min(STUDENT.epochs, limit))
    shown = SHOWN if limit is None else 256 * limit
    searches = {
        kind: one if limit is None else replace(one, steps=min(one.steps, 4 * limit)) for kind, one in SEARCHES.items()
    }
    recipe = {
        "name": "map2v",
        "epochs": student.epochs,
        "shown": shown,
        "victims": VICTIMS,
        "penalties": list(PENALTIES),
        "tuned_on": TUNED_ON,
        "student": student.recorded(),
    }
    base = Row("map2v", "lfw", folds=(0, 1, 2, 3, 4), recipe=recipe)
    prior_row = replace(base, method="prior", options={"prior": "style"})
    rows = {peer: _rows(base, peer, searches) for peer in PEERS}
    wanted = {peer: [row for row in mine if context.pending(row)] for peer, mine in rows.items()}
    own = context.pending(prior_row)
    if not own and not any(wanted.values()):
        return
    half, tuned_on = _hold_out(PeerFaces.load(context), TUNED_ON)
    victims, began = _Victims.of(half, VICTIMS), time.monotonic()
    priors: dict[str, FacePrior] = {
        "pca": PcaPrior.fit(half.public),
        "style": _style_prior(half.public, shown, context),
    }
    if own:
        reduced = to_bytes(enlarge_images(reduce_images(victims.images), _size(victims.images)))
        metrics = {
            "ceiling": victims.score(reduced),
            "sources": victims.score(victims.images),
            "seconds": round(time.monotonic() - began, 1),
            "distances": {name: nearest_public(prior, half.teacher, half.public) for name, prior in priors.items()},
        }
        yield replace(prior_row, metrics=metrics)
    fitted = _fit("none", half, student, context)
    adversary = _Adversary(half, tuned_on, victims, priors, fitted, searches, student, example_source())
    for peer, pending in wanted.items():
        if pending and not context.limits.reached:
            yield from _attack(peer, pending, adversary, context)
            if adversary.example is not None:  # after each system, so that nothing is missing if the run is stopped
                _draw_examples(read_rows(context.results / "map2v.json"), adversary.example, context.results)
        else:
            context.postponed.extend(pending)


def _hold_out(half: PeerFaces, count: int) -> tuple[PeerFaces, Tensor]:
    """The half without the images of some public people, and uint8 [2, K, 3, H, W]: two images of each of them."""
    order = torch.argsort(half.people, stable=True)
    same = half.people[order[1:]] == half.people[order[:-1]]
    first = torch.cat((same.new_ones(1), ~same[:-1])) & same  # of a person, and another image follows
    chosen = torch.nonzero(first)[:count, 0]
    images = torch.stack((half.public[order[chosen]], half.public[order[chosen + 1]]))
    others = ~torch.isin(half.people, half.people[order[chosen]])
    return replace(half, public=half.public[others], people=half.people[others]), images


def _rows(base: Row, peer: str, searches: dict[Access, Search]) -> list[Row]:
    """The strongest first. Without protection also with the release of somebody else, which must fail."""
    kinds: list[tuple[Access, str, str]] = [
        ("gradients", "style", "release"),
        ("gradients", "pca", "release"),
        ("scores", "style", "release"),
    ]
    if peer == "none":
        kinds.append(("gradients", "style", "another"))
    return [
        replace(
            base,
            method=access,
            release="once",
            options={"peer": peer, "prior": prior, "target": target},
            recipe={**base.recipe, "search": asdict(searches[access]), **revised(load_peer(peer))},
        )
        for access, prior, target in kinds
    ]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A fitted system, the recogniser of its releases, and how long both took to train."""

    peer: Peer
    recogniser: nn.Module
    seconds: float


@dataclass(frozen=True, eq=False)
class _Adversary:
    """What the adversary has against every system.

    tuned_on: uint8 [2, K, 3, H, W], two images of public people on whom nothing was trained. unprotected: no
    protection. example: uint8 [1, 3, H, W], to be shown.
    """

    half: PeerFaces
    tuned_on: Tensor
    victims: _Victims
    priors: dict[str, FacePrior]
    unprotected: _Fitted
    searches: dict[Access, Search]
    student: TrainingSchedule
    example: Tensor | None


def _attack(name: str, rows: Sequence[Row], adversary: _Adversary, context: ExperimentContext) -> Iterator[Row]:
    """All rows of one system, which is fitted once, with one recogniser for its releases."""
    half, victims, example = adversary.half, adversary.victims, adversary.example
    fitted = adversary.unprotected
    if name != fitted.peer.name:
        fitted = _fit(name, half, adversary.student, context)
    peer, recogniser = fitted.peer, fitted.recogniser
    sources = victims.images if example is None else torch.cat((victims.images, example.to(victims.images.device)))
    release = peer.protect(sources, derive_keys("victims", len(sources)))
    seen = _embed_release(release, recogniser)
    penalties: dict[str, float] = {}
    for row in rows:
        if context.limits.reached:
            context.postponed.append(row)
            continue
        access, kind = _access(row.method), str(row.options["prior"])
        if kind not in penalties:
            penalties[kind] = _choose_penalty(peer, recogniser, kind, adversary, context)
        began = time.monotonic()
        wanted = seen.roll(1, 0) if row.options["target"] == "another" else seen
        search = replace(adversary.searches[access], penalty=penalties[kind])
        embed_queries: Embed = EmbedReleases(peer, recogniser)
        if access == "gradients":
            embed_queries = embed_unprotected(adversary.unprotected.peer, adversary.unprotected.recogniser)
        faces = find_faces(wanted, embed_queries, adversary.priors[kind], _size(sources), access, search)
        scored = victims.score(faces[: len(victims.images)])
        seconds = round(time.monotonic() - began, 1)
        context.log(f"{row.label}: rank-1 {percent(scored['rank_1']['share'])} %, {seconds} s")
        if example is not None and row.options["target"] == "release":
            below = torch.cat((release.as_image()[-1:], faces[-1:]))
            keep_example(below, _example_name(row), context.results / EXAMPLES)
        queried = {"queries": search.queries(access), "releases_of_victim": 1, "penalty": search.penalty}
        files = (SHEET,) if example is not None else ()
        times = {"seconds": seconds, "network_seconds": fitted.seconds}
        yield replace(row, metrics=scored | queried | times, files=files)


def _fit(name: str, half: PeerFaces, schedule: TrainingSchedule, context: ExperimentContext) -> _Fitted:
    """The system, and the recogniser of its releases, frozen."""
    began = time.monotonic()
    peer = load_peer(name).fit(half.public, half.people, half.teacher)
    queries = PublicReleases(peer, half.public, None, "adversary's release", redrawn=True)
    with fused_kernels(context.limits.compile):
        recogniser = frozen(distil(queries, half.teacher, schedule))
    return _Fitted(peer, recogniser, round(time.monotonic() - began, 1))


@torch.no_grad()
def _embed_release(release: Release, recogniser: nn.Module) -> Tensor:
    """float32 [N, D] of length 1."""
    return torch.cat([embed_inputs(recogniser, part) for part in torch.split(release.as_input(), 64)])


def _choose_penalty(
    peer: Peer, recogniser: nn.Module, kind: str, adversary: _Adversary, context: ExperimentContext
) -> float:
    """The penalty with which faces found from releases of public people resemble other images of them most.

    The recogniser that scores the attack judges it; nobody who is attacked, and nobody in the training data, takes
    part. With gradients, because scores take long.
    """
    sources, others = adversary.tuned_on
    wanted = _embed_release(peer.protect(sources, derive_keys("tuned on", len(sources))), recogniser)
    embed_faces = embed_unprotected(adversary.unprotected.peer, adversary.unprotected.recogniser)
    teacher, prior = adversary.half.teacher, adversary.priors[kind]
    judged = embed(teacher, others, prepare=lambda x: x.float(), batch=256)
    far: dict[float, float] = {}
    for penalty in PENALTIES:
        search = replace(adversary.searches["gradients"], penalty=penalty)
        faces = find_faces(wanted, embed_faces, prior, _size(sources), "gradients", search)
        seen = embed(teacher, faces, prepare=lambda x: x.float(), batch=256)
        far[penalty] = float(squared_distances(seen, judged).mean())
    context.log(f"{peer.name}, {kind}: distance by penalty {', '.join(f'{p:g}: {one:.3f}' for p, one in far.items())}")
    return min(far, key=lambda penalty: far[penalty])


def _access(method: str) -> Access:
    return "gradients" if method == "gradients" else "scores"


def _size(images: Tensor) -> tuple[int, int]:
    return images.shape[2], images.shape[3]


def _style_prior(public: Tensor, shown: int, context: ExperimentContext) -> StylePrior:
    """The prior in the work folder, or a new one that is stored there. One process at a time trains it."""
    context.work.mkdir(parents=True, exist_ok=True)
    path = context.work / f"prior-{shown}-{len(public)}.pt"
    with FileLock(path.with_suffix(".lock")):
        if path.is_file():
            network = StyleGenerator(WIDTHS).to(public.device)
            network.load_state_dict(torch.load(path, map_location=public.device, weights_only=True))
            return StylePrior(network.eval().requires_grad_(False))
        prior = train_style_prior(public, shown=shown, widths=WIDTHS, log=context.log)
        torch.save(prior.network.state_dict(), path)
        return prior


def _example_name(row: Row) -> str:
    return f"{row.options['peer']}-{row.options['prior']}-{row.method}"


def _draw_examples(rows: Sequence[Row], source: Tensor, results: Path) -> None:
    """Source and release above each other, then the faces that were found, for every system that was attacked."""
    columns = {}
    for row in systems_first(select(rows, target="release", prior="style"), lambda row: str(row.options["peer"])):
        if (images := read_example(_example_name(row), results / EXAMPLES, 2)) is not None:
            columns[f"{row.options['peer']}\n{row.method}"] = torch.cat((source, images))
    if columns:
        write_sheet(columns, results / SHEET)


EXPERIMENT = Experiment(
    "map2v",
    """
An attack like Map2V (CVPR 2024): the adversary has one release of each victim, a recogniser for releases (the student
of `peers`), and a generator of faces. It searches for a face with the embedding of the victim's release. dlib's
recogniser then compares the face with the victim's image and with another image of the victim, at a false acceptance
rate of 0.001.

- Gradients: all students learn the embeddings of one recogniser. So the adversary compares the victim's release, as the
  system's student sees it, with faces as the student of unprotected images sees them, and follows the gradients of the
  latter. The system is not queried, and no gradients of the release are needed.
- Scores: the adversary sees only how similar releases of its own faces are to the victim's release, as in Map2V. A
  query is one such score.
- The loss has a penalty on the distance from the mean of the prior. It is chosen for each system on releases of 32
  public people, on whom nothing was trained.
- The prior is our own: a style generator of 64 x 64 pixels trained on 7,723 faces of the public half of LFW. Map2V
  has one of 256 x 256 pixels trained on 70,000, so its numbers are not comparable. The other prior is the mean face and
  its principal components.
- dlib's recogniser is not independent of the search: it is the students' teacher and the start of their training, and
  it judges which penalty is best.
- The student is not the strongest reader of releases: against LDP-Slicing and PartialFace, U-Nets link more people
  (`peers`).
- Every network trained here, the systems' own and the generator included, has seed 0. Schedules are in the modules in
  `lab/peers`, in `lab/attacks/face_prior.py` (generator) and in the rows (student).
- Times: `search` is that of the search (`metrics.seconds`), `networks` that of training a system and its student once
  for all its rows of a run (`metrics.network_seconds`). `row` (`seconds`) counts from the end of the row before, or
  from the start of the run. So it includes networks that were trained for the row and the choice of the penalty. In the
  first row of a run it includes the student of `none` and, unless a run before had stored it, the generator. Where
  `networks` was not recorded, all of this took the difference of `row` and `search`. The rows of each commit have a
  generator of their own, trained by one recipe. Several processes shared the GPU, which made times longer.
- The page of `peers` lists how each system deviates from what was published.
- `none` is no protection: the attack must succeed. With a release of somebody else as the target it must fail.
""",
    measure,
    table,
    figure,
)
