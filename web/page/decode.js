/** Decoding image files with the browser: pixels in RGBA, orientation applied, colours converted to sRGB. */

const STRIP = 64; // rows that are read back at a time: phones limit the size of a canvas
const MOST_PIXELS = 178_956_970;

/**
 * Whether a canvas returns the pixels that were put into it. Browsers that resist fingerprinting return others.
 * @returns {boolean}
 */
export function canvasIsHonest() {
  const side = 64;
  const context = contextOf(side, side);
  const put = context.createImageData(side, side);
  for (let i = 0; i < put.data.length; i++) put.data[i] = i % 4 === 3 ? 255 : (i * 167 + (i >> 6) * 31) & 255;
  context.putImageData(put, 0, 0);
  const got = context.getImageData(0, 0, side, side).data;
  return put.data.every((value, i) => value === got[i]);
}

/** @param {number} width  @param {number} height */
function contextOf(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true, colorSpace: "srgb" }));
}

/**
 * Whether a file stores grey pixels: a PNG file of that colour type, or a JPEG file with one component. Decoded pixels do
 * not tell, and whether a colour image happens to be grey must not decide how it is released.
 * @param {Uint8Array} bytes  @returns {boolean}
 */
export function storesGrey(bytes) {
  const word = (/** @type {number} */ at) => (bytes[at] << 8) | bytes[at + 1];
  if (word(0) === 0x8950) return bytes[25] === 0 || bytes[25] === 4;
  if (word(0) !== 0xffd8) return false;
  for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff; at += 2 + word(at + 2)) {
    const marker = bytes[at + 1];
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) return bytes[at + 9] === 1;
  }
  return false;
}

/**
 * @param {Blob} file
 * @returns {Promise<{data: Uint8ClampedArray<ArrayBuffer>, width: number, height: number, isGrey: boolean, isDeep: boolean}>} isDeep: a PNG file has 16 bits per channel, of which browsers keep 8
 */
export async function decode(file) {
  if (!canvasIsHonest()) {
    throw new Error(
      "cannot be read: this browser changes the pixels that pages read (protection against fingerprinting), so a " +
        "release would not be one of your image. Allow this page to read canvas data, or use another browser",
    );
  }
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error("cannot be opened: it is damaged, or of a format that this browser does not know. Save it as JPEG or PNG");
  });
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const isGrey = !COLLECTS && storesGrey(bytes); // collectors take colour
    return { ...readBack(bitmap, bitmap.width, bitmap.height), isGrey, isDeep: bytes[0] === 0x89 && bytes[24] === 16 };
  } finally {
    bitmap.close();
  }
}

/** @param {CanvasImageSource} image  @param {number} width  @param {number} height */
export function readBack(image, width, height) {
  if (width * height > MOST_PIXELS) throw new Error(`has ${width} x ${height} pixels, more than this page can hold`);
  const data = new Uint8ClampedArray(4 * width * height);
  const context = contextOf(width, Math.min(STRIP, height));
  for (let top = 0; top < height; top += STRIP) {
    const rows = Math.min(STRIP, height - top);
    context.clearRect(0, 0, width, rows);
    context.drawImage(image, 0, top, width, rows, 0, 0, width, rows);
    data.set(context.getImageData(0, 0, width, rows).data, 4 * top * width);
  }
  return { data, width, height, isGrey: false, isDeep: false };
}
