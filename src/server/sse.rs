//! Server-sent events: the frames of one streamed answer. A failure after the start is a frame
//! with `error` and the end of the stream; only a finished answer ends with `[DONE]`.

use super::app::App;
use super::error::{ApiError, Origin};
use super::reply::{Outputs, Reply};
use crate::engine::Output;
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use std::convert::Infallible;

/// The response that streams `outputs`. Dropping its body drops the generations.
pub(super) fn response(app: &App, outputs: Outputs, mut reply: Reply, origin: Origin) -> Response {
    let opening = stream::iter(reply.opening()).map(|chunk| chunk.to_string());
    // Ends with the first failure, whatever the other choices do.
    let rest = outputs.scan(false, move |failed, (index, output)| {
        let frames = (!*failed).then(|| frames(&mut reply, index, output, &origin, failed));
        std::future::ready(frames)
    });
    events(app, opening.chain(rest.flat_map(stream::iter)).map(|data| Event::default().data(data)))
}

/// A response of events, kept alive while nothing happens.
pub(super) fn events(app: &App, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let ping = KeepAlive::new().interval(app.config.ping_interval).text("ping");
    let events = events.map(Ok::<_, Infallible>);
    let mut response = Sse::new(events).keep_alive(ping).into_response();
    // Proxies that collect a response before they pass it on would undo the streaming.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn frames(
    reply: &mut Reply,
    index: usize,
    output: Output,
    origin: &Origin,
    failed: &mut bool,
) -> Vec<String> {
    match reply.chunks(index, output) {
        Ok((chunks, complete)) => {
            let mut frames: Vec<_> = chunks.iter().map(ToString::to_string).collect();
            if complete {
                frames.push("[DONE]".to_string());
            }
            frames
        }
        Err(error) => {
            *failed = true;
            vec![ApiError::generate(&error, origin).body().to_string()]
        }
    }
}
