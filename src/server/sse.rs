//! Server-sent events: the frames of one streamed answer. A failure after the start is a frame
//! with `error` and the end of the stream; only a finished answer ends with `[DONE]`.

use super::app::App;
use super::error::ApiError;
use super::reply::Reply;
use crate::engine::{Generation, Output};
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use std::convert::Infallible;

/// The response that streams `generation`. Dropping its body drops the generation.
pub(super) fn response(
    app: &App,
    generation: Generation,
    mut reply: Reply,
    field: &'static str,
) -> Response {
    let opening = stream::iter(reply.opening().map(|chunk| chunk.to_string()));
    let rest = generation.flat_map(move |output| stream::iter(frames(&mut reply, output, field)));
    let events = opening.chain(rest).map(|data| Ok::<_, Infallible>(Event::default().data(data)));
    let ping = KeepAlive::new().interval(app.config.ping_interval).text("ping");
    let mut response = Sse::new(events).keep_alive(ping).into_response();
    // Proxies that collect a response before they pass it on would undo the streaming.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn frames(reply: &mut Reply, output: Output, field: &str) -> Vec<String> {
    let last = matches!(output, Output::Finished { .. });
    match reply.chunks(output) {
        Ok(chunks) => {
            let mut frames: Vec<_> = chunks.iter().map(ToString::to_string).collect();
            if last {
                frames.push("[DONE]".to_string());
            }
            frames
        }
        Err(error) => vec![ApiError::generate(&error, field).body().to_string()],
    }
}
