/** All test vectors and table checksums: used by node and by the browsers. */

import { Plan } from "../src/plan.js";
import { release } from "../src/slicer.js";

/** @param {string} text */
export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));

/** @param {ArrayBuffer | Uint8Array} bytes */
export const toHex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} text as Python's float.hex() writes it */
function fromHexFloat(text) {
  const [, whole, fraction, exponent] = /^0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text);
  return Number.parseInt(whole + fraction, 16) * 2 ** (Number(exponent) - 4 * fraction.length);
}

/**
 * @param {import("../src/kernel.js").Kernel} kernel
 * @param {any} content of tests/vectors/release-v1.json
 * @returns {Promise<{checked: number, wrong: string[]}>}
 */
export async function checkVectors(kernel, content) {
  const wrong = [];
  const plans = new Map();
  let checked = 0;
  for (const one of content.vectors) {
    if (!plans.has(one.plan)) {
      const slices = one.slices.map(([bits, epsilon]) => ({ bits: Number(bits), epsilon: fromHexFloat(epsilon) }));
      plans.set(one.plan, new Plan(slices, one.word_bits));
    }
    const plan = plans.get(one.plan);
    const bytes = fromHex(one.source);
    const data = !plan.isColour && plan.wordBits > 8 ? new Uint16Array(bytes.buffer) : bytes;
    const image = { data, width: one.width, height: one.height, channels: plan.isColour ? 3 : 1 };
    const size = one.pad ? { width: one.size[0], height: one.size[1], pad: true } : (one.size ?? null);
    for (const [output, expected] of Object.entries(one.release)) {
      const options = { plan, prune: one.prune, size, output };
      const { pixels } = await release(kernel, image, options, fromHex(one.key));
      checked += 1;
      if (toHex(pixels) !== expected) wrong.push(`${one.plan}, ${one.prune}, ${one.width} x ${one.height}, ${output}`);
    }
  }
  for (const [name, { groups, uniform, sha256 }] of Object.entries(content.tables)) {
    const { tables } = plans.get(name);
    if (groups.map(Number).join() !== tables.groupBits.join() || uniform.join() !== tables.uniform.join()) wrong.push(name);
    for (const [field, expected] of Object.entries(sha256)) {
      const array = tables[field];
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      checked += 1;
      if (toHex(await crypto.subtle.digest("SHA-256", bytes)) !== expected) wrong.push(`${field} of ${name}`);
    }
  }
  return { checked, wrong };
}
