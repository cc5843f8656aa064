// The engine for other pages, in OpenAI's shapes. Every engine is a worker of its own; calls that
// are open at once share its steps. See tilewright.d.ts for the types, example.html for a use.

const UNSEEN = ["model", "stream", "stream_options", "return_token_ids", "signal"];
const FINISH = { stop: "stop", length: "length", cancelled: "cancelled", timed_out: "length" };

export class TilewrightError extends Error {
  constructor(code, message, param = null) {
    super(message);
    this.name = "TilewrightError";
    this.code = code;
    this.param = param;
  }
}

/** Messages of one call, as they come. */
class Inbox {
  #waiting = [];
  #wake = null;

  push(message) {
    this.#waiting.push(message);
    this.#wake?.();
  }

  async next() {
    while (this.#waiting.length === 0) await new Promise((resolve) => (this.#wake = resolve));
    return this.#waiting.shift();
  }
}

export class Tilewright {
  #worker;
  #calls = new Map();
  #statuses = [];
  #next = 0;
  #failure = null;
  #options;

  /** Loads a model and starts an engine for it. */
  static load(source = "fable", options = {}) {
    const engine = new Tilewright();
    return engine.#start(source, options);
  }

  chat = { completions: { create: (request, options) => this.#create("chat", request, options) } };
  completions = { create: (request, options) => this.#create("text", request, options) };

  #start(source, options) {
    const { onProgress, onTrace, onProblem, signal, ...wished } = options;
    this.#options = { onProgress, onTrace, onProblem };
    const here = (path) => new URL(path, import.meta.url).href;
    const url = source === "fable" ? here("fable/") : source;
    const load = { kind: "load", store: true, events: Boolean(onTrace), ...wished };
    let files = [];
    if (typeof url === "string" || url instanceof URL) load.url = new URL(url, document.baseURI).href;
    else files = url instanceof Blob ? [url] : [...url];
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => {
        this.unload();
        reject(signal.reason);
      };
      signal?.addEventListener("abort", abort);
      this.#worker = new Worker(here("worker.js"), { type: "module" });
      this.#worker.onerror = (event) => {
        event.preventDefault();
        this.#fail(new TilewrightError("internal", event.message || "the worker did not start"), reject);
      };
      this.#worker.onmessage = ({ data: [text, bytes] }) => {
        const told = JSON.parse(text);
        if (told.kind === "ready") {
          const { kind, header, ...facts } = told;
          this.info = facts;
          signal?.removeEventListener("abort", abort);
          resolve(this);
        } else if (told.kind === "failed") {
          this.#fail(new TilewrightError(told.code, told.message), reject);
        } else {
          this.#hear(told, bytes);
        }
      };
      this.#post(load, files);
    });
  }

  #post(message, files = []) {
    this.#worker.postMessage([JSON.stringify(message), files]);
  }

  #fail(error, reject) {
    // What comes after a failure is of it.
    if (this.#failure) return;
    this.#failure = error;
    this.#worker.terminate();
    reject(error);
    for (const inbox of this.#calls.values()) inbox.push({ kind: "failed", error });
    for (const wait of this.#statuses.splice(0)) wait.reject(error);
  }

  #hear(told, bytes) {
    switch (told.kind) {
      case "progress":
        return this.#options.onProgress?.({ phase: told.phase, file: told.file, loaded: told.loaded, total: told.total });
      case "problem":
        return this.#options.onProblem?.(told.message);
      case "events":
        return this.#options.onTrace?.(new TextDecoder().decode(bytes).trimEnd().split("\n").map((line) => JSON.parse(line)));
      case "status": {
        const { kind, ...status } = told;
        return this.#statuses.shift()?.resolve(status);
      }
      default:
        this.#calls.get(told.id)?.push(told);
    }
  }

  async #create(shape, request, options = {}) {
    const signal = options.signal ?? request.signal;
    signal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const id = this.#next++;
    const inbox = new Inbox();
    this.#calls.set(id, inbox);
    const asked = Object.fromEntries(Object.entries(request).filter(([name, value]) => !UNSEEN.includes(name) && value != null));
    const cancel = () => this.#post({ kind: "cancel", id });
    const abort = () => {
      cancel();
      inbox.push({ kind: "failed", error: signal.reason });
    };
    signal?.addEventListener("abort", abort, { once: true });
    const close = (complete) => {
      signal?.removeEventListener("abort", abort);
      this.#calls.delete(id);
      if (!complete && !this.#failure) cancel();
    };
    this.#post({ kind: "submit", id, request: asked });
    const chunks = this.#chunks(shape, id, request, inbox, close);
    // The first message says whether it was taken: a refusal is thrown here, as a client expects.
    const first = await chunks.next();
    if (!request.stream) return await whole(shape, first, chunks);
    return (async function* () {
      try {
        yield first.value;
        yield* chunks;
      } finally {
        await chunks.return();
      }
    })();
  }

  /** The call's chunks; the end of the iteration, however it comes, ends the call. */
  async *#chunks(shape, id, request, inbox, close) {
    const chat = shape === "chat";
    const n = request.n ?? 1;
    const head = {
      id: `${chat ? "chatcmpl" : "cmpl"}-${id}`,
      object: chat ? "chat.completion.chunk" : "text_completion",
      created: Math.floor(Date.now() / 1000),
      model: this.info.model,
    };
    const chunk = (choices, more = {}) => ({ ...head, choices, ...more });
    const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, prompt_tokens_details: { cached_tokens: 0 } };
    let complete = false;
    try {
      for (let ended = 0; ended < n; ) {
        const told = await inbox.next();
        if (told.kind === "failed") throw told.error;
        if (told.kind === "refused") {
          complete = n === 1;
          throw new TilewrightError("invalid_request", told.message, told.param);
        }
        if (told.kind === "started") {
          usage.prompt_tokens = told.prompt_tokens;
          const opening = (index) => (chat ? { index, delta: { role: "assistant", content: "" }, finish_reason: null } : { index, text: "", finish_reason: null });
          yield chunk(Array.from({ length: n }, (_, index) => opening(index)));
        } else if (told.kind === "token") {
          const content = told.end ? "" : told.text;
          const choice = { index: told.index, ...(chat ? { delta: { content } } : { text: content }), finish_reason: null };
          if (request.logprobs) choice.logprobs = logprobs(told);
          if (request.return_token_ids) choice.token_ids = [told.token];
          if (content || request.logprobs || request.return_token_ids) yield chunk([choice]);
        } else if (told.kind === "finished") {
          ended += 1;
          usage.completion_tokens += told.completion_tokens;
          usage.prompt_tokens_details.cached_tokens = told.cached_tokens;
          usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
          const last = chat ? { delta: {} } : { text: "" };
          const more = ended === n ? { usage } : {};
          complete = ended === n;
          yield chunk([{ index: told.index, ...last, finish_reason: FINISH[told.reason] ?? told.reason }], more);
        }
      }
    } finally {
      close(complete);
    }
  }

  /** What the engine is doing now; `fault` names a broken invariant. */
  status() {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#statuses.push({ resolve, reject });
      this.#post({ kind: "status" });
    });
  }

  /** Holds the engine between two steps, or lets it go on. */
  hold(hold = true) {
    this.#post({ kind: "hold", hold });
  }

  /** Ends the engine and frees its memory; open calls fail. */
  unload() {
    if (!this.#failure) this.#fail(new TilewrightError("engine", "the engine was unloaded"), () => {});
  }

  /** Drops every model that this origin keeps; the bytes that were freed. Fails while one is in use. */
  static async forget() {
    return (await import("./io.js")).forgetAll();
  }
}

function logprobs({ token, text, logprob, top = [] }) {
  const one = (id, text, logprob) => ({ token: text, token_id: id, logprob, bytes: [...new TextEncoder().encode(text)] });
  const own = top.find(([id]) => id === token)?.[1] ?? text;
  return { content: [{ ...one(token, own, logprob), top_logprobs: top.map((entry) => one(...entry)) }] };
}

/** Every chunk as one answer. */
async function whole(shape, first, rest) {
  const answer = { ...first.value, object: shape === "chat" ? "chat.completion" : "text_completion" };
  const choices = first.value.choices.map(({ index }) => ({ index, text: "", finish_reason: null }));
  const add = ({ choices: parts, usage }) => {
    for (const part of parts) {
      const choice = choices[part.index];
      choice.text += part.delta?.content ?? part.text ?? "";
      choice.finish_reason = part.finish_reason ?? choice.finish_reason;
      if (part.token_ids) (choice.token_ids ??= []).push(...part.token_ids);
      if (part.logprobs) (choice.logprobs ??= { content: [] }).content.push(...part.logprobs.content);
    }
    if (usage) answer.usage = usage;
  };
  add(first.value);
  for await (const chunk of rest) add(chunk);
  answer.choices = choices.map(({ text, ...choice }) =>
    shape === "chat" ? { ...choice, message: { role: "assistant", content: text } } : { ...choice, text },
  );
  return answer;
}
