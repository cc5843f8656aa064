//! A server as the page's engine: its feed is watched, and taken up again when it breaks; requests
//! go out as calls of its API.

use super::io;
use super::link::ask;
use crate::trace::{FeedReader, Told};
use crate::viewer::Submission;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// Between two attempts to reach the server, in milliseconds.
const RETRY: f64 = 2000.0;

/// Hears what the server tells, and why it cannot be heard.
pub type Hear = Rc<dyn Fn(Result<Told, String>)>;

#[derive(Clone)]
pub struct Server {
    /// Absolute, ending in a slash.
    pub url: String,
    /// Empty for none.
    pub key: String,
}

/// A watched server; dropping it ends the watch.
pub struct Remote {
    pub server: Server,
    watch: JsValue,
    // The watch calls them: they live as long as it does.
    _line: Closure<dyn FnMut(String)>,
    _ended: Closure<dyn FnMut(String)>,
}

impl Remote {
    /// Begins to watch. After the feed has broken `again` is called.
    pub fn start(server: Server, hear: &Hear, again: Box<dyn Fn()>) -> Self {
        let (told, failed) = (hear.clone(), hear.clone());
        let reader = RefCell::new(FeedReader::default());
        let line = Closure::<dyn FnMut(String)>::new(move |text: String| {
            match reader.borrow_mut().line(&text) {
                Ok(Some(one)) => told(Ok(one)),
                Ok(None) => {}
                Err(error) => told(Err(error.to_string())),
            }
        });
        let again = Rc::new(again);
        let ended = Closure::<dyn FnMut(String)>::new(move |why: String| {
            failed(Err(format!("{why}; trying again every {} s", RETRY / 1000.0)));
            let again = again.clone();
            wasm_bindgen_futures::spawn_local(async move {
                io::sleep(RETRY).await;
                again();
            });
        });
        let url = format!("{}v1/engine/events", server.url);
        let (to, broken) = (line.as_ref().unchecked_ref(), ended.as_ref().unchecked_ref());
        let watch = io::watch_server(&url, &server.key, to, broken);
        Self { server, watch, _line: line, _ended: ended }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        io::stop_watching(&self.watch);
    }
}

/// Sends a request and reads its answer to the end: one that nobody reads is cancelled.
pub async fn submit(server: Server, submission: Submission) -> Result<(), String> {
    let path = if submission.chat { "v1/chat/completions" } else { "v1/completions" };
    let mut body = serde_json::to_value(ask(&submission)).unwrap_or_default();
    if let Some(body) = body.as_object_mut() {
        body.retain(|_, value| !value.is_null());
        body.remove("logprobs");
        body.insert("stream".to_string(), true.into());
    }
    let failure = Rc::new(RefCell::new(None));
    let found = failure.clone();
    let line = Closure::<dyn FnMut(String)>::new(move |text: String| {
        let frame = text.strip_prefix("data: ").map(serde_json::from_str);
        if let Some(Ok(serde_json::Value::Object(frame))) = frame
            && let Some(error) = frame.get("error")
        {
            let message = error.get("message").and_then(|m| m.as_str());
            *found.borrow_mut() = Some(message.unwrap_or_default().to_string());
        }
    });
    let url = format!("{}{path}", server.url);
    let to = line.as_ref().unchecked_ref();
    let sent = io::post_server(&url, &server.key, &body.to_string(), to).await;
    sent.map_err(|error| io::thrown(&error))?;
    failure.take().map_or(Ok(()), Err)
}
