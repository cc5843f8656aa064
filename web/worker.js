// The engine's worker: loads the module and hands it every message, in order.
import init, { receive } from "./tilewright_wasm.js";

const fail = (message) => self.postMessage([JSON.stringify({ kind: "failed", code: "internal", message })]);
const ready = init().catch((error) => {
  fail(`the program could not be loaded: ${error.message ?? error}`);
  throw error;
});

self.onmessage = async ({ data: [text, files] }) => {
  await ready;
  try {
    receive(text, files ?? []);
  } catch (error) {
    // A panic was told already, any other trap was not.
    fail(`the engine's program failed: ${error.message ?? error}`);
  }
};
