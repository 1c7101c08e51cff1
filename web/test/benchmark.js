/** What benchmarks/page.py asks a browser: how long one image takes, step by step. All but decoding is in a worker. */

import { decode } from "../page/decode.js";

const worker = new Worker(new URL("benchmark-worker.js", import.meta.url), { type: "module" });

/** @param {string} url of an image file  @returns {Promise<Record<string, number>>} milliseconds */
globalThis.measure = async (url) => {
  const file = await (await fetch(url)).blob();
  const started = performance.now();
  const image = await decode(file);
  const decoding = performance.now() - started;
  const answer = new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)));
  worker.postMessage(image, [image.data.buffer]);
  return { decoding, ...(await answer) };
};
document.title = "ready";
