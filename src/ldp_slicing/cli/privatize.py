from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from ldp_slicing.cli import privatize_options as options
from ldp_slicing.cli.budget import Budget, PresetOption, choose_budget, print_preset
from ldp_slicing.cli.common import (
    Json,
    LedgerOption,
    PruneChoice,
    PruneOption,
    Slices,
    Weights,
    err,
    is_default,
    naming_new_ledger,
    plain,
    print_json,
    processors,
    refusals_exit,
    stop_signals,
)
from ldp_slicing.cli.exit_status import TABLE, ExitStatus
from ldp_slicing.cli.privatize_options import DuplicatesChoice, EngineChoice, NamesChoice
from ldp_slicing.cli.privatize_report import (
    ProgressLines,
    lacks_space,
    print_notice,
    print_report,
    progress_bar,
    summary,
)
from ldp_slicing.cli.report_file import check_report, refusals_reported, write_report
from ldp_slicing.cli.shrinking import Fit, MaxSide, Pad, choose_size
from ldp_slicing.errors import LdpSlicingError, Reason, ReleaseError
from ldp_slicing.ledger import default_ledger
from ldp_slicing.release import records
from ldp_slicing.release.opening import prepare
from ldp_slicing.release.run import Engine, Run, on_this_machine
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import Selection

EPILOG = TABLE


@refusals_exit
@refusals_reported
def privatize(
    context: typer.Context,
    sources: options.Sources,
    target: options.Target,
    epsilon: Budget = None,
    preset: PresetOption = None,
    weights: Weights = "4:1:1",
    slices: Slices = None,
    prune: PruneOption = PruneChoice.haar,
    max_side: MaxSide = None,
    fit: Fit = None,
    pad: Pad = False,
    include: options.Include = None,
    exclude: options.Exclude = None,
    workers: options.Workers = None,
    engine: options.EngineOption = EngineChoice.local,
    address: options.Address = None,
    names: options.Names = NamesChoice.keep,
    duplicates: options.Duplicates = DuplicatesChoice.spend,
    keep: options.Keep = None,
    frames: options.Frames = False,
    value_range: options.Range = None,
    not_burned_in: options.NotBurnedIn = False,
    key: options.Key = None,
    spend: options.Spend = False,
    cap: options.Cap = None,
    force: options.Force = False,
    ledger: LedgerOption = None,
    state: options.State = None,
    dry_run: options.DryRun = False,
    strict: options.Strict = False,
    report: options.Report = None,
    as_json: Json = False,
) -> None:
    """Example: `ldp-slicing privatize images/ releases/ --epsilon 2.4 --max-side 112`

    Release a file, or every file below a folder. Each source is released once.

    Choose a budget with --epsilon or --preset: `ldp-slicing plan --presets` says what attackers got at measured
    settings, `ldp-slicing plan --epsilon 20` what a budget promises, and `ldp-slicing show IMAGE --out sheet.png` draws
    your image at several budgets. At its end, the run prints what was measured at the nearest
    setting.

    Choose a size: --max-side 224 shrinks large images before the noise, and --fit 224x224 shrinks all images to one
    size. Shrinking costs no budget. Averaging the pixels of a large release shows the scene in it.

    The ledger records every release. It is in your data folder (on Linux, ~/.local/share/ldp-slicing) unless --ledger
    or LDP_SLICING_LEDGER names another file; `ldp-slicing doctor` shows which one is used. Back it up.

    Images (JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC, AVIF) become PNG: orientation and colour profile are applied, and
    metadata is removed. WebDataset shards (.tar), Parquet, CIFAR pickles, DICOM and video are read too. SRC and DST
    may be remote (s3://...). A file that cannot be read is reported and nothing is written for it; the other files are
    released, and the exit status is 1. A card beside the releases states their privacy, and a manifest lists them.

    Run the same command again to resume after an interruption, or to release new files. The folder DST.owner is
    private: until the run completes, it holds the key that can remove the noise. Do not share it.
    """
    chosen = choose_budget(context, preset, epsilon, weights, slices, prune.prune, choose_size(max_side, fit, pad))
    if report is not None:
        check_report(report, target)
    settings = ReleaseSettings(
        chosen.epsilon,
        chosen.weights,
        chosen.prune,
        names=chosen.names if is_default(context, "names") else names.value,
        duplicates=duplicates.value,
        keep=tuple(sorted({name.lstrip(".") for name in keep or ()})),
        slices=chosen.slices,
        frames=frames,
        size=chosen.size,
        value_range=value_range,
        not_burned_in=not_burned_in,
        force=force,
        measured_bits=chosen.measured_bits,
    )
    on_ray = engine is EngineChoice.ray
    if address is not None and not on_ray:
        raise ReleaseError("--address is the address of a Ray cluster: add --engine ray", Reason.SETTINGS)
    if preset is not None and not as_json:
        print_preset(chosen, preset)
    workforce = choose_ray(address, workers) if on_ray else on_this_machine(workers or processors())
    started = time.monotonic()
    ledger = ledger or default_ledger()
    with stop_signals() as received:
        with naming_new_ledger(ledger, quiet=as_json):
            run = prepare(
                sources,
                target,
                settings,
                selection=Selection(tuple(include or ()), tuple(exclude or ())),
                ledger=ledger,
                key=key,
                state=state,
                spend=spend,
                cap=cap,
                shared=on_ray,
                dry_run=dry_run,
                stop=lambda: bool(received),
            )
        with closing(run):
            said = release(run, workforce, received, quiet=as_json)
            seconds = time.monotonic() - started
            status = 128 + received[0] if run.stopped and received else exit_status(run, strict=strict)
            content = summary(run, seconds, status)
            if report is not None:  # first: whoever reads the output may close it
                status = save_report(report, target, content) or status
            if as_json:
                print_json(content)
            else:
                print_report(run, seconds, target, said)
    raise typer.Exit(status)


def exit_status(run: Run, *, strict: bool) -> ExitStatus:
    """Return the exit status of a run that was not interrupted."""
    if run.result.problem:
        return ExitStatus.FAILED
    if records.is_unfinished(run.state) or lacks_space(run):
        return ExitStatus.INCOMPLETE
    if next(records.problems(run.state), None) is not None:
        return ExitStatus.FAILED
    is_skipped = strict and next(records.skipped(run.state), None) is not None
    return ExitStatus.SKIPPED if is_skipped or records.not_kept(run.state) else ExitStatus.OK


def save_report(report: Path, target: str, content: dict[str, Any]) -> ExitStatus:
    """Write the report after a run, which may have released something: a failure is not a refusal."""
    try:
        write_report(report, target, content)
    except LdpSlicingError as error:
        err.print(f"[bold red]no report:[/bold red] {plain(str(error))}")
        return ExitStatus.FAILED
    return ExitStatus.OK


def choose_ray(address: str | None, workers: int | None) -> Engine:
    from ldp_slicing.release.cluster import on_ray  # an extra, slow to import

    return on_ray(address, workers)


def release(run: Run, engine: Engine, received: list[int], *, quiet: bool) -> set[str]:
    """Do the run, with a progress bar on a terminal. Return the notices that were printed.

    Each is printed as soon as it is known, with the first file it is about, before anything is spent on that file.
    """
    said = set[str]()

    def advise(path: str, notice: str) -> None:
        if notice not in said and not quiet:
            said.add(notice)
            print_notice(path, notice)

    for notice in records.early_notices(run.state) if run.inventory.waiting else ():
        advise(".", notice)
    with progress_bar(quiet=quiet) as progress:
        bar = progress.add_task("releasing", total=run.inventory.waiting)
        lines = ProgressLines(run.inventory.waiting, say=None if quiet or err.is_terminal else err.print)
        try:
            for _ in run.run(engine, stop=lambda: bool(received), advise=advise):
                progress.advance(bar)
                lines.advance()
        except LdpSlicingError as error:  # not a refusal: something may have been released by now
            err.print(f"[bold red]aborted:[/bold red] {plain(str(error))}")
    return said
