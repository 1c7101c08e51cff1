/** What an attacker sees: a network rebuilds the source from the preview. */

import { ask } from "./client.js";
import { $, inlined, input, paint } from "./dom.js";

let isOn = false;

/** @param {() => void} update */
export function setUpAttack(update) {
  const included = inlined("network-file");
  $("attack").hidden = !included;
  const load = async (/** @type {Uint8Array} */ bytes) => {
    try {
      const { name, about, licence } = await ask("load", { bytes });
      $("attack-status").textContent = `The network ${name}: ${about}. Licence of the weights: ${licence || "not stated"}.`;
      isOn = true;
      update();
    } catch (error) {
      $("attack-status").textContent = `${/** @type {Error} */ (error).message}.`;
    }
  };
  $("attack").onclick = () => load(Uint8Array.from(atob(included ?? ""), (letter) => letter.charCodeAt(0)));
  input("network").onchange = async () => {
    const file = input("network").files?.[0];
    if (file) load(new Uint8Array(await file.arrayBuffer()));
  };
}

/** @param {number} id  @param {import("./settings.js").Settings} settings */
export async function showAttack(id, settings) {
  if (!isOn) return;
  const shown = await ask("rebuild", { id, settings });
  for (const part of ["source", "release", "rebuilt"]) {
    paint(/** @type {HTMLCanvasElement} */ ($(`attack-${part}`)), shown[part]);
  }
  $("attacked").hidden = false;
}
