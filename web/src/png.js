/**
 * PNG: the one encoding of a release, byte for byte as src/ldp_slicing/png.py writes it: no filters, stored blocks, no
 * metadata, and a palette for plans with few colours.
 */

import { LdpSlicingError } from "./errors.js";
import { submasks } from "./tables.js";

/** @typedef {import("./plan.js").Plan} Plan */

const GREY = 0;
const RGB = 2;
const INDEXED = 3;
const STORED = 65535; // the most bytes of a stored block
const MOST_COLOURS = 256;
const MOST_BITS = 16; // a plan that keeps more has more colours than a palette can hold

/** Eight tables, so that eight bytes take one step. */
const CRC = Array.from({ length: 8 }, () => new Uint32Array(256));
for (let i = 0; i < 256; i++) {
  let value = i;
  for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  CRC[0][i] = value;
}
for (let i = 0; i < 256; i++) {
  for (let t = 1; t < 8; t++) CRC[t][i] = (CRC[t - 1][i] >>> 8) ^ CRC[0][CRC[t - 1][i] & 255];
}

/** @param {Uint8Array} bytes  @returns {number} CRC-32 */
export function crc32(bytes) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = CRC;
  let crc = -1;
  let i = 0;
  for (const end = bytes.length - 7; i < end; i += 8) {
    const low = crc ^ (bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24));
    crc =
      t7[low & 255] ^ t6[(low >>> 8) & 255] ^ t5[(low >>> 16) & 255] ^ t4[low >>> 24] ^
      t3[bytes[i + 4]] ^ t2[bytes[i + 5]] ^ t1[bytes[i + 6]] ^ t0[bytes[i + 7]];
  }
  for (; i < bytes.length; i++) crc = (crc >>> 8) ^ t0[(crc ^ bytes[i]) & 255];
  return ~crc >>> 0;
}

/** @param {Uint8Array} bytes  @returns {number} */
function adler32(bytes) {
  let [a, b] = [1, 0];
  for (let start = 0; start < bytes.length; start += 3800) {
    const end = Math.min(start + 3800, bytes.length); // the sums stay below 2^32
    for (let i = start; i < end; i++) b += a += bytes[i];
    a %= 65521;
    b %= 65521;
  }
  return b * 65536 + a;
}

/**
 * The colours that a plan can release, sorted, and the rank of each; or null if there are too many for a palette.
 * @param {Plan} plan
 * @returns {{colours: Uint8Array, ranks: Map<number, number>, bits: number} | null}
 */
export function paletteOf(plan) {
  if (!plan.isColour || plan.slicedBits > MOST_BITS) return null;
  const dropped = plan.droppedValue;
  const found = new Set(submasks(plan.keptBits).map((word) => colourOf(word | dropped)));
  if (found.size > MOST_COLOURS) return null;
  const sorted = [...found].sort((a, b) => a - b);
  return {
    colours: Uint8Array.from(sorted.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255])),
    ranks: new Map(sorted.map((colour, rank) => [colour, rank])),
    bits: /** @type {number} */ ([1, 2, 4, 8].find((bits) => sorted.length <= 1 << bits)),
  };
}

/** @param {number} word Y << 16 | Cb << 8 | Cr  @returns {number} R << 16 | G << 8 | B */
function colourOf(word) {
  const [y, cb, cr] = [word >> 16, ((word >> 8) & 255) - 128, (word & 255) - 128];
  const clamp = (/** @type {number} */ value) => Math.max(0, Math.min(255, value));
  const red = clamp(y + ((91881 * cr + 32768) >> 16));
  const green = clamp(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
  const blue = clamp(y + ((116130 * cb + 32768) >> 16));
  return (red << 16) | (green << 8) | blue;
}

/**
 * @param {Uint8Array} pixels RGB, or grey; grey of more than 8 bits in little-endian order
 * @param {number} width  @param {number} height  @param {Plan} plan of the release
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function encodePng(pixels, width, height, plan) {
  const palette = paletteOf(plan);
  const colour = palette ? INDEXED : plan.isColour ? RGB : GREY;
  const depth = palette ? palette.bits : !plan.isColour && plan.wordBits > 8 ? 16 : 8;
  const rowBytes = 1 + ((width * depth * (colour === RGB ? 3 : 1) + 7) >> 3);
  const rows = new Uint8Array(height * rowBytes); // the first byte of a row stays 0: no filter
  for (let y = 0; y < height; y++) {
    const row = rows.subarray(y * rowBytes + 1, (y + 1) * rowBytes);
    if (palette) packRanks(pixels.subarray(3 * y * width, 3 * (y + 1) * width), palette, row);
    else row.set(pixels.subarray(y * (rowBytes - 1), (y + 1) * (rowBytes - 1)));
    if (depth === 16) for (let i = 0; i < row.length; i += 2) [row[i], row[i + 1]] = [row[i + 1], row[i]];
  }
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([depth, colour], 8);
  return join([
    Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a),
    chunk("IHDR", header),
    ...(palette ? [chunk("PLTE", palette.colours)] : []),
    chunk("IDAT", store(rows)),
    chunk("IEND", new Uint8Array(0)),
  ]);
}

/** @param {Uint8Array} pixels  @param {NonNullable<ReturnType<typeof paletteOf>>} palette  @param {Uint8Array} row */
function packRanks(pixels, { ranks, bits }, row) {
  for (let x = 0; 3 * x < pixels.length; x++) {
    const rank = ranks.get((pixels[3 * x] << 16) | (pixels[3 * x + 1] << 8) | pixels[3 * x + 2]);
    if (rank === undefined) throw new LdpSlicingError("a pixel has a colour that its plan cannot release");
    const at = x * bits;
    row[at >> 3] |= rank << (8 - bits - (at & 7));
  }
}

/** @param {Uint8Array} bytes  @returns {Uint8Array} a zlib stream of stored blocks */
function store(bytes) {
  const blocks = Math.ceil(bytes.length / STORED);
  const stream = new Uint8Array(2 + bytes.length + 5 * blocks + 4);
  const view = new DataView(stream.buffer);
  stream.set([0x78, 0x01]);
  for (let i = 0, at = 2; i < blocks; i++) {
    const part = bytes.subarray(i * STORED, (i + 1) * STORED);
    stream[at] = i === blocks - 1 ? 1 : 0;
    view.setUint16(at + 1, part.length, true);
    view.setUint16(at + 3, ~part.length & 0xffff, true);
    stream.set(part, at + 5);
    at += 5 + part.length;
  }
  view.setUint32(stream.length - 4, adler32(bytes));
  return stream;
}

/** @param {string} kind  @param {Uint8Array} body  @returns {Uint8Array} */
function chunk(kind, body) {
  const bytes = new Uint8Array(12 + body.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body.length);
  bytes.set([...kind].map((letter) => letter.charCodeAt(0)), 4);
  bytes.set(body, 8);
  view.setUint32(8 + body.length, crc32(bytes.subarray(4, 8 + body.length)));
  return bytes;
}

/** @param {Uint8Array[]} parts  @returns {Uint8Array<ArrayBuffer>} */
export function join(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
