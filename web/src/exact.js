/**
 * Exact arithmetic on BigInt: rationals, directed rounding to doubles, and exp, ln and sqrt to a number of decimal
 * digits. Python's `fractions` and `decimal` give the same results to the last digit.
 */

/**
 * A number n / d with d > 0.
 * @typedef {{n: bigint, d: bigint}} Rational
 */

/**
 * A number mantissa * 10^exponent, whose mantissa has exactly as many digits as were asked for.
 * @typedef {{mantissa: bigint, exponent: number}} Decimal
 */

/** @param {bigint} value  @returns {number} */
export const bitLength = (value) => (value === 0n ? 0 : value.toString(2).length);

/** @param {bigint} n  @param {bigint} d  @returns {bigint} the quotient, rounded up; d > 0 */
export const divideUp = (n, d) => -floorDivide(-n, d);

/** @param {bigint} n  @param {bigint} d  @returns {bigint} the quotient, rounded down; d > 0 */
const floorDivide = (n, d) => n / d - (n % d < 0n ? 1n : 0n);

/** @param {number} value a finite double  @returns {Rational} its exact value */
export function fromDouble(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 2047n);
  const fraction = bits & ((1n << 52n) - 1n);
  const magnitude = exponent ? fraction | (1n << 52n) : fraction;
  const n = bits >> 63n ? -magnitude : magnitude;
  const shift = (exponent || 1) - 1075;
  return shift < 0 ? { n, d: 1n << BigInt(-shift) } : { n: n << BigInt(shift), d: 1n };
}

/** @param {Rational} a  @param {Rational} b  @returns {Rational} */
export const add = (a, b) => ({ n: a.n * b.d + b.n * a.d, d: a.d * b.d });

/** @param {Rational} a  @param {Rational} b  @returns {Rational} */
export const multiply = (a, b) => ({ n: a.n * b.n, d: a.d * b.d });

/** @param {Rational} a  @param {Rational} b  @returns {number} below 0, 0, or above 0 */
export function compare(a, b) {
  const difference = a.n * b.d - b.n * a.d;
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

/**
 * @param {Rational} value at least 0
 * @param {"down" | "up" | "nearest"} direction nearest: ties to even
 * @returns {number}
 */
export function toDouble({ n, d }, direction) {
  if (n === 0n) return 0;
  let shift = 53 - (bitLength(n) - bitLength(d)); // gives 53 or 54 bits
  if (bitLength(scaledDown(n, d, shift)) > 53) shift -= 1;
  shift = Math.min(shift, 1074); // below the smallest normal number
  let quotient = scaledDown(n, d, shift);
  const [top, bottom] = shift >= 0 ? [n << BigInt(shift), d] : [n, d << BigInt(-shift)];
  const rest = top - quotient * bottom;
  const isUp = direction === "up" ? rest > 0n : direction === "nearest" && 2n * rest + (quotient & 1n) > bottom;
  if (isUp) quotient += 1n;
  const half = Math.trunc(shift / 2); // in two steps, because 2^-1074 times a mantissa would underflow early
  return Number(quotient) * 2 ** -half * 2 ** -(shift - half);
}

/** @param {bigint} n  @param {bigint} d  @param {number} shift */
const scaledDown = (n, d, shift) => (shift >= 0 ? (n << BigInt(shift)) / d : n / (d << BigInt(-shift)));

/** @param {number} value  @param {number} direction 1 or -1  @returns {number} the next double, for value > 0 */
export function nextDouble(value, direction) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + BigInt(direction));
  return view.getFloat64(0);
}

/**
 * @param {Rational} value above 0
 * @param {number} digits
 * @param {"down" | "up" | "even"} direction even: to nearest, ties to even
 * @returns {Decimal}
 */
export function toDecimal({ n, d }, digits, direction) {
  let exponent = (n / d).toString().length - digits; // exact for values >= 1
  if (n < d) exponent = 1 - (d / n).toString().length - digits; // or one less
  const round = (/** @type {number} */ e) => {
    const [top, bottom] = e <= 0 ? [n * 10n ** BigInt(-e), d] : [n, d * 10n ** BigInt(e)];
    const quotient = top / bottom;
    const rest = top - quotient * bottom;
    const isUp = direction === "up" ? rest > 0n : direction === "even" && 2n * rest + (quotient & 1n) > bottom;
    return { quotient, rounded: isUp ? quotient + 1n : quotient };
  };
  while (round(exponent).quotient >= 10n ** BigInt(digits)) exponent += 1;
  while (round(exponent).quotient < 10n ** BigInt(digits - 1)) exponent -= 1;
  const { rounded } = round(exponent);
  const isCarried = rounded === 10n ** BigInt(digits);
  return { mantissa: isCarried ? rounded / 10n : rounded, exponent: isCarried ? exponent + 1 : exponent };
}

/** @param {Decimal} value  @returns {Rational} */
export const fromDecimal = ({ mantissa, exponent }) =>
  exponent >= 0 ? { n: mantissa * 10n ** BigInt(exponent), d: 1n } : { n: mantissa, d: 10n ** BigInt(-exponent) };

/** @param {Decimal} value  @param {number} digits of its mantissa  @returns {Decimal} the largest one below it */
export function nextBelow({ mantissa, exponent }, digits) {
  if (mantissa > 10n ** BigInt(digits - 1)) return { mantissa: mantissa - 1n, exponent };
  return { mantissa: 10n ** BigInt(digits) - 1n, exponent: exponent - 1 };
}

/** @param {Decimal} value  @returns {Decimal} the smallest one above it */
export const nextAbove = ({ mantissa, exponent }) => ({ mantissa: mantissa + 1n, exponent });

/**
 * Round a function to nearest: compute an interval that contains its value, with more and more bits, until both ends
 * round to the same decimal.
 * @param {(bits: bigint) => [Rational, Rational]} interval
 * @param {number} digits
 * @returns {Decimal}
 */
function rounded(interval, digits) {
  for (let bits = 512n; ; bits *= 2n) {
    const [low, high] = interval(bits).map((end) => toDecimal(end, digits, "even"));
    if (low.mantissa === high.mantissa && low.exponent === high.exponent) return low;
  }
}

const SLACK = 1n << 20n; // in units of the last bit: more than the truncations of a series add up to

/** @param {Rational} x above 0, at most 1000  @param {number} digits  @returns {Decimal} e^x, to nearest */
export function exp(x, digits) {
  return rounded((bits) => {
    const one = 1n << bits;
    const fixed = (x.n << bits) / x.d;
    const ln2 = lnFixed(2n * one, bits);
    const k = fixed / ln2;
    const halvings = 16n;
    const r = (fixed - k * ln2) >> halvings;
    let term = one;
    let sum = one;
    for (let i = 1n; term !== 0n; i += 1n) {
      term = (term * r) / (one * i);
      sum += term;
    }
    for (let i = 0n; i < halvings; i += 1n) sum = (sum * sum) >> bits;
    const slack = SLACK << 24n; // k and the squarings multiply errors
    return [
      { n: (sum - slack) << k, d: one },
      { n: (sum + slack) << k, d: one },
    ];
  }, digits);
}

/** @param {Rational} x above 1  @param {number} digits  @returns {Decimal} ln(x), to nearest */
export function ln(x, digits) {
  return rounded((bits) => {
    const one = 1n << bits;
    const k = BigInt(Math.max(0, bitLength(x.n) - bitLength(x.d)));
    const value = lnFixed((x.n << bits) / (x.d << k), bits) + (k ? k * lnFixed(2n * one, bits) : 0n);
    return [
      { n: value - SLACK, d: one },
      { n: value + SLACK, d: one },
    ];
  }, digits);
}

/** @type {Map<bigint, bigint>} */
const lnOfTwo = new Map();

/** ln(x) = 2 artanh((x - 1) / (x + 1)) in fixed point. @param {bigint} x between 1/2 and 2  @param {bigint} bits */
function lnFixed(x, bits) {
  const one = 1n << bits;
  const isTwo = x === 2n * one;
  if (isTwo && lnOfTwo.has(bits)) return /** @type {bigint} */ (lnOfTwo.get(bits));
  const z = ((x - one) << bits) / (x + one);
  const square = (z * z) >> bits;
  let power = z;
  let sum = 0n;
  for (let i = 1n; power !== 0n && power !== -1n; i += 2n) {
    sum += power / i;
    power = (power * square) >> bits;
  }
  if (isTwo) lnOfTwo.set(bits, 2n * sum);
  return 2n * sum;
}

/** @param {Rational} x above 0  @param {number} digits  @returns {Decimal} its square root, to nearest */
export function sqrt(x, digits) {
  return rounded((bits) => {
    const root = integerRoot((x.n << (2n * bits)) / x.d);
    const isExact = root * root * x.d === x.n << (2n * bits);
    return [
      { n: root, d: 1n << bits },
      { n: isExact ? root : root + 1n, d: 1n << bits },
    ];
  }, digits);
}

/** @param {bigint} n  @returns {bigint} the largest integer whose square is at most n */
function integerRoot(n) {
  let root = 1n << BigInt(Math.ceil(bitLength(n) / 2));
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}
