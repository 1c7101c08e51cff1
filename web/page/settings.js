/** The settings: a preset, or a budget, a size, a plan and a pruning. Until a budget is chosen, the page shows an example. */

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

const EXAMPLE = PRESETS[0];
const form = /** @type {HTMLFormElement} */ ($("settings"));

/** What the collector takes, and nothing else. @type {Settings | null} */
const fixed = COLLECTS ? (JSON.parse(inlined("collector") ?? "{}").settings ?? null) : null;

/** @param {() => void} changed */
export function setUpSettings(changed) {
  if (fixed) {
    form.hidden = true;
    const view = `pruning: ${fixed.prune ?? "none"}, size: ${sizing(fixed.size)}`;
    const text = `The collector has chosen the settings: epsilon ${fixed.epsilon} per pixel, plan: ${planName(fixed.parts ?? [])}, ${view}.`;
    form.after(Object.assign(document.createElement("p"), { textContent: text, id: "fixed" }));
    return;
  }
  const select = /** @type {HTMLSelectElement} */ (/** @type {unknown} */ ($("preset")));
  for (const { name, epsilon, size } of PRESETS) {
    select.add(new Option(`${name}: epsilon ${epsilon}, ${size ? `${size} px` : "full size"}`, name));
  }
  select.add(new Option("Own settings", "own"));
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(changed, SLOWNESS);
  };
  const own = () => {
    select.value = "own";
    describe();
    soon();
  };
  select.onchange = () => {
    apply(PRESETS.find(({ name }) => name === select.value));
    soon();
  };
  form.onsubmit = (event) => event.preventDefault();
  input("epsilon-slider").oninput = () => {
    input("epsilon").value = String(fromSlider(Number(input("epsilon-slider").value)));
    own();
  };
  input("epsilon").oninput = () => {
    input("epsilon-slider").value = String(toSlider(Number(input("epsilon").value) || EXAMPLE.epsilon));
    own();
  };
  for (const id of ["size", "prune", "slices"]) input(id).oninput = own;
  input("plan").oninput = () => {
    $("slices-field").hidden = input("plan").value !== "own";
    own();
  };
  apply(EXAMPLE);
  input("epsilon").value = "";
  describe();
}

/** @param {[number, number][]} parts the bits and the epsilon of each slice of a colour plan */
function planName(parts) {
  const places = Array.from({ length: 24 }, (_, i) => 23 - i);
  const bits = (/** @type {number} */ slice) => places.filter((bit) => (slice >> bit) & 1);
  const name = (/** @type {number} */ bit) => `${["Cr", "Cb", "Y"][bit >> 3]}${bit % 8}`;
  if (parts.length === 24) return "all bits, one by one";
  return parts.map(([slice]) => bits(slice).map(name).join("+")).join(", ");
}

/** Say what is chosen. */
function describe() {
  const preset = PRESETS.find(({ name }) => name === input("preset").value);
  const hasBudget = input("epsilon").value !== "";
  input("epsilon").setCustomValidity(hasBudget ? "" : "Choose a preset or enter an epsilon.");
  const example = `Choose a preset or enter an epsilon. Until then, the page shows an example at epsilon ${EXAMPLE.epsilon}.`;
  input("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${input("epsilon").value || EXAMPLE.epsilon}`);
  $("about").textContent = !hasBudget ? example : (preset?.about ?? "To judge your settings, read below the image what attackers got.");
  $("tag-release").textContent = hasBudget ? "Preview" : "Example";
  showMissing();
}

/** Say what is missing before a release. @param {string} [problem] of the settings, as the worker sees it */
export function showMissing(problem = "") {
  if (fixed) return;
  const text = isExample() && !input("epsilon").validity.badInput
    ? "Choose a preset or enter an epsilon first."
    : !input("epsilon").checkValidity()
      ? "Enter an epsilon from 0.01 to 1000."
      : !input("size").checkValidity()
        ? "Enter a longest side from 1 to 65535 pixels, or none."
        : problem;
  $("missing").textContent = text;
  $("missing").hidden = !text;
  for (const button of $("take").children) button.setAttribute("aria-disabled", String(Boolean(text)));
}

/** Whether the page shows an example: no budget is chosen. */
export const isExample = () => !fixed && input("epsilon").value === "";

/** Whether something must be chosen or corrected before a release; if so, the browser says what. @returns {boolean} */
export const reportMissing = () => !fixed && !form.reportValidity();

/** @param {typeof PRESETS[number] | undefined} preset */
function apply(preset) {
  if (!preset) return describe();
  input("epsilon").value = String(preset.epsilon);
  input("epsilon-slider").value = String(toSlider(preset.epsilon));
  input("size").value = typeof preset.size === "number" ? String(preset.size) : "";
  const isListed = [.../** @type {any} */ ($("plan")).options].some((option) => option.value === preset.slices);
  input("plan").value = preset.slices === null ? "paper" : isListed ? preset.slices : "own";
  if (preset.slices !== null) input("slices").value = preset.slices;
  $("slices-field").hidden = input("plan").value !== "own";
  input("prune").value = preset.prune === "none" ? "" : preset.prune;
  describe();
}

/** @returns {Settings | null} null if something is wrong */
export function readSettings() {
  if (fixed) return fixed;
  const hasBudget = !isExample();
  if (!input("size").checkValidity() || (hasBudget && !input("epsilon").checkValidity())) return null;
  const plan = input("plan").value;
  return {
    epsilon: hasBudget ? Number(input("epsilon").value) : EXAMPLE.epsilon,
    slices: plan === "paper" ? null : plan === "own" ? input("slices").value : plan,
    prune: /** @type {Settings["prune"]} */ (input("prune").value || null),
    size: input("size").value ? Number(input("size").value) : null,
  };
}
