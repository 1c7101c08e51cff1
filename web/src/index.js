/**
 * LDP-Slicing in the browser: turn an image into a release whose every pixel is eps-locally-differentially private.
 *
 *     import { Plan, privatize } from "ldp-slicing";
 *     const { pixels, card } = await privatize(imageData, { plan: Plan.paper(20) });
 */

import { Card } from "./card.js";
import { freshKey } from "./keystream.js";
import { loadKernel } from "./load.js";
import { release } from "./slicer.js";

export { Card } from "./card.js";
export { LdpSlicingError } from "./errors.js";
export { Plan } from "./plan.js";
export { encodePng } from "./png.js";

/** @type {Promise<unknown>} */
let last = Promise.resolve(); // the kernel has one memory: one release at a time

/**
 * Return one release of an image, made with a fresh key. Every call is a release, and nobody counts them: releasing one
 * source t times costs t times its eps.
 * @param {import("./slicer.js").Image} image an ImageData, or pixels with 1, 3 or 4 channels
 * @param {import("./slicer.js").Options} options
 * @returns {Promise<{pixels: Uint8Array<ArrayBuffer>, width: number, height: number, card: Card}>}
 */
export async function privatize(image, options) {
  const key = freshKey();
  const turn = last.then(async () => release(await loadKernel(), image, options, key));
  last = turn.catch(() => {});
  const { pixels, width, height } = await turn.finally(() => key.fill(0));
  const prune = options.prune === undefined ? "haar" : options.prune;
  const card = new Card(options.plan, prune, [[width, height]], options.output, options.size ?? null);
  return { pixels, width, height, card };
}
