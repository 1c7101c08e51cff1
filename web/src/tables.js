/**
 * Tables: the integers that the sampler reads instead of probabilities, and the eps that they realise.
 * See src/ldp_slicing/tables.py, which is the definition; tests compare the two.
 */

import { add, compare, divideUp, exp, fromDecimal, fromDouble, ln, nextAbove, nextBelow, toDecimal, toDouble } from "./exact.js";

/** @typedef {import("./exact.js").Rational} Rational */
/** @typedef {{bits: number, epsilon: number}} Slice */

export const LAYOUT_VERSION = 1;
export const COLUMNS = 256;
const ONE = 1n << 64n; // probability 1
const COLUMN = ONE / BigInt(COLUMNS);
const NARROW = 8;
const GROUP_EPSILON = { n: 32n, d: 1n };
const DIGITS = 60;

/** @param {number} bits  @returns {number} how many are set */
export function bitCount(bits) {
  let count = 0;
  for (let left = bits; left; left &= left - 1) count += 1;
  return count;
}

/** The sampler's arrays; group, side, plane and column are in C order. */
export class Tables {
  /** @param {number} wordBits  @param {Slice[][]} groups */
  constructor(wordBits, groups) {
    this.wordBits = wordBits;
    this.planes = (wordBits + 7) >> 3;
    this.groupBits = groups.map((group) => group.reduce((all, { bits }) => all | bits, 0));
    this.groups = groups.length;
    this.first = new Uint8Array(this.groups * COLUMNS);
    this.rest = new BigUint64Array(this.groups * COLUMNS);
    this.outcome = new Uint8Array(this.groups * 2 * this.planes * COLUMNS);
    this.uniform = new Uint8Array(this.groups);
    groups.forEach((group, g) => this.#fill(group, g));
    const wide = this.uniform.reduce((sum, one) => sum + one, 0);
    /** 16-bit values of keystream per pixel */
    this.lanes = this.groups + ((this.planes + 1) >> 1) * wide;
    this.weights = groups.map((_, g) => this.#readWeights(g));
  }

  /** @param {Slice[]} group  @param {number} g */
  #fill(group, g) {
    const all = this.groupBits[g];
    const isWide = group.length === 1 && bitCount(all) > NARROW;
    let words = submasks(isWide ? 0 : all);
    let weights = isWide ? [] : narrowWeights(group, words);
    if (isWide) {
      const hit = hitWeight(1 << bitCount(all), group[0].epsilon);
      words = [0, all];
      weights = [ONE - hit, hit];
      this.uniform[g] = 1;
    }
    const { thresholds, others } = aliasColumns(weights);
    for (let column = 0; column < COLUMNS; column++) {
      this.first[g * COLUMNS + column] = Number(thresholds[column] >> 48n);
      this.rest[g * COLUMNS + column] = thresholds[column] & ((1n << 48n) - 1n);
      [column, others[column]].forEach((symbol, side) => {
        for (let p = 0; p < this.planes; p++) {
          this.outcome[((g * 2 + side) * this.planes + p) * COLUMNS + column] = (words[symbol] ?? 0) >> (8 * p);
        }
      });
    }
  }

  /** @param {number} g  @returns {Map<number, bigint>} the weight over 2^64 of each mask, read back from the columns */
  #readWeights(g) {
    /** @type {Map<number, bigint>} */
    const weights = new Map();
    for (let column = 0; column < COLUMNS; column++) {
      const at = g * COLUMNS + column;
      const threshold = (BigInt(this.first[at]) << 48n) | this.rest[at];
      [threshold, COLUMN - threshold].forEach((weight, side) => {
        let word = 0;
        for (let p = 0; p < this.planes; p++) {
          word |= this.outcome[((g * 2 + side) * this.planes + p) * COLUMNS + column] << (8 * p);
        }
        if (weight) weights.set(word, (weights.get(word) ?? 0n) + weight);
      });
    }
    return weights;
  }

  /** @param {number} bits of one slice */
  #groupOf(bits) {
    return this.groupBits.findIndex((covered) => (covered & bits) === bits);
  }

  /** @param {number} bits of one slice  @returns {Rational} the exact probability that it changes */
  changeProbability(bits) {
    const g = this.#groupOf(bits);
    let changed = 0n;
    for (const [word, weight] of this.weights[g]) if (word & bits) changed += weight;
    if (!this.uniform[g]) return { n: changed, d: ONE };
    const symbols = 1n << BigInt(bitCount(bits));
    return { n: changed * (symbols - 1n), d: ONE * symbols };
  }

  /** @param {number} bit one bit of the word, as a mask  @returns {Rational} the exact probability that it flips */
  flipProbability(bit) {
    const g = this.#groupOf(bit);
    if (g < 0) return { n: 0n, d: 1n };
    let flipped = 0n;
    for (const [word, weight] of this.weights[g]) if (word & bit) flipped += weight;
    return { n: flipped, d: this.uniform[g] ? 2n * ONE : ONE };
  }

  /** @param {number} bits of one slice  @returns {Rational} its largest likelihood ratio */
  sliceRatio(bits) {
    const g = this.#groupOf(bits);
    if (this.uniform[g]) return this.groupRatio(g);
    /** @type {Map<number, bigint[]>} */
    const families = new Map();
    for (const [word, weight] of this.weights[g]) {
      const family = families.get(word & ~bits) ?? [];
      family.push(weight);
      families.set(word & ~bits, family);
    }
    return [...families.values()].map(ratioOf).reduce((a, b) => (compare(b, a) > 0 ? b : a));
  }

  /** @param {number} g  @returns {Rational} e^eps: the largest probability of a mask over the smallest */
  groupRatio(g) {
    const [bits, weights] = [this.groupBits[g], this.weights[g]];
    if (this.uniform[g]) {
      const [hit, miss] = [weights.get(bits) ?? 0n, weights.get(0) ?? 0n];
      if (hit + miss !== ONE || hit === 0n) throw new Error("the table of a wide slice is not one of hits and misses");
      return { n: miss * (1n << BigInt(bitCount(bits))) + hit, d: hit };
    }
    const sum = [...weights.values()].reduce((a, b) => a + b);
    if (weights.size !== 1 << bitCount(bits) || sum !== ONE) throw new Error("a table lacks the weight of a mask");
    return ratioOf([...weights.values()]);
  }

  /** The sum over the groups of ln(largest weight / smallest weight), rounded up. @returns {number} */
  get realisedEpsilon() {
    let sum = { n: 0n, d: 1n };
    for (let g = 0; g < this.groups; g++) sum = add(sum, lnUp(this.groupRatio(g)));
    return toDouble(sum, "up");
  }
}

/** @param {bigint[]} weights  @returns {Rational} */
function ratioOf(weights) {
  let [least, most] = [weights[0], weights[0]];
  for (const weight of weights) {
    if (weight < least) least = weight;
    if (weight > most) most = weight;
  }
  return { n: most, d: least };
}

/** @param {Slice[]} slices  @param {number} wordBits  @returns {Tables} */
export const buildTables = (slices, wordBits) => new Tables(wordBits, pack(slices));

/** @param {number} symbols  @param {number} epsilon  @returns {bigint} k / (e^eps + k - 1) over 2^64, rounded up */
export function hitWeight(symbols, epsilon) {
  const growth = nextBelow(exp(fromDouble(Math.min(epsilon, 1000)), DIGITS), DIGITS);
  const sum = add(fromDecimal(growth), { n: BigInt(symbols - 1), d: 1n });
  const bound = fromDecimal(toDecimal(sum, DIGITS, "down"));
  const weight = divideUp(BigInt(symbols) * ONE * bound.d, bound.n);
  return weight < ONE ? weight : ONE;
}

/** @param {number} bits  @returns {number[]} all words that have no bit outside, in ascending order */
export function submasks(bits) {
  let words = [0];
  for (let b = 0; bits >> b; b++) if ((bits >> b) & 1) words = words.concat(words.map((word) => word | (1 << b)));
  return words;
}

/** Walker's alias method in exact integers. @param {bigint[]} weights */
function aliasColumns(weights) {
  const own = Array.from({ length: COLUMNS }, (_, c) => weights[c] ?? 0n);
  const others = own.map((_, c) => c);
  const small = others.filter((c) => own[c] < COLUMN);
  const large = others.filter((c) => own[c] > COLUMN);
  while (small.length) {
    const column = /** @type {number} */ (small.pop());
    const donor = large[large.length - 1];
    others[column] = donor;
    own[donor] -= COLUMN - own[column];
    if (own[donor] <= COLUMN) {
      large.pop();
      if (own[donor] < COLUMN) small.push(donor);
    }
  }
  return { thresholds: own.map((weight, c) => (others[c] === c ? 0n : weight)), others };
}

/** Group consecutive narrow slices. @param {Slice[]} slices  @returns {Slice[][]} */
function pack(slices) {
  /** @type {Slice[][]} */
  const groups = [];
  for (const part of slices) {
    const together = [...(groups[groups.length - 1] ?? []), part];
    const width = together.reduce((sum, { bits }) => sum + bitCount(bits), 0);
    const total = together.reduce((sum, { epsilon }) => add(sum, fromDouble(epsilon)), { n: 0n, d: 1n });
    if (groups.length && width <= NARROW && compare(total, GROUP_EPSILON) <= 0) groups[groups.length - 1] = together;
    else groups.push([part]);
  }
  return groups;
}

/** The product distribution of the slices over 2^64. @param {Slice[]} group  @param {number[]} words */
function narrowWeights(group, words) {
  const parts = group.map(({ bits, epsilon }) => {
    const symbols = 1n << BigInt(bitCount(bits));
    const hit = hitWeight(Number(symbols), epsilon);
    return { bits, same: (ONE - hit) * symbols + hit, change: hit, whole: ONE * symbols };
  });
  const whole = parts.reduce((all, part) => all * part.whole, 1n);
  const exact = words.map((word) => parts.reduce((all, p) => all * (word & p.bits ? p.change : p.same), 1n));
  const weights = exact.map((product) => divideUp(product * ONE, whole));
  weights[0] = ONE - weights.slice(1).reduce((sum, weight) => sum + weight, 0n);
  // Rounding must not increase eps. If eps is too small for weights over 2^64, the group becomes uniform noise.
  if (compare(ratioOf(weights), ratioOf(exact)) > 0) return words.map(() => ONE / BigInt(words.length));
  return weights;
}

/** @param {Rational} ratio at least 1  @returns {Rational} an upper bound on ln(ratio), accurate to 1e-55 */
export function lnUp(ratio) {
  if (ratio.n === ratio.d) return { n: 0n, d: 1n };
  return fromDecimal(nextAbove(ln(fromDecimal(toDecimal(ratio, DIGITS, "up")), DIGITS)));
}
