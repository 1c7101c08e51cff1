"""A search for two sources that differ in one pixel and whose releases differ most, to test the source pixel's bound.

The view is the real one (``view.py``), and the likelihood ratio of the pair that is found is exact. The search is the
same in every run: its choices come from a hash. Proof of the bound: docs/proofs.md, 7. Tests:
tests/audit/test_blocks.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp_slicing.audit.exact import SECTION, Group, Ratio, epsilon_of, product, read_groups, worst_ratio
from ldp_slicing.audit.pixel_words import highest_value, view_words
from ldp_slicing.audit.report import Check
from ldp_slicing.plan import Plan
from ldp_slicing.tables import Tables
from ldp_slicing.view import Prune, block_of

# [candidates, pixels of a block + 1, channels]. The last "pixel" is the other value of the first one.
Blocks = NDArray[np.int64]
Costs = NDArray[np.float64]

ROUNDS = 600
CANDIDATES = {2: 2048, 8: 192}  # by the side of the block
STEPS = np.array([1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64])
RESTART_AFTER = 40  # rounds; then the better half of the candidates replaces the worse one


@dataclass(frozen=True)
class WorstPair:
    """The worst pair found: a source block, the other value of its first pixel, and the exact ratio of the releases."""

    block: NDArray[np.int64]  # [side, side, channels]
    other: NDArray[np.int64]  # [channels]
    ratio: Ratio
    tried: int


def block_words(plan: Plan, prune: Prune, blocks: Blocks) -> NDArray[np.int64]:
    """The words after the view, [candidates, pixels], of blocks [candidates, pixels, channels]."""
    count, side, channels = len(blocks), block_of(prune), blocks.shape[2]
    # All blocks side by side in one image, [side, candidates * side, channels].
    image = blocks.reshape(count, side, side, channels).transpose(1, 0, 2, 3).reshape(side, count * side, channels)
    pixels = image if plan.is_colour else image[..., 0]
    words = view_words(pixels.astype(plan.dtype), plan, prune).astype(np.int64)
    return words.reshape(side, count, side).transpose(1, 0, 2).reshape(count, side * side)


def word_differences(plan: Plan, prune: Prune, blocks: Blocks) -> NDArray[np.int64]:
    """The XOR of the words of the two sources, [candidates, pixels]."""
    one, other = blocks[:, :-1], blocks[:, :-1].copy()
    other[:, 0] = blocks[:, -1]
    return block_words(plan, prune, one) ^ block_words(plan, prune, other)


def cost_function(groups: tuple[Group, ...]) -> Callable[[NDArray[np.int64]], Costs]:
    """A function from differences of words to the logarithm of the worst ratio. In floats, for the search only."""
    tables: list[tuple[list[NDArray[np.int64]], Costs]] = []
    for group in groups:
        # What each byte of the word contributes to the index of the group's mask. A wide slice has index 0 and 1.
        places = [b for b in range(group.bits.bit_length()) if group.bits >> b & 1]
        numbers = {b: 0 if group.uniform else i for i, b in enumerate(places)}
        index = [np.zeros(256, np.int64) for _ in range(3)]
        for b, number in numbers.items():
            index[b // 8] |= (np.arange(256) >> b % 8 & 1) << number
        tables.append((index, np.array([epsilon_of(group.ratio_for(difference)) for difference in group.masks])))

    def cost(difference: NDArray[np.int64]) -> Costs:
        total = np.zeros(difference.shape)
        for index, costs in tables:
            total += costs[index[0][difference & 255] | index[1][difference >> 8 & 255] | index[2][difference >> 16]]
        return total

    return cost


def search(plan: Plan, prune: Prune, groups: tuple[Group, ...], rounds: int = ROUNDS) -> WorstPair:
    """Climb from many starting points.

    Most of them are nearly flat blocks, where a small step moves every pixel across a power of two.
    """
    side, channels = block_of(prune), 3 if plan.is_colour else 1
    highest = highest_value(plan)
    count, pixels = CANDIDATES[side], side * side
    cost = cost_function(groups)
    blocks = _starting_blocks(count, pixels, channels, highest)
    best = cost(word_differences(plan, prune, blocks)).sum(axis=1)
    candidates = np.arange(count)
    for turn in range(rounds):
        choice = _fixed_numbers(f"round {turn}", (count, 4))
        moved = blocks.copy()
        where = choice[:, 0] % (pixels + 1)
        # The changed pixel matters most, so half of all moves change it.
        where = np.where(choice[:, 3] & 1, where, np.where(choice[:, 3] & 2, 0, pixels))
        steps = STEPS[choice[:, 1] % len(STEPS)]
        which = choice[:, 2] % (channels + 1)  # one channel, or all of them
        for c in range(channels):
            moved[candidates, where, c] += np.where((which == c) | (which == channels), steps, 0)
        np.clip(moved, 0, highest, out=moved)
        costs = cost(word_differences(plan, prune, moved)).sum(axis=1)
        better = costs >= best  # ties too: many moves leave the cost unchanged
        blocks[better], best[better] = moved[better], costs[better]
        if turn % RESTART_AFTER == RESTART_AFTER - 1:
            order = np.argsort(-best, kind="stable")
            half = count // 2
            blocks[order[half:]], best[order[half:]] = blocks[order[: count - half]], best[order[: count - half]]
    winner = int(np.argmax(best))
    found = word_differences(plan, prune, blocks[winner : winner + 1])[0]
    ratio = product([group.ratio_for(int(word)) for word in found for group in groups])
    return WorstPair(blocks[winner, :-1].reshape(side, side, channels), blocks[winner, -1], ratio, count * (rounds + 1))


def check_blocks(plan: Plan, prune: Prune, tables: Tables) -> list[Check]:
    """Check that one source pixel moves only its block, and how near two sources come to the source pixel's bound."""
    side = block_of(prune)
    size = f"{side} x {side}"
    moved = _pixels_moved_outside_block(plan, prune)
    tested = f"each pixel of a small source changed in turn: view pixels that move outside its {size} block"
    checks = [Check(SECTION, "block", tested, not moved, "moved", moved, "<=", 0)]
    if side == 1:
        return checks
    groups = read_groups(tables)
    found, pixel = search(plan, prune, groups), worst_ratio(groups, plan.kept_bits)
    bound = None if pixel is None else pixel ** (side * side)
    exceeded = pixel is not None and (found.ratio is None or found.ratio > pixel)
    factor = epsilon_of(found.ratio) / epsilon_of(pixel) if pixel is not None and pixel > 1 else 1.0
    checks.append(
        Check(
            SECTION,
            "source pixel",
            f"search over {found.tried:,} pairs of {size} sources that differ in one pixel: the worst is "
            f"{factor:.2f} x the released pixel's epsilon, the bound {side * side} x",
            bound is not None and found.ratio is not None and found.ratio <= bound,
            "epsilon",
            epsilon_of(found.ratio),
            "<=",
            epsilon_of(bound),
            details={
                "source": found.block.tolist(),
                "other_value_of_its_first_pixel": found.other.tolist(),
                "released_pixel_is_exceeded": exceeded,
                "pairs_tried": found.tried,
            },
        )
    )
    return checks


def _pixels_moved_outside_block(plan: Plan, prune: Prune) -> int:
    """Change each source pixel in turn, and count the view pixels that move in other blocks."""
    side = block_of(prune)
    shape = (2 * side + 1, 2 * side + 1, *([3] if plan.is_colour else []))
    highest = highest_value(plan)
    source = (_fixed_numbers("locality", shape) % (highest + 1)).astype(plan.dtype)
    before, block = view_words(source, plan, prune), np.arange(shape[0]) // side
    moved = 0
    for y, x in np.ndindex(shape[:2]):
        changed = source.copy()
        changed[y, x] = highest - changed[y, x]
        outside = (block[:, None] != block[y]) | (block != block[x])
        moved += int(np.count_nonzero((view_words(changed, plan, prune) != before) & outside))
    return moved


def _starting_blocks(count: int, pixels: int, channels: int, highest: int) -> Blocks:
    arbitrary = _fixed_numbers("wild", (count, pixels + 1, channels)) % (highest + 1)
    level = _fixed_numbers("level", (count, 1, 1)) % (highest + 1)
    flat = np.clip(level + _fixed_numbers("flat", arbitrary.shape) % 3 - 1, 0, highest)
    flat[:, [0, -1]] = np.clip(level + _fixed_numbers("own", (count, 2, channels)) % 129 - 64, 0, highest)
    return np.where(np.arange(count)[:, None, None] % 4 == 0, arbitrary, flat)


def _fixed_numbers(name: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """16-bit numbers that are the same in every run."""
    size = int(np.prod(shape))
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(2 * size), "<u2").astype(np.int64).reshape(shape)
