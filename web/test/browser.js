/** What a browser is asked: all vectors, AES against WebCrypto, and the hash of one large release. */

import { loadKernel } from "../src/load.js";
import { Plan } from "../src/plan.js";
import { release } from "../src/slicer.js";
import { checkVectors, toHex } from "./vectors.js";

/** @param {import("../src/kernel.js").Kernel} kernel  @returns {Promise<number>} blocks that differ from WebCrypto's */
async function wrongBlocks(kernel) {
  const key = crypto.getRandomValues(new Uint8Array(32));
  const theirs = await crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const counters = crypto.getRandomValues(new Uint8Array(16 * 200));
  const ours = kernel.encrypt(key, counters);
  let wrong = 0;
  for (let i = 0; i < counters.length; i += 16) {
    const counter = counters.slice(i, i + 16);
    const block = await crypto.subtle.encrypt({ name: "AES-CTR", counter, length: 64 }, theirs, new Uint8Array(16));
    if (toHex(block) !== toHex(ours.slice(i, i + 16))) wrong += 1;
  }
  return wrong;
}

/** @param {any} content of the vectors' file */
globalThis.check = async (content) => {
  const kernel = await loadKernel();
  const [width, height] = [1203, 1001];
  const data = new Uint8Array(3 * width * height).map((_, i) => (i * 7919) >> 5);
  const key = Uint8Array.from({ length: 32 }, (_, i) => i);
  const { pixels } = await release(kernel, { data, width, height, channels: 3 }, { plan: Plan.paper(20) }, key);
  const { checked, wrong } = await checkVectors(kernel, content);
  const large = toHex(await crypto.subtle.digest("SHA-256", pixels));
  return { checked, wrong, wrongBlocks: await wrongBlocks(kernel), large };
};
document.title = "ready";
