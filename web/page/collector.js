/** What the collector that served this page takes and gives. The other build has none of this. */

import { $, inlined, input } from "./dom.js";

const told = COLLECTS ? JSON.parse(inlined("collector") ?? "{}") : {};

export function setUpCollector() {
  $("send").hidden = false;
  $("token-field").before($("attackers")); // nobody chose the settings on this page, so the risk stands where one decides
  $("download").classList.remove("primary");
  $("token-field").hidden = !told.needs_token;
  input("token").onkeydown = ({ key }) => key === "Enter" && $("send").click();
}

/** Whether the collector needs a token that is not there yet. */
export const lacksToken = () => Boolean(told.needs_token) && !input("token").value;

/** Whether the collector has a network for the attack view. */
export const hasNetwork = () => Boolean(told.has_network);

/** @returns {Promise<Uint8Array<ArrayBuffer>>} its file */
export async function fetchNetwork() {
  return COLLECTS ? new Uint8Array(await (await reach("network")).arrayBuffer()) : new Uint8Array();
}

/** A request that may or may not have reached the collector. */
class UnansweredError extends Error {
  isUnanswered = true;
}

/** @param {string} path  @param {RequestInit} [options] */
const reach = (path, options) =>
  fetch(path, options).catch(() => {
    throw new UnansweredError("the collector did not answer");
  });

/** A release that the collector does not take. */
class RefusedError extends Error {
  isFinal = true;
}

/**
 * @param {Uint8Array<ArrayBuffer>} png  @param {string} card
 * @returns {Promise<string | null>} the name of the stored release, or null if it was stored before
 */
export async function send(png, card) {
  const body = new FormData();
  body.append("release", new Blob([png], { type: "image/png" }), "release.png");
  body.append("card", new Blob([card], { type: "application/json" }), "card.json");
  const token = input("token").value;
  const answer = await reach("releases", {
    method: "POST",
    body,
    headers: token ? { Authorization: `Bearer ${token}` } : {},
  });
  const content = await answer.json().catch(() => ({}));
  if (answer.status === 409) return null;
  const reason = content.reason ?? `the collector answered ${answer.status}`;
  if (answer.status >= 400 && answer.status < 500 && ![401, 408, 429].includes(answer.status)) throw new RefusedError(reason);
  if (!answer.ok) throw new Error(reason); // another attempt may succeed
  return content.name;
}
