// The engine's worker: loads the module and hands it every message, in order.
import init, { receive } from "./tilewright_wasm.js";

const ready = init().catch((error) => {
  const message = `the program could not be loaded: ${error.message ?? error}`;
  self.postMessage([JSON.stringify({ kind: "failed", code: "internal", message })]);
  throw error;
});

self.onmessage = async ({ data: [text, files] }) => {
  await ready;
  receive(text, files ?? []);
};
