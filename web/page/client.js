/** Requests to the worker, which is inside the page: a blob worker is bound by the page's content policy. */

import source from "worker:worker/worker.js";

const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));

/** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void, progress?: (share: number) => void}>} */
const waiting = new Map();
let count = 0;

worker.onmessage = ({ data: { number, result, error, share } }) => {
  const request = waiting.get(number);
  if (!request) return;
  if (share !== undefined) {
    request.progress?.(share);
    return;
  }
  waiting.delete(number);
  if (error !== undefined) request.reject(new Error(error));
  else request.resolve(result);
};

/**
 * @param {string} what  @param {object} content  @param {{transfer?: Transferable[], progress?: (share: number) => void}} [options]
 * @returns {Promise<any>}
 */
export function ask(what, content, { transfer = [], progress } = {}) {
  const number = count++;
  return new Promise((resolve, reject) => {
    waiting.set(number, { resolve, reject, progress });
    worker.postMessage({ number, ask: what, ...content }, transfer);
  });
}
