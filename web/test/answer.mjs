/** Answers questions in JSON from standard input: tests/web compares the answers with Python's. */

import { createCipheriv, createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { History } from "../page/worker/history.js";
import { advantageBound, Card, cardOf } from "../src/card.js";
import { fromDouble } from "../src/exact.js";
import { withManifest, zip } from "../src/folder.js";
import { loadKernel } from "../src/load.js";
import { cropOf, Network } from "../src/network.js";
import { Plan } from "../src/plan.js";
import { encodePng } from "../src/png.js";
import { release } from "../src/slicer.js";
import { hitWeight, lnUp } from "../src/tables.js";
import { number, reprFloat, sixDigits } from "../src/wording.js";
import { checkVectors, fromHex, toHex } from "./vectors.js";

const kernel = await loadKernel();
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** @param {any} spec */
function planOf({ kind, epsilon, weights, slices, bits, parts, word_bits: wordBits, requested }) {
  if (parts) return new Plan(parts.map(([b, e]) => ({ bits: b, epsilon: e })), wordBits, requested ?? null);
  if (kind === "paper") return Plan.paper(epsilon, weights);
  if (kind === "grey") return Plan.grey(epsilon, bits);
  if (kind === "uniform") return Plan.uniform(epsilon, bits);
  return Plan.sliced(epsilon, slices, bits);
}

const answers = {
  vectors: async ({ file }) => checkVectors(kernel, JSON.parse(readFileSync(file, "utf8"))),
  plan: ({ plan }) => {
    const made = planOf(plan);
    return { realised: reprFloat(made.realisedEpsilon), slices: made.slices.map((p) => [p.bits, reprFloat(p.epsilon)]), remark: made.remark };
  },
  card: ({ plan, prune, sizes, size }) => new Card(planOf(plan), prune, sizes, "rgb", size).toJson(),
  history: ({ released, plan, prune, sizes, sources }) => {
    const history = new History();
    for (const [source, of, pruning, size] of released) history.record(source, new Card(planOf(of), pruning, [size]));
    return new Card(planOf(plan), prune, sizes, "rgb", null, history.most(sources)).toJson();
  },
  mixedCard: ({ plans, prune, sizes, size }) => cardOf(plans.map((plan) => new Card(planOf(plan), prune, sizes, "rgb", size))),
  bounds: ({ epsilons }) => epsilons.map((epsilon) => reprFloat(advantageBound(epsilon))),
  numbers: ({ values }) => values.map((value) => [reprFloat(value), sixDigits(value), number(value)]),
  hits: ({ pairs }) => pairs.map(([symbols, epsilon]) => hitWeight(symbols, epsilon).toString()),
  logarithms: ({ ratios }) => ratios.map(([n, d]) => Object.values(lnUp({ n: BigInt(n), d: BigInt(d) })).join("/")),
  exact: ({ values }) => values.map((value) => Object.values(fromDouble(value)).join("/")),
  aes: ({ key, blocks }) => toHex(kernel.encrypt(fromHex(key), fromHex(blocks))),
  release: async ({ plan, prune, size, output, key, file, width, height, channels, deep }) => {
    const bytes = Uint8Array.from(readFileSync(file));
    const data = deep ? new Uint16Array(bytes.buffer) : bytes;
    const made = planOf(plan);
    const options = { plan: made, prune, size: size ?? null, output: output ?? "rgb" };
    const found = await release(kernel, { data, width, height, channels }, options, fromHex(key));
    const png = output === "ycbcr" ? new Uint8Array(0) : encodePng(found.pixels, found.width, found.height, made);
    return { width: found.width, height: found.height, pixels: sha256(found.pixels), png: sha256(png) };
  },
  privatize: async ({ file, width, height, epsilon, size }) => {
    const { Plan: Plans, privatize, encodePng: encode } = await import("ldp-slicing"); // as a package
    const plan = Plans.paper(epsilon);
    const data = new Uint8ClampedArray(readFileSync(file));
    const made = await Promise.all([1, 2].map(() => privatize({ data, width, height }, { plan, prune: null, size })));
    return made.map(({ pixels, card, ...found }) => ({
      card: card.toJson(),
      png: Buffer.from(encode(pixels, found.width, found.height, plan)).toString("base64"),
    }));
  },
  folder: async ({ plan, prune, releases }) => {
    const made = planOf(plan);
    const files = [];
    for (const { name, key, file, width, height } of releases) {
      const data = Uint8Array.from(readFileSync(file));
      const { pixels } = await release(kernel, { data, width, height, channels: 3 }, { plan: made, prune }, fromHex(key));
      files.push({ name, bytes: encodePng(pixels, width, height, made) });
    }
    const card = new Card(made, prune, releases.map(({ width, height }) => [width, height]));
    return Buffer.from(zip(await withManifest(files, card.toJson()))).toString("base64");
  },
  reconstruct: ({ plan, prune, network, file, width, height }) => {
    const made = planOf(plan);
    const crop = cropOf({ pixels: readFileSync(file), width, height, channels: made.isColour ? 3 : 1 });
    const out = Network.parse(readFileSync(network)).reconstruct(kernel, crop, made, prune);
    return Buffer.from(out).toString("base64");
  },
  ecb: ({ key, blocks }) => {
    const cipher = createCipheriv("aes-256-ecb", fromHex(key), null).setAutoPadding(false);
    return cipher.update(fromHex(blocks)).toString("hex");
  },
};

const questions = JSON.parse(readFileSync(0, "utf8"));
const found = [];
for (const question of questions) {
  try {
    found.push(await answers[question.ask](question));
  } catch (error) {
    found.push({ error: `${error.name}: ${error.message}` });
  }
}
process.stdout.write(JSON.stringify(found));
