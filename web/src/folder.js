/** A folder of releases with manifest and card, as `ldp-slicing verify` expects it, in one ZIP file. */

import { crc32, join } from "./png.js";

const encoder = new TextEncoder();

/** @typedef {{name: string, bytes: Uint8Array<ArrayBuffer>}} File */

/** @param {Uint8Array<ArrayBuffer>} bytes  @returns {Promise<string>} in hexadecimal */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {File[]} releases  @param {string} card the text of the card about all of them
 * @returns {Promise<File[]>} the releases, sorted by name, with manifest.jsonl and card.json
 */
export async function withManifest(releases, card) {
  const sorted = [...releases].sort((a, b) => (a.name < b.name ? -1 : 1));
  let lines = "";
  for (const { name, bytes } of sorted) {
    lines += `{"manifest": 2, "output": ${JSON.stringify(name)}, "sha256": "${await sha256(bytes)}", "status": "released"}\n`;
  }
  return [
    ...sorted,
    { name: "manifest.jsonl", bytes: encoder.encode(lines) },
    { name: "card.json", bytes: encoder.encode(card) },
  ];
}

/** @param {File[]} files with names in ASCII  @returns {Uint8Array<ArrayBuffer>} a ZIP file, stored, without times */
export function zip(files) {
  const parts = [];
  const entries = [];
  let at = 0;
  for (const { name, bytes } of files) {
    const text = encoder.encode(name);
    const head = new DataView(new ArrayBuffer(26));
    head.setUint16(0, 20, true); // version
    head.setUint16(8, 0x21, true); // the date 1980-01-01: the order and the time of releases stay unknown
    head.setUint32(10, crc32(bytes), true);
    head.setUint32(14, bytes.length, true);
    head.setUint32(18, bytes.length, true);
    head.setUint16(22, text.length, true);
    const common = new Uint8Array(head.buffer);
    const entry = new DataView(new ArrayBuffer(46));
    entry.setUint32(0, 0x02014b50, true);
    entry.setUint16(4, 20, true);
    new Uint8Array(entry.buffer).set(common, 6);
    entry.setUint32(42, at, true);
    entries.push(new Uint8Array(entry.buffer), text);
    parts.push(Uint8Array.of(0x50, 0x4b, 3, 4), common, text, bytes);
    at += 30 + text.length + bytes.length;
  }
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  end.setUint16(8, files.length, true);
  end.setUint16(10, files.length, true);
  end.setUint32(12, entries.reduce((sum, part) => sum + part.length, 0), true);
  end.setUint32(16, at, true);
  return join([...parts, ...entries, new Uint8Array(end.buffer)]);
}
