"""Everything that is measured about one peer, on one half of LFW. People in no tested pair are public."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ldp_slicing.lab.attacks.attack_target import AttackTarget
from ldp_slicing.lab.attacks.peer_network import reconstruct, train_network
from ldp_slicing.lab.attacks.recognition import RecognitionMetric, load_recogniser, on_pairs, rank_1
from ldp_slicing.lab.data.lfw import FaceSet, Side, images_in_pairs, load_lfw, sides
from ldp_slicing.lab.experiment import ExperimentContext
from ldp_slicing.lab.learners.embedding import embed
from ldp_slicing.lab.metrics.shares import Share
from ldp_slicing.lab.metrics.verification import Verification, distances, fold_accuracy, squared_distances, verify
from ldp_slicing.lab.peers.interface import BATCH, Peer, Release, derive_keys
from ldp_slicing.lab.peers.training import PublicReleases, TrainingSchedule, distil, embeddings_of

SIZED = 4  # releases whose compressed size is averaged
SEARCHED = 8  # batches of releases whose secret is searched for, if they have one
Reader = Callable[[Release], Tensor | None]


@dataclass(frozen=True, eq=False)
class PeerFaces:
    """The public half and the tested half, on the device.

    images: uint8 [N, 3, 112, 112], all of LFW. public, people: those of people in no tested pair. tested: int64 [M],
    the images in pairs, on the CPU. mean: float32 [D], the teacher's mean embedding of public images.
    """

    faces: FaceSet
    side: Side
    images: Tensor
    public: Tensor
    people: Tensor
    tested: Tensor
    teacher: nn.Module
    mean: Tensor
    recognition: RecognitionMetric
    target: AttackTarget

    @classmethod
    def load(cls, context: ExperimentContext) -> PeerFaces:
        faces = load_lfw(context.data)
        side, _ = sides(faces)
        images = torch.from_numpy(faces.images).permute(0, 3, 1, 2).contiguous().to(context.device)
        teacher = load_recogniser(context.data, context.device)
        recognition = on_pairs(teacher, faces, side)
        public = images[torch.from_numpy(side.images).to(context.device)]
        people = torch.from_numpy(side.people).to(context.device)
        tested = torch.from_numpy(images_in_pairs(faces, side))
        mean = embeddings_of(teacher, public).mean(0)
        target = AttackTarget("lfw", faces.images[side.images], images[recognition.attacked], recognition)
        return cls(faces, side, images, public, people, tested, teacher, mean, recognition, target)

    def read(self, peer: Peer, readers: Mapping[str, Reader]) -> dict[str, Tensor]:
        """Release every tested image once, and give the releases to all readers. A reader may return None.

        "secret_found" is bool [K], for the first images, if the peer has a secret: the search for it takes long.
        """
        keys = derive_keys("tested", len(self.images))
        found: dict[str, list[Tensor]] = {}
        for some in torch.split(self.tested, BATCH):
            own = [keys[i] for i in some.tolist()]
            release = peer.protect(self.images[some.to(self.images.device)], own)
            parts = {name: reader(release) for name, reader in readers.items()}
            if len(found.get("secret_found", ())) < SEARCHED:
                parts["secret_found"] = peer.finds_secret(release, own)
            for name, part in parts.items():
                if part is not None:
                    found.setdefault(name, []).append(part)
        return {name: torch.cat(parts) for name, parts in found.items()}

    def rows_of(self, images: Any) -> list[int]:  # noqa: ANN401 - integers of any kind
        """The positions of these images among the tested ones."""
        place = {image: i for i, image in enumerate(self.tested.tolist())}
        return [place[int(image)] for image in images]

    def score(self, images: Tensor) -> dict[str, Any]:
        """uint8 [M, 3, H, W], made from releases of the tested images, to the scores of the attacked ones."""
        return self.target.score(images[self.rows_of(self.recognition.attacked)])

    def verified(self, embeddings: Tensor) -> dict[str, Any]:
        """float [M, D] of length 1, of the tested images' releases: whether two releases show one person."""
        found = distances(self.faces, self.side, embeddings, self.tested.numpy())
        return _accuracy(verify(self.faces, self.side, found), len(found))

    def verified_images(self, images: Tensor) -> dict[str, Any]:
        """The same by dlib's recogniser, not tuned, from uint8 [M, 3, H, W]."""
        return self.verified(embed(self.teacher, images, prepare=lambda x: x.float(), batch=BATCH))

    def linked(self, embeddings: Tensor) -> dict[str, Any]:
        """float [M, D] of length 1, of releases: whether they are linked to unprotected images of the people."""
        mine, pairs = self.faces.tested(self.side.folds), self.faces.pairs
        firsts, seconds = (self.faces.of(people)[mine] for people in (pairs.first, pairs.second))
        probes = embeddings[self.rows_of(firsts)]
        public = embeddings_of(self.teacher, self.images[torch.from_numpy(seconds).to(self.images.device)])
        gallery = functional.normalize(public - self.mean).cpu()
        same, chosen = self.recognition.same, self.recognition.probes
        return {
            "rank_1": rank_1(probes[chosen], gallery[chosen]).row(),
            "gallery": len(chosen),
            "verification": _accuracy(
                fold_accuracy(squared_distances(probes, gallery), same, self.recognition.folds), len(same)
            ),
        }


def _accuracy(found: Verification, pairs: int) -> dict[str, Any]:
    return {"accuracy": found.accuracy, "standard_error": found.standard_error, "pairs": pairs}


def revised(peer: Peer) -> dict[str, Any]:
    """What a row's recipe says about the peer's revision; nothing about the first one."""
    return {"revision": peer.revision} if peer.revision > 1 else {}


@dataclass(frozen=True, eq=False)
class PeerMeasurement:
    """The numbers, and uint8 [2, 3, H, W] of an example that may be published: what leaves, the best reconstruction."""

    metrics: dict[str, Any]
    example: Tensor | None


def measure_peer(
    peer: Peer,
    half: PeerFaces,
    student: TrainingSchedule,
    network: TrainingSchedule,
    *,
    width: int,
    linear_only: bool = False,
    example: Tensor | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> PeerMeasurement:
    """Fit the peer, train the student and the adversary's network, then release each tested image once for all of them.

    linear_only: nothing is trained. example: uint8 [1, 3, H, W], another image to release and to reconstruct. log: is
    told how long each part took.
    """
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - of the work
        began = time.monotonic()
        found = work()
        if half.images.is_cuda:
            torch.cuda.synchronize(half.images.device)
        seconds[name] = round(time.monotonic() - began, 1)
        log(f"{peer.name}: {name}, {seconds[name]} s")
        return found

    fitted: Peer = timed("fit", lambda: peer.fit(half.public, half.people, half.teacher))
    readers: dict[str, Reader] = {"shown": Release.as_image, "decoded": Release.decode, "own": fitted.recognise}
    if not linear_only:
        once = PublicReleases(fitted, half.public, half.people, "release", redrawn=False)
        taught = timed("student", lambda: distil(once, half.teacher, student))
        readers["once"] = lambda release: embed(taught, release.as_input(), flip=False, batch=BATCH)
        queries = once  # without randomness, a second release of an image would be the same
        if fitted.is_random:
            queries = PublicReleases(fitted, half.public, None, "adversary's release", redrawn=True)
            linker = timed("linking student", lambda: distil(queries, half.teacher, student))
            readers["redrawn"] = lambda release: embed(linker, release.as_input(), flip=False, batch=BATCH)
        trained = timed("network", lambda: train_network(queries, network, width=width))
        readers["reconstructed"] = lambda release: reconstruct(trained, release.as_input())
    found = timed("read", lambda: half.read(fitted, readers))
    some = half.images[half.tested[:SIZED].to(half.images.device)]
    metrics: dict[str, Any] = {
        "guarantee": asdict(fitted.guarantee) if fitted.guarantee else None,  # it may depend on what was learned
        "size": asdict(fitted.protect(some, derive_keys("size", len(some))).size()),
        "release": half.score(found["shown"]),
        "decoded": half.score(found["decoded"]) if "decoded" in found else None,
        "dlib": {name: half.verified_images(found[name]) for name in ("shown", "decoded") if name in found},
        "seconds": seconds,
    }
    if "secret_found" in found:
        metrics["secret_found"] = Share(int(found["secret_found"].sum()), len(found["secret_found"])).row()
    if "own" in found:
        metrics["dlib"]["own"] = half.verified(functional.normalize(found["own"]).cpu())
    if not linear_only:
        metrics["utility"] = half.verified(found["once"])
        metrics["utility_redrawn"] = half.verified(found["redrawn"]) if "redrawn" in found else None
        metrics["linkage"] = half.linked(found.get("redrawn", found["once"]))
        metrics["reconstruction"] = half.score(found["reconstructed"])
        metrics["dlib"]["reconstructed"] = half.verified_images(found["reconstructed"])
    metrics["best_reconstruction"] = best = _best(metrics)
    if example is None:
        return PeerMeasurement(metrics, None)
    release = fitted.protect(example.to(half.images.device), derive_keys("example", 1))
    reader = readers[{"reconstruction": "reconstructed", "decoded": "decoded"}.get(best, "shown")]
    below = reader(release)
    assert below is not None  # noqa: S101 - it was read before
    return PeerMeasurement(metrics, torch.cat((release.as_image(), below)).cpu())


def _best(metrics: Mapping[str, Any]) -> str:
    """Which of "release", "decoded" and "reconstruction" resembles the sources most, by SSIM."""
    names = [name for name in ("release", "decoded", "reconstruction") if metrics.get(name)]
    return max(names, key=lambda name: float(metrics[name]["ssim"]))
