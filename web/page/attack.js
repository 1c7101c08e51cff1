/** What an attacker sees: a network rebuilds the source from the preview. */

import { ask } from "./client.js";
import { fetchNetwork, hasNetwork } from "./collector.js";
import { $, inlined, input, paint } from "./dom.js";

let loaded = ""; // what is said about the network

/** @param {() => void} update */
export function setUpAttack(update) {
  const included = inlined("network-file");
  $("attack").hidden = !included && !hasNetwork();
  const load = async (/** @type {Uint8Array} */ bytes) => {
    try {
      const { name, about, licence, digest } = await ask("load", { bytes });
      loaded = `The network ${name}: ${about}. Licence of the weights: ${licence || "not stated"}. SHA-256: ${digest}`;
      update();
    } catch (error) {
      $("attack-status").textContent = `${/** @type {Error} */ (error).message}.`;
    }
  };
  $("attack").onclick = async () => load(included ? Uint8Array.from(atob(included), (letter) => letter.charCodeAt(0)) : await fetchNetwork());
  $("open-network").onclick = () => input("network").click();
  input("network").onchange = async () => {
    const file = input("network").files?.[0];
    if (file) load(new Uint8Array(await file.arrayBuffer()));
  };
}

/** @param {number} id  @param {import("./settings.js").Settings} settings */
export async function showAttack(id, settings) {
  if (!loaded) return;
  const shown = await ask("rebuild", { id, settings }).catch((error) => {
    $("attacked").hidden = true;
    $("attack-status").textContent = `${error.message}.`;
  });
  if (!shown) return;
  $("attack-status").textContent = loaded;
  for (const part of ["source", "release", "rebuilt"]) {
    paint(/** @type {HTMLCanvasElement} */ ($(`attack-${part}`)), shown[part]);
  }
  $("attacked").hidden = false;
}
