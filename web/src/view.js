/**
 * The view: shrinking, in exact integers. Colour and pruning are in the kernel.
 * See src/ldp_slicing/view.py, which is the definition; tests compare the two.
 */

import { LdpSlicingError } from "./errors.js";

/** @typedef {"haar" | "haar2" | "haar4" | "haar8" | "dct" | null} Prune */
/** @typedef {{width: number, height: number, pad: true}} Padded smaller sources are surrounded by black, not refused */
/** @typedef {number | [number, number] | Padded | null} Size of releases: the longest side, or width and height */
/** @typedef {{top: number, left: number, height: number, width: number, releasedHeight: number, releasedWidth: number}} Shrinking */
/** @typedef {Uint8Array | Uint8ClampedArray | Uint16Array} Samples */

/** @type {Record<string, number>} */
const BLOCK = { none: 1, haar: 2, haar2: 2, haar4: 2, haar8: 2, dct: 8 };
/** @type {Record<string, number>} */
const GAIN = { haar2: 2, haar4: 4, haar8: 8 };

/** @param {Prune} prune  @returns {number} the side of the block whose mean is removed */
export function blockOf(prune) {
  const block = BLOCK[prune ?? "none"];
  if (!block) throw new LdpSlicingError(`prune must be one of null, ${Object.keys(BLOCK).slice(1).join(", ")}; got ${prune}`);
  return block;
}

/** @param {Prune} prune  @returns {number} the factor by which the remaining detail is amplified */
export const gainOf = (prune) => GAIN[prune ?? ""] ?? 1;

/** @param {Size} size  @returns {string} the size in words, as the card has it */
export function sizing(size) {
  if (size === null) return "that of the source";
  if (typeof size === "number") return `at most ${size} x ${size}`;
  if (Array.isArray(size)) return `${size[0]} x ${size[1]}`;
  return `${size.width} x ${size.height}, smaller sources padded with black`;
}

/**
 * @param {Size} size  @param {number} height  @param {number} width
 * @returns {Shrinking | null} how a source is shrunk, or null if all of it is released in its size
 */
export function shrinkingOf(size, height, width) {
  if (size === null || size === undefined) return null;
  const sides = typeof size === "number" ? [size] : Array.isArray(size) ? size : [size.width, size.height];
  if (!sides.every((side) => Number.isInteger(side) && side >= 1) || sides.length > 2) {
    throw new LdpSlicingError(`size must be the longest side of a release in pixels, or [width, height]; got ${sides}`);
  }
  const [fitWidth, fitHeight] = sides;
  const how =
    typeof size === "number"
      ? toLongestSide(size, height, width)
      : toFit(fitWidth, fitHeight, !Array.isArray(size), height, width);
  const isSame = how.height === height && how.width === width && how.releasedHeight === height && how.releasedWidth === width;
  return isSame ? null : how;
}

/** @param {number} side  @param {number} height  @param {number} width  @returns {Shrinking} */
function toLongestSide(side, height, width) {
  const longest = Math.max(height, width, side); // for smaller sources it is `side`, so that both sides stay
  const scaled = (/** @type {number} */ length) => Math.max(1, Math.floor((length * side) / longest));
  return { top: 0, left: 0, height, width, releasedHeight: scaled(height), releasedWidth: scaled(width) };
}

/** @param {number} fitWidth  @param {number} fitHeight  @param {boolean} pads  @param {number} height  @param {number} width */
function toFit(fitWidth, fitHeight, pads, height, width) {
  const isSmaller = width < fitWidth || height < fitHeight;
  if (isSmaller && !pads) {
    throw new LdpSlicingError(
      `the image has ${width} x ${height} pixels, but releases of ${fitWidth} x ${fitHeight} were requested, and ` +
        "nothing is enlarged: ask for a smaller size, for a longest side, or for padding",
    );
  }
  // Once padded, a source has the width or the height of the release, so nothing is left to shrink.
  const keptHeight = Math.min(height, isSmaller ? fitHeight : Math.floor((width * fitHeight) / fitWidth));
  const keptWidth = Math.min(width, isSmaller ? fitWidth : Math.floor((height * fitWidth) / fitHeight));
  return {
    top: (height - keptHeight) >> 1,
    left: (width - keptWidth) >> 1,
    height: keptHeight,
    width: keptWidth,
    releasedHeight: fitHeight,
    releasedWidth: fitWidth,
  };
}

/**
 * Write the rows first to end - 1 of a shrunk image. A value is the mean of its rectangle, rounded half up. Padding is black.
 * @param {Samples} source [H, W, channels]  @param {number} width  @param {number} channels
 * @param {Shrinking} how  @param {number} first  @param {number} end
 * @param {Samples} out [rows, released width, channels]
 */
export function shrinkRows(source, width, channels, how, first, end, out) {
  if (how.height < how.releasedHeight || how.width < how.releasedWidth) {
    padRows(source, width, channels, how, first, end, out);
    return;
  }
  const columns = Array.from({ length: how.releasedWidth + 1 }, (_, j) => Math.floor((j * how.width) / how.releasedWidth));
  const line = how.releasedWidth * channels;
  const sums = new Float64Array(line); // exact: far below 2^53
  for (let i = first; i < end; i++) {
    const top = Math.floor((i * how.height) / how.releasedHeight);
    const bottom = Math.floor(((i + 1) * how.height) / how.releasedHeight);
    sums.fill(0);
    for (let y = top; y < bottom; y++) {
      let at = ((how.top + y) * width + how.left) * channels;
      for (let j = 0; j < how.releasedWidth; j++) {
        for (let x = columns[j]; x < columns[j + 1]; x++) {
          for (let c = 0; c < channels; c++) sums[j * channels + c] += source[at++];
        }
      }
    }
    for (let j = 0; j < how.releasedWidth; j++) {
      const area = (bottom - top) * (columns[j + 1] - columns[j]);
      for (let k = j * channels; k < (j + 1) * channels; k++) {
        const twice = 2 * sums[k] + area;
        out[(i - first) * line + k] = (twice - (twice % (2 * area))) / (2 * area);
      }
    }
  }
}

/**
 * Write the rows of a padded image: the rectangle lies in the middle and keeps its pixels.
 * @type {typeof shrinkRows}
 */
function padRows(source, width, channels, how, first, end, out) {
  const above = (how.releasedHeight - how.height) >> 1;
  const left = (how.releasedWidth - how.width) >> 1;
  const line = how.releasedWidth * channels;
  out.fill(0);
  for (let y = Math.max(first, above); y < Math.min(end, above + how.height); y++) {
    const from = ((how.top + y - above) * width + how.left) * channels;
    out.set(source.subarray(from, from + how.width * channels), (y - first) * line + left * channels);
  }
}
