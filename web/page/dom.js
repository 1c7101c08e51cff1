/** @param {string} id  @returns {HTMLElement} */
export const $ = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {string} id  @returns {HTMLInputElement} */
export const input = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));

/** @param {HTMLCanvasElement} canvas  @param {{data: Uint8ClampedArray<ArrayBuffer>, width: number, height: number}} image */
export function paint(canvas, { data, width, height }) {
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.putImageData(new ImageData(data, width, height), 0, 0);
}

/** Data that the server put into the page. @param {string} id  @returns {string | null} */
export const inlined = (id) => document.getElementById(id)?.textContent ?? null;
