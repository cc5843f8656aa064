// Tokens per second beside wllama, in one browser and one run, as a table in Markdown:
// `node tests/web/compare.mjs PAGE MODEL.gguf [TOKENS]`. Reported, never asserted: WebGPU is
// software here. Needs playwright-core and @wllama/wllama in TILEWRIGHT_NODE/node_modules.
import { readdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { open } from "./browser.mjs";
import { serve } from "./server.mjs";

const [page, model, tokens = "32"] = process.argv.slice(2);
if (!model) throw new Error("usage: node tests/web/compare.mjs PAGE MODEL.gguf [TOKENS]");
const other = join(process.env.TILEWRIGHT_NODE ?? process.cwd(), "node_modules/@wllama/wllama/esm");
const made = new Map([
  ["/blank.html", "<!doctype html><title>blank</title>"],
  [`/${basename(model)}`, { file: resolve(model) }],
  ...readdirSync(other, { recursive: true }).map((path) => [`/wllama/${path}`, { file: join(other, path) }]),
]);
const server = await serve(resolve(page), made);
// What wllama needs for threads.
server.headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
const browser = await open(true);

/** In the page: loads, answers one call and then eight at once. */
async function measure({ engine, device, url, tokens }) {
  const begin = performance.now();
  const since = (start) => (performance.now() - start) / 1000;
  const request = { prompt: "The history of printing begins", max_tokens: tokens, temperature: 0, ignore_eos: true };
  let ask, told;
  if (engine === "tilewright") {
    const { Tilewright } = await import("./tilewright.js");
    const made = await Tilewright.load(url, { device, sequences: 8, context: 512 });
    ask = (more) => made.completions.create({ ...request, ...more });
    told = made.info.fallback ?? made.info.device;
  } else {
    const { Wllama } = await import("./wllama/index.js");
    const logs = [];
    const log = (...words) => logs.push(words.join(" "));
    const made = new Wllama({ default: new URL("wllama/wasm/wllama.wasm", document.baseURI).href }, { logger: { debug: log, log, warn: log, error: log } });
    const sizes = { n_ctx: 8 * 512, n_parallel: 8, n_threads: navigator.hardwareConcurrency };
    await made.loadModelFromUrl({ url }, { ...sizes, n_gpu_layers: device === "webgpu" ? 999 : 0 });
    ask = (more) => made.createCompletion({ ...request, ...more });
    // It takes no adapter without shader-f16, which SwiftShader lacks, and says so only here.
    const places = logs.map((line) => /load_tensors: +(\S+) model buffer size/.exec(line)?.[1]).filter(Boolean);
    told = `weights on ${places.join(", ")}; ${made.getNumThreads()} threads`;
  }
  const load = since(begin);
  await ask({ max_tokens: 2 });
  const rate = async (calls) => {
    const start = performance.now();
    const answers = await Promise.all(Array.from({ length: calls }, () => ask()));
    return answers.reduce((sum, { usage }) => sum + usage.completion_tokens, 0) / since(start);
  };
  return { load, one: await rate(1), eight: await rate(8), told };
}

/** In the page: what the adapter is and has, as far as the two engines ask for it. */
async function describe() {
  const { info, features } = await navigator.gpu.requestAdapter();
  const has = (feature) => `${features.has(feature) ? "with" : "without"} ${feature}`;
  return `${info.vendor} ${info.architecture}, subgroups of ${info.subgroupMinSize}, ${has("shader-f16")}`;
}

const first = await browser.newPage();
await first.goto(`http://localhost:${server.port}/blank.html`);
console.log(`${basename(model)}, ${tokens} tokens a call, Chromium ${browser.version()}, adapter ${await first.evaluate(describe)}\n`);
await first.close();
console.log("| engine | device | load, s | one call, tokens/s | eight calls, tokens/s | what did the work |\n|---|---|---|---|---|---|");
for (const engine of ["tilewright", "wllama"]) {
  for (const device of ["webgpu", "cpu"]) {
    const context = await browser.newContext();
    const blank = await context.newPage();
    await blank.goto(`http://localhost:${server.port}/blank.html`);
    const url = `http://localhost:${server.port}/${basename(model)}`;
    const row = await blank.evaluate(measure, { engine, device, url, tokens: Number(tokens) }).catch((error) => ({ told: error.message.split("\n")[0] }));
    const [load, one, eight] = [row.load, row.one, row.eight].map((value) => value?.toFixed(1) ?? "–");
    console.log(`| ${engine} | ${device} | ${load} | ${one} | ${eight} | ${row.told} |`);
    await context.close();
  }
}
await browser.close();
server.close();
