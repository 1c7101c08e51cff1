/** The planes of the release, 24 in colour and 8 in grey, and how often each bit is flipped. */

import { $, paint } from "./dom.js";

/** @type {{canvas: HTMLCanvasElement, caption: HTMLElement, figure: HTMLElement}[]} */
const figures = [];

function setUp() {
  for (let i = 0; i < 24; i++) {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.setAttribute("role", "img");
    figure.append(canvas, caption);
    $("planes").append(figure);
    figures.push({ canvas, caption, figure });
  }
}

/** @param {number} share  @returns {string} */
function percent(share) {
  if (share >= 0.0995) return `${(100 * share).toFixed(0)} %`;
  return share >= 1e-4 ? `${(100 * share).toPrecision(2)} %` : "below 0.01 %";
}

/** @param {{name: string, flips: number | null}[]} planes  @param {{bits: Uint32Array, width: number, height: number}} shown */
export function showPlanes(planes, { bits, width, height }) {
  if (!figures.length) setUp();
  const isGrey = planes.length === 8;
  $("planes-title").textContent = `The ${planes.length} bit-planes of the release`;
  $("planes-words").textContent = isGrey ? "8 bits of brightness" : "24 bits: brightness (Y) and two colours (Cb, Cr)";
  figures.forEach(({ figure }, i) => (figure.hidden = i >= planes.length));
  $("planes").style.setProperty("--ratio", String(width / height));
  planes.forEach(({ name, flips }, i) => {
    const { canvas, caption, figure } = figures[i];
    const text = flips === null ? "dropped" : percent(flips);
    const data = new Uint8ClampedArray(4 * width * height);
    for (let j = 0; j < bits.length; j++) {
      const value = (bits[j] >> (planes.length - 1 - i)) & 1 ? 235 : 25;
      data.set([value, value, value, 255], 4 * j);
    }
    paint(canvas, { data, width, height });
    canvas.setAttribute("aria-label", `Bit-plane ${name}`);
    caption.replaceChildren(Object.assign(document.createElement("b"), { textContent: name }), text);
    caption.title = flips === null ? "released as a constant" : `flipped with probability ${flips.toPrecision(4)}`;
    figure.classList.toggle("dropped", flips === null);
  });
}
