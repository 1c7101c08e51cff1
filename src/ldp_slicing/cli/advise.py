from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ldp_slicing.cli.common import PruneChoice, err, out, plain, refusals_exit, stop_signals
from ldp_slicing.cli.lab.options import exit_if_interrupted, missing_extra
from ldp_slicing.errors import LdpSlicingError

Value = TypeVar("Value")
PANEL = "Limits"


def _listed(option: str, text: str, read: Callable[[str], Value], expected: str) -> tuple[Value, ...]:
    """The parts of an option such as 32,16: one or more."""
    try:
        return tuple(read(part.strip()) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"expected {expected}; got {text!r}", param_hint=option) from None


@contextmanager
def _progress() -> Iterator[Callable[[float, float, str], None]]:
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total, text: progress.update(bar, completed=done, total=total, description=text)


@refusals_exit
def advise(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="A folder with one folder per class, images with a table (see --labels), or Parquet files.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out", help="Folder for the report. What was measured so far is kept beside it, in FOLDER.owner."
        ),
    ] = Path("advice"),
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            help="A table of paths and labels (FILE.csv, FILE.parquet or FILE.csv:COLUMN); a column, if the images are "
            "in Parquet files; or `none` if there are no labels.",
            show_default="the folder of each image",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            help="Images that must not be linked with each other, such as those of one patient: images in one folder "
            "(folder), images in whose names REGEX matches the same text (name:REGEX), or a column of the table.",
            show_default="linkage is not measured",
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", help="Stop after this time. Run the same command again to continue.")
    ] = 15.0,
    max_linkage: Annotated[
        float | None,
        typer.Option("--max-linkage", help="Highest acceptable rank-1 identification rate.", rich_help_panel=PANEL),
    ] = None,
    max_verification: Annotated[
        float | None,
        typer.Option(
            "--max-verification",
            help="Highest acceptable verification accuracy. Guessing gives 0.5.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    max_ssim: Annotated[
        float | None,
        typer.Option("--max-ssim", help="Highest acceptable mean SSIM of reconstructions.", rich_help_panel=PANEL),
    ] = None,
    min_accuracy: Annotated[
        float | None, typer.Option("--min-accuracy", help="Lowest acceptable test accuracy.", rich_help_panel=PANEL)
    ] = None,
    min_auc: Annotated[
        float | None, typer.Option("--min-auc", help="Lowest acceptable ROC AUC.", rich_help_panel=PANEL)
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes",
            help="Longest sides of releases in pixels, such as 112,56,28.",
            show_default="full size (up to 224, on a CPU 64), half and quarter",
        ),
    ] = "",
    views: Annotated[
        str,
        typer.Option(
            "--views", help="Prunings to measure, as in privatize --prune: none, haar, haar2, haar4, haar8, dct."
        ),
    ] = "none,haar",
    plans: Annotated[
        str,
        typer.Option(
            "--plans",
            help="paper: eps divided over all bits by weight. thick: a few bits as one slice. grey: like paper, over "
            "the bits of Y only.",
        ),
    ] = "paper,thick,grey",
    epsilons: Annotated[
        str,
        typer.Option(
            "--epsilons", help="Budgets per released pixel, such as 2.4,5.2,12.", show_default="a few for each plan"
        ),
    ] = "",
    samples: Annotated[
        list[Path] | None,
        typer.Option(
            "--samples",
            metavar="IMAGE",
            help="Show this image in the report. May be repeated.",
            show_default="some sources",
        ),
    ] = None,
    recogniser: Annotated[
        Path | None,
        typer.Option(
            "--recogniser",
            metavar="FILE",
            help="Weights of the face recogniser that links images: dlib's .dat file, or an IR-50 network.",
            show_default="a network trained on your groups",
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images", min=16, help="Largest number of images to read.", show_default="4,000; 20,000 on a GPU"
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Title of the report.", show_default=False)] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be measured. Measure and write nothing.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="cuda or cpu.", show_default="cuda if there is a GPU")] = "",
) -> None:
    """Example: `ldp-slicing advise images/ --groups 'name:patient[0-9]+' --max-linkage 0.05 --min-accuracy 0.8`

    Measure on your own images, on this machine, what a learner can learn from releases and what an attacker gets from
    them, at many sizes, prunings, plans and budgets. If limits are given, propose a setting. Nothing is released. You
    can interrupt the command at any time and run it again to continue. Needs the extra `lab`.
    """
    began = time.monotonic()
    try:
        from ldp_slicing.lab.advise.findings import make_rules
        from ldp_slicing.lab.advise.grid import FAMILIES, Family
        from ldp_slicing.lab.advise.prepare import outline
        from ldp_slicing.lab.advise.report import summary, write_report
        from ldp_slicing.lab.advise.request import Request, Talk
        from ldp_slicing.lab.advise.run import advise as measure
    except ModuleNotFoundError as error:
        raise missing_extra(error, "advise") from None

    def family(name: str) -> Family:
        if name not in FAMILIES:
            raise ValueError(name)
        return name

    request = Request(
        source,
        folder,
        labels,
        groups,
        minutes,
        _listed("--sizes", sizes, int, "numbers of pixels such as 112,56,28") if sizes else (),
        _listed("--views", views, lambda name: PruneChoice(name).prune, f"some of {','.join(PruneChoice)}"),
        _listed("--plans", plans, family, f"some of {','.join(FAMILIES)}"),
        _listed("--epsilons", epsilons, float, "budgets such as 2.4,5.2,12") if epsilons else (),
        make_rules(
            max_linkage=max_linkage,
            max_verification=max_verification,
            max_ssim=max_ssim,
            min_accuracy=min_accuracy,
            min_auc=min_auc,
        ),
        tuple(samples or ()),
        recogniser,
        images,
        device,
        title,
    )
    if dry_run:
        outline(request, Talk(lambda text: out.print(plain(text))))
        return
    with stop_signals(lambda: err.print("stopping; interrupt again to stop at once")) as received, _progress() as bar:
        try:
            result = measure(request, Talk(lambda text: out.print(plain(text)), bar, lambda: bool(received)), began)
            written = write_report(result)
        except OSError as error:
            raise LdpSlicingError(f"{error.filename or folder}: {error.strerror or error}") from None
    for line in summary(result):
        out.print(plain(line))
    out.print(f"for the owner only: {', '.join(plain(str(folder / name)) for name in written)}")
    if result.tried and not result.finished:
        out.print("not finished, so the answer may change: first run the same command again to continue")
    exit_if_interrupted(received)
