//! What only JavaScript can do, as `web/io.js` does it: files behind ranges, downloads, timers,
//! messages. Reads are synchronous, as a worker may have them, so a file is a [`Source`] like any
//! other; offsets are whole numbers below 2^53.

use crate::base::Clock;
use crate::weights::{Source, WeightsError};
use js_sys::{Array, Function};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(module = "/web/io.js")]
extern "C" {
    #[wasm_bindgen(catch, js_name = readAt)]
    fn read_at(file: u32, offset: f64, into: &mut [u8]) -> Result<(), JsValue>;
    #[wasm_bindgen(js_name = sizeOf)]
    fn size_of(file: u32) -> f64;
    /// Opens a file of the person's machine.
    #[wasm_bindgen(js_name = openFile)]
    pub fn open_file(file: &JsValue) -> u32;
    #[wasm_bindgen(js_name = nameOf)]
    pub fn name_of(file: &JsValue) -> String;
    /// Fetches what is behind an address, `null` if it is not there; refuses it when it has more
    /// than `most` bytes. `progress(loaded, total)` is called on the way and `note(text)` with what
    /// the person should know.
    #[wasm_bindgen(catch, js_name = openUrl)]
    pub async fn open_url(
        url: &str,
        store: bool,
        most: f64,
        progress: &Function,
        note: &Function,
    ) -> Result<JsValue, JsValue>;
    /// Drops what was stored for an address.
    #[wasm_bindgen(js_name = forget)]
    pub async fn forget(url: &str);
    /// Why there can be no WebGPU here; `None` if an adapter may be asked for.
    #[wasm_bindgen(js_name = whyNoWebgpu)]
    pub fn why_no_webgpu() -> Option<String>;
    pub async fn sleep(millis: f64);
    /// Lets the event loop turn once.
    pub async fn turn();
    /// Sends from a worker to its page.
    #[wasm_bindgen(js_name = tellPage)]
    pub fn tell_page(text: &str, bytes: Option<Vec<u8>>);

    /// Starts a worker; `receive(text, bytes)` gets what it tells, `failed(text)` that it is gone.
    #[wasm_bindgen(js_name = startWorker)]
    pub fn start_worker(receive: &Function, failed: &Function) -> JsValue;
    #[wasm_bindgen(js_name = askWorker)]
    pub fn ask_worker(worker: &JsValue, text: &str, files: &Array);
    #[wasm_bindgen(js_name = endWorker)]
    pub fn end_worker(worker: &JsValue);
    /// Asks the person for files; empty when none were chosen.
    #[wasm_bindgen(js_name = pickFiles)]
    pub async fn pick_files() -> JsValue;
    #[wasm_bindgen(catch, js_name = bytesOf)]
    pub async fn bytes_of(file: &JsValue) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch, js_name = fetchBytes)]
    pub async fn fetch_bytes(url: &str) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(js_name = saveAs)]
    pub fn save_as(name: &str, bytes: &[u8]);
    /// Reads the lines of a server's feed: `line(text)` for each, `ended(why)` when it breaks.
    #[wasm_bindgen(js_name = watchServer)]
    pub fn watch_server(url: &str, key: &str, line: &Function, ended: &Function) -> JsValue;
    #[wasm_bindgen(js_name = stopWatching)]
    pub fn stop_watching(watch: &JsValue);
    #[wasm_bindgen(catch, js_name = postServer)]
    pub async fn post_server(
        url: &str,
        key: &str,
        body: &str,
        line: &Function,
    ) -> Result<JsValue, JsValue>;
    /// An address as the page reads it, absolute.
    pub fn absolute(url: &str) -> String;
    /// Forgets every model that is stored; the bytes that were freed.
    #[wasm_bindgen(catch, js_name = forgetAll)]
    pub async fn forget_all() -> Result<JsValue, JsValue>;
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
    #[wasm_bindgen(js_namespace = Date, js_name = now)]
    fn date_now() -> f64;
}

/// Microseconds of the browser's monotonic clock.
pub struct PerformanceClock;

impl Clock for PerformanceClock {
    fn now_micros(&self) -> u64 {
        (performance_now() * 1000.0) as u64
    }
}

/// Milliseconds since 1970.
pub fn wall_millis() -> u64 {
    date_now() as u64
}

/// Bytes of linear memory.
pub fn memory_bytes() -> f64 {
    core::arch::wasm32::memory_size(0) as f64 * 65536.0
}

/// The text of something thrown.
pub fn thrown(value: &JsValue) -> String {
    let message = js_sys::Reflect::get(value, &"message".into()).ok().and_then(|m| m.as_string());
    message.or_else(|| value.as_string()).unwrap_or_else(|| format!("{value:?}"))
}

/// An opened file of `web/io.js`, by its number there.
pub struct JsSource {
    file: u32,
    len: u64,
    name: String,
}

impl JsSource {
    pub fn new(file: u32, name: String) -> Self {
        Self { file, len: size_of(file) as u64, name }
    }
}

impl Source for JsSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        let error = |message: String| WeightsError::Io {
            file: self.name.clone(),
            doing: format!("reading {} bytes at {offset} of {}", into.len(), self.len),
            source: std::io::Error::other(message),
        };
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(error("the file is shorter".to_string()));
        }
        read_at(self.file, offset as f64, into).map_err(|e| WeightsError::Io {
            file: self.name.clone(),
            doing: format!("reading at {offset} of {}", self.len),
            source: std::io::Error::other(thrown(&e)),
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}
