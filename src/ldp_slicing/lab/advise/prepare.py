"""What a run begins with: images, settings, the parts of the images, and what is refused. The dry run ends here."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ldp_slicing.errors import DataError, LdpSlicingError
from ldp_slicing.lab.advise.budget import SEEDS
from ldp_slicing.lab.advise.grid import BUDGETS, Setting, default_sides, make_grid
from ldp_slicing.lab.advise.learning import Bench
from ldp_slicing.lab.advise.linking import FEWEST_PAIRS, load_judge
from ldp_slicing.lab.advise.listing import list_sources, read_source
from ldp_slicing.lab.advise.networks import Effort
from ldp_slicing.lab.advise.request import Request, Talk
from ldp_slicing.lab.advise.sources import SourceSet, check_enough, read_sources, to_shape
from ldp_slicing.lab.advise.splits import Parts, linkage_test, split
from ldp_slicing.lab.advise.work import begun, check_work
from ldp_slicing.lab.learners.training import find_device
from ldp_slicing.lab.metrics.shares import Share
from ldp_slicing.plan import COLOUR_BITS
from ldp_slicing.wording import counted

LARGEST = {"cuda": 224, "cpu": 64}  # the longest side that is measured unless the owner names others
MOST_IMAGES = {"cuda": 20_000, "cpu": 4_000}
READING = 0.2  # the share of the time for reading images
SAMPLES = 3
GREY = (
    "the three channels of these images are equal, so they are measured as grey images: convert them to grey before "
    "you release them"
)


def outline(request: Request, talk: Talk) -> None:
    """Say what would be measured, and measure nothing."""
    request.check()
    device = find_device(request.device)
    sources = read(request, device, talk.interrupted, talk)
    grid, parts = prepare(request, sources, device, talk)
    check_work(request.work, parameters_of(request, sources))
    talk.say(f"{counted(len(parts.train), 'image')} to train on, {len(parts.test):,} held out for testing")
    talk.say(f"{counted(len(grid), 'setting')}:")
    by_view: dict[str, list[Setting]] = {}
    for one in sorted(grid, key=lambda one: (-one.size[0], one.prune or "", one.family, one.epsilon)):
        by_view.setdefault(one.words.rpartition(", eps ")[0], []).append(one)
    for words, mine in by_view.items():
        talk.say(f"  {words}, eps {', '.join(f'{one.epsilon:g}' for one in mine)}")


def parameters_of(request: Request, sources: SourceSet) -> dict[str, Any]:
    """The parameters that must be the same when a run is resumed."""
    return request.parameters | {"images": sources.tried, "digest": sources.digest}


def prepare(request: Request, sources: SourceSet, device: torch.device, talk: Talk) -> tuple[list[Setting], Parts]:
    """The settings and the parts. Say how linkage is tested. Refuse in advance what cannot be measured."""
    grid, parts = settings_of(request, sources), split(sources, 0, Effort.on(device).tested)
    width, height = sources.shape
    too_large = ",".join(str(side) for side in request.sizes if side > max(width, height))
    if too_large and not grid:
        raise LdpSlicingError(
            f"--sizes {too_large}: images of {width} x {height} pixels are not enlarged; name smaller sizes"
        )
    if too_large:
        talk.say(f"--sizes {too_large} is left out: images of {width} x {height} pixels are not enlarged")
    if len(parts.train) == 0:
        raise DataError("all images would be held out: there are too few groups in a class; see --groups")
    test = None
    if sources.groups is not None:
        test = linkage_test(sources.labels[parts.test], sources.groups[parts.test], 0)
        several = counted(0 if test is None else len(test.probes), "held-out group")
        guessing = "" if test is None else f"; guessing gives a rank-1 identification rate of {test.chance:.3f}"
        talk.say(f"linkage is tested on {several} with two or more images{guessing}")
    for rule in request.rules:
        if rule.metric not in ("rank_1", "verification"):
            continue
        if test is None or (rule.metric == "verification" and len(test.first) < FEWEST_PAIRS):
            raise DataError(
                f"--{rule.option.replace('_', '-')} cannot be tested: too few held-out groups have two or more images; "
                "see --groups, or use more images"
            )
        if rule.metric == "rank_1" and Share(0, len(test.probes)).interval[1] > rule.bound:
            talk.say(
                f"--max-linkage {rule.bound:g} cannot be shown to be met with "
                f"{counted(len(test.probes), 'held-out group')}: even if no release is identified, the upper end of "
                "the 95 % interval is above the limit. Use more groups"
            )
    _read_samples(request, sources)
    if request.recogniser is not None:
        load_judge(request.recogniser, device)
    return grid, parts


def read(request: Request, device: torch.device, stop: Callable[[], bool], talk: Talk) -> SourceSet:
    items = list_sources(request.source, request.labels, request.groups)
    earlier = begun(request.work).get("images")  # a resumed run reads the same images
    until = time.monotonic() + READING * 60 * request.minutes

    def enough() -> bool:
        return stop() or (earlier is None and time.monotonic() > until)  # stop moves the progress bar, too

    found = read_sources(
        items,
        largest=max(request.sizes) if request.sizes else LARGEST[device.type],
        limit=earlier or request.images or MOST_IMAGES[device.type],
        stop=enough,
    )
    if talk.interrupted():
        raise LdpSlicingError("interrupted while reading images: nothing was measured")
    if earlier is not None and found.tried < min(earlier, found.total):
        raise LdpSlicingError(
            f"--minutes {request.minutes:g} is too short to read the {earlier:,} images of this run again: use a "
            "larger number"
        )
    check_enough(found)
    classes = f", {counted(len(found.classes), 'class', 'classes')}" if found.classes else ", no labels"
    groups = "" if found.groups is None else f", {counted(len(np.unique(found.groups)), 'group')}"
    width, height = found.shape
    talk.say(f"{len(found.labels):,} of {counted(found.total, 'image')} read at {width} x {height}{classes}{groups}")
    if found.converted:
        talk.say(GREY)
    for remark in found.remarks:
        talk.say(remark)
    if found.smallest:
        talk.say(f"the smallest image sets this size: {found.smallest}. Leave out small images to measure larger ones")
    for name, problem in list(found.problems.items())[:1]:
        talk.say(f"{counted(len(found.problems), 'image')} cannot be used; the first is {name}: {problem}")
    return found


def settings_of(request: Request, sources: SourceSet) -> list[Setting]:
    width, height = sources.shape
    longest = max(width, height)
    sides = [side for side in request.sizes or default_sides(longest) if side <= longest]
    sizes = [(max(1, width * side // longest), max(1, height * side // longest)) for side in sides]
    budgets = {family: request.epsilons or BUDGETS[family] for family in request.families}
    bits = 8 if sources.is_grey else COLOUR_BITS
    size = sources.size if sources.tried == sources.total else None  # images that were not read may be larger
    return make_grid(sizes, request.views, request.families, budgets, source=size, word_bits=bits)


def samples_of(request: Request, bench: Bench) -> Tensor:
    """uint8 [K, C, H, W]: the images that the owner named, or some sources that no seed trains on, if there are any."""
    if not request.samples:
        tested = [split(bench.sources, seed, bench.effort.tested).test for seed in (0, *SEEDS)]
        held_out = functools.reduce(np.intersect1d, tested)
        return bench.images[torch.from_numpy((held_out if len(held_out) else tested[0])[:SAMPLES])]
    shaped = _read_samples(request, bench.sources)
    return torch.from_numpy(np.stack(shaped)).permute(0, 3, 1, 2).contiguous().to(bench.device)


def _read_samples(request: Request, sources: SourceSet) -> list[NDArray[np.uint8]]:
    """The images that the owner named, in the shape of the sources."""
    found = []
    for path in request.samples:
        try:
            found.append(to_shape(read_source(path), sources.shape, sources.is_grey))
        except LdpSlicingError as error:
            raise LdpSlicingError(f"--samples {path} cannot be shown: {error}") from None
    return found
