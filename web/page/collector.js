/** Uploads to the collector that served this page. The other build has none of this. */

import { $, inlined, input } from "./dom.js";

export function setUpCollector() {
  const { needs_token: needsToken } = JSON.parse(inlined("collector") ?? "{}");
  $("send").hidden = false;
  $("token-field").hidden = !needsToken;
}

/** @param {Uint8Array<ArrayBuffer>} png  @param {string} card  @returns {Promise<string>} the name of the stored release */
export async function send(png, card) {
  const body = new FormData();
  body.append("release", new Blob([png], { type: "image/png" }), "release.png");
  body.append("card", new Blob([card], { type: "application/json" }), "card.json");
  const token = input("token").value;
  const answer = await fetch("releases", {
    method: "POST",
    body,
    headers: token ? { Authorization: `Bearer ${token}` } : {},
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(`the collector refused it (it counts as released): ${content.reason ?? answer.status}`);
  return content.name;
}
