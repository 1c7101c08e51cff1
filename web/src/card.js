/**
 * The card: the privacy statement that travels with releases.
 * See src/ldp_slicing/card, which is the definition; tests compare the two.
 */

import { LdpSlicingError } from "./errors.js";
import { add, compare, exp, fromDecimal, fromDouble, multiply, nextAbove, toDouble } from "./exact.js";
import { risk } from "./measured.js";
import { LAYOUT_VERSION, lnUp } from "./tables.js";
import { blockOf, sizing } from "./view.js";
import { counted, Float, grouped, toJson } from "./wording.js";
import { CARD_VERSION, NOT_PROTECTED, PADDED_SIZE, READ_THIS, SIZE, SOFTWARE } from "./words.js";

/** @typedef {import("./plan.js").Plan} Plan */
/** @typedef {import("./view.js").Prune} Prune */
/** @typedef {{unit: string, epsilon: number, bound: number, isVacuous: boolean, limit: string, means: string, why: string}} Level */

/**
 * The releases of the source that has most, and for each source the sums of epsilon over its releases: per released
 * pixel, per source pixel and per image.
 * @typedef {{times: number, spent: import("./exact.js").Rational[][]}} Most
 */

const ONCE = { times: 1, spent: [] };
const VACUOUS = 0.4999; // an advantage is at most 0.5, so such a bound says nothing
const DIGITS = 60;

/** The promise about releases made with one plan and one view. */
export class Card {
  /**
   * @param {Plan} plan  @param {Prune} prune
   * @param {[number, number][]} sizes width and height of each release
   * @param {"rgb" | "ycbcr"} [output]
   * @param {import("./view.js").Size} [size] to which sources were shrunk
   * @param {Most} [most] what was released of these sources, with these releases
   */
  constructor(plan, prune, sizes, output = "rgb", size = null, most = ONCE) {
    if (!sizes.length) throw new LdpSlicingError("a card needs at least one release");
    this.plan = plan;
    this.prune = prune;
    this.output = output;
    this.size = size;
    this.most = most;
    this.count = sizes.length;
    const range = (/** @type {number[]} */ values) => [Math.min(...values), Math.max(...values)];
    this.width = range(sizes.map(([width]) => width));
    this.height = range(sizes.map(([, height]) => height));
    this.pixels = Math.max(...sizes.map(([width, height]) => width * height));
    const block = blockOf(prune);
    this.dependents = Math.max(...sizes.map(([width, height]) => Math.min(block, width) * Math.min(block, height)));
  }

  /** The sums of epsilon over the releases of one source, if all of them have this plan and view. @returns {number[]} */
  get #ofThisPlan() {
    const up = (/** @type {number} */ value, /** @type {number} */ count) =>
      toDouble(multiply(fromDouble(value), { n: BigInt(count), d: 1n }), "up");
    const released = up(this.plan.realisedEpsilon, this.most.times);
    return [released, up(this.plan.realisedEpsilon, this.most.times * this.dependents), up(released, this.pixels)];
  }

  /** The largest sums of one source: per released pixel, per source pixel and per image. @returns {number[]} */
  get mostSpent() {
    const least = this.#ofThisPlan;
    const largest = [0, 1, 2].map((i) => Math.max(0, ...this.most.spent.map((sums) => toDouble(sums[i], "up"))));
    const released = largest[0] || least[0];
    const image = toDouble(multiply(fromDouble(released), { n: BigInt(this.pixels), d: 1n }), "up");
    return this.most.spent.length ? [released, largest[1], Math.max(largest[2], image)] : least;
  }

  /** The promises about slice, released pixel, source pixel and image, each for the worst case. @returns {Level[]} */
  get levels() {
    const { plan, dependents, pixels } = this;
    const epsilon = fromDouble(plan.realisedEpsilon);
    const times = (/** @type {number} */ count) => toDouble(multiply(epsilon, { n: BigInt(count), d: 1n }), "up");
    const weakest = plan.slices
      .map((part) => ({ part, ratio: plan.tables.sliceRatio(part.bits) }))
      .reduce((a, b) => (compare(b.ratio, a.ratio) > 0 ? b : a));
    const isOfOneSize = this.width[0] === this.width[1] && this.height[0] === this.height[1];
    const affected = dependents === 1 ? "one released pixel" : `up to ${dependents} released pixels`;
    const { times: releases } = this.most;
    const spent = this.mostSpent;
    const isMixed = spent.some((value, i) => value !== this.#ofThisPlan[i]);
    const earlier = isMixed ? "; earlier releases with another plan count at their own epsilon" : "";
    const sum = `sum over the ${grouped(releases)} releases of the source with most (frames, copies, repeats)${earlier}`;
    const several = [
      level(`source pixel, ${grouped(releases)} releases`, spent[1], sum),
      level(`image, ${grouped(releases)} releases`, spent[2], sum),
    ];
    return [
      level("slice", toDouble(lnUp(weakest.ratio), "up"), `the least private one, ${plan.sliceName(weakest.part)}`),
      level("released pixel", times(1), "the sum over the slices of the plan"),
      level("source pixel", times(dependents), `one source pixel affects ${affected}`),
      level("image", times(pixels), `${isOfOneSize ? "" : "the largest has "}${counted(pixels, "pixel")}, each at the plan's epsilon`),
      ...(releases > 1 ? several : []),
    ];
  }

  /** What the releases reveal. If all of them have one size and none is padded, sizes are hidden. @returns {string[]} */
  get notProtected() {
    if (Array.isArray(this.size)) return NOT_PROTECTED.filter((line) => line !== SIZE);
    const isPadded = this.size !== null && typeof this.size === "object";
    return NOT_PROTECTED.map((line) => (line === SIZE && isPadded ? PADDED_SIZE : line));
  }

  /** The text of the card's file, which ends with a line feed. @returns {string} */
  toJson() {
    return cardOf([this]);
  }

  /** What an attacker got at the nearest measured setting. */
  get risk() {
    return risk(this.plan, this.prune, this.pixels, this.most.times);
  }

  /** What the card states, as JSON values. */
  get statement() {
    const { plan } = this;
    const levels = this.levels;
    const [released, source, image] = this.mostSpent;
    return {
      releases: this.count,
      most_releases_of_one_source: this.most.times,
      most_spent_on_one_source: {
        released_pixel: new Float(released),
        source_pixel: new Float(source),
        image: new Float(image),
      },
      width: this.width,
      height: this.height,
      view: { colour: plan.isColour ? "YCbCr (JFIF)" : "grey", prune: this.prune ?? "none", size: sizing(this.size) },
      output: plan.isColour ? this.output : "grey",
      plan: plan.toValues(),
      levels: levels.map(({ unit, epsilon, bound, means, why }) => ({
        unit,
        epsilon: new Float(epsilon),
        advantage_bound: new Float(bound),
        means,
        why,
      })),
      measured: this.risk,
    };
  }
}

/**
 * The text of one card about releases of several plans, in colour and grey, whose sources were all shrunk to one size.
 * @param {Card[]} parts at most one for each kind of word  @returns {string}
 */
export function cardOf(parts) {
  const ordered = [...parts].sort((a, b) => b.plan.wordBits - a.plan.wordBits);
  const values = {
    card: CARD_VERSION,
    software: SOFTWARE,
    keystream_layout: LAYOUT_VERSION,
    complete: true,
    statements: ordered.map((part) => part.statement),
    not_protected: ordered[0].notProtected,
    kept_beside: [],
    read_this: READ_THIS,
  };
  return `${toJson(values)}\n`;
}

/** @param {string} unit  @param {number} epsilon  @param {string} why  @returns {Level} */
function level(unit, epsilon, why) {
  const bound = advantageBound(epsilon);
  const isVacuous = bound >= VACUOUS;
  const limit = isVacuous ? "no limit" : `at most ${percent(bound)} %`;
  const means = isVacuous
    ? "This promise does not stop anybody from telling two values apart."
    : `Anybody who has to choose between two values is right ${limit} of the time.`;
  return { unit, epsilon, bound, isVacuous, limit, means, why };
}

/** @param {number} bound  @returns {string} 50 % and the bound, in percent with two decimals, rounded up */
function percent(bound) {
  const { n, d } = add({ n: 1n, d: 2n }, fromDouble(bound));
  const hundredths = (n * 10_000n + d - 1n) / d;
  return `${hundredths / 100n}.${(hundredths % 100n).toString().padStart(2, "0")}`;
}

/** 1/2 tanh(eps / 2) = 1/2 - 1 / (e^eps + 1), rounded up. @param {number} epsilon  @returns {number} */
export function advantageBound(epsilon) {
  const { n, d } = fromDecimal(nextAbove(exp(fromDouble(Math.min(epsilon, 1000)), DIGITS)));
  return toDouble({ n: n - d, d: 2n * (n + d) }, "up");
}
