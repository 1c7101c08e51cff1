"""Other systems and LDP-Slicing on the same faces, under the same attacks. Half of LFW is public, half is tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ldp_slicing.lab.experiment import Experiment, ExperimentContext, RowsByExperiment
from ldp_slicing.lab.experiments.peer_faces import PeerFaces, measure_peer, revised
from ldp_slicing.lab.experiments.peer_findings import findings, published, standings
from ldp_slicing.lab.experiments.peer_sheet import example_source, keep_example, read_example, write_sheet
from ldp_slicing.lab.peers import MODULES, load_peer, load_peers, systems_first
from ldp_slicing.lab.peers.fusing import fused_kernels
from ldp_slicing.lab.peers.interface import Peer
from ldp_slicing.lab.peers.training import TrainingSchedule, shortened
from ldp_slicing.lab.rows import Row, read_rows, select
from ldp_slicing.lab.tables import markdown, percent, share_with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDENT = TrainingSchedule(epochs=20, rate=5e-4, batch=256, warm_up=0.2, decay=0.01, clip=1.0)
NETWORK = TrainingSchedule(epochs=12, batch=64, warm_up=0.1, decay=0.01, clip=1.0)
WIDTH = 48  # of the adversary's network
MEAN_IMAGE = "mean-image"
SHEET, EXAMPLES = "peers-portrait.png", "peers-portrait"
WORDS = {"release": "below: the same", "decoded": "below: untrained", "reconstruction": "below: by a U-Net"}
CROWDED = (70, 65)  # linked and accuracy in %: above, and below, points are too close for labels beside them
SYSTEMS = tuple(MODULES)
LINEAR_ONLY = ("dctdp:code-eps1", "dctdp:code-eps4", "dctdp:range-eps1", "dctdp:range-eps4")  # no network is trained


def measure(context: ExperimentContext) -> Iterator[Row]:
    limit = context.epochs
    student, network = (
        one if limit is None else replace(one, epochs=min(one.epochs, limit)) for one in (STUDENT, NETWORK)
    )
    recipe = {"name": "peers", "epochs": student.epochs, "student": student.recorded(), "network": network.recorded()}
    base = Row("peers", "lfw", folds=(0, 1, 2, 3, 4), recipe=recipe | {"width": WIDTH})
    peers = {peer.name: shortened(peer, limit) for system in SYSTEMS for peer in load_peers(system)}
    rows = [replace(base, method=MEAN_IMAGE)]
    rows += [
        replace(base, method="peer", release="once", options={"peer": name}, recipe={**base.recipe, **revised(peer)})
        for name, peer in peers.items()
    ]
    known = replace(context, done=tuple(row for row in context.done if _is_complete(row)))
    pending = [row for row in rows if context.wants(row) and not known.is_done(row)]
    half = PeerFaces.load(context) if pending else None
    example = example_source() if pending else None
    for row in pending:
        if context.limits.reached:
            context.postponed.append(row)
            continue
        assert half is not None  # noqa: S101 - loaded if anything is pending
        if row.method == MEAN_IMAGE:
            yield replace(row, metrics={"reconstruction": half.target.score_mean_image()})
            continue
        name = str(row.options["peer"])
        linear = name in LINEAR_ONLY
        with fused_kernels(context.limits.compile):
            found = measure_peer(
                peers[name],
                half,
                student,
                network,
                width=WIDTH,
                linear_only=linear,
                example=example,
                log=context.log,
            )
        if found.example is not None:
            keep_example(found.example, name, context.results / EXAMPLES)
        yield replace(row, metrics=found.metrics, files=() if example is None else (SHEET,))
        if example is not None:  # after each row, so that nothing is missing if the run is stopped
            _draw_examples(read_rows(context.results / "peers.json"), example, context.results)


def _is_complete(row: Row) -> bool:
    """Whether everything was measured. Rows of earlier versions lack the accuracy on reconstructions."""
    return "linkage" not in row.metrics or "reconstructed" in row.metrics["dlib"]


def _draw_examples(rows: Sequence[Row], source: Tensor, results: Path) -> None:
    """What leaves above, the best reconstruction below, for every peer that was measured."""
    columns = {"source": source.expand(2, -1, -1, -1)}
    for row in systems_first(select(rows, method="peer"), lambda row: str(row.options["peer"])):
        name = str(row.options["peer"])
        if (images := read_example(name, results / EXAMPLES, 2)) is not None:
            columns[f"{_in_two_lines(name)}\n{WORDS[row.metrics['best_reconstruction']]}"] = images
    write_sheet(columns, results / SHEET)


def _in_two_lines(name: str) -> str:
    """The name of a peer as it fits above a column."""
    system, _, setting = name.partition(":")
    kind, learned, rest = setting.partition("-learned-")
    return f"{system}:{kind}\n{learned.strip('-')} {rest}" if learned else f"{system}\n{setting}"


def table(rows: Sequence[Row]) -> str:
    """Two tables, what a recogniser makes of releases and what attacks reconstruct, and how each system deviates."""
    mine = systems_first(select(rows, method="peer"), lambda row: str(row.options["peer"]))
    recognised, reconstructed, secrets, found = [], [], [], standings(rows)
    notes = dict[str, list[str]]()
    for row in select(rows, method=MEAN_IMAGE):
        reconstructed.append(["no release: mean image", "-", *["-"] * 8, *_scores(row.metrics["reconstruction"])])
    for row in mine:
        metrics, name = row.metrics, str(row.options["peer"])
        promise, dlib, linkage = metrics["guarantee"], metrics["dlib"], metrics.get("linkage")
        peer = load_peer(name)  # rows keep no sentences, which the code may have changed since
        against = "" if type(peer).hidden_from is Peer.hidden_from else f"; hidden from {peer.hidden_from}"
        recognised.append(
            [
                name,
                (_promised(promise) if promise else "none") + against,
                f"{known:.2f}" if (known := published(name)) else "-",
                f"{metrics['size']['values']:,}",
                f"{metrics['size']['bytes']:,}",
                *(_verified(dlib.get(kind)) for kind in ("shown", "decoded", "reconstructed", "own")),
                *(_verified(metrics.get(kind)) for kind in ("utility", "utility_redrawn")),
                _verified(linkage["verification"]) if linkage else "-",
                percent(linkage["rank_1"]["share"], 1) if linkage else "-",
                percent(found[name].linked, 1) if name in found else "-",
            ]
        )
        parts = ("release", "decoded", "reconstruction")
        reconstructed.append(
            [name, metrics["best_reconstruction"], *(x for part in parts for x in _scores(metrics.get(part)))]
        )
        if secret := metrics.get("secret_found"):
            share = f"{share_with_interval(secret)} % of {secret['count']:,} releases"
            secrets.append(f"Decoding found the secret of {name} in {share} (95 % confidence interval).\n")
        note = f"meant to be hidden from {peer.hidden_from}; {'; '.join(peer.deviations) or 'as it is'}"
        notes.setdefault(note, []).append(name)
    heads = [
        "system",
        "guarantee",
        "published, %",
        "values",
        "bytes",
        "dlib on releases, %",
        "dlib on decoded, %",
        "dlib on U-Net's, %",
        "own recogniser, %",
    ]
    heads += [
        "student, %",
        "student, redrawn, %",
        "linkage, verification, %",
        "linkage, rank-1, %",
        "strongest attack, rank-1, %",
    ]
    shown, sentences = ["system", "best"], findings(rows)
    for part in ("release", "decoded", "U-Net"):
        shown += [f"{part}: SSIM", "PSNR", "verification, %", "rank-1, %"]
    return "\n".join(
        [
            "Recognition. Verification accuracy with its standard error over five folds. Five folds may agree by "
            "chance, so comparisons of systems use at least the standard error of as many independent pairs. These "
            "errors ignore that all systems are tested on the same pairs.\n",
            markdown(heads, recognised),
            "Reconstruction, compared with sources and with unprotected images of the people.\n",
            markdown(shown, reconstructed),
            *secrets,
            *(
                ["What follows from the numbers:\n", "\n".join(f"- {one}" for one in sentences) + "\n"]
                if sentences
                else []
            ),
            "How each system deviates from what was published:\n",
            "\n".join(f"- {', '.join(names)}: {note}." for note, names in notes.items()) + "\n",
        ]
    )


def _promised(guarantee: Any) -> str:  # noqa: ANN401 - JSON
    largest = guarantee.get("largest")
    most = "" if largest is None else f", at most {largest:,.4g}"
    return f"eps {guarantee['epsilon']:.4g} per {guarantee['unit']}{most}"


def _verified(found: Any) -> str:  # noqa: ANN401 - JSON
    return f"{percent(found['accuracy'])} ± {percent(found['standard_error'])}" if found else "-"


def _scores(found: Any) -> list[str]:  # noqa: ANN401 - JSON
    if not found:
        return ["-"] * 4
    verified, ranked = found["verification"]["accuracy"], found["rank_1"]["share"]
    return [f"{found['ssim']:.3f}", f"{found['psnr_db']:.1f}", percent(verified, 1), percent(ranked, 1)]


def figure(rows: RowsByExperiment) -> Figure:
    """Utility against linkage by the strongest attack, one dot per system, and lines at no protection."""
    from ldp_slicing.lab.figures import COLOURS, common_legend, label_points, label_with_lines, panels

    drawn, (axis,) = panels(1, width=7.8, height=5.1, logarithmic=False)
    labels = []
    for name, one in systems_first(standings(rows["peers"]).items(), lambda item: item[0]):
        x, y = 100 * one.linked, 100 * one.accuracy
        colour = COLOURS[0] if name.startswith("ldp-slicing") else "black" if name == "none" else "0.5"
        axis.plot([x], [y], "o", color=colour, markersize=5, zorder=2 if colour == "0.5" else 3)
        labels.append((x, y, name, colour))
        if name == "none":
            axis.axhline(y, color="0.4", linewidth=1, linestyle="--", label="without protection", zorder=1)
            axis.axvline(x, color="0.4", linewidth=1, linestyle="--", zorder=1)
    axis.set(
        title="LFW, folds 1 to 5",
        xlim=(-2, 100),
        ylim=(42, 102),
        xticks=range(0, 101, 20),
        xlabel="people linked by the strongest of these attacks (rank-1), %",
        ylabel="accuracy of the best recogniser of releases, %",
    )
    common_legend(drawn, axis, 1)
    crowded = [one for one in labels if one[0] > CROWDED[0] or one[1] < CROWDED[1]]
    label_with_lines(axis, [*crowded, *label_points(axis, [one for one in labels if one not in crowded])])
    return drawn


EXPERIMENT = Experiment(
    "peers",
    """
Other systems and LDP-Slicing on the same faces, under the same attacks. People in no pair of folds 1 to 5 are public:
systems and attacks are trained on them. Every tested image is released once. docs/peers.md summarises the
results, and docs/peers-details.md describes the systems and what was published about them.

- dlib: the pretrained recogniser, without fine-tuning, compares two releases, or two images that `decode()` or the
  U-Net computed from them.
- Student: dlib's recogniser with a new first convolution compares two releases. It was trained to compute from the
  release of a public image the embedding that dlib's recogniser gives to the image. One release of each public image is
  used; "redrawn" trains with a new one in every epoch, as most systems do.
- Linkage: a student reads one release, dlib's recogniser an unprotected image of the person. The student is the redrawn
  one, if there is one, because an adversary may release public images as often as it likes.
- Strongest attack: the largest rank-1 identification rate of the student, of releases, of decoded ones and of the
  U-Net's images. The figure compares it with the accuracy of the best recogniser: a student, dlib's, or the system's
  own.
- Decoded: the inverse that follows from the method without any training, where there is one.
- U-Net: trained on public images and any number of their releases.
- Published: verification accuracy on LFW in the papers, of recognisers trained on millions of other faces. For DCTDP
  it is that of learned budgets. Which settings of PEEP, PRO-Face and PPFR-FD were measured is not known.
- Every network trained here, the systems' own included, has seed 0. A system's schedule is in its module in
  `lab/peers`. Those of the student and the U-Net are in the rows, with the times (`metrics.seconds`; `fit` is the
  system's own training). Up to six processes shared the GPU, so times are longer than those of one process alone.
- `none` is no protection: attacks must succeed. `random` releases random images: they must fail.
""",
    measure,
    table,
    figure,
)
