/** The WebAssembly module (web/kernel), and the one memory in which it works. */

import { COLUMNS } from "./tables.js";

/** @typedef {import("./tables.js").Tables} Tables */

export const BLOCK_PIXELS = 64;
const SCHEDULE_BYTES = 240; // 15 round keys
const PAGE = 1 << 16;

/**
 * @typedef {object} Exports
 * @property {WebAssembly.Memory} memory
 * @property {() => number} heap_base
 * @property {(keys: number) => void} expand_key
 * @property {(keys: number, blocks: number, count: number) => void} encrypt
 * @property {(...numbers: number[]) => number} draw
 * @property {(...numbers: number[]) => void} finish
 * @property {(rgba: number, rgb: number, pixels: number) => void} drop_alpha
 * @property {(rgb: number, rgba: number, pixels: number) => void} add_alpha
 * @property {(...numbers: number[]) => void} convolve
 */

export class Kernel {
  /** @param {WebAssembly.Instance} instance */
  constructor(instance) {
    this.run = /** @type {Exports} */ (/** @type {unknown} */ (instance.exports));
    this.base = (this.run.heap_base() + 15) & ~15;
  }

  /** @param {BufferSource} bytes of the module  @returns {Promise<Kernel>} */
  static async create(bytes) {
    const { instance } = await WebAssembly.instantiate(bytes, {});
    return new Kernel(instance);
  }

  /** Lay out regions of these sizes, one after the other. What they held before is undefined. @param {number[]} sizes */
  layOut(sizes) {
    let end = this.base;
    const starts = sizes.map((size) => {
      const start = end;
      end = (end + size + 63) & ~63;
      return start;
    });
    const missing = end - this.run.memory.buffer.byteLength;
    if (missing > 0) this.run.memory.grow(Math.ceil(missing / PAGE));
    return starts;
  }

  /** @param {number} at  @param {number} size  @returns {Uint8Array<ArrayBuffer>} valid until the next call of layOut */
  bytes(at, size) {
    return new Uint8Array(/** @type {ArrayBuffer} */ (this.run.memory.buffer), at, size);
  }

  /** Overwrite everything above the module's own data: keys, sources and masks do not stay. */
  clear() {
    this.bytes(this.base, this.run.memory.buffer.byteLength - this.base).fill(0);
  }

  /** AES-256 of single blocks, as for ties. @param {Uint8Array} key  @param {Uint8Array} blocks  @returns {Uint8Array} */
  encrypt(key, blocks) {
    const [keys, room] = this.layOut([SCHEDULE_BYTES, blocks.length]);
    this.bytes(keys, key.length).set(key);
    this.run.expand_key(keys);
    this.bytes(room, blocks.length).set(blocks);
    this.run.encrypt(keys, room, blocks.length / 16);
    const encrypted = this.bytes(room, blocks.length).slice();
    this.clear();
    return encrypted;
  }
}

/** What a strip needs in the kernel's memory: tables, key, keystream, masks, ties, pixels. */
export class Strip {
  /**
   * @param {Kernel} kernel  @param {Tables} tables  @param {Uint8Array} key
   * @param {number} pixels the most of one strip  @param {number} pixelBytes of a source pixel
   */
  constructor(kernel, tables, key, pixels, pixelBytes) {
    const blocks = Math.ceil(pixels / BLOCK_PIXELS);
    this.stride = (blocks + 1) * BLOCK_PIXELS; // masks that were drawn too early wait here for the next strip
    const draws = blocks * BLOCK_PIXELS * tables.groups;
    this.room = (draws >> 7) + 64; // one draw in 256 ties on average
    this.kernel = kernel;
    this.tables = tables;
    const sizes = [
      SCHEDULE_BYTES,
      tables.first.length,
      tables.rest.byteLength,
      tables.outcome.length,
      tables.groups,
      blocks * tables.lanes * 2 * BLOCK_PIXELS,
      tables.planes * this.stride,
      pixels * pixelBytes,
      pixels * pixelBytes,
      16 * this.room, // the last two, so that they can grow
      16 * this.room,
    ];
    const at = kernel.layOut(sizes);
    this.keys = at[0];
    this.first = at[1];
    this.rest = at[2];
    this.outcome = at[3];
    this.uniform = at[4];
    this.lanes = at[5];
    this.masks = at[6];
    this.source = at[7];
    this.release = at[8];
    this.counters = at[9];
    this.answers = at[10];
    this.sizes = sizes;
    kernel.bytes(this.keys, key.length).set(key);
    kernel.run.expand_key(this.keys);
    kernel.bytes(this.first, tables.first.length).set(tables.first);
    new BigUint64Array(kernel.run.memory.buffer, this.rest, tables.groups * COLUMNS).set(tables.rest);
    kernel.bytes(this.outcome, tables.outcome.length).set(tables.outcome);
    kernel.bytes(this.uniform, tables.groups).set(tables.uniform);
  }

  /** Turn keystream into masks. @param {Uint8Array} stream  @param {number} firstPixel  @param {number} offset */
  draw(stream, firstPixel, offset) {
    const { kernel, tables } = this;
    const blocks = stream.length / (tables.lanes * 2 * BLOCK_PIXELS);
    kernel.bytes(this.lanes, stream.length).set(stream);
    const once = () =>
      kernel.run.draw(
        ...[this.lanes, this.first, this.rest, this.outcome, this.uniform, tables.groups, tables.planes, blocks],
        ...[firstPixel, this.masks + offset, this.stride, this.keys, this.counters, this.answers, this.room],
      );
    const ties = once();
    if (ties <= this.room) return;
    this.room = ties;
    this.sizes.splice(9, 2, 16 * ties, 16 * ties);
    [this.counters, this.answers] = kernel.layOut(this.sizes).slice(9); // the others stay where they are
    once();
  }

  /** Move masks that were drawn for the next strip to the front. @param {number} used  @param {number} spare */
  keep(used, spare) {
    for (let plane = 0; plane < this.tables.planes; plane++) {
      const start = plane * this.stride;
      this.kernel.bytes(this.masks, (plane + 1) * this.stride).copyWithin(start, start + used, start + used + spare);
    }
  }
}
