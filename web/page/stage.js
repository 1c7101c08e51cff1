/** Source, view and release on top of each other, with two dividers between them. */

import { $, input, paint } from "./dom.js";

const layers = ["source", "view", "release"];

export function setUpStage() {
  const [one, two] = [input("divider-one"), input("divider-two")];
  const place = () => {
    $("stage").style.setProperty("--one", `${one.value}%`);
    $("stage").style.setProperty("--two", `${two.value}%`);
    $("tag-source").hidden = Number(one.value) < 8;
    $("tag-view").hidden = Number(two.value) - Number(one.value) < 8;
    $("tag-release").hidden = Number(two.value) > 92;
  };
  one.oninput = () => {
    if (Number(one.value) > Number(two.value)) two.value = one.value;
    place();
  };
  two.oninput = () => {
    if (Number(two.value) < Number(one.value)) one.value = two.value;
    place();
  };
  drag(one, two);
  place();
}

/** A pointer on the stage moves the nearer divider. @param {HTMLInputElement} one  @param {HTMLInputElement} two */
function drag(one, two) {
  const stage = $("stage");
  /** @type {HTMLInputElement | null} */
  let held = null;
  const move = (/** @type {PointerEvent} */ event) => {
    if (!held) return;
    const { left, width } = stage.getBoundingClientRect();
    held.value = String(Math.max(0, Math.min(100, (100 * (event.clientX - left)) / width)));
    held.dispatchEvent(new Event("input"));
  };
  stage.onpointerdown = (event) => {
    const { left, width } = stage.getBoundingClientRect();
    const at = (100 * (event.clientX - left)) / width;
    held = Math.abs(at - Number(one.value)) < Math.abs(at - Number(two.value)) ? one : two;
    stage.setPointerCapture(event.pointerId);
    move(event);
  };
  stage.onpointermove = move;
  stage.onpointerup = stage.onpointercancel = () => (held = null);
}

/** @param {any} preview  @param {import("./main.js").Opened} image */
export function showStage(preview, image) {
  const stage = $("stage");
  stage.style.setProperty("--ratio", String(preview.width / preview.height));
  for (const layer of layers) {
    const canvas = /** @type {HTMLCanvasElement} */ ($(`layer-${layer}`));
    paint(canvas, preview[layer]);
    canvas.classList.toggle("enlarged", canvas.width < 2 * stage.clientWidth);
  }
  $("reduced").hidden = preview.release.width === preview.width;
  $("facts").textContent = `${image.name}: ${image.width} x ${image.height} pixels, released as ${preview.width} x ${preview.height}${image.isGrey ? ", grey" : ""}`;
}
