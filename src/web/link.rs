//! The page's end of workers; and of an engine in one: what was asked of it, and who asked.

use super::io;
use super::wire::{Ask, Asked, Load, Told, Turn};
use crate::base::RequestId;
use crate::viewer::Submission;
use js_sys::{Array, Uint8Array};
use std::collections::BTreeMap;
use wasm_bindgen::prelude::*;

/// Hears what a worker tells, and that it is gone.
pub type Hear = Box<dyn FnMut(Result<(Told, Vec<u8>), String>)>;

/// A worker with an instance of the module; it ends when this is dropped.
pub struct Worker {
    worker: JsValue,
    // The worker calls them: they live as long as it does.
    _heard: Closure<dyn FnMut(String, JsValue)>,
    _failed: Closure<dyn FnMut(String)>,
}

impl Worker {
    pub fn start(hear: impl Fn() -> Hear) -> Self {
        let (mut heard, mut failed) = (hear(), hear());
        let heard = Closure::<dyn FnMut(String, JsValue)>::new(move |text: String, bytes| {
            let bytes: JsValue = bytes;
            let bytes =
                if bytes.is_undefined() { Vec::new() } else { Uint8Array::new(&bytes).to_vec() };
            let told = serde_json::from_str::<Told>(&text);
            heard(told.map(|told| (told, bytes)).map_err(|e| format!("{e}: {text}")));
        });
        let failed = Closure::<dyn FnMut(String)>::new(move |text| failed(Err(text)));
        let worker =
            io::start_worker(heard.as_ref().unchecked_ref(), failed.as_ref().unchecked_ref());
        Self { worker, _heard: heard, _failed: failed }
    }

    pub fn send(&self, asked: &Asked, files: &Array) {
        // A message of plain data can always be written.
        io::ask_worker(&self.worker, &serde_json::to_string(asked).unwrap_or_default(), files);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        io::end_worker(&self.worker);
    }
}

pub struct Link {
    worker: Worker,
    next: u32,
    /// Requests whose number in the engine is not known yet: prompt and ticket.
    prompts: BTreeMap<u32, (String, Option<u64>)>,
    requests: BTreeMap<RequestId, u32>,
    /// Asked before the engine was there.
    early: Option<Vec<Asked>>,
}

impl Link {
    /// Starts a worker that makes an engine.
    pub fn start(load: &Load, files: &Array, hear: impl Fn() -> Hear) -> Self {
        let worker = Worker::start(hear);
        worker.send(&Asked::Load(load.clone()), files);
        Self {
            worker,
            next: 0,
            prompts: BTreeMap::new(),
            requests: BTreeMap::new(),
            early: Some(Vec::new()),
        }
    }

    pub fn ask(&mut self, asked: Asked) {
        match &mut self.early {
            Some(early) => early.push(asked),
            None => self.worker.send(&asked, &Array::new()),
        }
    }

    /// The engine is there: what was asked before goes out.
    pub fn ready(&mut self) {
        for asked in self.early.take().unwrap_or_default() {
            self.ask(asked);
        }
    }

    pub fn submit(&mut self, submission: Submission) {
        let id = self.next;
        self.next += 1;
        let request = serde_json::to_value(ask(&submission)).unwrap_or_default();
        self.prompts.insert(id, (submission.prompt, submission.ticket));
        self.ask(Asked::Submit { id, request });
    }

    /// The engine's number of request `id`; the prompt and the ticket it came with.
    pub fn started(&mut self, id: u32, request: RequestId) -> Option<(String, Option<u64>)> {
        self.requests.insert(request, id);
        self.prompts.remove(&id)
    }

    /// Request `id` has ended; its ticket, if it never started.
    pub fn ended(&mut self, id: u32) -> Option<u64> {
        self.requests.retain(|_, own| *own != id);
        self.prompts.remove(&id).and_then(|(_, ticket)| ticket)
    }

    pub fn cancel(&mut self, request: RequestId) {
        if let Some(&id) = self.requests.get(&request) {
            self.ask(Asked::Cancel { id });
        }
    }
}

/// A submission in the words of the wire.
pub fn ask(submission: &Submission) -> Ask {
    let turn = |(role, text): (&str, &str)| Turn { role: role.into(), content: text.into() };
    Ask {
        messages: submission.chat.then(|| submission.turns().map(turn).collect()),
        prompt: (!submission.chat).then(|| submission.prompt.clone()),
        max_tokens: submission.max_tokens,
        temperature: submission.temperature,
        top_k: submission.top_k,
        top_p: submission.top_p,
        seed: submission.seed,
        ignore_eos: submission.ignore_eos,
        ..Ask::default()
    }
}
