/** The engine for other pages, in OpenAI's shapes. */

/** `"fable"`, the address of a `.gguf` file or of a checkpoint's folder, or files of the person's machine. */
export type Source = "fable" | string | URL | File | Iterable<File>;

export interface Progress {
  /** `download` to this browser, `upload` to the device. */
  phase: "download" | "upload";
  file: string;
  /** Bytes. */
  loaded: number;
  total: number;
}

export interface LoadOptions {
  /** Default `auto`: WebGPU, or the processor with the reason in `info.fallback`. */
  device?: "auto" | "webgpu" | "cpu";
  /** Keep downloaded models for the next time (default true). */
  store?: boolean;
  /** The name in answers; from the address if not given. */
  name?: string;
  /** Positions of a sequence. */
  context?: number;
  /** Sequences that run at once; 16. */
  sequences?: number;
  /** Blocks of KV cache, 16 tokens each. */
  blocks?: number;
  /** Tokens of a step; measured. */
  step_tokens?: number;
  onProgress?(progress: Progress): void;
  /** Gets the trace, as `--record` writes it: a list of stamped events. */
  onTrace?(events: TraceEvent[]): void;
  /** Gets what is worth telling a person: a full storage, a warning of the model. */
  onProblem?(message: string): void;
  signal?: AbortSignal;
}

export interface TraceEvent {
  seq: number;
  step: number;
  micros: number;
  event: { kind: string; [field: string]: unknown };
}

export interface Info {
  model: string;
  device: string;
  /** `webgpu` or `cpu`. */
  backend: string;
  /** Why the processor does the work although WebGPU was wished for. */
  fallback: string | null;
  /** The model has a chat template. */
  chat: boolean;
  /** Most tokens of a sequence, prompt included. */
  context: number;
  limits: Record<string, number>;
}

export interface Status {
  open: number;
  running: number;
  waiting: number;
  blocks_used: number;
  blocks_cached: number;
  blocks_total: number;
  steps: number;
  tokens_generated: number;
  fault: string | null;
  memory_bytes: number;
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string;
}

export interface SamplingRequest {
  model?: string;
  max_tokens?: number;
  max_completion_tokens?: number;
  n?: number;
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  seed?: number;
  stop?: string | string[];
  logprobs?: boolean;
  top_logprobs?: number;
  ignore_eos?: boolean;
  /** Whom it is for, under fair queueing. */
  user?: string;
  /** Adds `token_ids` to the choices. */
  return_token_ids?: boolean;
}

export interface ChatRequest extends SamplingRequest {
  messages: Message[];
}

export interface CompletionRequest extends SamplingRequest {
  prompt: string;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

export interface TokenLogprob {
  token: string;
  token_id: number;
  logprob: number;
  bytes: number[];
}

export interface Logprobs {
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[];
}

export type FinishReason = "stop" | "length" | "cancelled";

interface Answer<Choice> {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: (Choice & {
    index: number;
    finish_reason: FinishReason | null;
    logprobs?: Logprobs;
    token_ids?: number[];
  })[];
  usage?: Usage;
}

export type ChatChunk = Answer<{ delta: { role?: "assistant"; content?: string } }>;
export type ChatCompletion = Answer<{ message: { role: "assistant"; content: string } }>;
export type Completion = Answer<{ text: string }>;

export interface CallOptions {
  /** Ends the call and frees its blocks; the call throws the signal's reason. */
  signal?: AbortSignal;
}

export class TilewrightError extends Error {
  /** What kind of failure it is. */
  code: "no_webgpu" | "network" | "model" | "memory" | "engine" | "internal" | "invalid_request";
  /** The field of the request that is wrong. */
  param: string | null;
}

/** An engine in a worker of its own. Calls that are open at once are batched. */
export class Tilewright {
  static load(source?: Source, options?: LoadOptions): Promise<Tilewright>;
  /** Drops every model that this origin keeps; the bytes that were freed. Fails while one is in use. */
  static forget(): Promise<number>;
  readonly info: Info;
  readonly chat: {
    completions: {
      create(request: ChatRequest & { stream: true }, options?: CallOptions): Promise<AsyncIterable<ChatChunk>>;
      create(request: ChatRequest & { stream?: false }, options?: CallOptions): Promise<ChatCompletion>;
    };
  };
  readonly completions: {
    create(request: CompletionRequest & { stream: true }, options?: CallOptions): Promise<AsyncIterable<Completion>>;
    create(request: CompletionRequest & { stream?: false }, options?: CallOptions): Promise<Completion>;
  };
  /** What the engine is doing now. */
  status(): Promise<Status>;
  /** Holds the engine between two steps, or lets it go on. */
  hold(hold?: boolean): void;
  /** Ends the engine and frees its memory; open calls fail. */
  unload(): void;
}
