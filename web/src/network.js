/**
 * The attack view: a small U-Net that reconstructs a source from its release, as src/ldp_slicing/lab/page_network.py defines and
 * exports it. Convolutions run in the kernel; everything else is plain JavaScript.
 *
 * A network file: "LDPNET1\n", the length of a JSON header (uint32, little-endian), the header, and for each convolution
 * its weights (outside, inside, 3, 3) and biases in 16-bit floating point.
 */

import { LdpSlicingError } from "./errors.js";
import { toDouble } from "./exact.js";
import { blockOf, gainOf } from "./view.js";

/** @typedef {import("./kernel.js").Kernel} Kernel */
/** @typedef {import("./plan.js").Plan} Plan */
/** @typedef {{widths: number[], inputs: number, name: string, about: string, licence: string, side: number}} Header */
/** @typedef {{inside: number, outside: number, weights: Float32Array, bias: Float32Array}} Layer */
/** Planes of float32 with a border of zeros: see web/kernel/convolve.h. @typedef {{data: Float32Array, channels: number, height: number, width: number}} Planes */

const MAGIC = "LDPNET1\n";
const BORDER = 8;
const MOST_HEADER = 1 << 16;
export const CROP = 112;
const ALIGNED = 8; // of the crop: whole blocks, and three halvings

export class Network {
  /** @param {Header} header  @param {Layer[]} layers */
  constructor(header, layers) {
    this.header = header;
    this.layers = layers;
  }

  /** @param {Uint8Array} bytes  @returns {Network} */
  static parse(bytes) {
    const wrong = new LdpSlicingError("this file is not a network of the attack view: choose one that `ldp-slicing lab page-network` wrote");
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const length = bytes.length >= 12 ? view.getUint32(8, true) : MOST_HEADER;
    const decode = (/** @type {number} */ from, /** @type {number} */ to) => new TextDecoder().decode(bytes.subarray(from, to));
    if (decode(0, 8) !== MAGIC || length >= MOST_HEADER) throw wrong;
    /** @type {Header} */
    const header = JSON.parse(decode(12, 12 + length));
    const shapes = shapesOf(header);
    const count = shapes.reduce((sum, [inside, outside]) => sum + outside * (9 * inside + 1), 0);
    if (bytes.length !== 12 + length + 2 * count) throw wrong;
    let at = 12 + length;
    const take = (/** @type {number} */ values) =>
      Float32Array.from({ length: values }, (_, i) => half(view.getUint16(at + 2 * i, true)));
    const layers = shapes.map(([inside, outside]) => {
      const flat = take(outside * inside * 9);
      at += 2 * flat.length;
      const bias = take(outside);
      at += 2 * outside;
      return arrange(flat, bias, inside, outside);
    });
    return new Network(header, layers);
  }

  /**
   * @param {Kernel} kernel  @param {Planes} x  @param {(share: number) => void} [progress]
   * @returns {Planes} RGB of about 0 to 1, and one plane of zeros
   */
  run(kernel, x, progress) {
    let next = 0;
    const two = (/** @type {Planes} */ input) => {
      let out = input;
      for (let i = 0; i < 2; i++) out = convolve(kernel, out, this.layers[next++], true);
      progress?.(next / this.layers.length);
      return out;
    };
    const skipped = [];
    let out = x;
    for (let scale = 0; scale < this.header.widths.length; scale++) {
      if (scale) {
        skipped.push(out);
        out = halve(out);
      }
      out = two(out);
    }
    while (skipped.length) out = two(join(enlarge(out), /** @type {Planes} */ (skipped.pop())));
    return convolve(kernel, out, this.layers[next], false);
  }

  /**
   * Reconstruct a source from a crop of its release.
   * @param {Kernel} kernel  @param {Crop} crop RGB  @param {Plan} plan  @param {import("./view.js").Prune} prune
   * @param {(share: number) => void} [progress]
   * @returns {Uint8Array} RGB
   */
  reconstruct(kernel, crop, plan, prune, progress) {
    const out = this.run(kernel, inputs(crop, plan, prune), progress);
    const rgb = new Uint8Array(3 * crop.width * crop.height);
    for (let c = 0; c < 3; c++) {
      for (let y = 0, i = c; y < crop.height; y++) {
        const row = start(out, c, y);
        for (let x = 0; x < crop.width; x++, i += 3) {
          rgb[i] = Math.min(255, Math.max(0, Math.floor(255 * out.data[row + x] + 0.5)));
        }
      }
    }
    return rgb;
  }
}

/** @typedef {{pixels: Uint8Array, width: number, height: number, left: number, top: number}} Crop */

/**
 * A part of a release, at most CROP pixels wide and high, on the grid of the pruning blocks.
 * @param {{pixels: Uint8Array, width: number, height: number, channels?: number}} release RGB or grey
 * @param {{x: number, y: number}} [centre] of the part, as shares of width and height
 * @returns {Crop} RGB
 */
export function cropOf({ pixels, width, height, channels = 3 }, { x, y } = { x: 0.5, y: 0.5 }) {
  const part = (/** @type {number} */ length) => Math.min(CROP, length - (length % ALIGNED));
  const from = (/** @type {number} */ length, /** @type {number} */ share) =>
    Math.min(Math.max(0, share * length - part(length) / 2), length - part(length)) & -ALIGNED;
  const crop = { width: part(width), height: part(height), left: from(width, x), top: from(height, y) };
  if (crop.width < 2 * ALIGNED || crop.height < 2 * ALIGNED) {
    throw new LdpSlicingError("the release is too small for the attack view, which needs 16 x 16 pixels");
  }
  const inside = new Uint8Array(3 * crop.width * crop.height);
  for (let y = 0; y < crop.height; y++) {
    const at = channels * ((crop.top + y) * width + crop.left);
    if (channels === 3) inside.set(pixels.subarray(at, at + 3 * crop.width), 3 * y * crop.width);
    else for (let x = 0; x < crop.width; x++) inside.fill(pixels[at + x], 3 * (y * crop.width + x), 3 * (y * crop.width + x + 1));
  }
  return { ...crop, pixels: inside };
}

/** @param {Header} header  @returns {[number, number][]} channels inside and outside of each convolution */
function shapesOf({ widths, inputs: first }) {
  /** @type {[number, number][]} */
  const shapes = [];
  widths.forEach((width, i) => shapes.push([i ? widths[i - 1] : first, width], [width, width]));
  for (let i = widths.length - 2; i >= 0; i--) shapes.push([widths[i + 1] + widths[i], widths[i]], [widths[i], widths[i]]);
  return [...shapes, [widths[0], 4]];
}

/** @param {number} bits of a 16-bit float  @returns {number} */
function half(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024);
}

/** In the order in which the kernel reads them. @param {Float32Array} flat  @param {Float32Array} bias  @param {number} inside  @param {number} outside */
function arrange(flat, bias, inside, outside) {
  const weights = new Float32Array(flat.length);
  for (let o = 0; o < outside; o++) {
    for (let i = 0; i < 9 * inside; i++) weights[((o >> 2) * 9 * inside + i) * 4 + (o & 3)] = flat[o * 9 * inside + i];
  }
  return { inside, outside, weights, bias };
}

/** @param {number} channels  @param {number} height  @param {number} width  @returns {Planes} of zeros */
const empty = (channels, height, width) => ({
  data: new Float32Array(channels * (height + 2) * (width + BORDER)),
  channels,
  height,
  width,
});

/** @param {Planes} planes  @param {number} c  @param {number} y  @returns {number} the index of the first value of a row */
const start = ({ height, width }, c, y) => (c * (height + 2) + y + 1) * (width + BORDER) + 1;

/**
 * What the network sees: each released bit as -1 or 1, times how much it can be trusted; the channels themselves; and
 * the view. src/ldp_slicing/lab/page_network.py has the same. A grey release of 8 bits is one in colour whose Cb and Cr
 * are dropped.
 * @param {Crop} crop  @param {Plan} plan  @param {import("./view.js").Prune} prune  @returns {Planes}
 */
export function inputs({ pixels, width, height }, plan, prune) {
  const planes = empty(29, height, width);
  const below = plan.isColour ? 0 : 16;
  const trust = Array.from({ length: 24 }, (_, i) => {
    const b = i - below;
    return b >= 0 && (plan.keptBits >> b) & 1 ? 1 - 2 * toDouble(plan.tables.flipProbability(1 << b), "nearest") : 0;
  });
  const isPruned = blockOf(prune) > 1 ? 1 : 0;
  const gain = Math.log2(gainOf(prune)) / 3;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 3 * (y * width + x);
      const [r, g, b] = [pixels[at], pixels[at + 1], pixels[at + 2]];
      const luma = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
      const blue = (-11059 * r - 21709 * g + 32768 * b + (128 << 16) + 32767) >> 16;
      const red = (32768 * r - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16;
      const word = (luma << 16) | (blue << 8) | red;
      for (let bit = 0; bit < 24; bit++) planes.data[start(planes, bit, y) + x] = (word >> bit) & 1 ? trust[bit] : -trust[bit];
      [luma - 128, blue - 128, red - 128].forEach((value, c) => (planes.data[start(planes, 24 + c, y) + x] = value / 128));
      planes.data[start(planes, 27, y) + x] = isPruned;
      planes.data[start(planes, 28, y) + x] = gain;
    }
  }
  return planes;
}

/** @param {Kernel} kernel  @param {Planes} x  @param {Layer} layer  @param {boolean} relu  @returns {Planes} */
function convolve(kernel, x, { inside, outside, weights, bias }, relu) {
  const out = empty(outside, x.height, x.width);
  const [input, by, add, output] = kernel.layOut([x.data, weights, bias, out.data].map((array) => array.byteLength));
  const floats = (/** @type {number} */ at, /** @type {number} */ length) => new Float32Array(kernel.run.memory.buffer, at, length);
  floats(input, x.data.length).set(x.data);
  floats(by, weights.length).set(weights);
  floats(add, bias.length).set(bias);
  floats(output, out.data.length).fill(0);
  kernel.run.convolve(input, inside, x.height, x.width, by, add, outside, relu ? 1 : 0, output);
  out.data.set(floats(output, out.data.length));
  return out;
}

/** @param {Planes} x  @returns {Planes} the largest of 2 x 2 values */
function halve(x) {
  const out = empty(x.channels, x.height / 2, x.width / 2);
  for (let c = 0; c < x.channels; c++) {
    for (let y = 0; y < out.height; y++) {
      const [to, one, two] = [start(out, c, y), start(x, c, 2 * y), start(x, c, 2 * y + 1)];
      for (let i = 0; i < out.width; i++) {
        const [a, b] = [one + 2 * i, two + 2 * i];
        out.data[to + i] = Math.max(x.data[a], x.data[a + 1], x.data[b], x.data[b + 1]);
      }
    }
  }
  return out;
}

/** @param {Planes} x  @returns {Planes} each value four times */
function enlarge(x) {
  const out = empty(x.channels, 2 * x.height, 2 * x.width);
  for (let c = 0; c < x.channels; c++) {
    for (let y = 0; y < out.height; y++) {
      const [to, from] = [start(out, c, y), start(x, c, y >> 1)];
      for (let i = 0; i < out.width; i++) out.data[to + i] = x.data[from + (i >> 1)];
    }
  }
  return out;
}

/** @param {Planes} a  @param {Planes} b  @returns {Planes} */
function join(a, b) {
  const out = empty(a.channels + b.channels, a.height, a.width);
  out.data.set(a.data);
  out.data.set(b.data, a.data.length);
  return out;
}
