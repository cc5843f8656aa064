// A web server for the tests: a folder with ranges, models that are made as they are read, and
// connections that break.
import { createServer } from "node:http";
import { createReadStream, statSync } from "node:fs";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

// Two of these bytes are 0.004 as f16: a model of zeros would be told to be an unfinished download.
const FILL = 0x1c;

/** A checkpoint of Fable's shape whose layers are `ffn` wide: a header, then one small weight all along; in `count` files. */
export function uniform(fable, ffn, layers, count = 1) {
  const config = { ...fable.config, intermediate_size: ffn, num_hidden_layers: layers };
  const { hidden_size: hidden, vocab_size: vocab, head_dim: head } = config;
  const [q, kv] = [config.num_attention_heads * head, config.num_key_value_heads * head];
  const shards = Array.from({ length: count }, () => ({ header: {}, at: 0 }));
  let shard = shards[0];
  const add = (name, ...shape) => {
    const bytes = 2 * shape.reduce((a, b) => a * b);
    shard.header[name] = { dtype: "F16", shape, data_offsets: [shard.at, shard.at + bytes] };
    shard.at += bytes;
  };
  add("model.embed_tokens.weight", vocab, hidden);
  add("model.norm.weight", hidden);
  for (let l = 0; l < layers; l++) {
    shard = shards[Math.floor((l * count) / layers)];
    const lead = `model.layers.${l}`;
    add(`${lead}.input_layernorm.weight`, hidden);
    add(`${lead}.post_attention_layernorm.weight`, hidden);
    add(`${lead}.self_attn.q_proj.weight`, q, hidden);
    add(`${lead}.self_attn.k_proj.weight`, kv, hidden);
    add(`${lead}.self_attn.v_proj.weight`, kv, hidden);
    add(`${lead}.self_attn.o_proj.weight`, hidden, q);
    add(`${lead}.mlp.gate_proj.weight`, ffn, hidden);
    add(`${lead}.mlp.up_proj.weight`, ffn, hidden);
    add(`${lead}.mlp.down_proj.weight`, hidden, ffn);
  }
  const files = shards.map(({ header, at }) => {
    const text = Buffer.from(JSON.stringify(header));
    const head8 = Buffer.alloc(8);
    head8.writeBigUInt64LE(BigInt(text.length));
    return { head: Buffer.concat([head8, text]), bytes: 8 + text.length + at };
  });
  const names = files.map((_, at) => `model-${at + 1}.safetensors`);
  const map = shards.flatMap(({ header }, at) => Object.keys(header).map((name) => [name, names[at]]));
  return { config, files, names, index: { weight_map: Object.fromEntries(map) } };
}

/** The file of safetensors `bytes` with so many of something else before its first tensor. */
export function behind(bytes, gap) {
  const start = 8 + Number(bytes.readBigUInt64LE());
  const header = { gap: { dtype: "U8", shape: [gap], data_offsets: [0, gap] } };
  for (const [name, entry] of Object.entries(JSON.parse(bytes.subarray(8, start)))) {
    header[name] = entry.data_offsets ? { ...entry, data_offsets: entry.data_offsets.map((at) => at + gap) } : entry;
  }
  const text = Buffer.from(JSON.stringify(header));
  const head8 = Buffer.alloc(8);
  head8.writeBigUInt64LE(BigInt(text.length));
  const tail = bytes.subarray(start);
  return { head: Buffer.concat([head8, text]), tail, bytes: 8 + text.length + gap + tail.length };
}

/** The first of these events. */
const once = (emitter, ...events) =>
  new Promise((resolve) => {
    const done = () => {
      events.forEach((event) => emitter.off(event, done));
      resolve();
    };
    events.forEach((event) => emitter.on(event, done));
  });

/** Serves `folder` at / and what `made` maps from paths: {head, bytes, tail}, a text or a {file} elsewhere. */
export async function serve(folder, made) {
  // What was asked: {path, from, sent, closed}. `cut(path, from)` may break a connection after so
  // many bytes, `hold(path, sent)` keeps one waiting. `headers` are added. `shy` servers keep what
  // they can from other origins, and answer no HEAD where that is "head".
  const asked = [];
  const state = { asked, made, cut: () => Infinity, hold: () => false, shy: null, headers: {} };
  const open = { "Access-Control-Allow-Origin": "*" };
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://x");
    const closed = once(response, "close");
    const entry = { path: pathname, from: 0, sent: 0, closed };
    asked.push(entry);
    const given = made.get(pathname);
    const path = given?.file ?? join(folder, normalize(pathname.endsWith("/") ? `${pathname}index.html` : pathname));
    const stored = given === undefined || given.file;
    let size;
    try {
      size = stored ? statSync(path).size : (given.bytes ?? Buffer.byteLength(given));
    } catch {
      return response.writeHead(404, open).end();
    }
    const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? "");
    const [from, to] = [Number(range?.[1] ?? 0), Math.min(size, Number(range?.[2] || size - 1) + 1)];
    entry.from = from;
    const headers = {
      "Content-Type": TYPES[extname(path)] ?? "application/octet-stream",
      "Content-Length": to - from,
      "Accept-Ranges": "bytes",
      ...open,
      ...state.headers,
      "Access-Control-Allow-Headers": "Range",
      "Access-Control-Expose-Headers": state.shy ? "" : "Content-Range, ETag",
      ETag: `"${size}"`,
    };
    if (range) headers["Content-Range"] = `bytes ${from}-${to - 1}/${size}`;
    if (request.method === "HEAD") return response.writeHead(state.shy === "head" ? 405 : 200, headers).end();
    response.writeHead(range ? 206 : 200, headers);
    if (stored) return createReadStream(path, { start: from, end: to - 1 }).pipe(response);
    const whole = typeof given === "string" ? Buffer.from(given) : given.head;
    const most = state.cut(pathname, from);
    for (let at = from; at < to && !response.destroyed; ) {
      const step = Math.min(1 << 20, to - at);
      const part = Buffer.alloc(step, FILL);
      if (at < whole.length) whole.copy(part, 0, at, Math.min(whole.length, at + step));
      const tail = size - (given.tail?.length ?? 0);
      if (at + step > tail) given.tail.copy(part, Math.max(tail - at, 0), Math.max(at - tail, 0), at + step - tail);
      if (entry.sent + step > most) return response.destroy();
      if (!response.write(part)) await once(response, "drain", "close");
      at += step;
      entry.sent += step;
      while (state.hold(pathname, entry.sent) && !response.destroyed) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
    response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.port = server.address().port;
  state.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return state;
}
