"""One file to one file, or a folder tree to a mirrored tree of PNG files with a card."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.card import Card, Statement
from ldp_slicing.errors import LdpSlicingError, ReleaseError
from ldp_slicing.images import Canvas, read_image, write_atomically
from ldp_slicing.plan import COLOUR_BITS, Plan
from ldp_slicing.release.names import find_files, release_names
from ldp_slicing.slicer import Slicer
from ldp_slicing.view import Prune

CARD_NAME = "card.json"
Pair = tuple[PurePath, PurePath]  # source and release, relative to their folders


@dataclass(frozen=True)
class Recipe:
    """How sources are released: the paper's plan that fits each image."""

    epsilon: float = 20.0
    weights: tuple[float, float, float] = (4, 1, 1)
    prune: Prune = "haar"
    compression: int = 0

    def slicer(self, word_bits: int) -> Slicer:
        return _slicer(self, word_bits)


@lru_cache(maxsize=16)
def _slicer(recipe: Recipe, word_bits: int) -> Slicer:
    plan = Plan.paper(recipe.epsilon, recipe.weights) if word_bits == COLOUR_BITS else Plan.grey(recipe.epsilon, word_bits)
    return Slicer(plan, prune=recipe.prune)


@dataclass(frozen=True)
class Item:
    """What became of one source: released (``size``, ``word_bits``), or not (``problem``)."""

    source: PurePath
    release: PurePath | None = None
    problem: str | None = None
    notices: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    word_bits: int = 0


@dataclass
class Job:
    """A release to be made. ``run`` makes it, item by item; the card is written when it ends, for whatever was released by then.

    ``card_problem`` says why that could not be done.
    """

    recipe: Recipe
    source: Path
    target: Path
    card_path: Path
    pairs: list[Pair]
    items: list[Item] = field(default_factory=list)  # what is done; at first, what cannot be
    card_problem: str | None = None
    total: int = field(init=False)
    _kept: threading.local = field(default_factory=threading.local, repr=False)  # holds releases only, never a source

    def __post_init__(self) -> None:
        self.total = len(self.pairs) + len(self.items)

    @property
    def released(self) -> list[Item]:
        return [item for item in self.items if item.problem is None]

    @property
    def problems(self) -> list[Item]:
        return [item for item in self.items if item.problem is not None]

    def run(self, workers: int = 1) -> Generator[Item]:
        """Yields each item as it is done. Stopping early leaves whole files and a card that is true of them."""
        try:
            with closing(_in_threads(self._do, self.pairs, workers)) as items:
                yield from items
        finally:
            if card := self.card():
                try:
                    write_atomically(self.card_path, [card.to_json().encode() + b"\n"])
                except OSError as error:
                    self.card_problem = f"the card could not be written: {error.strerror}"

    def card(self) -> Card | None:
        """The statement about what was released, if anything was."""
        statements = []
        for word_bits in sorted({item.word_bits for item in self.released}, reverse=True):
            slicer = self.recipe.slicer(word_bits)
            sizes = tuple(item.size for item in self.released if item.word_bits == word_bits)
            statements.append(Statement(slicer.plan, slicer.prune, slicer.output, sizes))
        return Card(tuple(statements)) if statements else None

    def _do(self, pair: Pair) -> Item:
        item = self._release_one(pair)
        self.items.append(item)  # here, not where it is yielded: a release that ends while the run is stopped counts too
        return item

    def _canvas(self, pixels: NDArray[np.unsignedinteger]) -> Canvas:
        """A canvas for a release of ``pixels``: this thread's last one where it fits, since fresh memory costs more than the kernel."""
        wanted, kept = (pixels.shape, pixels.dtype), self._kept
        if getattr(kept, "fits", None) != wanted:
            kept.fits, kept.canvas = wanted, Canvas(*wanted)
        canvas: Canvas = kept.canvas
        return canvas

    def _release_one(self, pair: Pair) -> Item:
        name, release_name = pair
        try:
            decoded = read_image(self.source / name)
            word_bits = COLOUR_BITS if decoded.pixels.ndim == 3 else 8 * decoded.pixels.dtype.itemsize
            canvas = self._canvas(decoded.pixels)
            self.recipe.slicer(word_bits).release_into(decoded.pixels, canvas.pixels)
            target = self.target / release_name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, canvas.encode(self.recipe.compression))
        except LdpSlicingError as error:
            return Item(name, problem=str(error))
        except Exception as error:  # whatever it is, it concerns this source: it is named, and the others go on
            return Item(name, problem=f"could not be released: {getattr(error, 'strerror', None) or repr(error)}")
        height, width = decoded.pixels.shape[:2]
        return Item(name, release_name, None, decoded.notices, (width, height), word_bits)


def prepare(source: Path, target: Path, recipe: Recipe) -> Job:
    """Check everything that can be checked before the first source is opened."""
    recipe.slicer(COLOUR_BITS)  # refuses a wrong epsilon, weights or pruning
    recipe.slicer(8)
    try:
        if not source.exists():
            raise ReleaseError(f"{source} does not exist")
        if _overlap(source, target):
            raise ReleaseError(f"{target} and {source} overlap: releases go to a place of their own, outside the sources")
        return _prepare_folder(source, target, recipe) if source.is_dir() else _prepare_file(source, target, recipe)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to one another
        raise ReleaseError(f"{source} cannot be released to {target}: {getattr(error, 'strerror', None) or error}") from None


def _overlap(source: Path, target: Path) -> bool:
    """Whether one is, or is inside, the other: by name, or because the file system says that two names are one place."""
    inside, outside = source.resolve(), target.resolve()
    return any(
        place == whole or (place.exists() and whole.exists() and place.samefile(whole))
        for whole, part in ((inside, outside), (outside, inside))
        for place in (part, *part.parents)
    )


def _prepare_folder(source: Path, target: Path, recipe: Recipe) -> Job:
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise ReleaseError(f"{target} is not an empty folder: releases go to a new or empty one, so that none is mixed with other files")
    found = find_files(source)
    if not found:
        raise ReleaseError(f"{source} holds no files")
    items = [Item(item.path, problem=item.problem or _in_the_way(item.path)) for item in found]
    names = release_names([item.source for item in items if item.problem is None])
    target.mkdir(parents=True, exist_ok=True)
    return Job(recipe, source, target, target / CARD_NAME, list(names.items()), [item for item in items if item.problem])


def _in_the_way(path: PurePath) -> str | None:
    taken = len(path.parts) > 1 and path.parts[0].casefold() == CARD_NAME
    return f"is in a folder that has the name of the card, {CARD_NAME}: rename the folder" if taken else None


def _prepare_file(source: Path, target: Path, recipe: Recipe) -> Job:
    if target.suffix.lower() != ".png":
        raise ReleaseError(f"{target} must end in .png: a release is written without loss")
    card_path = target.with_suffix(".card.json")
    for path in (target, card_path):
        if os.path.lexists(path):
            raise ReleaseError(f"{path} exists already: nothing is overwritten")
    target.parent.mkdir(parents=True, exist_ok=True)
    return Job(recipe, source.parent, target.parent, card_path, [(PurePath(source.name), PurePath(target.name))])


def _in_threads(do: Callable[[Pair], Item], pairs: list[Pair], workers: int) -> Generator[Item]:
    """``do`` of each, in the order they end. Decoding, the kernel and the checksums all run without Python's lock, so threads are enough.

    Only a few tasks wait at a time, so memory does not grow and closing the iterator stops soon.
    """
    if workers < 1:
        raise ReleaseError(f"workers must be at least 1; got {workers}")
    if workers == 1:  # a thread of its own would only cost memory that is given back and asked for again with every image
        yield from map(do, pairs)
        return
    waiting = iter(pairs)
    with ThreadPoolExecutor(workers) as pool:
        running: set[Future[Item]] = {pool.submit(do, pair) for pair in itertools.islice(waiting, workers + 1)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(do, pair) for pair in itertools.islice(waiting, len(done))}
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
