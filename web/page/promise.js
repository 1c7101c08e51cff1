/** The promise in words, the risk sentence, the levels and the card. */

import { $ } from "./dom.js";

/** @param {any} promise  @param {import("./settings.js").Settings} settings */
export function showPromise(promise, settings) {
  const pixel = promise.levels[1];
  const spread = promise.dependents > 1 ? ` Pruning spreads each source pixel over ${promise.dependents} released pixels.` : "";
  $("promise").textContent = pixel.isVacuous
    ? `At epsilon ${promise.realised} per pixel, the noise alone does not stop anybody from telling two values of a pixel apart.${spread}`
    : `At epsilon ${promise.realised} per pixel, somebody who must choose between two values of a released pixel is right ${pixel.limit} of the time.${spread}`;
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
  const cell = Object.assign(document.createElement("td"), { textContent: limit === "no limit" ? "no limit: it stops nobody" : `${limit} of the time` });
  cell.append(Object.assign(document.createElement("small"), { textContent: why }));
  line.append(head, Object.assign(document.createElement("td"), { textContent: epsilon }), cell);
  return line;
}
