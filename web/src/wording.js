/** How numbers are written: as Python writes them, so that a card has the same text from either. */

import { fromDouble, toDecimal } from "./exact.js";

/** @param {number} value above 0  @returns {{digits: string, exponent: number}} the shortest digits, d.ddd * 10^exponent */
function shortest(value) {
  const [digits, exponent] = value.toExponential().split("e");
  return { digits: digits.replace(".", ""), exponent: Number(exponent) };
}

/** @param {string} digits  @param {number} exponent of the first digit  @param {number} least  @param {number} most */
function place(digits, exponent, least, most) {
  if (exponent < least || exponent >= most) {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${digits[0]}${rest}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return digits.length > exponent + 1 ? `${whole}.${digits.slice(exponent + 1)}` : whole;
}

/** @param {number} value  @returns {string} as Python's repr() of a float */
export function reprFloat(value) {
  if (value === 0) return "0.0";
  if (value < 0) return `-${reprFloat(-value)}`;
  if (!Number.isFinite(value)) return "inf";
  const { digits, exponent } = shortest(value);
  const text = place(digits, exponent, -4, 16);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** @param {number} value at least 0  @returns {string} as Python's f"{value:.6g}" */
export function sixDigits(value) {
  if (value === 0) return "0";
  const { mantissa, exponent } = toDecimal(fromDouble(value), 6, "even");
  return place(mantissa.toString().replace(/0+$/, "") || "0", exponent + 5, -4, 6);
}

/** @param {bigint | number} value a whole number  @returns {string} with thousands separators */
export const grouped = (value) => value.toString().replace(/\B(?=(\d{3})+$)/g, ",");

/** @param {number} value at least 0  @returns {string} an eps: six digits or a whole number, rounded up */
export function number(value) {
  if (!Number.isFinite(value)) return "inf";
  if (value >= 10_000) return grouped(BigInt(Math.ceil(value)));
  if (value === 0) return "0";
  const { digits, exponent } = shortest(value);
  if (digits.length <= 6) return sixDigits(value);
  const up = (BigInt(digits.slice(0, 6)) + (/[1-9]/.test(digits.slice(6)) ? 1n : 0n)).toString();
  return sixDigits(Number(`${up}e${exponent - 5}`));
}

/** @param {number} count  @param {string} what  @returns {string} "1 release", "1,000 releases" */
export const counted = (count, what) => `${grouped(count)} ${what}${count === 1 ? "" : "s"}`;

/** A number that JSON shows as a float, even if it is whole. */
export class Float {
  /** @param {number} value */
  constructor(value) {
    this.value = value;
  }
}

/** @param {unknown} value  @param {string} [indent]  @returns {string} as Python's json.dumps(value, indent=2) */
export function toJson(value, indent = "") {
  const inner = `${indent}  `;
  if (value instanceof Float) return reprFloat(value.value);
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((one) => inner + toJson(one, inner)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const lines = Object.entries(value).map(([key, one]) => `${inner}${JSON.stringify(key)}: ${toJson(one, inner)}`);
    return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}
