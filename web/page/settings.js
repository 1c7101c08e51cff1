/** The settings: a preset, or a budget, a size, a plan and a pruning. */

import { $, inlined, input } from "./dom.js";
import { sizing } from "../src/view.js";
import { PRESETS } from "../src/words.js";

/** @typedef {import("./worker/worker.js").Settings} Settings */

const SLOWNESS = 120; // milliseconds after the last change
const [LEAST, MOST] = [0.5, 58]; // of the slider, on a logarithmic scale

/** @param {number} epsilon  @returns {number} 0 to 100 */
const toSlider = (epsilon) => (100 * Math.log(epsilon / LEAST)) / Math.log(MOST / LEAST);

/** @param {number} place  @returns {number} two digits */
const fromSlider = (place) => Number((LEAST * (MOST / LEAST) ** (place / 100)).toPrecision(2));

/** What the collector takes, and nothing else. @type {Settings | null} */
const fixed = COLLECTS ? (JSON.parse(inlined("collector") ?? "{}").settings ?? null) : null;

/** @param {() => void} changed */
export function setUpSettings(changed) {
  if (fixed) {
    $("settings").hidden = true;
    const view = `pruning: ${fixed.prune ?? "none"}; size: ${sizing(fixed.size)}`;
    const text = `The collector decides: it takes releases at epsilon ${fixed.epsilon} per pixel only; ${view}.`;
    $("settings").after(Object.assign(document.createElement("p"), { textContent: text, id: "fixed" }));
    return;
  }
  const select = /** @type {HTMLSelectElement} */ (/** @type {unknown} */ ($("preset")));
  for (const { name } of PRESETS) select.add(new Option(name, name));
  select.add(new Option("Own settings", ""));
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(changed, SLOWNESS);
  };
  const own = () => {
    select.value = "";
    describe("");
    soon();
  };
  select.onchange = () => {
    apply(select.value);
    soon();
  };
  $("settings").onsubmit = (event) => event.preventDefault();
  input("epsilon-slider").oninput = () => {
    input("epsilon").value = String(fromSlider(Number(input("epsilon-slider").value)));
    own();
  };
  input("epsilon").oninput = () => {
    input("epsilon-slider").value = String(toSlider(Number(input("epsilon").value)));
    own();
  };
  for (const id of ["size", "prune", "slices"]) input(id).oninput = own;
  input("plan").oninput = () => {
    $("slices-field").hidden = input("plan").value !== "own";
    own();
  };
  apply(PRESETS[0].name);
}

/** @param {string} name of a preset, or "" */
function describe(name) {
  const preset = PRESETS.find((one) => one.name === name);
  $("about").textContent = preset ? preset.about : "Nothing is called safe here: compare what attackers got.";
}

/** @param {string} name of a preset */
function apply(name) {
  describe(name);
  const preset = PRESETS.find((one) => one.name === name);
  if (!preset) return;
  input("epsilon").value = String(preset.epsilon);
  input("epsilon-slider").value = String(toSlider(preset.epsilon));
  input("size").value = typeof preset.size === "number" ? String(preset.size) : "";
  const isListed = [.../** @type {any} */ ($("plan")).options].some((option) => option.value === preset.slices);
  input("plan").value = preset.slices === null ? "paper" : isListed ? preset.slices : "own";
  if (preset.slices !== null) input("slices").value = preset.slices;
  $("slices-field").hidden = input("plan").value !== "own";
  input("prune").value = preset.prune === "none" ? "" : preset.prune;
}

/** @returns {Settings | null} null if something is missing */
export function readSettings() {
  if (fixed) return fixed;
  const epsilon = Number(input("epsilon").value);
  if (!(epsilon > 0) || !Number.isFinite(epsilon) || !input("size").checkValidity()) return null;
  const plan = input("plan").value;
  return {
    epsilon,
    slices: plan === "paper" ? null : plan === "own" ? input("slices").value : plan,
    prune: /** @type {Settings["prune"]} */ (input("prune").value || null),
    size: input("size").value ? Number(input("size").value) : null,
  };
}
