/**
 * The worker of the page: it holds the sources, makes previews and releases, and runs the attack view. Sources never
 * leave it. No message takes a key: a preview uses a key that this worker drew, and a release a fresh one.
 */

import { Card, cardOf } from "../../src/card.js";
import { toDouble } from "../../src/exact.js";
import { sha256, withManifest, zip } from "../../src/folder.js";
import { Kernel } from "../../src/kernel.js";
import wasm from "../../src/kernel.wasm";
import { History } from "./history.js";
import { freshKey } from "../../src/keystream.js";
import { cropOf, Network } from "../../src/network.js";
import { Plan, planFor } from "../../src/plan.js";
import { encodePng } from "../../src/png.js";
import { release, viewOf } from "../../src/slicer.js";
import { shrinkingOf, shrinkRows } from "../../src/view.js";
import { number } from "../../src/wording.js";

/** @typedef {import("../../src/slicer.js").Image} Image */
/** @typedef {{epsilon: number, slices?: string | null, parts?: [number, number][], prune: import("../../src/view.js").Prune, size: import("../../src/view.js").Size}} Settings */
/** @typedef {{pixels: Uint8Array<ArrayBuffer>, width: number, height: number}} Pixels in RGB or grey */

const WHOLE = 448; // pixels: the most of the image on which the attacked part is chosen
const kernel = Kernel.create(wasm);

/** RGBA, or one channel of 8 bits, and the digest of what was opened. @type {Map<number, Image & {digest: string}>} */
const sources = new Map();
const history = new History();

/** Releases that no collector has confirmed, by the digest of their source. @type {Map<string, {png: Uint8Array<ArrayBuffer>, card: string}>} */
const unsent = new Map();

/** Keys of previews, by image and setting. They never make a file. @type {Map<string, Uint8Array<ArrayBuffer>>} */
const previewKeys = new Map();

/** The last preview, which the planes and the attack view show too. @type {{of: string, plan: Plan, made: Pixels, words: Pixels} | null} */
let last = null;

/** @type {Network | null} */
let network = null;

/** @type {Map<string, Plan>} */
const plans = new Map();

/** @param {Image} source  @param {Settings} settings */
function planOf({ channels }, { epsilon, slices = null, parts }) {
  const wordBits = channels === 1 ? 8 : 24;
  const name = JSON.stringify([wordBits, epsilon, slices, parts]);
  let plan = plans.get(name);
  if (!plan) {
    if (parts) plan = new Plan(parts.map(([bits, part]) => ({ bits, epsilon: part })), 24, epsilon);
    else {
      try {
        plan = planFor(wordBits, epsilon, slices);
      } catch (error) {
        throw new Error(`${wordBits === 8 ? "This image is grey: " : "These settings do not work: "}${/** @type {Error} */ (error).message}`);
      }
    }
    if (plans.size > 64) plans.clear();
    plans.set(name, plan);
  }
  return plan;
}

/** @param {number} id */
function sourceOf(id) {
  const source = sources.get(id);
  if (!source) throw new Error("this image was removed");
  return source;
}

/** The same image and setting have the same preview, so that playing with the settings shows one mask only. */
async function preview(/** @type {number} */ id, /** @type {Settings} */ settings) {
  const source = sourceOf(id);
  const plan = planOf(source, settings);
  const of = JSON.stringify([id, plan.identity, settings.prune, settings.size]);
  if (last?.of === of) return last;
  let key = previewKeys.get(of);
  if (!key) previewKeys.set(of, (key = freshKey()));
  const options = { plan, prune: settings.prune, size: settings.size };
  const made = await release(await kernel, source, options, key);
  const words = plan.isColour ? await release(await kernel, source, { ...options, output: "ycbcr" }, key) : made;
  last = { of, plan, made, words };
  return last;
}

/** For the screen: RGBA, at most `most` pixels wide and high. @param {Pixels} image RGB, RGBA or grey  @param {number} most */
function shown({ pixels, width, height }, most) {
  const channels = pixels.length / (width * height);
  const how = shrinkingOf(most, height, width);
  const [h, w] = how ? [how.releasedHeight, how.releasedWidth] : [height, width];
  const small = how ? new Uint8Array(h * w * channels) : pixels;
  if (how) shrinkRows(pixels, width, channels, how, 0, h, small);
  const data = new Uint8ClampedArray(4 * h * w).fill(255);
  const [green, blue] = channels === 1 ? [0, 0] : [1, 2];
  for (let i = 0, j = 0; i < data.length; i += 4, j += channels) {
    data[i] = small[j];
    data[i + 1] = small[j + green];
    data[i + 2] = small[j + blue];
  }
  return { data, width: w, height: h };
}

/** The part of a source that is released, for the screen. @param {Image} source  @param {Settings} settings  @param {number} most */
function shownSource({ data, width, height, channels = 4 }, { size }, most) {
  const how = shrinkingOf(size, height, width);
  if (!how) return shown({ pixels: /** @type {any} */ (data), width, height }, most);
  const isPadded = how.height < how.releasedHeight || how.width < how.releasedWidth;
  const scale = Math.min(1, most / Math.max(how.width, how.height));
  const scaled = (/** @type {number} */ length) => Math.max(1, Math.floor(length * scale));
  const [w, h] = isPadded ? [how.releasedWidth, how.releasedHeight] : [scaled(how.width), scaled(how.height)];
  const small = new Uint8Array(channels * w * h);
  shrinkRows(data, width, channels, { ...how, releasedWidth: w, releasedHeight: h }, 0, h, small);
  return shown({ pixels: small, width: w, height: h }, most);
}

/** @param {Uint8ClampedArray} data RGBA of a file that stores grey  @returns {Uint8Array} */
function greyOf(data) {
  const grey = new Uint8Array(data.length / 4);
  for (let i = 0; i < grey.length; i++) {
    const red = data[4 * i];
    if (red !== data[4 * i + 1] || red !== data[4 * i + 2]) {
      throw new Error("is grey, but this browser decodes it in colour. Save it in colour and open it again");
    }
    grey[i] = red;
  }
  return grey;
}

const answers = {
  /** @param {{id: number, data: Uint8ClampedArray, width: number, height: number, isGrey: boolean}} request data: RGBA */
  async open({ id, data, width, height, isGrey }) {
    for (let i = 3; i < data.length; i += 4) {
      if (data[i] !== 255) throw new Error("has transparent pixels. Save it without transparency and open it again");
    }
    const digest = `${width} x ${height}, ${await sha256(new Uint8Array(/** @type {ArrayBuffer} */ (data.buffer), data.byteOffset, data.byteLength))}`;
    const pixels = isGrey ? { data: greyOf(data), channels: /** @type {1} */ (1) } : { data, channels: /** @type {4} */ (4) };
    sources.set(id, { ...pixels, width, height, digest });
  },

  /** @param {{id: number}} request */
  close({ id }) {
    sources.delete(id);
    for (const of of previewKeys.keys()) if (JSON.parse(of)[0] === id) previewKeys.delete(of);
    last = null;
  },

  /** What a setting promises. @param {{id: number, settings: Settings}} request */
  describe({ id, settings }) {
    const source = sourceOf(id);
    const plan = planOf(source, settings);
    const how = shrinkingOf(settings.size, source.height, source.width);
    const [width, height] = how ? [how.releasedWidth, how.releasedHeight] : [source.width, source.height];
    const released = history.times(source.digest);
    const isNext = !COLLECTS || !released; // a collector takes no second release
    const card = cardFor(settings, plan, [source.digest], [[width, height]], isNext);
    return {
      card: card.toJson(),
      levels: card.levels.map((level) => ({ ...level, epsilon: number(level.epsilon) })),
      risk: card.risk.sentence,
      remark: plan.remark,
      notProtected: card.notProtected,
      dependents: card.dependents,
      times: card.most.times,
      released,
      realised: number(plan.realisedEpsilon),
      planes: Array.from({ length: plan.wordBits }, (_, i) => {
        const bit = plan.wordBits - 1 - i;
        const isKept = Boolean((plan.keptBits >> bit) & 1);
        return { name: plan.bitName(bit), flips: isKept ? toDouble(plan.tables.flipProbability(1 << bit), "nearest") : null };
      }),
    };
  },

  /** @param {{id: number, settings: Settings, most: number}} request */
  async preview({ id, settings, most }) {
    const source = sourceOf(id);
    const { made } = await preview(id, settings);
    return {
      source: shownSource(source, settings, most),
      view: shown(viewOf(await kernel, source, settings), most),
      release: shown(made, most),
      width: made.width,
      height: made.height,
    };
  },

  /** Some pixels of the planes. @param {{id: number, settings: Settings, most: number}} request */
  async planes({ id, settings, most }) {
    const { words, plan } = await preview(id, settings);
    const step = Math.max(1, Math.ceil(Math.max(words.width, words.height) / most));
    const [width, height] = [Math.ceil(words.width / step), Math.ceil(words.height / step)];
    const bits = new Uint32Array(width * height);
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const at = y * step * words.width + x * step;
        const [luma, blue, red] = words.pixels.subarray(3 * at, 3 * at + 3);
        bits[y * width + x] = plan.isColour ? (luma << 16) | (blue << 8) | red : words.pixels[at];
      }
    }
    return { bits, width, height };
  },

  /** A release with a fresh key, as a file, and its card. @param {{id: number, settings: Settings}} request */
  async release({ id, settings }, /** @type {(share: number) => void} */ progress) {
    const { png, card, width, height } = await fileOf(id, settings, progress);
    const { digest } = sourceOf(id);
    history.record(digest, card);
    const stated = cardFor(settings, card.plan, [digest], [[width, height]]);
    const name = `release-${(await sha256(png)).slice(0, 8)}.png`; // a browser renames a file whose name exists, but not its card
    return { name, png, card: stated.toJson(), times: stated.most.times };
  },

  /** The release of an image for a collector, which takes one of each source. Until it is stored, it is the same. @param {{id: number, settings: Settings}} request */
  async releaseOnce({ id, settings }, /** @type {(share: number) => void} */ progress) {
    const { digest } = sourceOf(id);
    const kept = unsent.get(digest);
    if (history.times(digest) > (kept ? 1 : 0)) {
      throw new Error("this image was released on this page before, and the collector takes one release of each image");
    }
    if (kept) return { ...kept, digest, times: 1, isNew: false };
    const { png, card, times } = await answers.release({ id, settings }, progress);
    unsent.set(digest, { png, card });
    return { png, card, digest, times, isNew: true };
  },

  /** The collector has stored the release of a source. @param {{digest: string}} request */
  stored({ digest }) {
    unsent.delete(digest);
  },

  /** Releases of several images with manifest and card. @param {{ids: number[], names: string[], settings: Settings}} request */
  async folder({ ids, names, settings }, /** @type {(share: number) => void} */ progress) {
    for (const [i, id] of ids.entries()) {
      try {
        planOf(sourceOf(id), settings); // that all have one is known before anything is made
      } catch (error) {
        throw new Error(`${names[i]} does not fit the settings: change them, or remove it. ${/** @type {Error} */ (error).message}`);
      }
    }
    const files = [];
    /** @type {Map<string, {plan: Plan, of: [string, Card][]}>} by the identity of the plan: the same plan may be made anew */
    const made = new Map();
    for (const [i, id] of ids.entries()) {
      const { png, card } = await fileOf(id, settings, (share) => progress((i + share) / ids.length));
      files.push({ name: `release-${String(i + 1).padStart(4, "0")}.png`, bytes: png });
      const part = made.get(card.plan.identity) ?? { plan: card.plan, of: [] };
      part.of.push([sourceOf(id).digest, card]);
      made.set(card.plan.identity, part);
    }
    for (const { of } of made.values()) for (const [digest, card] of of) history.record(digest, card);
    const parts = Array.from(made.values(), ({ plan, of }) => {
      const sizes = of.map(([, card]) => /** @type {[number, number]} */ ([card.width[0], card.height[0]]));
      return cardFor(settings, plan, of.map(([digest]) => digest), sizes);
    });
    const times = Math.max(...parts.map((card) => card.most.times));
    return { zip: zip(await withManifest(files, cardOf(parts))), times };
  },

  /** @param {{bytes: Uint8Array<ArrayBuffer>}} request */
  async load({ bytes }) {
    network = Network.parse(bytes);
    return { ...network.header, digest: await sha256(bytes) };
  },

  /** The attack view of a part of the preview. @param {{id: number, settings: Settings, centre: {x: number, y: number}}} request */
  async reconstruct({ id, settings, centre }, /** @type {(share: number) => void} */ progress) {
    if (!network) throw new Error("no network is loaded");
    const { made, plan } = await preview(id, settings);
    const source = sourceOf(id);
    const channels = source.channels ?? 4;
    const crop = cropOf({ ...made, channels: plan.isColour ? 3 : 1 }, centre);
    const reconstruction = network.reconstruct(await kernel, crop, plan, settings.prune, progress);
    const how = shrinkingOf(settings.size, source.height, source.width);
    const kept = how ?? { top: 0, left: 0, height: source.height, width: source.width, releasedHeight: source.height, releasedWidth: source.width };
    const rows = new Uint8Array(channels * crop.height * made.width);
    shrinkRows(source.data, source.width, channels, kept, crop.top, crop.top + crop.height, rows);
    const original = new Uint8Array(channels * crop.height * crop.width);
    for (let y = 0; y < crop.height; y++) {
      const from = channels * (y * made.width + crop.left);
      original.set(rows.subarray(from, from + channels * crop.width), channels * y * crop.width);
    }
    const { width, height } = crop;
    return {
      part: { left: crop.left / made.width, top: crop.top / made.height, width: width / made.width, height: height / made.height },
      whole: shownSource(source, settings, WHOLE),
      source: shown({ pixels: original, width, height }, width),
      release: shown({ pixels: /** @type {any} */ (crop.pixels), width, height }, width),
      reconstruction: shown({ pixels: /** @type {any} */ (reconstruction), width, height }, width),
    };
  },
};

/**
 * A card that counts what was released of these sources on this page.
 * @param {Settings} settings  @param {Plan} plan  @param {string[]} digests of the sources
 * @param {[number, number][]} sizes of the releases  @param {boolean} [isNext] whether the only release is yet to come
 */
function cardFor({ prune, size }, plan, digests, sizes, isNext = false) {
  const next = isNext ? new Card(plan, prune, sizes, "rgb", size) : null;
  return new Card(plan, prune, sizes, "rgb", size, history.most(digests, next));
}

/** @param {number} id  @param {Settings} settings  @param {(share: number) => void} progress */
async function fileOf(id, settings, progress) {
  const plan = planOf(sourceOf(id), settings);
  const key = freshKey();
  try {
    const options = { plan, prune: settings.prune, size: settings.size };
    const { pixels, width, height } = await release(await kernel, sourceOf(id), options, key, progress);
    const card = new Card(plan, settings.prune, [[width, height]], "rgb", settings.size);
    return { png: encodePng(pixels, width, height, plan), card, width, height };
  } finally {
    key.fill(0);
  }
}

/** @type {Promise<unknown>} */
let turn = Promise.resolve(); // the kernel has one memory: one request at a time

self.onmessage = ({ data: { number: request, ask, ...rest } }) => {
  turn = turn.then(async () => {
    try {
      const answer = /** @type {any} */ (answers)[ask];
      const result = await answer(rest, (/** @type {number} */ share) => self.postMessage({ number: request, share }));
      self.postMessage({ number: request, result });
    } catch (error) {
      self.postMessage({ number: request, error: error instanceof Error ? error.message : String(error) });
    }
  });
};
