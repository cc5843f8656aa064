// What the module asks of the browser: files behind ranges, downloads that are kept and taken up
// again, timers, messages. Both instances of the module load it; what belongs to workers only is
// not touched by the page.

// Opened files of this worker: {bytes, read(offset, into), close()}, and `url` of stored ones.
const opened = [];

const add = (file) => opened.push(file) - 1;

export function sizeOf(file) {
  return opened[file].bytes;
}

/** Fills `into` (a view of the module's memory) from `offset`; throws if it cannot. */
export function readAt(file, offset, into) {
  opened[file].read(offset, into);
}

export function nameOf(file) {
  return file.name;
}

/** A file of the person's machine: slices are read as they are asked for. */
export function openFile(file) {
  const reader = new FileReaderSync();
  return add({
    bytes: file.size,
    read(offset, into) {
      const part = reader.readAsArrayBuffer(file.slice(offset, offset + into.length));
      if (part.byteLength !== into.length) throw new Error("the file was cut short");
      into.set(new Uint8Array(part));
    },
    close() {},
  });
}

const inMemory = (bytes) =>
  add({
    bytes: bytes.length,
    read: (offset, into) => into.set(bytes.subarray(offset, offset + into.length)),
    close() {},
  });

/** Ranges of an address, each a request of its own: for what cannot be stored. */
const behindAddress = (url, bytes) =>
  add({
    bytes,
    read(offset, into) {
      const request = new XMLHttpRequest();
      request.open("GET", url, false);
      request.responseType = "arraybuffer";
      request.setRequestHeader("Range", `bytes=${offset}-${offset + into.length - 1}`);
      request.send();
      const part = request.response;
      if (request.status !== 206 || part?.byteLength !== into.length) {
        throw new Error(`the server answered ${request.status} to a range`);
      }
      into.set(new Uint8Array(part));
    },
    close() {},
  });

// Files up to this size are not worth a place in storage.
const SMALL_BYTES = 32 << 20;
// The longest file that is held in memory.
const MEMORY_BYTES_MAX = 2 ** 31;
const RETRIES = 4;
// A download is written down this often, so that little is fetched again after a reload.
const FLUSH_BYTES = 4 << 20;
const PROGRESS_BYTES = 1 << 20;

const megabytes = (bytes) => `${Math.ceil(bytes / 1e6)} MB`;

async function request(url, init) {
  try {
    return await fetch(url, init);
  } catch (error) {
    throw new Error(
      `${url} cannot be fetched (${error.message}); the address may be wrong, the server down, ` +
        `or it does not allow other origins to read it (CORS)`,
    );
  }
}

/** Size (NaN if nobody says) and version of what is behind `url`; null if it is not there. */
async function look(url) {
  const answer = await request(url, { headers: { Range: "bytes=0-0" }, cache: "no-store" });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${url}: the server answered ${answer.status}`);
  answer.body?.cancel();
  const ranges = answer.status === 206;
  const whole = /\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "")?.[1];
  const bytes = whole ?? (ranges ? await lengthByHead(url) : answer.headers.get("Content-Length"));
  const version = answer.headers.get("ETag") ?? answer.headers.get("Last-Modified") ?? "";
  return { bytes: Number(bytes ?? NaN), ranges, version };
}

/** The whole length, which a range does not tell where the server keeps Content-Range from other origins. */
async function lengthByHead(url) {
  const answer = await request(url, { method: "HEAD", cache: "no-store" }).catch(() => null);
  return answer?.ok ? answer.headers.get("Content-Length") : null;
}

/** The file behind an address as a number for `readAt`, or null if there is none. */
export async function openUrl(url, store, most, progress, note) {
  if (store && navigator.storage?.getDirectory) {
    const kept = await complete(url);
    if (kept !== null) return kept;
  }
  const found = await look(url);
  if (!found) return null;
  if (found.bytes > most) {
    throw new Error(`${url} has ${megabytes(found.bytes)}; without WebGPU there is room for ${megabytes(most)}`);
  }
  if (store && Number.isNaN(found.bytes)) {
    note(`${url} is not kept for the next time: the server does not say how long it is`);
  }
  if (!store || !(found.bytes > SMALL_BYTES)) {
    if (found.ranges && found.bytes > SMALL_BYTES) return behindAddress(url, found.bytes);
    if (found.bytes > MEMORY_BYTES_MAX) throw new Error(`${url}: ${megabytes(found.bytes)} need a server that answers ranges`);
    return inMemory(await whole(url, Math.min(most, MEMORY_BYTES_MAX), progress));
  }
  try {
    return await download(url, found, progress);
  } catch (error) {
    if (error.fatal || !found.ranges) throw error;
    note(`${url} is not kept for the next time: ${error.message}`);
    return behindAddress(url, found.bytes);
  }
}

/** All of a file; refused where it turns out to have more than `most` bytes. */
async function whole(url, most, progress) {
  const answer = await request(url);
  if (!answer.ok) throw new Error(`${url}: the server answered ${answer.status}`);
  const parts = [];
  let have = 0;
  for await (const part of chunks(answer.body)) {
    have += part.length;
    if (have > most) {
      throw new Error(`${url} has more than ${megabytes(most)}, all that memory may hold; its server does not say how long it is`);
    }
    parts.push(part);
  }
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  progress(have, have);
  return bytes;
}

// An entry of the storage is a folder named by the address: `data`, and `state.json` that says of
// what it is a part. Only an entry with `complete: true` and as many bytes as it says is used.

async function folderName(url) {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return [...new Uint8Array(hash.slice(0, 16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

async function models() {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle("tilewright-models", { create: true });
}

async function readState(folder) {
  try {
    const file = await (await folder.getFileHandle("state.json")).getFile();
    return JSON.parse(await file.text());
  } catch {
    return null;
  }
}

async function writeState(folder, state) {
  const file = await folder.getFileHandle("state.json", { create: true });
  const access = await file.createSyncAccessHandle();
  try {
    access.truncate(0);
    access.write(new TextEncoder().encode(JSON.stringify(state)), { at: 0 });
    access.flush();
  } finally {
    access.close();
  }
}

const stored = (url, access) =>
  add({
    url,
    bytes: access.getSize(),
    read(offset, into) {
      if (access.read(into, { at: offset }) !== into.length) throw new Error("storage was cut short");
    },
    close: () => access.close(),
  });

/** A stored file that is all there; null otherwise, whatever is wrong with it. */
async function complete(url) {
  try {
    const folder = await (await models()).getDirectoryHandle(await folderName(url));
    const state = await readState(folder);
    if (!state?.complete || state.url !== url) return null;
    const access = await alone(await folder.getFileHandle("data"), { mode: "read-only" });
    if (access.getSize() === state.bytes) return stored(url, access);
    access.close();
    return null;
  } catch {
    return null;
  }
}

/** `act` on storage; a page or worker that just ended may hold its files a moment longer. */
async function patiently(act) {
  for (let left = 10; ; left--) {
    try {
      return await act();
    } catch (error) {
      if (error.name === "NotFoundError") throw error;
      if (left === 0) throw new Error(`another page is busy with it (${error.message})`);
      await sleep(200);
    }
  }
}

/** A handle to a file: the only one, or with `mode: "read-only"` one of many that read. */
const alone = (file, options) => patiently(() => file.createSyncAccessHandle(options));

class Fatal extends Error {
  fatal = true;
}

/** Fetches into storage, from where an earlier try ended, and opens it there. */
async function download(url, { bytes, ranges, version }, progress) {
  const folder = await (await models()).getDirectoryHandle(await folderName(url), { create: true });
  const state = await readState(folder);
  const access = await alone(await folder.getFileHandle("data", { create: true }));
  try {
    const same = state?.url === url && state.bytes === bytes && state.version === version;
    // It was only busy when it was looked for.
    if (same && state.complete && access.getSize() === bytes) return stored(url, access);
    // Without a version nobody knows whether the rest would fit.
    let have = same && !state.complete && ranges && version ? Math.min(access.getSize(), bytes) : 0;
    access.truncate(have);
    const { quota = Infinity, usage = 0 } = await navigator.storage.estimate();
    if (bytes - have > quota - usage) {
      throw new Error(`the browser allows ${megabytes(Math.max(0, quota - usage))} more, it needs ${megabytes(bytes - have)}`);
    }
    navigator.storage.persist?.().catch(() => {});
    await writeState(folder, { url, bytes, version, complete: false });
    for (let tries = 0; have < bytes; ) {
      const from = have;
      try {
        have = await more(url, access, have, bytes, ranges, progress);
      } catch (error) {
        if (error.name === "QuotaExceededError" || error.fatal) throw error;
        have = access.getSize();
        if (!ranges) access.truncate((have = 0));
        tries = have > from ? 0 : tries + 1;
        if (tries >= RETRIES) throw new Fatal(`${url}: the download broke off at ${megabytes(have)} of ${megabytes(bytes)}: ${error.message}`);
        await sleep(500 * 2 ** tries);
      }
    }
    access.flush();
    await writeState(folder, { url, bytes, version, complete: true });
    return stored(url, access);
  } catch (error) {
    access.close();
    if (!error.fatal) await forget(url);
    throw error;
  }
}

/** Streams what follows `have` into storage; returns how much is there then. */
async function more(url, access, have, bytes, ranges, progress) {
  const answer = await request(url, {
    headers: have > 0 && ranges ? { Range: `bytes=${have}-` } : {},
    cache: "no-store",
  });
  if (answer.status !== (have > 0 ? 206 : 200)) {
    throw new Error(`the server answered ${answer.status}`);
  }
  let [unwritten, untold] = [0, 0];
  for await (const value of chunks(answer.body)) {
    if (have + value.length > bytes) throw new Fatal(`${url} is longer than the server said`);
    if (access.write(value, { at: have }) !== value.length) {
      throw new DOMException("storage is full", "QuotaExceededError");
    }
    have += value.length;
    unwritten += value.length;
    if (unwritten >= FLUSH_BYTES) {
      access.flush();
      unwritten = 0;
    }
    untold += value.length;
    if (untold >= PROGRESS_BYTES || have === bytes) {
      progress(have, bytes);
      untold = 0;
    }
  }
  if (have < bytes) throw new Error("the connection was closed early");
  return have;
}

/** Drops what is stored of an address, and lets go of it. */
export async function forget(url) {
  if (!globalThis.navigator?.storage?.getDirectory || !globalThis.crypto?.subtle) return;
  for (const file of opened) if (file.url === url) file.close();
  try {
    await (await models()).removeEntry(await folderName(url), { recursive: true });
  } catch {
    // It was never stored.
  }
}

/** Drops every stored model; the bytes that were freed. */
export async function forgetAll() {
  if (!navigator.storage?.getDirectory) return 0;
  const before = (await navigator.storage.estimate()).usage ?? 0;
  const root = await navigator.storage.getDirectory();
  try {
    await patiently(() => root.removeEntry("tilewright-models", { recursive: true }));
  } catch (error) {
    if (error.name !== "NotFoundError") throw error;
  }
  return Math.max(0, before - ((await navigator.storage.estimate()).usage ?? 0));
}

/** The cause to name, from the outermost on. */
export function whyNoWebgpu() {
  if (!globalThis.isSecureContext) {
    return (
      "this page was not loaded over a secure connection, and browsers offer WebGPU only there: " +
      "use https, or http://localhost"
    );
  }
  if (!navigator.gpu) return "this browser has no WebGPU (navigator.gpu is absent)";
  return undefined;
}

export const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

// Timers wait some milliseconds at least; a message to oneself does not.
const channel = new MessageChannel();
const turns = [];
channel.port1.onmessage = () => turns.shift()?.();
export const turn = () =>
  new Promise((resolve) => {
    turns.push(resolve);
    channel.port2.postMessage(0);
  });

export function tellPage(text, bytes) {
  if (bytes) self.postMessage([text, bytes], [bytes.buffer]);
  else self.postMessage([text]);
}

// What calls the module back, and how each is ended.
const callers = new Map();

export function startWorker(receive, failed) {
  const worker = new Worker(new URL("worker.js", document.baseURI), { type: "module" });
  worker.onmessage = ({ data: [text, bytes] }) => receive(text, bytes);
  worker.onerror = (event) => {
    event.preventDefault();
    failed(event.message || "the engine's worker could not be started");
  };
  callers.set(worker, () => endWorker(worker));
  return worker;
}

export function askWorker(worker, text, files) {
  worker.postMessage([text, files]);
}

export function endWorker(worker) {
  callers.delete(worker);
  worker.onmessage = worker.onerror = null;
  worker.terminate();
}

/** Nothing calls the module any more: it has failed, and whatever it held stays held. */
export function endAll() {
  for (const end of [...callers.values()]) end();
}

export function pickFiles() {
  return new Promise((resolve) => {
    const input = document.createElement("input");
    input.type = "file";
    input.multiple = true;
    input.onchange = () => resolve([...input.files]);
    input.oncancel = () => resolve([]);
    input.click();
  });
}

export const bytesOf = async (file) => new Uint8Array(await file.arrayBuffer());

export async function fetchBytes(url) {
  const answer = await request(url);
  if (!answer.ok) throw new Error(`${url}: the server answered ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

export function saveAs(name, bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export const absolute = (url) => new URL(url, document.baseURI).href;

/** Streams what a server tells: `line(text)` for each, until it ends or `signal` aborts. */
async function lines(url, init, line) {
  const answer = await request(url, init);
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message ?? `${url}: the server answered ${answer.status}`);
  }
  let rest = "";
  for await (const text of chunks(answer.body.pipeThrough(new TextDecoderStream()))) {
    const parts = (rest + text).split(/\r?\n/);
    rest = parts.pop();
    parts.forEach((part) => line(part));
  }
}

// Streams are not iterable everywhere. Whoever leaves the loop wants no more of it.
async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (let part; !(part = await reader.read()).done; ) yield part.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

/** Watches a server's feed; `stop()` of what is returned ends it. `ended(why)` when it breaks. */
export function watchServer(url, key, line, ended) {
  const stop = new AbortController();
  lines(url, { headers: headers(key), signal: stop.signal, cache: "no-store" }, line)
    .then(() => "the server closed the feed", (error) => {
      // `line` has trapped: that is told by whoever shows the page, the module is not called again.
      if (error instanceof WebAssembly.RuntimeError) throw error;
      return error.message;
    })
    .then((why) => stop.signal.aborted || ended(why));
  callers.set(stop, () => stopWatching(stop));
  return stop;
}

export function stopWatching(watch) {
  callers.delete(watch);
  watch.abort();
}

/** Posts JSON; `line(text)` gets what comes back. */
export const postServer = (url, key, body, line) =>
  lines(url, { method: "POST", headers: { "Content-Type": "application/json", ...headers(key) }, body }, line);
