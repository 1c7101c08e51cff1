/** Times of the steps of one release, see benchmark.js. */

import { Keystream, freshKey } from "../src/keystream.js";
import { loadKernel } from "../src/load.js";
import { Plan } from "../src/plan.js";
import { encodePng } from "../src/png.js";
import { release } from "../src/slicer.js";

const plan = Plan.paper(20);
const STRIP = 3 << 17; // bytes of keystream, as in slicer.js

/** @template T  @param {() => Promise<T>} work  @returns {Promise<[T, number]>} its result, and milliseconds */
async function timed(work) {
  const started = performance.now();
  const result = await work();
  return [result, performance.now() - started];
}

self.onmessage = async ({ data: image }) => {
  const kernel = await loadKernel();
  const pixels = image.width * image.height;
  const [made, releasing] = await timed(() => release(kernel, image, { plan }, freshKey()));
  const [, drawing] = await timed(async () => {
    const keystream = await Keystream.of(freshKey());
    for (let left = 2 * plan.tables.lanes * pixels; left > 0; left -= STRIP) await keystream.next(Math.min(STRIP, left));
  });
  const ties = Math.round((pixels * plan.tables.groups) / 256); // one draw in 256 ties on average
  const [, settling] = await timed(async () => kernel.encrypt(freshKey(), new Uint8Array(16 * ties)));
  const [, encoding] = await timed(async () => encodePng(made.pixels, made.width, made.height, plan));
  self.postMessage({ releasing, drawing, settling, encoding });
};
