/** What an attacker sees: a network reconstructs a part of the source from the preview. */

import { ask } from "./client.js";
import { fetchNetwork, hasNetwork } from "./collector.js";
import { $, inlined, input, paint } from "./dom.js";

/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

let loaded = ""; // what is said about the network
let centre = { x: 0.5, y: 0.5 }; // where the person wants the part that is attacked, as shares of the release
let part = { left: 0, top: 0, width: 1, height: 1 }; // where it is

/** @param {() => void} update */
export function setUpAttack(update) {
  const included = inlined("network-file");
  const isThere = Boolean(included) || hasNetwork();
  $("attack").hidden = !isThere;
  if (!isThere) $("attack-status").textContent = "This page has no network. Open one that `ldp-slicing lab page-network` wrote.";
  setUpPlace(update);
  const load = async (/** @type {() => Promise<Uint8Array>} */ read) => {
    try {
      const { name, about, licence, digest } = await ask("load", { bytes: await read() });
      loaded = `The network ${name}: ${about}. Licence of the weights: ${licence || "not stated"}. SHA-256: ${digest}`;
      update();
    } catch (error) {
      complain(error);
    }
  };
  $("attack").onclick = () => load(async () => (included ? Uint8Array.from(atob(included), (letter) => letter.charCodeAt(0)) : fetchNetwork()));
  $("open-network").onclick = () => input("network").click();
  input("network").onchange = () => {
    const file = input("network").files?.[0];
    if (file) load(async () => new Uint8Array(await file.arrayBuffer()));
  };
}

/** @param {unknown} error */
function complain(error) {
  const { message } = /** @type {Error} */ (error);
  $("attack-status").textContent = `${message[0].toUpperCase()}${message.slice(1)}.`;
}

/** A click or an arrow key chooses the part. @param {() => void} update */
function setUpPlace(update) {
  const move = (/** @type {number} */ x, /** @type {number} */ y) => {
    const within = (/** @type {number} */ at, /** @type {number} */ length) => Math.min(Math.max(length / 2, at), 1 - length / 2);
    centre = { x: within(x, part.width), y: within(y, part.height) };
    update();
  };
  const place = $("place");
  place.onclick = ({ clientX, clientY }) => {
    const { left, top, width, height } = place.getBoundingClientRect();
    move((clientX - left) / width, (clientY - top) / height);
  };
  place.onkeydown = (event) => {
    const [x, y] = ARROWS[event.key] ?? [0, 0];
    if (!x && !y) return;
    event.preventDefault(); // the page does not scroll
    move(centre.x + (x * part.width) / 4, centre.y + (y * part.height) / 4);
  };
}

/** @param {number} id  @param {import("./settings.js").Settings} settings */
export async function showAttack(id, settings) {
  if (!loaded) return;
  const shown = await ask("reconstruct", { id, settings, centre }).catch((error) => {
    $("attacked").hidden = true;
    complain(error);
  });
  if (!shown) return;
  $("attack-status").textContent = loaded;
  for (const name of ["whole", "source", "release", "reconstruction"]) {
    paint(/** @type {HTMLCanvasElement} */ ($(`attack-${name}`)), shown[name]);
  }
  part = shown.part;
  const square = /** @type {HTMLElement} */ ($("place").querySelector("span"));
  for (const [name, share] of Object.entries(shown.part)) square.style.setProperty(name, `${100 * share}%`);
  const percent = (/** @type {number} */ share) => Math.round(100 * share);
  $("place").ariaValueNow = String(percent(part.left));
  $("place").ariaValueText = `${percent(part.left)} % from the left, ${percent(part.top)} % from the top`;
  $("attacked").hidden = false;
}
