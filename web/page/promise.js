/** The promise in words, the risk sentence, the levels and the card. */

import { $ } from "./dom.js";
import { isExample } from "./settings.js";

/** @param {any} promise */
export function showPromise(promise) {
  const pixel = promise.levels[1];
  const { times, released } = promise;
  const isAnother = released && times > released;
  $("promise-title").textContent = isExample() ? "What the example promises" : isAnother ? `What release ${times} of this image would promise` : "What this promises";
  $("card-title").textContent = isAnother ? `The card of release ${times}` : "The card";
  $("before").textContent = isAnother
    ? `This image was released on this page before. The page now describes release ${times}, and the epsilons of all its releases add up.`
    : released
      ? `This image was released on this page${released > 1 ? ` ${released} times` : ""}.`
      : "";
  $("before").hidden = !released;
  const spread = promise.dependents > 1 ? ` Because of the pruning, each source pixel affects up to ${promise.dependents} released pixels.` : "";
  const again = isAnother ? ` The next release of this image is its release ${times}, and the epsilons of all of them add up.` : "";
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
