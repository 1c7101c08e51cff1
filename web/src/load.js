/** Loads the WebAssembly module beside this file, in browsers and in Node. The page has it inside instead. */

import { Kernel } from "./kernel.js";

/** @type {Promise<Kernel> | undefined} */
let loaded;

/** @returns {Promise<Kernel>} */
export function loadKernel() {
  loaded ??= read(new URL("kernel.wasm", import.meta.url)).then(Kernel.create);
  return loaded;
}

/** @param {URL} url  @returns {Promise<BufferSource>} */
async function read(url) {
  if (url.protocol !== "file:") return (await fetch(url)).arrayBuffer();
  const { readFile } = await import("node:fs/promises");
  return readFile(url);
}
