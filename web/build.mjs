/**
 * Builds the page: one HTML file per build, with everything inside. `npm run build [FOLDER]`
 *   studio.html      talks to nobody
 *   collector.html   can send releases to the server that it came from
 */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "../src/ldp_slicing/studio/page");

/** The WebAssembly module as bytes, and the worker as text that becomes a blob. */
const plugin = {
  name: "inside",
  setup(build) {
    build.onResolve({ filter: /^worker:/ }, ({ path }) => ({ path: join(here, "page", path.slice(7)), namespace: "worker" }));
    build.onLoad({ filter: /.*/, namespace: "worker" }, async ({ path }) => ({
      contents: await bundle(path, build.initialOptions.define),
      loader: "text",
    }));
  },
};

/** @param {string} path  @param {Record<string, string>} define */
async function bundle(path, define) {
  const { outputFiles } = await esbuild.build({
    entryPoints: [path],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    define,
    loader: { ".wasm": "binary" },
    plugins: [plugin],
  });
  return outputFiles[0].text;
}

/** @param {string} text */
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const css = await esbuild.build({ entryPoints: [join(here, "page/style.css")], minify: true, write: false, bundle: true });
const style = css.outputFiles[0].text.trim();
const html = readFileSync(join(here, "page/index.html"), "utf8").replace(/<!--[^]*?-->/g, "").replace(/\n\s+/g, "\n");
mkdirSync(folder, { recursive: true });
for (const [name, collects] of [["studio", false], ["collector", true]]) {
  const script = (await bundle(join(here, "page/main.js"), { COLLECTS: String(collects) })).replaceAll("</script", "<\\/script").trim();
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)} 'wasm-unsafe-eval'`,
    `style-src ${hash(style)}`,
    "img-src blob: data:",
    "media-src blob:",
    "worker-src blob:",
    `connect-src ${collects ? "'self'" : "'none'"}`,
    "form-action 'none'",
    "base-uri 'none'",
  ].join("; ");
  const page = html
    .replace("{policy}", () => policy)
    .replace("{style}", () => style)
    .replace("{data}\n", "<!--data-->\n") // the server puts a network and the collector's settings here
    .replace("{script}", () => script);
  writeFileSync(join(folder, `${name}.html`), page);
  console.log(`${name}.html: ${Buffer.byteLength(page).toLocaleString("en")} bytes`);
}
