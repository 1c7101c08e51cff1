/** The promise in words, the risk sentence, the levels and the card. */

import { $ } from "./dom.js";

/** @param {any} promise  @param {import("./settings.js").Settings} settings */
export function showPromise(promise, settings) {
  const pixel = promise.levels[1];
  const spread = promise.dependents > 1 ? ` Because of the pruning, each source pixel affects up to ${promise.dependents} released pixels.` : "";
  const again = promise.times > 1 ? ` The next release of this image is its release ${promise.times}, and the epsilons of all of them add up.` : "";
  $("promise").textContent = pixel.isVacuous
    ? `At epsilon ${promise.realised} per pixel, the promise sets no limit on how well somebody can tell which of two values a pixel had.${spread}${again}`
    : `At epsilon ${promise.realised} per pixel, somebody who has to tell which of two values a released pixel had is correct ${pixel.limit} of the time.${spread}${again}`;
  $("risk").textContent = promise.risk;
  $("remark").textContent = promise.remark ? `This plan ${promise.remark}.` : "";
  $("remark").hidden = !promise.remark;
  $("levels").replaceChildren(...promise.levels.map(row));
  $("not-protected").replaceChildren(
    ...promise.notProtected.map((/** @type {string} */ text) => Object.assign(document.createElement("li"), { textContent: text })),
  );
  $("card").textContent = promise.card;
}

/** @param {any} level  @returns {HTMLTableRowElement} */
function row({ unit, epsilon, limit, why }) {
  const line = document.createElement("tr");
  const head = Object.assign(document.createElement("th"), { textContent: unit, scope: "row" });
  const cell = Object.assign(document.createElement("td"), { textContent: limit });
  cell.append(Object.assign(document.createElement("small"), { textContent: why }));
  line.append(head, Object.assign(document.createElement("td"), { textContent: epsilon }), cell);
  return line;
}
