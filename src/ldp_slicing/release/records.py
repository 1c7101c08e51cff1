"""What the state of a run says: counts, problems, notices, names, and the lines of the manifest and the card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ldp_slicing.errors import Reason
from ldp_slicing.formats import CIFAR_ENDINGS
from ldp_slicing.ledger import Selection
from ldp_slicing.manifest import AGAIN, LOST, RELEASED
from ldp_slicing.release.report import FileState
from ldp_slicing.release.state import Finding, RunState, decode_path, encode_path
from ldp_slicing.wording import counted

IGNORED = ".DS_Store, Thumbs.db, desktop.ini, AppleDouble ._*, CIFAR's names of classes"


@dataclass(frozen=True)
class FileCounts:
    """Numbers of source files. Each file is in one of the first five, which add up to ``total``, or was skipped.

    ``lost`` files were released, but their releases are gone or damaged. The others concern released files: sources
    that have changed since, and members that the outputs leave out because they failed or are copies.
    """

    released: int
    lost: int
    failed: int
    copies: int
    waiting: int
    changed: int
    members_failed: int
    members_copies: int
    skipped: int

    @property
    def total(self) -> int:
        return self.released + self.lost + self.failed + self.copies + self.waiting


@dataclass(frozen=True)
class WordStatement:
    """The releases of one word length: how many (frames counted), the most frames of one video, and the image sizes.

    ``source_pixels``: the most of one source, before it was shrunk. They are the owner's secret.
    """

    bits: int
    releases: int
    most_frames: int
    sizes: tuple[tuple[int, int], ...]
    source_pixels: int


def count_states(state: RunState) -> Counter[str]:
    return Counter(dict(state.execute("SELECT state, COUNT(*) FROM sources GROUP BY state").fetchall()))


def count_files(state: RunState) -> FileCounts:
    counts = count_states(state)
    by_path = "SELECT MAX(finding <> 'changed') AS is_lost FROM findings GROUP BY path"
    lost, changed = state.execute(
        f"SELECT COALESCE(SUM(is_lost), 0), COALESCE(SUM(NOT is_lost), 0) FROM ({by_path})"  # noqa: S608
    ).fetchone()
    members = (
        "SELECT is_copy, COUNT(*) FROM skipped JOIN sources USING (path) WHERE state = 'released' GROUP BY is_copy"
    )
    left_out = dict(state.execute(members).fetchall())
    return FileCounts(
        released=counts[FileState.RELEASED] - lost,
        lost=lost,
        failed=counts[FileState.FAILED] + counts[FileState.RETRY],
        copies=counts[FileState.COPY],
        waiting=counts[FileState.WAITING],
        changed=changed,
        members_failed=left_out.get(0, 0),
        members_copies=left_out.get(1, 0),
        skipped=counts[FileState.SKIPPED],
    )


def is_unfinished(state: RunState) -> bool:
    """Return whether running again may release more."""
    return state.execute("SELECT 1 FROM sources WHERE state IN ('waiting', 'retry') LIMIT 1").fetchone() is not None


@dataclass(frozen=True)
class Problem:
    """Why a file or a member of it has no release, or what is wrong with its release."""

    source: str
    problem: str
    reason: Reason


def problems(state: RunState) -> Iterator[Problem]:
    """Yield files without a release, earlier releases with a problem, and members left out, each with the reason."""
    failed = "SELECT path, problem, reason FROM sources WHERE state IN ('failed', 'retry') ORDER BY path"
    for path, problem, reason in state.execute(failed):
        yield Problem(decode_path(path), problem, Reason(reason))
    found = (
        "SELECT path, name, MAX(CASE WHEN finding <> 'changed' THEN finding END), MAX(finding = 'changed'), "
        "listing = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'listing') "
        "FROM findings JOIN outputs USING (path) JOIN sources USING (path) GROUP BY path ORDER BY path"
    )
    for path, name, wrong, is_changed, has_source in state.execute(found):
        findings = ([Finding(wrong)] if wrong else []) + ([Finding.CHANGED] if is_changed else [])
        said = "; ".join(_describe(one, decode_path(name), has_source) for one in findings)
        yield Problem(decode_path(path), said, Reason(findings[0]))
    members = "SELECT path, member, problem, reason FROM skipped WHERE NOT is_copy ORDER BY path, position"
    for path, member, problem, reason in state.execute(members):
        yield Problem(f"{decode_path(path)}: {member}", problem, Reason(reason))


def skipped(state: RunState) -> Iterator[str]:
    """Yield files that are no sources, because nothing tells that they hold images."""
    for (path,) in state.execute("SELECT path FROM sources WHERE state = 'skipped' ORDER BY path"):
        yield decode_path(path)


def _describe(finding: Finding, output: str, has_source: bool) -> str:
    if finding is Finding.CHANGED:
        return (
            "has changed since it was released, and its release is of the earlier content; to release the new content, "
            "give it another name"
        )
    if finding is Finding.DAMAGED:
        return (
            f"another file has the name of its release, {output}: move that file away, and put the release back; "
            "if it is lost, --spend makes another one"
        )
    if not has_source:
        return f"its release {output} is lost, and its source is gone too"
    return f"its release {output} is lost, and cannot be made again without spending again; --spend allows it"


def copies(state: RunState) -> Iterator[str]:
    """Yield files and members that were left out because they equal one that was released."""
    for (path,) in state.execute("SELECT path FROM sources WHERE state = 'copy' ORDER BY path"):
        yield decode_path(path)
    members = (
        "SELECT path, member FROM skipped JOIN sources USING (path) "
        "WHERE is_copy AND state = 'released' ORDER BY path, position"
    )
    for path, member in state.execute(members):
        yield f"{decode_path(path)}: {member}"


def equal_files(state: RunState) -> Iterator[tuple[str, str]]:
    """Yield released files that equal another released one byte for byte, each with the first of these."""
    released = "SELECT path, source_digest AS digest FROM outputs JOIN sources USING (path) WHERE state = 'released'"
    query = (
        f"WITH released AS ({released}), first AS "  # noqa: S608
        "(SELECT digest, MIN(path) AS path FROM released WHERE digest IS NOT NULL GROUP BY digest HAVING COUNT(*) > 1) "
        "SELECT released.path, first.path FROM released JOIN first USING (digest) "
        "WHERE released.path <> first.path ORDER BY released.path"
    )
    for path, first in state.execute(query):
        yield decode_path(path), decode_path(first)


@dataclass(frozen=True)
class Notice:
    """What the owner should know about a file, or about some images of it; the source "." means all files.

    ``images``: how many images of the file it is about; 0 if it is about the file as a whole.
    """

    source: str
    notice: str
    images: int = 0


def notices(state: RunState) -> Iterator[Notice]:
    if ignored := state.get("ignored"):
        what = "1 file that is not a source" if ignored == 1 else f"{ignored:,} files that are not sources"
        yield Notice(".", f"ignored {what} ({IGNORED})")
    if unselected := state.get("not selected"):
        yield Notice(".", f"left out {counted(unselected, 'file')} by --include and --exclude")
    for notice in early_notices(state):
        yield Notice(".", notice)
    if names := not_kept(state):
        yield Notice(".", f"{' '.join(f'--keep {name}' for name in names)}: no released file has it")
    query = "SELECT path, notice, images FROM notices ORDER BY path, notice"
    for path, notice, images in state.execute(query):
        yield Notice(decode_path(path), notice, images)


def count_images(state: RunState) -> int:
    """Return how many images were released, without videos and other files of frames."""
    query = "SELECT COUNT(*) FROM releases JOIN sources USING (path) WHERE state = 'released' AND frames = 1"
    (images,) = state.execute(query).fetchone()
    return int(images)


def early_notices(state: RunState) -> Iterator[str]:
    """Yield notices about all files that are known before anything is spent."""
    if card := state.get("card in sources"):
        yield (
            f"the sources include or lie beside a card, {card}: images that it describes are already releases. They "
            "get noise a second time, and the ledger counts them as new sources; leave them out"
        )
    if notice := _visible_scan_names(state):
        yield notice


def _visible_scan_names(state: RunState) -> str | None:
    """Return a notice if releases of DICOM files have the names of their sources."""
    scan = state.execute("SELECT 1 FROM sources WHERE kind = 'dicom' AND state != 'failed' LIMIT 1").fetchone()
    if not scan or state.get("parameters")["names"] != "keep":
        return None
    return (  # without a number: how many of them can be released is not known before they are read
        "releases of DICOM files have the names of their sources, and names of scans and folders often reveal a "
        "patient, a date or a finding: --names random hides them"
    )


def output_names(state: RunState) -> Iterator[tuple[str, str, str, str]]:
    """Yield the output and member of each release, and the file and entry that it was made from."""
    query = (
        "SELECT name, member, path, entry FROM sources JOIN outputs USING (path) JOIN releases USING (path) "
        "WHERE state = 'released' ORDER BY name, position"
    )
    for name, member, path, entry in state.execute(query):
        yield decode_path(name), member or "", decode_path(path), entry


def all_outputs(state: RunState) -> Iterator[str]:
    """Yield the names of all outputs, released or planned."""
    for (output,) in state.execute("SELECT output FROM sources WHERE output IS NOT NULL ORDER BY output"):
        yield decode_path(output)


def is_released(state: RunState, output: str) -> bool:
    """Return whether a release of that name was recorded."""
    # CROSS: look for the name first. SQLite would go through all released sources, for each name.
    query = "SELECT 1 FROM outputs CROSS JOIN sources USING (path) WHERE name = ? AND state = 'released'"
    return state.execute(query, (encode_path(output),)).fetchone() is not None


def damaged_output(state: RunState) -> str | None:
    """Return the name of a release that another file has now, if there is one."""
    query = "SELECT MIN(name) FROM findings JOIN outputs USING (path) WHERE finding = 'damaged'"
    (name,) = state.execute(query).fetchone()
    return decode_path(name) if name is not None else None


def manifest_lines(state: RunState) -> Iterator[dict[str, Any]]:
    """Yield one line for each release, in the order of the output names."""
    query = (
        "SELECT name, sha256, finding IS NOT NULL, replaces, member, frames, width, height, bits "
        "FROM sources JOIN outputs USING (path) JOIN releases USING (path) "
        "LEFT JOIN findings ON findings.path = sources.path AND finding = 'lost' "
        "WHERE state = 'released' ORDER BY name, position"
    )
    for name, sha256, is_lost, replaces, member, frames, width, height, bits in state.execute(query):
        status = LOST if is_lost else AGAIN if replaces else RELEASED
        line = {"output": decode_path(name), "sha256": sha256.hex(), "status": status}
        if is_lost:  # nobody can look, but the card counts it
            line |= {"width": width, "height": height, "word_bits": bits}
        if member is not None:
            line["member"] = member
        if frames > 1:
            line["frames"] = frames
        yield line


def statements(state: RunState) -> Iterator[WordStatement]:
    """Yield what a card says about each word length, the longest first."""
    query = (
        "SELECT bits, SUM(frames), MAX(frames), MAX(source_pixels) FROM releases JOIN sources USING (path) "
        "WHERE state = 'released' GROUP BY bits ORDER BY bits DESC"
    )
    sizes = (
        "SELECT DISTINCT width, height FROM releases JOIN sources USING (path) WHERE state = 'released' AND bits = ?"
    )
    for bits, count, frames, pixels in state.execute(query).fetchall():
        yield WordStatement(bits, count, frames, tuple(state.execute(sizes, (bits,)).fetchall()), pixels)


def has_kind(state: RunState, kind: str) -> bool:
    """Return whether some output was made from a source of this kind."""
    query = "SELECT 1 FROM sources WHERE state = 'released' AND kind = ? LIMIT 1"
    return state.execute(query, (kind,)).fetchone() is not None


def kept_names(state: RunState) -> list[str]:
    """Return the names of the data that the outputs hold beside images."""
    query = "SELECT DISTINCT name FROM kept JOIN sources USING (path) WHERE state = 'released' ORDER BY name"
    return [name for (name,) in state.execute(query)]


def not_kept(state: RunState) -> list[str]:
    """Return the names of --keep that nothing had, if anything was released: most likely they are misspelt."""
    if not count_states(state)[FileState.RELEASED]:
        return []
    kept = {*kept_names(state)}
    return [name for name in state.get("parameters")["keep"] if not {name, CIFAR_ENDINGS.get(name)} & kept]


def ledger_entries(bits: int | None = None) -> Selection:
    """Select the entries of releases in the ledger: of one word length, or of all ever made, lost ones included."""
    entries = (
        "SELECT release, number, stream FROM ledger_entries "
        "JOIN releases ON releases.id = release JOIN outputs USING (path)"
    )
    if bits is None:
        return entries, ()
    return f"{entries} JOIN sources USING (path) WHERE state = 'released' AND bits = ?", (bits,)
