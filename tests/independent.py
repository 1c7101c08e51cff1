"""The mechanism a second time: section 17 of docs/proofs.md in exact numbers. It imports nothing of the package."""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Shrinking = tuple[int, ...]  # top, left, height and width of the kept rectangle; height and width of the release
View = Shrinking | None
Slices = list[tuple[int, float]]  # (bits of the word, eps), in the order of the plan

ONE, COLUMN = 2**64, 2**56  # probability 1; the weight of each of the 256 columns
DIGITS = 120  # of decimal arithmetic: twice what the specification needs
PRUNE = {None: (1, 1), "haar": (2, 1), "haar2": (2, 2), "haar4": (2, 4), "haar8": (2, 8), "dct": (8, 1)}  # side, gain


class Raster(NamedTuple):
    """An image: its pixels row by row, each a tuple of one channel (grey) or three (colour)."""

    height: int
    width: int
    pixels: list[tuple[int, ...]]


def float_below(value: Fraction) -> float:
    """The largest float that is not above ``value``."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def split(epsilon: float, shares: list[tuple[int, Fraction]]) -> Slices:
    """Divide eps over slices in proportion to their shares, each rounded down. A share of 0 drops its bits."""
    total = sum(share for _, share in shares)
    return [(bits, float_below(Fraction(epsilon) * share / total)) for bits, share in shares if share]


def one_bit_slices(epsilon: float, importance: dict[int, Fraction]) -> Slices:
    """Slices from the highest bit down, each with a share of eps that is the square root of its bit's importance."""
    with localcontext(prec=DIGITS):
        roots = {b: (Decimal(w.numerator) / Decimal(w.denominator)).sqrt() for b, w in importance.items()}
    return split(epsilon, [(1 << b, Fraction(roots[b])) for b in sorted(roots, reverse=True)])


def paper(epsilon: float, weights: tuple[float, ...] = (4, 1, 1)) -> Slices:
    """The paper's plan for words of 24 bits."""
    return one_bit_slices(epsilon, {b: Fraction(weights[2 - b // 8]) * 2 ** (b % 8) for b in range(24)})


class Group(NamedTuple):
    """Bits that are drawn together. Column c gives ``own[c]`` below ``thresholds[c]``, and ``other[c]`` otherwise."""

    bits: int
    is_wide: bool
    thresholds: list[int]
    own: list[int]
    other: list[int]


class Tables(NamedTuple):
    """The groups of a plan for words of ``word_bits`` bits."""

    word_bits: int
    groups: list[Group]

    def lanes(self, group: Group) -> int:
        """Lanes of keystream that a group takes from each block of pixels."""
        return 1 + (group.is_wide and (1 if self.word_bits <= 16 else 2))

    def arrays(self) -> dict[str, bytes]:
        """The arrays first, rest, outcome and uniform, as bytes."""
        planes = range((self.word_bits + 7) // 8)
        sides = [side for group in self.groups for side in (group.own, group.other)]
        return {
            "first": bytes(t >> 48 for group in self.groups for t in group.thresholds),
            "rest": b"".join((t % 2**48).to_bytes(8, "little") for group in self.groups for t in group.thresholds),
            "outcome": bytes(word >> 8 * p & 255 for side in sides for p in planes for word in side),
            "uniform": bytes(group.is_wide for group in self.groups),
        }

    def realised(self) -> float:
        """The realised eps: the sum over the groups of ln(heaviest mask / lightest mask), rounded up to a float."""
        ratio = math.prod(_ratio(group) for group in self.groups)
        with localcontext(prec=DIGITS):
            return -float_below(-Fraction((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()))


def build(slices: Slices, word_bits: int) -> Tables:
    """The tables of a plan. A slice joins the group before it if that stays within 8 bits and eps 32."""
    groups: list[Slices] = [[]]
    for part in slices:
        joined = [*groups[-1], part]
        fits = sum(bits.bit_count() for bits, _ in joined) <= 8 and sum(Fraction(eps) for _, eps in joined) <= 32
        groups = [*groups[:-1], joined] if fits else [*groups, [part]]
    return Tables(word_bits, [_group(group) for group in groups if group])


def hit_weight(values: int, epsilon: float) -> int:
    """The probability that a slice is hit, over 2^64, rounded up."""
    with localcontext(prec=DIGITS):  # long before eps 1000 the result is 1, and e^eps must not overflow
        return math.ceil(Decimal(ONE * values) / (Decimal(min(epsilon, 1000.0)).exp() + (values - 1)))


def _group(slices: Slices) -> Group:
    bits = sum(part for part, _ in slices)
    is_wide, hit = bits.bit_count() > 8, hit_weight(1 << bits.bit_count(), slices[0][1])
    masks = [0, bits] if is_wide else _words_within(bits)
    thresholds, aliases = _columns([ONE - hit, hit] if is_wide else _weights(slices, masks))
    word_of = [*masks, *[0] * (256 - len(masks))]
    return Group(bits, is_wide, thresholds, word_of, [word_of[alias] for alias in aliases])


def _words_within(bits: int) -> list[int]:
    """All words without a bit outside ``bits``, in ascending order."""
    places = [b for b in range(24) if bits >> b & 1]
    return [sum((number >> i & 1) << place for i, place in enumerate(places)) for number in range(1 << len(places))]


def _weights(slices: Slices, masks: list[int]) -> list[int]:
    exact = [Fraction(1)] * len(masks)
    for bits, epsilon in slices:
        hit = Fraction(hit_weight(values := 1 << bits.bit_count(), epsilon), ONE)
        change, same = hit / values, 1 - hit + hit / values
        exact = [p * (change if mask & bits else same) for p, mask in zip(exact, masks, strict=True)]
    weights = [0, *[math.ceil(ONE * p) for p in exact[1:]]]
    weights[0] = ONE - sum(weights)
    if min(weights) <= 0 or Fraction(max(weights), min(weights)) > max(exact) / min(exact):
        return [ONE // len(masks)] * len(masks)
    return weights


def _columns(weights: list[int]) -> tuple[list[int], list[int]]:
    """Walker's alias method: the threshold of each column, and the index of the outcome from there on."""
    left, aliases = weights + [0] * (256 - len(weights)), list(range(256))
    small, large = [c for c in range(256) if left[c] < COLUMN], [c for c in range(256) if left[c] > COLUMN]
    while small:
        column, donor = small.pop(), large.pop()
        aliases[column] = donor
        left[donor] -= COLUMN - left[column]
        if left[donor] != COLUMN:
            (large if left[donor] > COLUMN else small).append(donor)
    return [0 if aliases[c] == c else left[c] for c in range(256)], aliases


def _ratio(group: Group) -> Fraction:
    """The heaviest mask of a group over its lightest one, from the columns."""
    weights = dict.fromkeys([0, group.bits] if group.is_wide else _words_within(group.bits), 0)
    for threshold, own, other in zip(group.thresholds, group.own, group.other, strict=True):
        weights[own] += threshold
        weights[other] += COLUMN - threshold
    if group.is_wide:  # each of its values has an equal share of the hits
        return 1 + Fraction(weights[0] << group.bits.bit_count(), weights[group.bits])
    return Fraction(max(weights.values()), min(weights.values()))


def draw_masks(tables: Tables, key: bytes, pixels: int) -> list[int]:
    """The masks of an image's pixels."""
    lanes = sum(tables.lanes(group) for group in tables.groups)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(-(-pixels // 64) * lanes * 128))
    numbers = struct.unpack(f"<{len(stream) // 2}H", stream)
    ties = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    masks, lane = [0] * pixels, 0
    for g, group in enumerate(tables.groups):
        for pixel in range(pixels):
            at = (pixel // 64 * lanes + lane) * 64 + pixel % 64
            column, first = divmod(numbers[at], 256)
            threshold = group.thresholds[column]
            if first == threshold >> 48:
                block = ties.update((2**64 + pixel * len(tables.groups) + g).to_bytes(16, "big"))
                first, threshold = int.from_bytes(block[:6], "little"), threshold % 2**48 << 48
            outcome = group.own[column] if first < threshold >> 48 else group.other[column]
            for extra in range(1, tables.lanes(group)):
                outcome &= numbers[at + 64 * extra] << 16 * (extra - 1) | ~(0xFFFF << 16 * (extra - 1))
            masks[pixel] |= outcome
        lane += tables.lanes(group)
    return masks


def shrinking(size: int | tuple[int, int], height: int, width: int) -> Shrinking | None:
    """How a source is shrunk to a longest side, or to a width and height, to which it is padded. None: it is not."""
    if isinstance(size, tuple):
        w, h = size
        padded_height, padded_width = max(height, h), max(width, w)
        rows, columns = min(height, padded_width * h // w), min(width, padded_height * w // h)
    else:
        longest, rows, columns = max(height, width, size), height, width
        h, w = max(1, height * size // longest), max(1, width * size // longest)
    how = ((height - rows) // 2, (width - columns) // 2, rows, columns, h, w)
    return None if how[2:] == 2 * (height, width) else how


def shrink(source: Raster, how: Shrinking) -> Raster:
    """The source after shrinking: each pixel is the mean of a rectangle, rounded half up."""
    top, left, rows, columns, height, width = how
    pixels = []
    if rows < height or columns < width:
        above, before, black = (height - rows) // 2, (width - columns) // 2, (0,) * len(source.pixels[0])
        for y, x in product(range(-above, height - above), range(-before, width - before)):
            is_inside = 0 <= y < rows and 0 <= x < columns
            pixels.append(source.pixels[(top + y) * source.width + left + x] if is_inside else black)
        return Raster(height, width, pixels)
    for i, j in product(range(height), range(width)):
        ys = range(top + i * rows // height, top + (i + 1) * rows // height)
        xs = range(left + j * columns // width, left + (j + 1) * columns // width)
        sums = map(sum, zip(*(source.pixels[y * source.width + x] for y, x in product(ys, xs)), strict=True))
        pixels.append(tuple(math.floor(Fraction(total, len(ys) * len(xs)) + Fraction(1, 2)) for total in sums))
    return Raster(height, width, pixels)


def view(source: Raster, word_bits: int, prune: str | None) -> list[int]:
    """The words of an image before the noise."""
    depth, words = 8 if word_bits == 24 else word_bits, [0] * len(source.pixels)
    for plane in zip(*map(_to_ycbcr, source.pixels) if word_bits == 24 else source.pixels, strict=True):
        pruned = _prune(plane, source.height, source.width, depth, prune)
        words = [word << 8 | value for word, value in zip(words, pruned, strict=True)]
    return words


def _to_ycbcr(rgb: tuple[int, ...]) -> tuple[int, ...]:
    rows = ((19595, 38470, 7471, 32768), (-11059, -21709, 32768, 8421375), (32768, -27439, -5329, 8421375))
    return tuple(sum(factor * value for factor, value in zip(row, (*rgb, 1), strict=True)) >> 16 for row in rows)


def _to_rgb(ycbcr: tuple[int, ...]) -> tuple[int, ...]:
    y, cb, cr = ycbcr[0], ycbcr[1] - 128, ycbcr[2] - 128
    shifts = (91881 * cr + 32768, -22554 * cb - 46802 * cr + 32768, 116130 * cb + 32768)
    return tuple(min(max(y + (shift >> 16), 0), 255) for shift in shifts)


def _prune(plane: tuple[int, ...], height: int, width: int, depth: int, prune: str | None) -> list[int]:
    side, gain = PRUNE[prune]
    if side == 1:
        return list(plane)
    sums = {}
    for y, x in product(range(0, height, side), range(0, width, side)):
        cells = product(range(y, y + side), range(x, x + side))
        sums[y, x] = sum(plane[min(row, height - 1) * width + min(column, width - 1)] for row, column in cells)
    area, middle = side**2, (side**2 << depth - 1) + side**2 // 2
    details = (area * v - sums[i // width // side * side, i % width // side * side] for i, v in enumerate(plane))
    return [min(max((gain * detail + middle) // area, 0), (1 << depth) - 1) for detail in details]


def release(source: Raster, tables: Tables, prune: str | None, key: bytes, *, rgb: bool = False) -> Raster:
    """The release of an image: of a colour image in YCbCr or, with ``rgb``, in RGB."""
    kept, is_colour, constant = sum(group.bits for group in tables.groups), tables.word_bits == 24, 0
    for shift in (0, 8, 16) if is_colour else (0,):
        dropped = ~kept >> shift & (255 if is_colour else (1 << tables.word_bits) - 1)
        constant |= 1 << dropped.bit_length() >> 1 << shift  # the highest dropped bit of the channel, if there is one
    masks = draw_masks(tables, key, len(source.pixels))
    words = [(w ^ m) & kept | constant for w, m in zip(view(source, tables.word_bits, prune), masks, strict=True)]
    pixels = [(word >> 16, word >> 8 & 255, word & 255) if is_colour else (word,) for word in words]
    return source._replace(pixels=[_to_rgb(pixel) for pixel in pixels] if rgb and is_colour else pixels)


def frame(*parts: bytes) -> bytes:
    """Parts, each after its length in 8 bytes, most significant first."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def source_digest(source: Raster, depth: int, *, floats: bool = False) -> bytes:
    """SHA-256 of an image with ``depth`` bits per channel."""
    numbers = b"".join(n.to_bytes(8, "big") for n in (source.height, source.width, len(source.pixels[0]), depth))
    code = {32: "<f", 64: "<d"}[depth] if floats else "<B" if depth <= 8 else "<H" if depth <= 16 else "<I"
    values = b"".join(struct.pack(code, value) for pixel in source.pixels for value in pixel)
    kind = b"ldp-slicing floats 1" if floats else b"ldp-slicing source 1"
    return hashlib.sha256(frame(kind, numbers, values)).digest()


def tables_digest(tables: Tables) -> bytes:
    """SHA-256 of the tables."""
    groups = b"".join(group.bits.to_bytes(4, "big") for group in tables.groups)
    head = (b"ldp-slicing tables 1", tables.word_bits.to_bytes(4, "big"), groups)
    return hashlib.sha256(frame(*head, *tables.arrays().values())).digest()


def image_key(
    secret: bytes, name: bytes | None, digest: bytes, tables: Tables, prune: str | None, how: View = None, to: str = ""
) -> bytes:
    """The key of an image under a run key or, where ``name`` is None, under an owner's key."""
    kind = (b"ldp-slicing owner's key 1",) if name is None else (b"ldp-slicing run key 1", name)
    small = () if how is None else (b"".join(number.to_bytes(8, "big") for number in how),)
    mapped = (b"range " + to.encode(),) if to else ()
    seen = frame((prune or "none").encode(), b"YCbCr" if tables.word_bits == 24 else b"grey", *small, *mapped)
    return hmac.digest(secret, frame(*kind, digest, tables_digest(tables), seen, (1).to_bytes(4, "big")), "sha256")


def range_word(word: int, low: Fraction, high: Fraction, bits: int, slope: Fraction, intercept: Fraction) -> int:
    """The word of a range for a word of the source that shows low values as black."""
    scaled = (slope * word + intercept - low) * (2**bits - 1) / (high - low)
    return max(0, min(2**bits - 1, math.floor(scaled + Fraction(1, 2))))


def output_name(secret: bytes, name: bytes) -> str:
    """The random name of an item's release."""
    return hmac.digest(secret, frame(b"ldp-slicing output name 1", name), "sha256").hex()[:32]
