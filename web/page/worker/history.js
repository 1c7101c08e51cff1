/** What this page has released of each source. Cards count it, even if an image was closed and opened again. */

import { add, fromDouble, multiply } from "../../src/exact.js";

/** @typedef {import("../../src/card.js").Card} Card */

export class History {
  /** For each source, by its digest, the cards of its releases, each about one. @type {Map<string, Card[]>} */
  #released = new Map();

  /** @param {string} source  @param {Card} card */
  record(source, card) {
    this.#released.set(source, [...(this.#released.get(source) ?? []), card]);
  }

  /** How often a source was released. @param {string} source */
  times(source) {
    return this.#released.get(source)?.length ?? 0;
  }

  /**
   * What was released of these sources.
   * @param {string[]} sources  @param {Card | null} [next] a release of the only source that is yet to come
   * @returns {import("../../src/card.js").Most}
   */
  most(sources, next = null) {
    const cards = sources.map((source) => [...(this.#released.get(source) ?? []), ...(next ? [next] : [])]);
    return { times: Math.max(...cards.map((of) => of.length)), spent: cards.map(sums) };
  }
}

/** The sums of epsilon per released pixel, per source pixel and per image. @param {Card[]} cards */
function sums(cards) {
  const sum = (/** @type {(card: Card) => number} */ count) =>
    cards
      .map((card) => multiply(fromDouble(card.plan.realisedEpsilon), { n: BigInt(count(card)), d: 1n }))
      .reduce(add, { n: 0n, d: 1n });
  return [sum(() => 1), sum(({ dependents }) => dependents), sum(({ pixels }) => pixels)];
}
