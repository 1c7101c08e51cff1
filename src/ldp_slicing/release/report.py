"""What a worker is given and what it reports: the types that the state, the workers and the pool share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ldp_slicing.errors import Reason


class FileState(StrEnum):
    """What became of one source file. The values are stored in the run's state."""

    WAITING = "waiting"  # not done yet, or stopped before it was done
    RELEASED = "released"
    COPY = "copy"  # left out because its release would repeat another one of this run
    RETRY = "retry"  # failed, but may succeed the next time
    FAILED = "failed"  # cannot be released
    SKIPPED = "skipped"  # not a source: nothing tells that it holds an image


@dataclass(frozen=True)
class FileTask:
    """One source file to release: its path and kind, the path of its output, and its size in bytes."""

    path: str
    kind: str
    output: str
    size: int = 0


@dataclass(frozen=True)
class MemberRelease:
    """One release within an output file. A file of many members has many; a video has one, with many frames.

    ``entry`` is the name of the source within its file, ``member`` the name of the release within the output, and
    ``numbers`` are the release's numbers in the ledger, one per frame. ``source_pixels`` are those of the source before
    it was shrunk.
    """

    member: str | None
    width: int
    height: int
    bits: int
    numbers: tuple[int, ...]
    entry: str = ""
    source_pixels: int = 0
    frames: int = 1


@dataclass(frozen=True)
class SkippedMember:
    """A member of a source file that its output leaves out."""

    member: str
    problem: str
    reason: Reason
    is_copy: bool = False


@dataclass
class FileReport:
    """What a worker reports about one file. The worker fills it in; nobody else changes it.

    Exactly when ``state`` is RELEASED, the output has its name, ``sha256`` and ``size`` describe it, ``releases`` lists
    what it holds, and ``kept`` names the data that is kept beside the images. Otherwise ``problem`` and ``reason`` say
    why nothing was released. ``notices`` says of how many images of the file each notice is true; a notice about the
    file as a whole has 0. ``source_sha256`` is the digest of the source file where all of it was read. ``disk_full`` is
    set when the target had no space left.
    """

    task: FileTask
    state: FileState = FileState.WAITING
    problem: str | None = None
    reason: Reason | None = None
    releases: tuple[MemberRelease, ...] = ()
    kept: set[str] = field(default_factory=set)
    skipped: list[SkippedMember] = field(default_factory=list)
    notices: dict[str, int] = field(default_factory=dict)
    sha256: bytes = b""
    size: int = 0
    source_sha256: bytes | None = None
    disk_full: bool = False

    def note(self, notices: Iterable[str], *, is_image: bool) -> None:
        """Add what the owner should know about the file, or about one more image of it."""
        for notice in notices:
            self.notices[notice] = self.notices.get(notice, 0) + is_image
