/**
 * The mechanism as one call: release = rebuild(view(source) XOR mask), strip by strip.
 * See src/ldp_slicing/slicer.py, which is the definition; tests compare the two.
 */

import { LdpSlicingError } from "./errors.js";
import { BLOCK_PIXELS, Strip } from "./kernel.js";
import { Keystream } from "./keystream.js";
import { blockOf, gainOf, shrinkingOf, shrinkRows } from "./view.js";

/** @typedef {import("./kernel.js").Kernel} Kernel */
/** @typedef {import("./plan.js").Plan} Plan */
/** @typedef {import("./view.js").Prune} Prune */
/** @typedef {import("./view.js").Size} Size */
/** @typedef {import("./view.js").Samples} Samples */

/**
 * Pixels, row by row: 3 values each (RGB), 1 (grey; Uint16Array for words of 9 to 16 bits), or 4 (RGBA, opaque).
 * @typedef {{data: Samples, width: number, height: number, channels?: number}} Image
 */

/** @typedef {{plan: Plan, prune?: Prune, size?: Size, output?: "rgb" | "ycbcr"}} Options */

const STRIP_BYTES = 3 << 17; // of keystream: WebCrypto is fastest with calls of this size

/**
 * Release an image under a key, which must never be used again for another image.
 * @param {Kernel} kernel  @param {Image} image  @param {Options} options  @param {Uint8Array<ArrayBuffer>} key 32 bytes
 * @param {(share: number) => void} [progress] called with 0 to 1
 * @returns {Promise<{pixels: Uint8Array<ArrayBuffer>, width: number, height: number}>} as many channels as the plan
 *   has; values of more than 8 bits are little-endian
 */
export async function release(kernel, image, { plan, prune = "haar", size = null, output = "rgb" }, key, progress) {
  const { data, width: sourceWidth, height: sourceHeight } = image;
  const sourceChannels = image.channels ?? 4;
  const channels = plan.isColour ? 3 : 1;
  const itemBytes = !plan.isColour && plan.wordBits > 8 ? 2 : 1;
  checkImage(image, plan);
  const how = shrinkingOf(size, sourceHeight, sourceWidth);
  const [height, width] = how ? [how.releasedHeight, how.releasedWidth] : [sourceHeight, sourceWidth];
  const { tables } = plan;
  const block = blockOf(prune);
  const pixelBytes = channels * itemBytes;
  const rows = Math.max(1, Math.floor(STRIP_BYTES / (2 * tables.lanes) / width / block)) * block;
  const blockBytes = 2 * tables.lanes * BLOCK_PIXELS;
  const pixels = new Uint8Array(height * width * pixelBytes);

  // The strips, and the keystream that each of them needs. The next one is drawn while this one is computed.
  /** @type {{top: number, end: number, need: number, blocks: number, spare: number}[]} */
  const strips = [];
  for (let top = 0, spare = 0; top < height; top += rows) {
    const end = Math.min(top + rows, height);
    const need = (end - top) * width;
    const blocks = Math.max(0, Math.ceil((need - spare) / BLOCK_PIXELS));
    strips.push({ top, end, need, blocks, spare });
    spare += blocks * BLOCK_PIXELS - need;
  }
  const keystream = await Keystream.of(key);
  const streamOf = (/** @type {number} */ i) =>
    i < strips.length && strips[i].blocks ? keystream.next(strips[i].blocks * blockBytes) : null;

  let next = streamOf(0);
  let drawn = 0;
  // While a strip waits for its keystream, the kernel's memory must stay as it is: one release at a time.
  const strip = new Strip(kernel, tables, key, Math.min(rows, height) * width, 4 * itemBytes);
  for (const [i, { top, end, need, blocks, spare }] of strips.entries()) {
    const stream = await next;
    next = streamOf(i + 1);
    if (stream) strip.draw(stream, drawn, spare);
    drawn += blocks * BLOCK_PIXELS;
    load(kernel, strip, data, sourceChannels, channels, itemBytes, how, sourceWidth, top, end, width);
    kernel.run.finish(
      ...[strip.source, strip.release, strip.masks, strip.stride, end - top, width, channels],
      ...[plan.isColour ? 8 : plan.wordBits, block, gainOf(prune), plan.keptBits, plan.droppedValue],
      output === "rgb" ? 1 : 0,
    );
    pixels.set(kernel.bytes(strip.release, need * pixelBytes), top * width * pixelBytes);
    const left = spare + blocks * BLOCK_PIXELS - need;
    if (left) strip.keep(need, left);
    progress?.((i + 1) / strips.length);
  }
  kernel.clear();
  return { pixels, width, height };
}

/**
 * The view of an image, in RGB or 8-bit grey: what its release would be without noise and with all bits.
 * @param {Kernel} kernel  @param {Image} image  @param {{prune: Prune, size: Size}} options
 * @returns {{pixels: Uint8Array<ArrayBuffer>, width: number, height: number}}
 */
export function viewOf(kernel, { data, width: sourceWidth, height: sourceHeight, channels = 4 }, { prune, size }) {
  const [released, kept] = channels === 1 ? [1, 0xff] : [3, 0xffffff];
  const how = shrinkingOf(size, sourceHeight, sourceWidth);
  const [height, width] = how ? [how.releasedHeight, how.releasedWidth] : [sourceHeight, sourceWidth];
  const rows = Math.min(height, Math.max(8, ((1 << 16) / width) & ~7));
  const [source, out, masks] = kernel.layOut([4 * rows * width, 4 * rows * width, 3 * rows * width]);
  kernel.bytes(masks, 3 * rows * width).fill(0);
  const pixels = new Uint8Array(released * height * width);
  for (let top = 0; top < height; top += rows) {
    const end = Math.min(top + rows, height);
    load(kernel, { source, release: out }, data, channels, released, 1, how, sourceWidth, top, end, width);
    kernel.run.finish(source, out, masks, rows * width, end - top, width, released, 8, blockOf(prune), gainOf(prune), kept, 0, 1);
    pixels.set(kernel.bytes(out, released * (end - top) * width), released * top * width);
  }
  kernel.clear();
  return { pixels, width, height };
}

/**
 * Write the rows of a strip, shrunk and without alpha, where the kernel reads them.
 * @param {Kernel} kernel  @param {{source: number, release: number}} strip  @param {Samples} data
 * @param {number} sourceChannels
 * @param {number} channels  @param {number} itemBytes  @param {import("./view.js").Shrinking | null} how
 * @param {number} sourceWidth  @param {number} top  @param {number} end  @param {number} width
 */
function load(kernel, strip, data, sourceChannels, channels, itemBytes, how, sourceWidth, top, end, width) {
  const pixels = (end - top) * width;
  const values = pixels * sourceChannels;
  const isPadded = sourceChannels !== channels;
  const at = isPadded ? strip.release : strip.source; // the release is written later
  const room = itemBytes === 2 ? new Uint16Array(kernel.run.memory.buffer, at, values) : kernel.bytes(at, values);
  if (how) shrinkRows(data, sourceWidth, sourceChannels, how, top, end, room);
  else room.set(data.subarray(top * width * sourceChannels, end * width * sourceChannels));
  if (isPadded) kernel.run.drop_alpha(strip.release, strip.source, pixels);
}

/** @param {Image} image  @param {Plan} plan */
function checkImage({ data, width, height, channels = 4 }, plan) {
  if (!(width >= 1 && height >= 1) || data.length !== width * height * channels) {
    throw new LdpSlicingError(`an image of ${width} x ${height} pixels needs ${width * height * channels} values; got ${data.length}`);
  }
  if (plan.isColour ? channels !== 3 && channels !== 4 : channels !== 1) {
    throw new LdpSlicingError(`a plan for ${plan.isColour ? "colour" : "grey"} does not fit an image with ${channels} channels`);
  }
  const isDeep = !plan.isColour && plan.wordBits > 8;
  if (isDeep !== data instanceof Uint16Array) {
    throw new LdpSlicingError("words of 9 to 16 bits need a Uint16Array, others an array of bytes");
  }
  if (channels === 4) {
    for (let i = 3; i < data.length; i += 4) {
      if (data[i] !== 255) throw new LdpSlicingError("the image has transparent pixels: put it on a background first");
    }
  }
  if (!plan.isColour && plan.wordBits !== 8 * data.BYTES_PER_ELEMENT && data.some((v) => v >> plan.wordBits)) {
    throw new LdpSlicingError(`the image has a value that does not fit into ${plan.wordBits} bits`);
  }
}
