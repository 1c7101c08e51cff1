/**
 * What attacks got at the measured setting that is nearest to a release.
 * See src/ldp_slicing/measured.py, which is the definition; tests compare the two.
 */

import { grouped } from "./wording.js";
import { FAMILIES, KINDS, MEASURED, NOTHING_MEASURED, RECOGNISABLE, SAME_SHARE, TABLE_VERSION } from "./words.js";

/** @typedef {import("./plan.js").Plan} Plan */
/** @typedef {(typeof MEASURED)[number]} Measured */

/**
 * The entry that says most about releases of this plan and view, with at most this many pixels each.
 * @param {Plan} plan  @param {string | null} prune  @param {number} pixels  @returns {Measured | null}
 */
export function nearest(plan, prune, pixels) {
  let same = MEASURED.filter((one) => one.prune === prune && isFamilyOf(one, plan));
  if (!same.length) return null;
  const harm = Math.min(...same.map((one) => KINDS.indexOf(one.kind)));
  same = same.filter((one) => KINDS.indexOf(one.kind) === harm);
  const enough = Math.min(plan.epsilon, Math.max(...same.map((one) => one.epsilon)));
  same = same.filter((one) => one.epsilon >= enough);
  const size = atLeast(pixels, same.map((one) => one.pixels));
  same = same.filter((one) => one.pixels === size);
  const epsilon = atLeast(plan.epsilon, same.map((one) => one.epsilon));
  return /** @type {Measured} */ (same.find((one) => one.epsilon === epsilon));
}

/**
 * What was measured at the nearest setting, as the card states it.
 * @param {Plan} plan  @param {string | null} prune  @param {number} pixels  @param {number} [releases] the most of one source
 * @returns {{table: number, entry: string | null, sentence: string}}
 */
export function risk(plan, prune, pixels, releases = 1) {
  const entry = nearest(plan, prune, pixels);
  if (entry === null) return { table: TABLE_VERSION, entry: null, sentence: NOTHING_MEASURED };
  const more = [];
  const less = [];
  if (plan.epsilon > entry.epsilon) more.push("a larger budget");
  if (plan.epsilon < entry.epsilon) less.push("a smaller budget");
  if (pixels > entry.pixels) more.push("more pixels");
  if (pixels < entry.pixels) less.push("fewer pixels");
  const advice = (more.length || releases > 1) && entry.kind !== "content" ? RECOGNISABLE : entry.advice;
  const sentence = `${entry.sentence}${difference(more, less, releases)}: ${advice}.`;
  return { table: TABLE_VERSION, entry: entry.name, sentence };
}

/** @param {string[]} more  @param {string[]} less  @param {number} releases  @returns {string} */
function difference(more, less, releases) {
  let said = `; these releases have ${[more, less].filter((some) => some.length).map((some) => some.join(" and ")).join(", but ")}`;
  if (releases > 1) {
    const repeated = `one source has up to ${grouped(releases)} of`;
    if (more.length || less.length) said += `, ${more.length ? "and" : "but"} ${repeated} them`;
    else said = `; ${repeated} these releases`;
  } else if (!more.length && !less.length) return "";
  if (less.length && (more.length || releases > 1)) return said;
  return `${said}, so expect ${less.length ? "less" : "more"}`;
}

/** Whether the plan differs from the entry's at most in its eps. @param {Measured} entry  @param {Plan} plan */
function isFamilyOf(entry, plan) {
  const total = plan.slices.reduce((sum, { epsilon }) => sum + epsilon, 0);
  const shares = new Map(plan.slices.map(({ bits, epsilon }) => [bits, epsilon / total]));
  return (
    plan.wordBits === entry.wordBits &&
    shares.size === FAMILIES[entry.family].length &&
    FAMILIES[entry.family].every(([bits, share]) => Math.abs((shares.get(bits) ?? Infinity) - share) <= SAME_SHARE)
  );
}

/** The smallest measured value that is at least the wanted one, or else the largest. @param {number} wanted  @param {number[]} measured */
function atLeast(wanted, measured) {
  const enough = measured.filter((one) => one >= wanted);
  return enough.length ? Math.min(...enough) : Math.max(...measured);
}
