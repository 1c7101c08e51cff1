"""Other systems and LDP-Slicing on the same faces, under the same attacks. Half of LFW is public, half is tested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.attacks.attack_target import AttackTarget
from ldp_slicing.lab.attacks.peer_network import rebuild, train_network
from ldp_slicing.lab.attacks.recognition import RecognitionMetric, load_recogniser, on_pairs, rank_1
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.metrics.verification import distances, fold_accuracy, squared_distances, verify
from ldp_slicing.lab.peers import MODULES, load_peers
from ldp_slicing.lab.peers.interface import Peer, Release, derive_keys
from ldp_slicing.lab.peers.training import TrainingSchedule, distil, embeddings_of, shortened
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDENT = TrainingSchedule(epochs=20)
NETWORK = TrainingSchedule(epochs=12)
WIDTH = 48  # of the adversary's network
BATCH = 64
MEAN_IMAGE = "mean-image"
SYSTEMS = tuple(MODULES)
LINEAR_ONLY = ("dctdp:code-eps1", "dctdp:code-eps4", "dctdp:range-eps1", "dctdp:range-eps4")  # no network is trained


@dataclass(frozen=True, eq=False)
class _Faces:
    """The public half and the tested half, on the device."""

    faces: FaceSet
    side: Side
    images: Tensor
    public: Tensor
    people: Tensor
    teacher: nn.Module
    recognition: RecognitionMetric
    target: AttackTarget

    @classmethod
    def load(cls, context: ExperimentContext) -> _Faces:
        faces = load_lfw(context.data)
        side, _ = sides(faces)
        images = torch.from_numpy(faces.images).permute(0, 3, 1, 2).contiguous().to(context.device)
        teacher = load_recogniser(context.data, context.device)
        recognition = on_pairs(teacher, faces, side)
        public = images[torch.from_numpy(side.images)]
        people = torch.from_numpy(side.people).to(context.device)
        target = AttackTarget("lfw", faces.images[side.images], images[recognition.attacked], recognition)
        return cls(faces, side, images, public, people, teacher, recognition, target)


def measure(context: ExperimentContext) -> Iterator[Row]:
    limit = context.epochs
    schedules = [one if limit is None else replace(one, epochs=min(one.epochs, limit)) for one in (STUDENT, NETWORK)]
    recipe = {"name": "peers", "epochs": schedules[0].epochs, "network_epochs": schedules[1].epochs}
    base = Row("peers", "lfw", folds=(0, 1, 2, 3, 4), recipe=recipe)
    peers = {peer.name: shortened(peer, limit) for system in SYSTEMS for peer in load_peers(system)}
    rows = [replace(base, method=MEAN_IMAGE)]
    rows += [replace(base, method="peer", release="once", options={"peer": name}) for name in peers]
    pending = [row for row in rows if context.wants(row) and not context.is_done(row)]
    half = _Faces.load(context) if pending else None
    for row in pending:
        if context.limits.reached:
            context.postponed.append(row)
            continue
        assert half is not None  # noqa: S101 - loaded if anything is pending
        if row.method == MEAN_IMAGE:
            yield replace(row, metrics={"reconstruction": half.target.score_mean_image()})
            continue
        metrics = _measure(peers[str(row.options["peer"])], half, schedules[0], schedules[1])
        context.log(f"{row.label}: {metrics['seconds']}")
        yield replace(row, metrics=metrics)


def _measure(peer: Peer, half: _Faces, student: TrainingSchedule, network: TrainingSchedule) -> dict[str, Any]:
    """Everything about one peer. Each tested image is released once, and all readers get that release."""
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - of the work
        began = time.monotonic()
        found = work()
        seconds[name] = round(time.monotonic() - began, 1)
        return found

    fitted: Peer = timed("fit", lambda: peer.fit(half.public, half.people, half.teacher))
    keys = derive_keys("tested", len(half.images))

    def read(where: Sequence[int], reader: Callable[[Release], Tensor | None]) -> Tensor | None:
        parts = []
        for i in range(0, len(where), BATCH):
            some = list(where[i : i + BATCH])
            part = reader(fitted.protect(half.images[some], [keys[one] for one in some]))
            if part is None:
                return None
            parts.append(part)
        return torch.cat(parts)

    attacked = half.recognition.attacked.tolist()
    sample = fitted.protect(half.images[attacked[:BATCH]], [keys[i] for i in attacked[:BATCH]])
    shown = read(attacked, lambda release: release.as_image())
    decoded = timed("decode", lambda: read(attacked, lambda release: release.decode()))
    metrics: dict[str, Any] = {
        "deviations": list(peer.deviations),
        "guarantee": asdict(peer.guarantee) if peer.guarantee else None,
        "hidden_from": peer.hidden_from,
        "size": asdict(sample.size()),
        "release": half.target.score(shown) if shown is not None else None,
        "decoded": None if decoded is None else half.target.score(decoded),
        "seconds": seconds,
    }
    if peer.name in LINEAR_ONLY:
        return metrics
    taught = timed("student", lambda: distil(fitted, half.public, half.people, half.teacher, student))
    metrics |= _recognition(half, lambda where: read(where, lambda one: _embedded(taught, one)))
    trained = timed("network", lambda: train_network(fitted, half.public, half.people, network, width=WIDTH))
    rebuilt = read(attacked, lambda release: rebuild(trained, release.as_input()))
    return metrics | {"reconstruction": half.target.score(rebuilt) if rebuilt is not None else None}


@torch.no_grad()
def _embedded(student: nn.Module, release: Release) -> Tensor:
    """float32 [N, D] of length 1, on the CPU. Maps are not mirrored: a mirrored map is not the map of the mirror."""
    return embed(student, release.as_input(), flip=False)


def _recognition(half: _Faces, embedded: Callable[[Sequence[int]], Tensor | None]) -> dict[str, Any]:
    """Verification of two releases, and linkage of a release to an unprotected image of the person."""
    where = images_in_pairs(half.faces, half.side)
    seen = embedded(where.tolist())
    assert seen is not None  # noqa: S101 - a student reads every release
    both = verify(half.faces, half.side, distances(half.faces, half.side, seen, where))
    row = {int(image): i for i, image in enumerate(where)}
    tested = half.faces.tested(half.side.folds)
    firsts, seconds = (half.faces.of(people)[tested] for people in (half.faces.pairs.first, half.faces.pairs.second))
    probes = seen[[row[int(i)] for i in firsts]]
    mean = embeddings_of(half.teacher, half.public).mean(0)
    gallery = functional.normalize(embeddings_of(half.teacher, half.images[seconds]) - mean).cpu()
    linked = fold_accuracy(squared_distances(probes, gallery), half.recognition.same, half.recognition.folds)
    chosen = half.recognition.probes
    return {
        "utility": {"accuracy": both.accuracy, "standard_error": both.standard_error, "pairs": len(firsts)},
        "linkage": {
            "rank_1": rank_1(probes[chosen], gallery[chosen]).row(),
            "gallery": len(chosen),
            "verification": {"accuracy": linked.accuracy, "standard_error": linked.standard_error},
        },
    }


def table(rows: Sequence[Row]) -> str:
    heads = ["system", "promise", "values", "bytes", "verification, student, %", "linkage, rank-1, %"]
    for part in ("decoded without training", "rebuilt by a U-Net"):
        heads += [f"{part}: SSIM", f"{part}: rank-1, %"]
    lines = [
        ["no release: mean image", *["-"] * 7, *_scores(row.metrics["reconstruction"])]
        for row in select(rows, method=MEAN_IMAGE)
    ]
    notes = []
    order = {system: place for place, system in enumerate(MODULES)}  # no protection first
    ours = select(rows, method="peer")
    for row in sorted(ours, key=lambda row: order.get(str(row.options["peer"]).partition(":")[0], len(order))):
        found, name = row.metrics, str(row.options["peer"])
        promise = found["guarantee"]
        utility, linkage = found.get("utility"), found.get("linkage")
        verified = f"{percent(utility['accuracy'])} ± {percent(utility['standard_error'])}" if utility else "-"
        lines.append(
            [
                name,
                f"eps {promise['epsilon']:.4g} per {promise['unit']}" if promise else "none",
                f"{found['size']['values']:,}",
                f"{found['size']['bytes']:,}",
                verified,
                percent(linkage["rank_1"]["share"], 1) if linkage else "-",
                *_scores(found["decoded"]),
                *_scores(found.get("reconstruction")),
            ]
        )
        notes += [f"- {name}: hidden from {found['hidden_from']}; {'; '.join(found['deviations']) or 'as it is'}."]
    return f"{markdown(heads, lines)}\nHow each system deviates from what was published:\n\n" + "\n".join(notes) + "\n"


def _scores(found: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [f"{found['ssim']:.3f}", percent(found["rank_1"]["share"], 1)] if found else ["-", "-"]


def figure(rows: RowsByExperiment) -> Figure:
    """Utility against linkage, one dot per system."""
    from ldp_slicing.lab.figures import COLOURS, label_points, panels

    drawn, (axis,) = panels(1, width=6.4)
    labels = []
    for row in select(rows["peers"], method="peer"):
        if "linkage" not in row.metrics:
            continue
        name = str(row.options["peer"])
        x, y = 100 * row.metrics["linkage"]["rank_1"]["share"], 100 * row.metrics["utility"]["accuracy"]
        colour = COLOURS[0] if name.startswith("ldp-slicing") else "black" if name == "none" else "0.5"
        axis.plot([x], [y], "o", color=colour, markersize=5)
        labels.append((x, y, name, colour))
        if name == "none":
            axis.axhline(y, color="0.8", linewidth=1)
            axis.axvline(x, color="0.8", linewidth=1)
    axis.set(title="LFW, folds 1 to 5", xlabel="linked to the person, rank-1, %", ylabel="verification accuracy, %")
    label_points(axis, labels)
    return drawn


EXPERIMENT = Experiment(
    "peers",
    """
Other systems and LDP-Slicing on the same faces, under the same attacks. People in no pair of folds 1 to 5 are public:
systems and attacks are trained on them. Every tested image is released once. docs/peers.md describes the systems and
what was published about them.

- Verification: a student of dlib's recogniser reads two releases. It was taught the recogniser's embedding of public
  images, one release of each.
- Linkage: the same student reads one release, and dlib's recogniser an unprotected image of the person.
- Decoded without training: the inverse that follows from the method, where there is one.
- U-Net: trained on public images and any number of their releases.
""",
    measure,
    table,
    figure,
)
