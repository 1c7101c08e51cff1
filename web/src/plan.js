/**
 * Plans: which bits of a pixel are randomised together, and the eps of each slice.
 * See src/ldp_slicing/plan.py, which is the definition; tests compare the two.
 */

import { LdpSlicingError } from "./errors.js";
import { add, compare, fromDecimal, fromDouble, multiply, sqrt, toDouble } from "./exact.js";
import { bitCount, buildTables } from "./tables.js";
import { Float, grouped, reprFloat, sixDigits } from "./wording.js";

/** @typedef {import("./exact.js").Rational} Rational */
/** @typedef {import("./tables.js").Slice} Slice */

export const COLOUR_BITS = 24; // the word Y << 16 | Cb << 8 | Cr
export const CHANNELS = ["Y", "Cb", "Cr"];
const ROOT_DIGITS = 50;
const RARE = { n: 1n, d: 10n ** 6n };

/** Disjoint slices of one pixel's word. Bits in no slice are dropped: they are released as a constant. */
export class Plan {
  /**
   * @param {Slice[]} slices
   * @param {number} [wordBits] 24 for colour, 1 to 16 for grey
   * @param {number | null} [requested] the eps that an allocation was given; the slices may sum to slightly less
   */
  constructor(slices, wordBits = COLOUR_BITS, requested = null) {
    this.slices = [...slices].sort((a, b) => b.bits - a.bits || b.epsilon - a.epsilon);
    this.wordBits = wordBits;
    this.requested = requested;
    this.#check();
    this.keptBits = this.slices.reduce((all, { bits }) => all | bits, 0);
    this.isColour = wordBits === COLOUR_BITS;
    this.tables = buildTables(this.slices, wordBits);
    /** The eps of a released pixel, computed from the tables and rounded up. */
    this.realisedEpsilon = this.tables.realisedEpsilon;
    if (this.realisedEpsilon > this.epsilon) {
      throw new LdpSlicingError(`this plan realises more than epsilon ${this.epsilon}; request a slightly larger one`);
    }
  }

  #check() {
    const { slices, wordBits } = this;
    if (wordBits !== COLOUR_BITS && !(Number.isInteger(wordBits) && wordBits >= 1 && wordBits <= 16)) {
      throw new LdpSlicingError(`a word must have 24 bits (colour) or 1 to 16 (grey); got ${wordBits}`);
    }
    if (!slices.length) throw new LdpSlicingError("a plan needs at least one slice; got none");
    let taken = 0;
    for (const { bits, epsilon } of slices) {
      if (!Number.isInteger(bits) || bits <= 0) throw new LdpSlicingError(`a slice needs at least one bit; got ${bits}`);
      positive("a slice's epsilon", epsilon);
      if (bits >> wordBits) throw new LdpSlicingError(`slice 0x${bits.toString(16)} has bits outside the word`);
      if (bits & taken) throw new LdpSlicingError("slices must be disjoint");
      taken |= bits;
    }
    if (this.requested !== null && compare(this.#sum(), fromDouble(positive("epsilon", this.requested))) > 0) {
      throw new LdpSlicingError("the slices sum to more than the requested epsilon");
    }
  }

  #sum() {
    return this.slices.reduce((sum, { epsilon }) => add(sum, fromDouble(epsilon)), { n: 0n, d: 1n });
  }

  /** The paper's plan: 24 one-bit slices. @param {number} epsilon  @param {number[]} [weights] of Y, Cb and Cr */
  static paper(epsilon, weights = [4, 1, 1]) {
    if (weights.length !== 3 || !weights.every((w) => Number.isFinite(w) && w >= 0) || !weights.some((w) => w)) {
      throw new LdpSlicingError(`weights must be three numbers >= 0 for Y:Cb:Cr, not all 0; got ${weights}`);
    }
    /** @type {[number, Rational][]} */
    const shares = [];
    weights.forEach((w, c) => {
      for (let b = 0; b < 8 && w; b++) shares.push([1 << (16 - 8 * c + b), root(multiply(fromDouble(w), power(b)))]);
    });
    return allocate(epsilon, shares, COLOUR_BITS);
  }

  /** Every bit of the word has the same eps. @param {number} epsilon  @param {number} [bits] */
  static uniform(epsilon, bits = COLOUR_BITS) {
    checkWidth(bits, true);
    return allocate(epsilon, range(bits).map((b) => [1 << b, { n: 1n, d: 1n }]), bits);
  }

  /** The paper's plan for one grey channel. @param {number} epsilon  @param {number} [bits] 1 to 16 */
  static grey(epsilon, bits = 8) {
    checkWidth(bits, false);
    return allocate(epsilon, range(bits).map((b) => [1 << b, root(power(b))]), bits);
  }

  /** Slices by name: "Y7+Y4+Cb7+Cr7", "Y7+Y6=3,Cb7=1". @param {number} epsilon  @param {string} slices  @param {number} [bits] */
  static sliced(epsilon, slices, bits = COLOUR_BITS) {
    checkWidth(bits, true);
    if (!slices.trim()) throw new LdpSlicingError("no bits are named; name slices by their bits, such as Y7+Y6");
    return allocate(epsilon, slices.split(",").map((part) => named(part, bits)), bits);
  }

  /** The requested eps: what the allocation was given, or else the sum over the slices, rounded up. */
  get epsilon() {
    return this.requested ?? toDouble(this.#sum(), "up");
  }

  /** The constant that dropped bits are released as: in each channel the highest as 1, the others as 0. */
  get droppedValue() {
    let value = 0;
    const width = this.isColour ? 8 : this.wordBits;
    for (let shift = 0; shift < this.wordBits; shift += width) {
      const dropped = ~(this.keptBits >> shift) & ((1 << width) - 1);
      if (dropped) value |= (1 << (31 - Math.clz32(dropped))) << shift;
    }
    return value;
  }

  /** A warning for somebody who chooses this plan, or null. @returns {string | null} */
  get remark() {
    const remarks = [];
    if (this.realisedEpsilon < 0.99 * this.epsilon) {
      remarks.push(
        `realises epsilon ${sixDigits(this.realisedEpsilon)} of the requested ${sixDigits(this.epsilon)}: ` +
          "probabilities are integers over 2^64 and never 0, so this plan is noisier and more private than requested",
      );
    }
    const rare = this.slices
      .map((part) => ({ name: this.sliceName(part), chance: this.tables.changeProbability(part.bits) }))
      .filter(({ chance }) => compare(chance, RARE) < 0);
    if (rare.length) {
      const { name, chance } = rare.reduce((a, b) => (compare(b.chance, a.chance) < 0 ? b : a));
      const others = rare.length > 1 ? ` and ${rare.length - 1} more` : "";
      const pixels = fromDouble(1 / toDouble(chance, "nearest"));
      const whole = (2n * pixels.n + pixels.d) / (2n * pixels.d); // to nearest; ties to even
      const isTie = (2n * pixels.n + pixels.d) % (2n * pixels.d) === 0n && whole & 1n;
      remarks.push(
        `almost never changes ${name}${others} (1 in ${grouped(isTie ? whole - 1n : whole)} pixels): ` +
          "most releases show the source's value",
      );
    }
    const above = this.wordBits - (32 - Math.clz32(this.keptBits));
    if (!this.isColour && above) {
      remarks.push(
        `drops the highest ${above} of ${this.wordBits} bits: bits of grey pixels are numbered from 0, the lowest`,
      );
    }
    return remarks.join("; it ") || null;
  }

  /** @param {number} bit  @returns {string} "Y7" for bit 23 of a colour word, "bit 11" for bit 11 of a grey one */
  bitName(bit) {
    return (this.isColour ? "" : "bit ") + bitName(bit, this.wordBits);
  }

  /** @param {Slice} part  @returns {string} the names of its bits, such as "Y7+Y6" */
  sliceName({ bits }) {
    const high = range(this.wordBits).reverse();
    return high.filter((b) => (bits >> b) & 1).map((b) => this.bitName(b)).join("+");
  }

  /** The plan as JSON values. */
  toValues() {
    const all = this.wordBits === COLOUR_BITS ? 0xffffff : (1 << this.wordBits) - 1;
    return {
      word_bits: this.wordBits,
      epsilon_requested: new Float(this.epsilon),
      epsilon_realised: new Float(this.realisedEpsilon),
      slices: this.slices.map((part) => ({
        bits: `0x${part.bits.toString(16)}`,
        name: this.sliceName(part),
        epsilon: new Float(part.epsilon),
      })),
      dropped_bits: `0x${(all & ~this.keptBits).toString(16)}`,
      remark: this.remark,
    };
  }

  /** A text that two plans share only if their masks have the same distribution. */
  get identity() {
    const parts = this.slices.map(({ bits, epsilon }) => `${bits}:${reprFloat(epsilon)}`);
    return `${this.wordBits} ${parts.join(" ")}`;
  }

  get slicedBits() {
    return bitCount(this.keptBits);
  }
}

/**
 * The plan with the named slices, or else the paper's plan.
 * @param {number} wordBits  @param {number} epsilon  @param {string | null} slices  @returns {Plan}
 */
export function planFor(wordBits, epsilon, slices) {
  if (slices !== null) return Plan.sliced(epsilon, slices, wordBits);
  return wordBits === COLOUR_BITS ? Plan.paper(epsilon) : Plan.grey(epsilon, wordBits);
}

/** @param {number} count */
const range = (count) => Array.from({ length: count }, (_, i) => i);

/** @param {number} b  @returns {Rational} 2^b */
const power = (b) => ({ n: 1n << BigInt(b), d: 1n });

/** @param {Rational} value  @returns {Rational} */
const root = (value) => fromDecimal(sqrt(value, ROOT_DIGITS));

/** @param {string} what  @param {number} value */
function positive(what, value) {
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
    throw new LdpSlicingError(`${what} must be a positive, finite number; got ${value}`);
  }
  return value;
}

/** @param {number} bits  @param {boolean} colour */
function checkWidth(bits, colour) {
  if (!(Number.isInteger(bits) && ((bits >= 1 && bits <= 16) || (colour && bits === COLOUR_BITS)))) {
    throw new LdpSlicingError(`a grey word must have 1 to 16 bits${colour ? ", a colour word 24" : ""}; got ${bits}`);
  }
}

/** @param {number} bit  @param {number} wordBits */
const bitName = (bit, wordBits) => (wordBits === COLOUR_BITS ? `${CHANNELS[2 - (bit >> 3)]}${bit % 8}` : `${bit}`);

/** @param {string} text "Y7+Y6" or "Y7+Y6=3"  @param {number} wordBits  @returns {[number, Rational]} bits and share */
function named(text, wordBits) {
  const [names, share, ...more] = text.split("=").map((part) => part.trim());
  const known = new Map(range(wordBits).map((b) => [bitName(b, wordBits).toLowerCase(), 1 << b]));
  let found = 0;
  for (const name of names.split("+").map((one) => one.trim().replace(/^bit /, ""))) {
    const bit = known.get(name.toLowerCase());
    if (bit === undefined) {
      const grey = `a grey pixel of ${wordBits} bits has the bits ${wordBits - 1} to 0`;
      const colour = "a colour pixel has the bits Y7 to Y0, Cb7 to Cb0 and Cr7 to Cr0";
      throw new LdpSlicingError(`there is no bit "${name}": ${wordBits === COLOUR_BITS ? colour : grey}`);
    }
    if (bit & found) throw new LdpSlicingError(`the slice "${names}" names the bit ${name} twice`);
    found |= bit;
  }
  if (share === undefined) return [found, { n: 1n, d: 1n }];
  const digits = /^([0-9]{1,9})(?:\.([0-9]{1,9}))?$/.exec(more.length ? "" : share);
  const n = digits ? BigInt(digits[1] + (digits[2] ?? "")) : 0n;
  if (!digits || !n) {
    throw new LdpSlicingError(`the share of a slice must be a number above 0, as in Y7+Y6=3; got "${share}"`);
  }
  return [found, { n, d: 10n ** BigInt((digits[2] ?? "").length) }];
}

/**
 * The plan whose slices have eps proportional to their shares. Each eps is rounded down, because a sum of rounded
 * floats can exceed the total.
 * @param {number} epsilon  @param {[number, Rational][]} shares  @param {number} wordBits
 */
function allocate(epsilon, shares, wordBits) {
  const all = fromDouble(positive("epsilon", epsilon));
  const total = shares.reduce((sum, [, share]) => add(sum, share), { n: 0n, d: 1n });
  const slices = shares.map(([bits, share]) => {
    const part = multiply(all, share);
    return { bits, epsilon: toDouble({ n: part.n * total.d, d: part.d * total.n }, "down") };
  });
  if (slices.some((part) => !part.epsilon)) {
    throw new LdpSlicingError(`epsilon ${epsilon} is too small to split over ${slices.length} slices`);
  }
  return new Plan(slices, wordBits, epsilon);
}
