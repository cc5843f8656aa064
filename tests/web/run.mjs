// The page and the JavaScript API in headless Chromium: `node tests/web/run.mjs [PAGE] [FILTER]`.
// WebGPU there is SwiftShader. Needs playwright-core (in TILEWRIGHT_NODE/node_modules, or here),
// Chromium (CHROMIUM, default /usr/bin/chromium) and the program (TILEWRIGHT_BIN, default
// target/debug/tilewright). Pictures go to PAGE-pictures.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { open } from "./browser.mjs";
import { behind, serve, uniform } from "./server.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = resolve(process.argv[2] ?? join(root, "target/page"));
const filter = process.argv[3] ?? "";
const program = process.env.TILEWRIGHT_BIN ?? join(root, "target/debug/tilewright");
const pictures = `${folder}-pictures`;
mkdirSync(pictures, { recursive: true });

const read = (path) => JSON.parse(readFileSync(join(root, path), "utf8"));
const fable = { config: read("assets/fable/config.json"), cases: read("assets/fable/expected.json").cases };
// A checkpoint of 80 MB, the same in two files, and one that is none.
const big = uniform(fable, 8192, 8);
const two = uniform(fable, 8192, 8, 2);
// Fable, its weights behind 4.1 GiB of something else.
const far = behind(readFileSync(join(root, "assets/fable/model.safetensors")), 4198 * 2 ** 20);
const BIG = `/big/${big.names[0]}`;
const tokenizer = readFileSync(join(root, "assets/fable/tokenizer.json"), "utf8");
const folderOf = (path, { config, files, names, index }) => [
  [`${path}/config.json`, JSON.stringify(config)],
  [`${path}/tokenizer.json`, tokenizer],
  [`${path}/model.safetensors.index.json`, JSON.stringify(index)],
  ...names.map((name, at) => [`${path}/${name}`, files[at]]),
];
const made = new Map([
  ...folderOf("/big", big),
  ...folderOf("/two", two),
  ["/far/config.json", JSON.stringify(fable.config)],
  ["/far/tokenizer.json", tokenizer],
  ["/far/model.safetensors", far],
  ["/damaged/model.gguf", { head: Buffer.from("GGUF\u0003\0\0\0 no more than noise"), bytes: 40 << 20 }],
  ["/blank.html", "<!doctype html><title>blank</title>"],
]);
const server = await serve(folder, made);
const address = (path) => `http://localhost:${server.port}/${path}`;

const browsers = new Map();
/** The browser with a software adapter, or one that gives none. */
async function browser(adapter) {
  // One that has ended fails the row it ended in, not all that follow.
  if (!browsers.get(adapter)?.isConnected()) browsers.set(adapter, await open(adapter, ["--host-resolver-rules=MAP insecure.test 127.0.0.1"]));
  return browsers.get(adapter);
}

/** Puts the API into a page. */
async function ready() {
  window.T = await import("./tilewright.js");
  window.ask = (engine, content, more = {}) =>
    engine.chat.completions.create({ messages: [{ role: "user", content }], temperature: 0, return_token_ids: true, ...more });
}

/** A blank page of our origin with the API in `T`, for `act(page)`. */
async function withApi(adapter, act) {
  const context = await (await browser(adapter)).newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => console.log(`  page: ${error.message}`));
  await page.goto(address("blank.html"));
  await page.evaluate(ready);
  try {
    return await act(page, context);
  } finally {
    await context.close();
  }
}

async function withPage(adapter, query, act, host = "localhost", prepare = () => {}) {
  const context = await (await browser(adapter)).newContext({ viewport: { width: 1280, height: 720 } });
  const page = await context.newPage();
  page.on("pageerror", (error) => console.log(`  page: ${error.message}`));
  await prepare(context);
  await page.goto(new URL(query, `http://${host}:${server.port}/`).href);
  await page.waitForFunction(() => window.page, null, { timeout: 60_000 });
  try {
    return await act(page, context);
  } finally {
    await context.close();
  }
}
const summary = (page) => page.evaluate(() => JSON.parse(window.page.summary()));
async function until(page, what, test, seconds = 90) {
  for (let left = seconds * 4; ; left--) {
    const now = await summary(page);
    if (test(now)) return now;
    assert(left > 0, `${what}: ${JSON.stringify(now)}`);
    await page.waitForTimeout(250);
  }
}

/** Ids are those of the reference up to the first choice that was a close one. */
function sameAsGolden(ids, golden) {
  for (let at = 0; at < golden.length; at++) {
    if (golden[at][1] < 0.05) return at;
    assert.equal(ids[at], golden[at][0], `token ${at}`);
  }
  return golden.length;
}

const rows = [];
const row = (name, act) => rows.push({ name, act });

for (const device of ["webgpu", "cpu"]) {
  row(`golden_texts_on_${device}`, () =>
    withApi(true, async (page) => {
      const cases = fable.cases.slice(0, device === "cpu" ? 4 : 12);
      const answers = await page.evaluate(
        async ([device, cases]) => {
          const engine = await T.Tilewright.load("fable", { device });
          const answers = [];
          for (const { user, ids_and_margins } of cases) {
            answers.push(await ask(engine, user, { max_tokens: ids_and_margins.length }));
          }
          const { backend } = engine.info;
          engine.unload();
          return { answers, backend };
        },
        [device, cases],
      );
      assert.equal(answers.backend, device);
      cases.forEach((one, at) => {
        const choice = answers.answers[at].choices[0];
        const same = sameAsGolden(choice.token_ids, one.ids_and_margins);
        if (same === one.ids_and_margins.length) assert.equal(choice.message.content, one.answer);
      });
    }));
}

row("logits_are_those_of_the_processor", () =>
  withApi(true, async (page) => {
    const tops = await page.evaluate(async () => {
      const tops = [];
      for (const device of ["webgpu", "cpu"]) {
        const engine = await T.Tilewright.load("fable", { device, sequences: 2 });
        const answer = await ask(engine, "Tell me a story about a fox.", { max_tokens: 12, logprobs: true, top_logprobs: 20 });
        tops.push(answer.choices[0].logprobs.content.map((one) => one.top_logprobs.map((top) => [top.token_id, top.logprob])));
        engine.unload();
      }
      return tops;
    });
    let most = 0;
    tops[0].forEach((row, at) => {
      const other = new Map(tops[1][at]);
      const both = row.filter(([id]) => other.has(id));
      assert(both.length >= 18, "the same tokens are likely");
      for (const [id, logprob] of both) most = Math.max(most, Math.abs(logprob - other.get(id)));
    });
    console.log(`  largest difference of a log-probability: ${most.toExponential(2)}`);
    assert(most < 1e-3);
  }));

row("eight_chats_at_once_are_batched", () =>
  withApi(true, async (page) => {
    const cases = fable.cases.slice(0, 8);
    const told = await page.evaluate(async (cases) => {
      let rows = 0;
      const onTrace = (events) => {
        for (const { event } of events) if (event.kind === "StepPlanned") rows = Math.max(rows, event.rows);
      };
      const engine = await T.Tilewright.load("fable", { onTrace });
      const answers = await Promise.all(cases.map(({ user, ids_and_margins }) => ask(engine, user, { max_tokens: ids_and_margins.length })));
      const rate = async (calls) => {
        const begin = performance.now();
        const one = () => ask(engine, "Tell me a story about a fox.", { max_tokens: 24, ignore_eos: true });
        await Promise.all(Array.from({ length: calls }, one));
        return (24 * calls) / ((performance.now() - begin) / 1000);
      };
      const rates = [await rate(1), await rate(8)];
      // What it says comes after the events of all steps before.
      const status = await engine.status();
      return { answers, rates, status, rows };
    }, cases);
    cases.forEach((one, at) => sameAsGolden(told.answers[at].choices[0].token_ids, one.ids_and_margins));
    const [one, eight] = told.rates.map((rate) => rate.toFixed(1));
    console.log(`  tokens/s: ${one} of one stream, ${eight} of eight`);
    assert.equal(told.rows, 8);
    assert.equal(told.status.blocks_used, 0);
    assert.equal(told.status.fault, null);
  }));

row("abort_frees_the_blocks", () =>
  withApi(true, async (page) => {
    const told = await page.evaluate(async () => {
      const engine = await T.Tilewright.load("fable", { device: "cpu" });
      const stop = new AbortController();
      const long = { max_tokens: 1500, ignore_eos: true, stream: true };
      let thrown = null;
      try {
        for await (const chunk of await engine.chat.completions.create({ messages: [{ role: "user", content: "Tell me a story." }], ...long }, { signal: stop.signal })) {
          if (chunk.choices[0].delta.content) stop.abort();
        }
      } catch (error) {
        thrown = error.name;
      }
      for await (const chunk of await ask(engine, "Count from one to ten.", long)) if (chunk.choices[0].delta.content) break;
      let status = await engine.status();
      for (let left = 100; status.open > 0 && left > 0; left--) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        status = await engine.status();
      }
      return { thrown, status };
    });
    assert.equal(told.thrown, "AbortError");
    assert.equal(told.status.open, 0);
    assert.equal(told.status.blocks_used, 0);
    assert.equal(told.status.fault, null);
  }));

row("mistakes_are_told", () =>
  withApi(true, async (page) => {
    const told = await page.evaluate(async (damaged) => {
      const caught = (promise) => promise.then(() => null, ({ name, code, param, message }) => ({ name, code, param, message }));
      const engine = await T.Tilewright.load("fable", { device: "cpu" });
      const two = await ask(engine, "What is 3 plus 4?", { n: 2, max_tokens: 8, temperature: 1 });
      const plain = await engine.completions.create({ prompt: "The capital of France", max_tokens: 4, temperature: 0 });
      return {
        field: await caught(ask(engine, "x", { temperature: -1 })),
        unknown: await caught(ask(engine, "x", { tools: [] })),
        absent: await caught(T.Tilewright.load("/absent/model.gguf")),
        closed: await caught(T.Tilewright.load("http://localhost:9/model.gguf")),
        damaged: await caught(T.Tilewright.load(damaged, { device: "cpu" })),
        again: await caught(T.Tilewright.load(damaged, { device: "cpu" })),
        two: two.choices.length,
        plain: plain.choices[0].text,
      };
    }, "/damaged/model.gguf");
    assert.equal(told.field.param, "temperature");
    assert.match(told.unknown?.message ?? "taken", /tools/);
    assert.equal(told.absent.code, "network");
    assert.match(told.closed.message, /CORS/);
    assert.equal(told.damaged.code, "model");
    assert.equal(told.again.code, "model");
    assert.equal(told.two, 2);
    assert(told.plain.length > 0);
  }));

row("every_shader_compiles", () =>
  withApi(true, async (page) => {
    const { compiled, skipped, faults } = await page.evaluate(async () => {
      const module = await import("./tilewright_wasm.js");
      await module.default();
      const adapter = await navigator.gpu.requestAdapter();
      const f16 = adapter.features.has("shader-f16");
      const device = await adapter.requestDevice(f16 ? { requiredFeatures: ["shader-f16"] } : {});
      const told = { compiled: 0, skipped: 0, faults: [] };
      for (const [name, code, needsF16] of JSON.parse(module.shaders())) {
        if (needsF16 && !f16) {
          told.skipped += 1;
          continue;
        }
        const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
        const errors = messages.filter(({ type }) => type === "error");
        if (errors.length > 0) told.faults.push(`${name}:${errors[0].lineNum}: ${errors[0].message}`);
        told.compiled += 1;
      }
      const planted = await device.createShaderModule({ code: "fn f() { workgroupBarrier( }" }).getCompilationInfo();
      if (planted.messages.length === 0) told.faults.push("the planted fault was not seen");
      return told;
    });
    console.log(`  ${compiled} compiled, ${skipped} need f16, which this adapter lacks`);
    assert.deepEqual(faults, []);
    assert(compiled > 50);
  }));

/** Sizes that leave room, for a model of which nothing is known but that it is large. */
const SMALL = { sequences: 2, blocks: 32, step_tokens: 16 };
/** What the server was asked of this path since `from`. */
const pulls = (path, from = 0) => server.asked.slice(from).filter((one) => one.path === path);
const sent = (asked) => asked.reduce((sum, { sent }) => sum + sent, 0);

/** Loads and answers; what was told on the way. */
const loads = (page, url, options = {}) =>
  page.evaluate(
    async ([url, options]) => {
      const problems = [];
      const engine = await T.Tilewright.load(url, { device: "cpu", onProblem: (told) => problems.push(told), ...options });
      const { usage } = await engine.completions.create({ prompt: "x", max_tokens: 2, ignore_eos: true });
      engine.unload();
      return { problems, tokens: usage.completion_tokens };
    },
    [url, { ...SMALL, ...options }],
  );

row("large_model_by_ranges", () =>
  withApi(true, async (page) => {
    const from = server.asked.length;
    const told = await page.evaluate(async (sizes) => {
      const phases = { download: 0, upload: 0 };
      const onProgress = ({ phase, loaded }) => (phases[phase] = Math.max(phases[phase], loaded));
      const load = (source) => T.Tilewright.load(source, { device: "webgpu", onProgress, ...sizes });
      const small = await load("fable");
      const before = (await small.status()).memory_bytes;
      small.unload();
      phases.download = phases.upload = 0;
      const engine = await load("/big/");
      const after = (await engine.status()).memory_bytes;
      engine.unload();
      return { phases, before, after };
    }, SMALL);
    const whole = big.files[0].bytes;
    console.log(`  ${(whole / 1e6).toFixed(0)} MB; memory grew by ${((told.after - told.before) / 2 ** 20).toFixed(1)} MiB`);
    assert(whole > 64 << 20);
    assert.equal(told.phases.download, whole);
    assert(told.phases.upload > 64 << 20);
    assert(told.after - told.before < 32 << 20, "the model was held in memory");
    assert.equal((await loads(page, "/big/", { device: "webgpu" })).tokens, 2);
    assert(sent(pulls(BIG, from)) < whole * 1.05, "the second load came from storage");
  }));

row("weights_beyond_4_GiB", () =>
  withApi(true, async (page) => {
    const told = await page.evaluate(async (sizes) => {
      const engine = await T.Tilewright.load("/far/", { device: "webgpu", store: false, ...sizes });
      const { choices } = await engine.completions.create({ prompt: "The capital of France", max_tokens: 4, temperature: 0 });
      engine.unload();
      const same = await T.Tilewright.load("fable", { device: "webgpu", ...sizes });
      const other = await same.completions.create({ prompt: "The capital of France", max_tokens: 4, temperature: 0 });
      same.unload();
      const refused = await T.Tilewright.load("/far/", { device: "cpu", ...sizes }).then(() => null, ({ message }) => message);
      return { text: choices[0].text, same: other.choices[0].text, refused };
    }, SMALL);
    assert.equal(told.text, told.same);
    // All memory of a module is 4 GiB: with the figures, and before anything is fetched.
    assert.match(told.refused, /has 4408 MB; without WebGPU there is room for 2148 MB/);
    assert(sent(pulls("/far/model.safetensors")) < 16e6);
  }));

row("reload_resumes_a_download", () =>
  withApi(false, async (page) => {
    const whole = big.files[0].bytes;
    const from = server.asked.length;
    server.hold = (path, sent) => path === BIG && sent > whole / 2;
    await page.evaluate(() => void T.Tilewright.load("/big/", { device: "cpu", onProgress: (now) => (window.now = now) }));
    await page.waitForFunction((least) => window.now?.loaded > least, whole / 2 - (8 << 20), { timeout: 60_000 });
    await page.reload();
    // The worker of before may go on for a moment.
    await Promise.all(pulls(BIG, from).map(({ closed }) => closed));
    server.hold = () => false;
    // One more break on the way.
    server.cut = (path, from) => (path === BIG && from > 0 && from < whole * 0.6 ? 16 << 20 : Infinity);
    await page.evaluate(ready);
    await loads(page, "/big/");
    server.cut = () => Infinity;
    const asked = pulls(BIG, from);
    const resumed = asked.filter(({ from }) => from > 0);
    assert(resumed.length >= 2 && resumed[0].from > whole / 2 - (16 << 20), JSON.stringify(asked));
    assert(sent(asked) < whole * 1.3, JSON.stringify(asked));
  }));

/** Writes into everything that is stored: `act(writer)`. */
const damage = (page, act) =>
  page.evaluate(async (act) => {
    const models = await (await navigator.storage.getDirectory()).getDirectoryHandle("tilewright-models");
    for await (const folder of models.values()) {
      const writer = await (await folder.getFileHandle("data")).createWritable({ keepExistingData: true });
      await new Function("writer", `return writer.${act}`)(writer);
      await writer.close();
    }
  }, act);

row("damaged_storage_is_fetched_again", () =>
  withApi(false, async (page) => {
    await loads(page, "/two/");
    await damage(page, "truncate(1000)");
    let from = server.asked.length;
    assert.equal((await loads(page, "/two/")).tokens, 2);
    for (const name of two.names) assert(sent(pulls(`/two/${name}`, from)) > 32 << 20);
    // As long as it should be, but not what it was: the load that finds out forgets it.
    await damage(page, "write(new Uint8Array(1000))");
    await assert.rejects(loads(page, "/two/"), /model-1\.safetensors/);
    from = server.asked.length;
    assert.equal((await loads(page, "/two/")).tokens, 2);
    for (const name of two.names) assert(sent(pulls(`/two/${name}`, from)) > 32 << 20);
  }));

row("locked_storage_is_kept", () =>
  withApi(false, async (page) => {
    await loads(page, "/big/");
    const from = server.asked.length;
    // Longer than the first look waits, and shorter.
    for (const millis of [1000, 3000]) {
      await page.evaluate(async (millis) => {
        const code = `
          const models = await (await navigator.storage.getDirectory()).getDirectoryHandle("tilewright-models");
          for await (const folder of models.values()) {
            const file = await (await folder.getFileHandle("data")).createSyncAccessHandle();
            setTimeout(() => file.close(), ${millis});
          }
          postMessage("locked");`;
        const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
        await new Promise((resolve) => (new Worker(url, { type: "module" }).onmessage = resolve));
      }, millis);
      assert.equal((await loads(page, "/big/")).tokens, 2);
      assert(sent(pulls(BIG, from)) < 1000, `locked for ${millis} ms`);
    }
  }));

row("what_has_no_room_is_read_by_ranges", () =>
  withApi(false, async (page, context) => {
    const origin = new URL(page.url()).origin;
    const devtools = await context.newCDPSession(page);
    // Room for one of the files, and for none.
    for (const [room, kept] of [[60e6, 1], [20e6, 0]]) {
      await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: room });
      const { problems, tokens } = await loads(page, "/two/");
      assert.equal(tokens, 2);
      assert.equal(problems.length, 2 - kept, problems.join("\n"));
      const why = /is not kept for the next time: (the browser allows \d+ MB more, it needs \d+ MB|storage is full)/;
      for (const problem of problems) assert.match(problem, why);
      await page.evaluate(() => T.Tilewright.forget());
    }
  }));

row("servers_that_hide_lengths", () =>
  withApi(false, async (page) => {
    const other = `http://127.0.0.1:${server.port}/big/`;
    server.shy = "range";
    const told = await loads(page, other);
    const from = server.asked.length;
    await loads(page, other);
    assert.deepEqual([told.tokens, told.problems, sent(pulls(BIG, from))], [2, [], 0]);
    await page.evaluate(() => T.Tilewright.forget());
    // Nobody says how long it is: it is held in memory, with a bound.
    server.shy = "head";
    const { tokens, problems } = await loads(page, other);
    assert.equal(tokens, 2);
    assert.match(problems.join("\n"), /not kept for the next time: the server does not say how long it is/);
    const start = server.asked.length;
    const refused = await page.evaluate(async (url) => {
      const { openUrl } = await import("./io.js");
      return openUrl(url, false, 1e6, () => {}, () => {}).then(() => null, ({ message }) => message);
    }, `${other}${big.names[0]}`);
    server.shy = null;
    assert.match(refused, /more than 1 MB/);
    assert(sent(pulls(BIG, start)) < 32 << 20, "it was not fetched to its end");
  }));

row("forgetting_waits_for_files_to_close", () =>
  withApi(false, async (page) => {
    const [busy, freed, left] = await page.evaluate(async (sizes) => {
      const engine = await T.Tilewright.load("/big/", { device: "cpu", ...sizes });
      const busy = await T.Tilewright.forget().then(() => null, ({ message }) => message);
      engine.unload();
      const freed = await T.Tilewright.forget();
      const left = [];
      for await (const name of (await navigator.storage.getDirectory()).keys()) left.push(name);
      return [busy, freed, left];
    }, SMALL);
    assert.match(busy, /busy/);
    assert(freed > 64e6, `${freed} bytes were freed`);
    assert.deepEqual(left, []);
  }));

row("file_of_the_machine", () =>
  withApi(false, async (page) => {
    await page.evaluate(() => {
      const input = document.body.appendChild(document.createElement("input"));
      Object.assign(input, { type: "file", multiple: true });
    });
    const files = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "model.safetensors"];
    await page.setInputFiles("input", files.map((file) => join(root, "assets/fable", file)));
    const text = await page.evaluate(async () => {
      const engine = await T.Tilewright.load(document.querySelector("input").files, { device: "cpu", name: "mine" });
      const answer = await ask(engine, "What is the capital of France?", { max_tokens: 16 });
      return [answer.model, answer.choices[0].message.content];
    });
    assert.deepEqual(text, ["mine", "The capital of France is Paris."]);
  }));

row("page_shows_four_users", () =>
  withPage(true, "?preset=four-users", async (page) => {
    const now = await until(page, "four run", ({ running }) => running === 4);
    assert.equal(now.backend, "webgpu");
    await page.screenshot({ path: join(pictures, "four-users.png") });
    const done = await until(page, "all are done", ({ running, step }) => running === 0 && step > 40);
    assert.equal(done.engine, "running");
  }));

/** All that is drawn of that name or value. */
const drawn = (page, name) =>
  page.evaluate((name) => JSON.parse(window.page.drawn()).filter((one) => (one.name ?? one.value) === name && one.box[2] > 0), name);
const gone = (name) => async (page) => (await drawn(page, name)).length === 0;
/** What is drawn of that name or value, once it is and stays in its place; the lowest of several. */
async function see(page, name, count = 1, seconds = 45) {
  let last = "";
  for (let left = seconds * 3; left > 0; left--) {
    const all = await drawn(page, name);
    all.sort((a, b) => a.box[1] - b.box[1]);
    const box = JSON.stringify(all.at(-1)?.box);
    if (all.length >= count && box === last) return all.at(-1);
    last = box;
    await page.waitForTimeout(330);
  }
  throw new assert.AssertionError({ message: `${name} is not drawn` });
}
/** Clicks on what is drawn of that name, until `then` is drawn or `then(page)` is so, if given. */
async function click(page, name, then) {
  const frame = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
  for (let left = 5; ; left--) {
    // It may have come true after the wait for it: another click could undo it.
    const already = async () => (typeof then === "string" ? !(await gone(then)(page)) : then(page));
    if (then && left < 5 && (await already())) return;
    const [x, y, width, height] = (await see(page, name)).box;
    await page.mouse.move(x + width / 2, y + height / 2);
    for (let frames = 0; frames < 3; frames++) await frame();
    await page.mouse.down();
    // A tab takes no press and release of one frame for a click; what is held for 0.8 s is none
    // either, and a frame of a busy machine may take that.
    if (left % 2 === 1) await frame();
    await page.mouse.up();
    if (!then) return;
    try {
      if (typeof then === "string") return await see(page, then, 1, 4);
      for (let waits = 16; !(await then(page)); waits--) {
        assert(waits > 0, `${name} was clicked in vain`);
        await page.waitForTimeout(250);
      }
      return;
    } catch (error) {
      if (left === 0) throw error;
    }
  }
}
/** The longest time between two frames while `act` runs. */
async function longestFrame(page, act) {
  await page.evaluate(() => {
    window.gaps = [];
    let last = performance.now();
    const frame = (now) => {
      window.gaps.push(now - last);
      last = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await act();
  return page.evaluate(() => Math.max(...window.gaps));
}

row("page_asks_what_if", () =>
  withPage(false, "?preset=static-batches&device=cpu", async (page) => {
    await until(page, "all are done", ({ running, step }) => running === 0 && step > 40);
    await click(page, "Understood", gone("Understood"));
    await click(page, "What if", "static:4");
    await click(page, "static:4", "continuous");
    // The choice closes the list of them.
    await click(page, "continuous", gone("static:4"));
    const before = await summary(page);
    const longest = await longestFrame(page, async () => {
      await click(page, "What if?", "output tokens per second");
    });
    console.log(`  longest time between two frames: ${longest.toFixed(0)} ms`);
    for (const name of ["simulated", "what if"]) await see(page, name);
    await see(page, "Look into it", 2);
    await page.screenshot({ path: join(pictures, "what-if.png") });
    // The engine is where it was, and the run can be looked into.
    const { engine, events } = await summary(page);
    assert.deepEqual([engine, events], ["running", before.events]);
    await click(page, "Look into it", async () => (await summary(page)).engine === "absent");
    const shown = await summary(page);
    assert(shown.step > 20 && shown.step < before.step, "continuous batches take fewer steps");
  }));

row("page_simulates_a_large_device", () =>
  withPage(false, "?trace=traces/overload.jsonl.gz", async (page) => {
    const { step } = await until(page, "it is shown", ({ step }) => step > 100);
    await click(page, "Understood", gone("Understood"));
    const longest = await longestFrame(page, async () => {
      await click(page, "simulated-h100", async () => (await summary(page)).step > step);
    });
    console.log(`  longest time between two frames: ${longest.toFixed(0)} ms`);
    await see(page, "simulation: 8B on an H100");
    await page.screenshot({ path: join(pictures, "simulated.png") });
  }));

row("page_leaves_a_recording_that_comes_late", () =>
  withPage(false, "?trace=traces/overload.jsonl.gz", async (page) => {
    const before = await until(page, "it is shown", ({ step }) => step > 100);
    await click(page, "Understood", gone("Understood"));
    await page.evaluate(() => {
      const late = new File([], "late.jsonl");
      late.arrayBuffer = () => new Promise((resolve) => (window.letGo = () => resolve(new ArrayBuffer(0))));
      window.page.open([late]);
    });
    await click(page, "simulated-h100", async () => (await summary(page)).step > before.step);
    const { step, events } = await summary(page);
    await page.evaluate(() => window.letGo());
    await page.waitForTimeout(1000);
    const now = await summary(page);
    assert.deepEqual([now.step, now.events], [step, events]);
    await see(page, "simulation: 8B on an H100");
  }));

row("page_without_adapter", () =>
  withPage(false, "", async (page) => {
    const now = await until(page, "it runs", ({ engine }) => engine === "running");
    assert.equal(now.backend, "cpu");
    assert.match(now.fallback, /no usable adapter|hardware acceleration/);
    assert.equal(now.device, "cpu, 1 thread");
    await page.screenshot({ path: join(pictures, "no-adapter.png") });
  }));

/** Has the first workers of a context, all if it is not said how many, find that line done before they begin. */
const workers = (line, first = Infinity) => (context) =>
  context.route("**/worker.js", async (route) => {
    const answer = await route.fetch();
    first -= 1;
    await route.fulfill({ response: answer, body: `${first < 0 ? "" : line}\n${await answer.text()}` });
  });
const withWorkers = (line, act) => withPage(true, "", act, "localhost", workers(line));

row("page_without_webgpu", () =>
  withWorkers('Object.defineProperty(navigator, "gpu", { value: undefined });', async (page) => {
    const now = await until(page, "it runs", ({ engine }) => engine === "running");
    assert.equal(now.backend, "cpu");
    assert.match(now.fallback, /navigator\.gpu is absent/);
  }));

row("page_of_an_adapter_that_never_answers", () =>
  withWorkers("navigator.gpu.requestAdapter = () => new Promise(() => {});", async (page) => {
    const now = await until(page, "it runs", ({ engine }) => engine === "running");
    assert.equal(now.backend, "cpu");
    assert.match(now.fallback, /never answered/);
  }));

// Calls the module while its table of requests is in use, which panics: a wrong limit is told from there.
const PANIC = `
  import { receive as again } from "./tilewright_wasm.js";
  const post = self.postMessage.bind(self);
  let limits;
  self.postMessage = (parts, moved) => {
    const told = JSON.parse(parts[0]);
    post(parts, moved);
    if (told.kind === "ready") limits = { ...told.limits, sequences_max: 0 };
    if (told.kind === "started") again(JSON.stringify({ kind: "limits", limits }), []);
    if (told.kind === "problem") again('{"kind": "step_once"}', []);
  };`;

row("page_restarts_an_engine_that_panicked", () =>
  withPage(false, "?preset=four-users&device=cpu", async (page) => {
    const { why } = await until(page, "it is told", ({ engine }) => engine === "failed");
    assert.match(why, /panicked at .*borrowed/s);
    await page.screenshot({ path: join(pictures, "panicked.png") });
    await click(page, "Restart the engine", async () => (await summary(page)).engine !== "failed");
    await until(page, "it runs again", ({ engine }) => engine === "running");
  }, "localhost", workers(PANIC, 1)));

row("calls_of_an_engine_that_panicked_fail", () =>
  withApi(false, async (page, context) => {
    await workers(PANIC, 1)(context);
    const told = await page.evaluate(async () => {
      const caught = (promise) => promise.then(() => "nothing was told", ({ code, message }) => [code, message]);
      const engine = await T.Tilewright.load("fable", { device: "cpu" });
      const long = { max_tokens: 400, ignore_eos: true };
      const open = await Promise.all([caught(ask(engine, "x", long)), caught(ask(engine, "y", long))]);
      const later = [await caught(engine.status()), await caught(ask(engine, "z", long))];
      const fresh = await T.Tilewright.load("fable", { device: "cpu" });
      const answer = await ask(fresh, "What is the capital of France?");
      return [[...open, ...later], answer.choices[0].message.content];
    });
    assert.equal(told[0].length, 4);
    for (const [code, message] of told[0]) {
      assert.equal(code, "internal");
      assert.match(message, /panicked at .*borrowed/s);
    }
    assert.equal(told[1], "The capital of France is Paris.");
  }));

row("page_says_that_a_frame_panicked", () =>
  withPage(false, "?device=cpu", async (page) => {
    await until(page, "it runs", ({ engine }) => engine === "running");
    assert.equal(page.workers().length, 1);
    // Asks what is shown while a frame holds it, which panics: when the frame starts a worker's work.
    await page.evaluate(() => {
      window.failures = 0;
      addEventListener("error", () => (window.failures += 1));
      const post = Worker.prototype.postMessage;
      Worker.prototype.postMessage = function (...parts) {
        window.page.summary();
        post.apply(this, parts);
      };
    });
    await click(page, "Understood", gone("Understood"));
    await click(page, "static-batches", () => page.$("#told.failed"));
    assert.match(await page.textContent("#told"), /The page has failed: .*borrowed/s);
    await page.screenshot({ path: join(pictures, "failed.png") });
    // Neither frames nor the engine call what has failed.
    const failures = await page.evaluate(() => window.failures);
    assert.equal(page.workers().length, 0);
    await page.mouse.move(300, 300);
    await page.waitForTimeout(1000);
    assert.equal(await page.evaluate(() => window.failures), failures);
    await page.click("#told button");
    await page.waitForFunction(() => window.page && !document.querySelector("#told.failed"), null, { timeout: 60_000 });
    await until(page, "it runs again", ({ engine }) => engine === "running");
  }));

row("page_that_fails_while_it_starts_says_so", async () => {
  const context = await (await browser(false)).newContext();
  const page = await context.newPage();
  try {
    // What it waits for never comes; a trap does.
    await context.route("**/page.json", () => {});
    await page.goto(address(""), { waitUntil: "commit" });
    await page.waitForFunction(() => {
      dispatchEvent(new ErrorEvent("error", { error: new WebAssembly.RuntimeError("planted") }));
      return document.querySelector("#told.failed");
    }, null, { timeout: 60_000 });
    assert.match(await page.textContent("#told"), /The page has failed: planted/);
  } finally {
    await context.close();
  }
});

row("feeds_that_trap_are_told_as_such", () =>
  withApi(false, async (page) => {
    const told = await page.evaluate(async () => {
      const { watchServer } = await import("./io.js");
      return new Promise((resolve) => {
        addEventListener("unhandledrejection", ({ reason }) => resolve(["trapped", reason.message]));
        const trap = () => {
          throw new WebAssembly.RuntimeError("planted");
        };
        watchServer("worker.js", "", trap, (why) => resolve(["ended", why]));
      });
    });
    assert.deepEqual(told, ["trapped", "planted"]);
  }));

row("page_of_an_insecure_origin", () =>
  withPage(true, "", async (page) => {
    const now = await until(page, "it runs", ({ engine }) => engine === "running");
    assert.equal(now.backend, "cpu");
    assert.match(now.fallback, /secure connection/);
  }, "insecure.test"));

row("recording_plays_without_webgpu", () =>
  withPage(false, "?trace=traces/overload.jsonl.gz", async (page) => {
    const now = await until(page, "it is shown", ({ step }) => step > 100);
    assert.equal(now.engine, "absent");
    await page.screenshot({ path: join(pictures, "recording.png") });
  }));

/** `act(address)` with the program serving the page, and whom it lets in. */
async function withServer(act) {
  const sizes = ["--device", "cpu", "--kv-memory", "32MiB", "--max-num-batched-tokens", "64"];
  const access = ["--api-key", "secret", "--cors-origins", address("").slice(0, -1)];
  const child = spawn(program, ["serve", "--port", "0", "--page", folder, ...sizes, ...access], { stdio: ["ignore", "ignore", "pipe"] });
  try {
    const served = await new Promise((resolve, reject) => {
      let log = "";
      child.once("exit", () => reject(new Error(`the server ended: ${log}`)));
      child.stderr.on("data", (part) => {
        log += part;
        if (/^serving /m.test(log)) resolve(/listening on (http:\/\/[\d.:]+)/.exec(log)[1]);
      });
    });
    await act(served);
  } finally {
    child.kill();
  }
}

row("page_watches_a_server", () =>
  withServer(async (served) => {
    const says = async () => {
      const messages = [{ role: "user", content: "What is the capital of France?" }];
      const headers = { Authorization: "Bearer secret", "Content-Type": "application/json" };
      const answer = await fetch(`${served}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify({ messages }) });
      assert.equal((await answer.json()).choices[0].message.content, "The capital of France is Paris.");
    };
    // Its own page, and one elsewhere that it lets in.
    for (const url of [`${served}/#key=secret`, `?remote=${served}#key=secret`]) {
      await withPage(false, url, async (page) => {
        const before = await until(page, "it is heard", ({ engine }) => engine === "running");
        await says();
        await until(page, "its steps are shown", ({ step }) => step > before.step + 5);
        await page.screenshot({ path: join(pictures, "server.png") });
      });
    }
    await withPage(false, `${served}/`, async (page) => {
      const { why } = await until(page, "it is told", ({ engine }) => engine === "failed");
      assert.match(why, /key/);
    });
  }));

row("page_works_offline", () =>
  withPage(false, "?device=cpu", async (page, context) => {
    await page.evaluate(() => navigator.serviceWorker.ready);
    await until(page, "it runs", ({ engine }) => engine === "running");
    await context.setOffline(true);
    await page.reload();
    await page.waitForFunction(() => window.page, null, { timeout: 60_000 });
    await until(page, "it runs again", ({ engine }) => engine === "running");
  }));

row("example_ends", async () => {
  const context = await (await browser(true)).newContext();
  const page = await context.newPage();
  await page.goto(address("example.html"));
  await page.waitForFunction(() => document.title === "done", null, { timeout: 60_000 });
  assert.match(await page.textContent("ol"), /capital of France is Paris/);
  await context.close();
});

row("snippet_of_the_readme", async () => {
  const own = mkdtempSync(join(tmpdir(), "tilewright-"));
  const context = await (await browser(false)).newContext();
  try {
    const file = join(own, "model.gguf");
    execFileSync(program, ["convert", join(root, "assets/fable"), file]);
    const snippets = readFileSync(join(root, "web/README.md"), "utf8").split("```js\n").slice(1);
    assert.equal(snippets.length, 1);
    const code = snippets[0].split("```")[0].replace("https://example.org/", address(""));
    const names = '<script type="importmap">{"imports": {"tilewright": "./tilewright.js"}}</script>';
    made.set("/model.gguf", { file });
    made.set("/snippet.html", `<!doctype html>${names}<script type="module">${code} document.title = "done";</script>`);
    const page = await context.newPage();
    const told = [];
    page.on("console", (message) => told.push(message.text()));
    await page.goto(address("snippet.html"));
    await page.waitForFunction(() => document.title === "done", null, { timeout: 60_000 });
    const [progress, words] = [true, false].map((progress) => told.filter((text) => text.startsWith("{phase:") === progress));
    assert(progress.length > 0 && words.length > 3 && words.join("").trim().length > 3, JSON.stringify(told));
  } finally {
    await context.close();
    rmSync(own, { recursive: true });
  }
});

let [passed, failed] = [0, 0];
for (const { name, act } of rows.filter(({ name }) => name.includes(filter))) {
  const begin = performance.now();
  try {
    await act();
    passed += 1;
    console.log(`ok      ${((performance.now() - begin) / 1000).toFixed(1).padStart(6)} s  web::${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${((performance.now() - begin) / 1000).toFixed(1).padStart(6)} s  web::${name}\n${error.stack}`);
  }
}
for (const one of browsers.values()) await one.close();
server.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
