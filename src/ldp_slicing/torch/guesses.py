"""Best guesses of what releases show, as images to look at: the posterior mean of each pixel of the view.

A guess is post-processing of a release, so it reveals nothing more. It is not a release: it has other pixels, no card
and no promise of its own. So that nobody takes it for one, its file name ends with ``.guess.png``, a text in the file
says what it is, and ``verify`` refuses it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from ldp_slicing.card import Statement
from ldp_slicing.errors import ImageError, ReleaseError
from ldp_slicing.images import read_image
from ldp_slicing.opened import Item, OpenedReleases
from ldp_slicing.plan import Plan
from ldp_slicing.sets import CARD_NAME
from ldp_slicing.torch.decode import FIT_ROUNDS, FIT_STEPS, Decoder, check_plan
from ldp_slicing.torch.images import pixels_to_tensor
from ldp_slicing.torch.reconstruct import Reconstructor
from ldp_slicing.torch.simulate import apply_view, to_rgb

SUFFIX = ".guess.png"
REMARK = "A guess by ldp-slicing: expected pixels, computed from a release and its card. Not a release, not a source."
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})
MOST_FITTED = 1000  # releases from which the distribution of values is estimated
PIXELS_AT_ONCE = 1 << 15  # of a batch; a larger image is alone. More is no faster, and needs more memory
_LONGEST_NAME = 100
_LEAST = 1e-30  # what rounding may make 0 or less
Guess = Callable[[Tensor], Tensor]


def write_guesses(
    opened: OpenedReleases,
    folder: Path,
    *,
    public: Path | None = None,
    network: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write a guess of every release to a new folder, or nothing; return how many there are.

    public: a folder of public images of the same kind, whose values are the prior; by default it is estimated from the
    releases. network: the file of a ``Reconstructor``, which guesses each pixel from those around it, too.
    """
    try:
        _check_target(folder)
        return _write(opened, folder, public, network, progress or (lambda done, total: None))
    except OSError as error:  # whatever is read raises a ReleaseError
        raise ReleaseError(f"{folder} cannot be written: {error.strerror or error}") from None


def _write(
    opened: OpenedReleases,
    folder: Path,
    public: Path | None,
    network: Path | None,
    progress: Callable[[int, int], None],
) -> int:
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True)  # raises if another process writes to it
    try:
        guessers: dict[int, Guess] = {}
        about = PngInfo()
        about.add_text("Comment", REMARK)
        names, done = _names(opened.items), 0
        for bits, batch in _batches(opened):
            if bits not in guessers:
                guessers[bits] = _guesser(opened, opened.card.statement(bits), public, network)
            for pixels, name in zip(guessers[bits](batch).permute(0, 2, 3, 1).numpy(), names, strict=False):
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).save(path, pnginfo=about)
            done += len(batch)
            progress(done, len(opened))
        if folder.exists():
            folder.rmdir()  # it is empty
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise
    return len(opened)


def _batches(opened: OpenedReleases) -> Iterator[tuple[int, Tensor]]:
    """Yield all releases in order, those of one kind and size that follow each other as [N, C, H, W], after their bits.

    A network takes several times as long for small images one by one.
    """
    batch, before = list[Tensor](), 0
    for number in range(len(opened)):
        released = opened.load(number)
        image = pixels_to_tensor(released.pixels)
        is_full = (len(batch) + 1) * released.pixels.shape[0] * released.pixels.shape[1] > PIXELS_AT_ONCE
        if batch and (is_full or released.bits != before or image.shape != batch[0].shape):
            yield before, torch.stack(batch)
            batch.clear()
        batch.append(image)
        before = released.bits
    if batch:
        yield before, torch.stack(batch)


def _check_target(folder: Path) -> None:
    here = folder.absolute()
    if here.exists() and (not here.is_dir() or any(here.iterdir())):
        raise ReleaseError(f"{folder} exists and is not an empty folder: name a new folder for the guesses")
    if here.with_name(f"{here.name}.partial").exists():
        raise ReleaseError(f"{folder}.partial exists: another run writes to it, or was interrupted; then remove it")
    for parent in here.parents:
        if (parent / CARD_NAME).exists():
            raise ReleaseError(f"{folder} is inside the releases of {parent}: guesses must not lie among releases")


def _names(items: Sequence[Item]) -> Iterator[str]:
    """Yield a path for each guess. Names of members may be anything, so only letters, digits, -, _ and . are kept."""
    taken = set[str]()
    for number, item in enumerate(items):
        member = re.sub(r"[^\w.-]+", "_", item.member.name).strip(".")[-_LONGEST_NAME:]
        path = f"{item.path}/{member or number}" if item.member.name else item.path
        path = path.removesuffix(".png")
        if path.casefold() in taken:
            path = f"{path}-{number}"
        taken.add(path.casefold())
        yield f"{path}{SUFFIX}"


def _guesser(opened: OpenedReleases, stated: Statement, public: Path | None, network: Path | None) -> Guess:
    """Return a function from releases [N, C, H, W] to uint8 [N, C, H, W], RGB or grey."""
    plan = stated.plan
    if plan.word_bits not in (8, 24):
        if public is not None or network is not None:
            raise ReleaseError(f"public images and networks serve colour and 8-bit grey; got {plan.word_bits} bits")
        table = _grey_table(_count_words(opened, plan), plan)
        return lambda released: table[released.long()]
    decoder: Decoder | Reconstructor
    if network is not None:
        decoder = _load_network(network, stated)
    elif public is not None:
        decoder = Decoder(plan, public_prior(public, stated), prune=stated.prune)
    else:
        decoder = Decoder.fit(_some_releases(opened, plan), plan, prune=stated.prune)

    def guess(released: Tensor) -> Tensor:
        expected = decoder.expect(released).round_().int()
        return (to_rgb(expected) if plan.is_colour else expected).to(torch.uint8)

    return guess


def _load_network(path: Path, stated: Statement) -> Reconstructor:
    if not path.is_file():
        raise ReleaseError(f"{path} is not a file: name the file of a Reconstructor")
    try:
        found = Reconstructor.from_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception:  # a damaged file raises anything, and PyTorch advises to trust the file, which may hold code
        raise ReleaseError(
            f"{path} holds no reconstructor: write one with torch.save(reconstructor.state_dict(), FILE)"
        ) from None
    check_plan(found.plan, stated.plan)
    if found.prune != stated.prune:
        raise ReleaseError(f"{path} is for pruning {found.prune or 'none'}; the card states {stated.prune or 'none'}")
    return found


def public_prior(folder: Path, stated: Statement) -> Tensor:
    """Return float64 [C, 256]: how often each value occurs in the views of public images, and once more each.

    The views are those of the card, so that public images are shrunk and pruned as the sources were.
    """
    colour = stated.plan.is_colour
    counts = torch.ones(3 if colour else 1, 256, dtype=torch.float64)
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder: name a folder of public images")
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
    if not files:
        raise ReleaseError(f"{folder} has no public images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    for path in files[:: -(-len(files) // MOST_FITTED)]:
        try:
            pixels = read_image(path).pixels
            if pixels.dtype != np.uint8:
                raise ImageError("it has 16 bits per channel")
            image = Image.fromarray(pixels).convert("RGB" if colour else "L")
            values = torch.from_numpy(np.array(image)).reshape(1, image.height, image.width, -1).permute(0, 3, 1, 2)
            view = apply_view(values, stated.prune, colour=colour, size=stated.size)
        except (ImageError, OSError, TypeError, ValueError) as error:
            raise ReleaseError(f"{path} is no public image of 8 bits that fits: {error}") from None
        for count, channel in zip(counts, view[0], strict=True):
            count += torch.bincount(channel.flatten(), minlength=256)
    return counts


def _some_releases(opened: OpenedReleases, plan: Plan) -> Iterator[Tensor]:
    """Yield [1, C, H, W] of up to MOST_FITTED releases of a plan, from the whole set."""
    for number in range(0, len(opened), -(-len(opened) // MOST_FITTED)):
        released = opened.load(number)
        if released.bits == plan.word_bits:
            yield pixels_to_tensor(released.pixels)[None]


def _count_words(opened: OpenedReleases, plan: Plan) -> Tensor:
    counts = torch.zeros(1 << plan.word_bits, dtype=torch.float64)
    for released in _some_releases(opened, plan):
        counts += torch.bincount(released.flatten().long(), minlength=len(counts))
    return counts


def _grey_table(counts: Tensor, plan: Plan) -> Tensor:
    """Return uint8 [2^d]: the posterior mean of each released grey word of d bits, scaled to 0 to 255.

    ``Decoder`` tabulates P(r | v) of all pairs of words, too many for 16 bits. But P(r | v) depends on r XOR v
    alone, so that a sum over v is a convolution, and the Walsh-Hadamard transform makes it a product. The prior is
    fitted by the same steps as in ``Decoder.fit``, from a uniform one.
    """
    values = torch.arange(len(counts))
    if bool(counts[values & ~plan.kept_bits != plan.dropped_value].any()):
        raise ReleaseError(f"some pixels have words that {plan!r} never releases: the files are not as released")
    chances = torch.ones(len(counts), dtype=torch.float64)
    for part in plan.slices:
        missed = float(plan.tables.miss_probability(part.bits))
        chances *= missed * (values & part.bits == 0) + (1 - missed) / (1 << part.bits.bit_count())
    spectrum = _walsh_hadamard(chances)

    def convolved(some: Tensor) -> Tensor:
        return (_walsh_hadamard(_walsh_hadamard(some) * spectrum) / len(some)).clamp_min(_LEAST)

    prior = torch.full_like(chances, 1 / len(chances))
    for _ in range(FIT_ROUNDS * FIT_STEPS):
        prior = prior * convolved(counts / counts.sum() / convolved(prior))
        prior = prior / prior.sum()
    means = convolved(prior * values) / convolved(prior)
    return (means * 255 / (len(counts) - 1)).round_().clamp_(0, 255).to(torch.uint8)


def _walsh_hadamard(some: Tensor) -> Tensor:
    """Return the Walsh-Hadamard transform of a vector of 2^d numbers, without a factor."""
    step = 1
    while step < len(some):
        pairs = some.view(-1, 2, step)
        some = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), 1).flatten()
        step *= 2
    return some
