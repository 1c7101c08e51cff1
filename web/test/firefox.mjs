/** Asks Firefox (its program is the first argument) for the answer of test/browser.js at the address in the second, with the vectors in the third. */

import { readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const [, , executablePath, address, vectors] = process.argv;
const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true });
try {
  const page = await browser.newPage();
  await page.goto(address);
  await page.waitForFunction(() => document.title === "ready");
  const answer = await page.evaluate((content) => globalThis.check(JSON.parse(content)), readFileSync(vectors, "utf8"));
  process.stdout.write(JSON.stringify(answer));
} finally {
  await browser.close();
}
