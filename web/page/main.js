/** The page: images in, settings, preview, promise, downloads. All computing is in the worker. */

import { setUpAttack, showAttack } from "./attack.js";
import { ask } from "./client.js";
import { decode } from "./decode.js";
import { $, paint } from "./dom.js";
import { setUpCamera } from "./camera.js";
import { showPlanes } from "./planes.js";
import { showPromise } from "./promise.js";
import { readSettings, setUpSettings, showMissing } from "./settings.js";
import { setUpStage, showStage } from "./stage.js";
import { setUpTaking } from "./take.js";

/** @typedef {{id: number, name: string, width: number, height: number, isGrey: boolean, isDeep: boolean}} Opened */

const SCREEN = 1280; // pixels: the most that a preview shows
const PATIENCE = 400; // milliseconds before the page says that it computes
const MOST_PROBLEMS = 5; // that are listed

/** @type {Opened[]} */
const opened = [];
/** @type {Opened | null} */
let current = null;
let count = 0;
let isBusy = false;
let isStale = false;
/** Files that were added last and could not be opened. @type {string[]} */
let problems = [];
let opening = "";

/** @param {Iterable<File | {name: string, pixels: ReturnType<typeof import("./decode.js").readBack>}>} files */
async function add(files) {
  problems = [];
  for (const file of files) {
    opening = `Opening ${file.name}.`;
    say();
    try {
      const { data, width, height, isGrey, isDeep } = "pixels" in file ? file.pixels : await decode(file);
      const id = count++;
      const thumbnail = thumbnailOf(data, width, height);
      await ask("open", { id, data, width, height, isGrey }, { transfer: [data.buffer] });
      opened.push({ id, name: file.name, width, height, isGrey, isDeep });
      list(opened[opened.length - 1], thumbnail);
      if (!current) choose(opened[0]);
    } catch (error) {
      problems.push(`${file.name} ${/** @type {Error} */ (error).message}.`);
    }
  }
  opening = "";
  arrange();
  say();
  update();
}

/** What a person must know about the files before a release, one per line. @returns {string} */
function notices() {
  const deep = opened.filter(({ isDeep }) => isDeep);
  const which = deep.length === 1 ? `${deep[0].name} has` : `${deep.length} images have`;
  const reduced = `${which} 16 bits per channel, which are reduced to 8. The command line keeps 16 bits of grey images.`;
  const more = problems.length - MOST_PROBLEMS;
  const others = more > 0 ? [`${more} more ${more === 1 ? "file" : "files"} could not be opened.`] : [];
  return [opening, ...problems.slice(0, MOST_PROBLEMS), ...others, deep.length ? reduced : ""].filter(Boolean).join("\n");
}

/** Show what the number of images calls for. */
function arrange() {
  $("empty").hidden = opened.length > 0;
  $("studio").hidden = opened.length === 0;
  $("download-all").hidden = opened.length < 2;
}

/** @param {Uint8ClampedArray} data  @param {number} width  @param {number} height  @returns {HTMLCanvasElement} */
function thumbnailOf(data, width, height) {
  const [canvas, side] = [document.createElement("canvas"), 96];
  const square = Math.min(width, height);
  const [left, top] = [(width - square) >> 1, (height - square) >> 1];
  const small = new Uint8ClampedArray(4 * side * side);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const at = 4 * ((top + Math.floor((y * square) / side)) * width + left + Math.floor((x * square) / side));
      small.set(data.subarray(at, at + 4), 4 * (y * side + x));
    }
  }
  paint(canvas, { data: small, width: side, height: side });
  return canvas;
}

/** @param {Opened} image  @param {HTMLCanvasElement} thumbnail */
function list(image, thumbnail) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-label", `Show ${image.name}`);
  button.append(thumbnail);
  button.onclick = () => choose(image);
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "remove";
  remove.textContent = "×";
  remove.setAttribute("aria-label", `Remove ${image.name}`);
  remove.onclick = () => {
    opened.splice(opened.indexOf(image), 1);
    const next = item.nextElementSibling?.querySelector("button");
    item.remove();
    ask("close", { id: image.id });
    if (current === image) choose(opened[0] ?? null);
    arrange();
    (opened.length ? next : $("choose"))?.focus();
    say();
    update();
  };
  item.dataset.id = String(image.id);
  item.append(button, remove);
  $("images").insertBefore(item, $("images").querySelector(".more"));
}

/** Mark images that this page has released. @param {number[]} ids */
function mark(ids) {
  for (const id of ids) {
    const item = $("images").querySelector(`[data-id="${id}"]`);
    if (!item || item.classList.contains("released")) continue;
    item.classList.add("released");
    const button = /** @type {HTMLElement} */ (item.querySelector("button"));
    button.ariaLabel += ", released";
  }
}

/** @param {Opened | null} image */
function choose(image) {
  current = image;
  for (const item of $("images").querySelectorAll("li[data-id]")) {
    const isCurrent = /** @type {HTMLElement} */ (item).dataset.id === String(image?.id);
    item.querySelector("button")?.setAttribute("aria-pressed", String(isCurrent));
  }
  update();
}

/** Show the current image with the current settings. While one preview is computed, only the newest wish is kept. */
async function update() {
  if (isBusy) {
    isStale = true;
    return;
  }
  const settings = readSettings();
  if (!current) return;
  if (!settings) {
    $("studio").classList.add("stale");
    return;
  }
  isBusy = true;
  const image = current;
  const late = setTimeout(() => say("Computing the preview."), PATIENCE);
  try {
    const promise = await ask("describe", { id: image.id, settings });
    showPromise(promise);
    if (promise.released) mark([image.id]); // or a copy of it
    const preview = await ask("preview", { id: image.id, settings, most: SCREEN });
    showStage(preview, image);
    showPlanes(promise.planes, await ask("planes", { id: image.id, settings, most: 112 }));
    $("studio").classList.remove("stale");
    showMissing();
    clearTimeout(late);
    say();
    await showAttack(image.id, settings);
  } catch (error) {
    clearTimeout(late);
    $("studio").classList.add("stale"); // what is shown belongs to other settings
    const reason = `${/** @type {Error} */ (error).message}.`;
    showMissing(reason);
    say(reason);
  }
  isBusy = false;
  if (isStale) {
    isStale = false;
    update();
  }
}

/** @param {string} text */
function say(text = notices()) {
  for (const id of ["status", "empty-status"]) {
    $(id).textContent = text;
    $(id).classList.toggle("problem", problems.length > 0);
  }
}

function setUpImages() {
  const more = document.createElement("li");
  more.className = "more";
  const button = Object.assign(document.createElement("button"), { type: "button", className: "add", textContent: "+" });
  button.setAttribute("aria-label", "Add images");
  more.append(button);
  $("images").append(more);
  const input = /** @type {HTMLInputElement} */ ($("files"));
  $("choose").onclick = button.onclick = () => input.click();
  input.onchange = () => {
    add([...(input.files ?? [])]);
    input.value = "";
  };
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  for (const name of ["dragleave", "drop"]) addEventListener(name, () => document.body.classList.remove("dragging"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    add([...(/** @type {DragEvent} */ (event).dataTransfer?.files ?? [])]);
  });
}

/** @param {number[]} ids */
function onTaken(ids) {
  mark(ids);
  update();
}

$("where").textContent = COLLECTS
  ? "Your images stay on this device. The collector receives only the releases that you send."
  : "Your images stay on this device. This page cannot send data.";
setUpImages();
setUpStage();
setUpSettings(update);
setUpCamera(add);
setUpAttack(update);
setUpTaking({ opened, currentId: () => current?.id ?? null, onTaken });
document.documentElement.dataset.ready = "true";
