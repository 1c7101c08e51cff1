"""The options of ``privatize``, one name each. Options that other commands share are in ``common``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ldp_slicing.cli.common import parse_number


class NamesChoice(StrEnum):
    keep = "keep"
    random = "random"


class DuplicatesChoice(StrEnum):
    spend = "spend"
    once = "once"


class EngineChoice(StrEnum):
    local = "local"
    ray = "ray"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC",
        help="A file, a folder or a zip file, or several. If there are several, each folder or zip file gets a folder "
        "of its own name in DST.",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Argument(metavar="DST", help="A new file or folder, or the target of a run to resume.", show_default=False),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="PATTERN",
        help="Release only files whose names below SRC match, such as '*.jpg' or '/cats/**'. May be repeated.",
        show_default=False,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="PATTERN",
        help="Leave out files whose names below SRC match, such as '*.txt' or 'drafts/'. May be repeated.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Number of worker processes.",
        show_default="all processors of the machine or cluster",
    ),
]
EngineOption = Annotated[EngineChoice, typer.Option("--engine", help="Where the workers run.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Address of the Ray cluster. All its nodes must see SRC and DST.",
        show_default="Ray is started on this machine",
    ),
]
Names = Annotated[
    NamesChoice, typer.Option("--names", help="Names of the releases: those of the sources, or random ones.")
]
Duplicates = Annotated[
    DuplicatesChoice,
    typer.Option("--duplicates", help="Equal images in a run: release each one, or only the first."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="NAME",
        help="Other data to pass on unprotected: an extension in a shard, a column in a table, a tag such as "
        "PixelSpacing of a DICOM file. May be repeated.",
        show_default=False,
    ),
]
Frames = Annotated[
    bool,
    typer.Option(
        "--frames",
        help="Release animated GIF, PNG, WebP and AVIF images as videos: each frame is a release. Without it they are "
        "refused.",
    ),
]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="LOW:HIGH",
        help="DICOM: map these values, in the units of the file (HU for CT), to the words before the noise, so that no "
        "budget is spent on bits that are never used. LOW:HIGH:BITS also sets the bits of a word. CT stands for "
        "-1024:3071 and accepts CT files only. Use constants of the modality, never the "
        "values of an image, which would leak.",
        show_default="all bits that a file stores",
    ),
]
NotBurnedIn = Annotated[
    bool,
    typer.Option(
        "--not-burned-in",
        help="DICOM: you state that no text is burned into the pixels. The software does not check it.",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="An owner's key. With it, equal pixels give equal releases.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also release at a budget at which the noise almost never changes a slice."),
]
Spend = Annotated[
    bool,
    typer.Option("--spend", help="Also release sources that were released before; the ledger adds up their eps."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Do everything but release: show what would be released, refused and spent, and how much space it needs. "
        "Nothing is written, not even to the ledger, except the file of --report.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="End with exit status 4 if files were skipped because they are not images."),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Also write the content of --json to this file.", show_default=False),
]
Cap = Annotated[
    float | None,
    typer.Option(
        "--cap",
        parser=parse_number,
        metavar="NUMBER",
        help="Refuse a source if all of its releases together would exceed this epsilon per released pixel.",
        show_default=False,
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="FOLDER", help="The state folder of the run.", show_default="DST.owner"),
]
