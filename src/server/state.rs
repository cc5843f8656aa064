//! The engine from outside: GET /v1/engine/state and /v1/engine/events (the trace, live), /slots,
//! /props and /metrics, all read from the trace's events, and /v1/engine/check, answered by the
//! engine itself. No text of any request.

use super::app::App;
use super::error::{ApiError, ApiResult, Origin, json_response};
use super::sse;
use super::telemetry::{Position, Telemetry, render};
use crate::engine::{Checked, GenerateError};
use crate::trace::{Picture, SNAPSHOT};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

pub(super) async fn metrics(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let (metrics, gauges) = app.config.telemetry.metrics(engine.limits());
    let page = render(&metrics, &gauges, &engine.card().name);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], page).into_response())
}

/// The description of every route, also in assets/.
const OPENAPI: &str = include_str!("../../assets/openapi.json");

pub(super) async fn openapi() -> Response {
    let kind = HeaderValue::from_static("application/json");
    (StatusCode::OK, [(header::CONTENT_TYPE, kind)], OPENAPI).into_response()
}

pub(super) async fn state(State(app): State<Arc<App>>) -> ApiResult<Response> {
    app.engine()?;
    let picture = json!(app.config.telemetry.picture());
    Ok(json_response(StatusCode::OK, &picture))
}

/// Whether every invariant of scheduler, block pool and prefix index holds.
pub(super) async fn check(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let Some(Checked { fault, status }) = engine.check().await else {
        return Err(ApiError::generate(&GenerateError::Stopped, &Origin::default()));
    };
    let body = json!({
        "object": "engine.check",
        "ok": fault.is_none(),
        "fault": fault,
        "step": status.steps,
        "kv_blocks": {
            "total": status.blocks_total,
            "used": status.blocks_used,
            "shared": status.blocks_shared,
            "cached": status.blocks_cached,
            "free": status.blocks_total - status.blocks_used - status.blocks_cached,
        },
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// A snapshot, then every event from there on. A watcher too slow for them gets a new snapshot.
pub(super) async fn events(State(app): State<Arc<App>>) -> ApiResult<Response> {
    app.engine()?;
    let telemetry = app.config.telemetry.clone();
    let news = telemetry.news();
    Ok(sse::events(&app, watch(telemetry, news)))
}

fn watch(telemetry: Telemetry, news: watch::Receiver<u64>) -> impl Stream<Item = Event> {
    let start = (telemetry, news, Position::Lost);
    let batches = stream::unfold(start, async |(telemetry, mut news, position)| {
        loop {
            let (events, next) = match position {
                Position::Lost => {
                    let picture = telemetry.picture();
                    let event = Event::default().event(SNAPSHOT).data(json!(picture).to_string());
                    (vec![event], Position::At(picture.seq))
                }
                Position::At(seq) => match telemetry.feed(|feed| feed.since(seq)) {
                    None => (Vec::new(), Position::Lost),
                    Some(events) => {
                        let after = events.last().map_or(seq, |event| event.seq + 1);
                        let data = |stamped| Event::default().data(json!(stamped).to_string());
                        (events.iter().map(data).collect(), Position::At(after))
                    }
                },
            };
            if next == position {
                // The engine's end of the channel lives as long as the server.
                news.changed().await.ok()?;
                continue;
            }
            return Some((stream::iter(events), (telemetry, news, next)));
        }
    });
    batches.flatten()
}

pub(super) async fn slots(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let picture = app.config.telemetry.picture();
    let context = engine.sequence_tokens_max();
    let slots = (0..engine.limits().sequences_max).map(|id| slot(&picture, id, context));
    Ok(json_response(StatusCode::OK, &slots.collect()))
}

/// One slot in llama-server's words, and what only a paged engine has.
fn slot(picture: &Picture, id: u32, context: u32) -> Value {
    let holder = picture.slots.get(id as usize).copied().flatten();
    let held = holder.and_then(|holder| Some((holder, picture.sequences.get(&holder)?)));
    let Some((holder, s)) = held else {
        return json!({"id": id, "is_processing": false, "n_ctx": context});
    };
    json!({
        "id": id,
        "is_processing": true,
        "n_ctx": context,
        "id_task": s.request,
        "sequence": holder,
        "n_prompt_tokens": s.prompt,
        "n_prompt_tokens_processed": s.computed.min(s.prompt),
        "n_decoded": s.known.saturating_sub(s.prompt),
        "n_predict": s.max_new_tokens,
        "kv_blocks": s.blocks.len(),
        "preemptions": s.preemptions,
        "tenant": s.tenant,
        "priority": s.class,
        "age_ms": picture.micros.saturating_sub(s.arrived_micros) / 1000,
    })
}

pub(super) async fn props(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let (card, limits) = (engine.card(), engine.limits());
    let defaults = &card.defaults;
    let props = json!({
        "default_generation_settings": {
            "n_ctx": engine.sequence_tokens_max(),
            "params": {
                "temperature": defaults.temperature.unwrap_or(1.0),
                "top_k": defaults.top_k.unwrap_or(0),
                "top_p": defaults.top_p.unwrap_or(1.0),
                "min_p": defaults.min_p.unwrap_or(0.0),
                "repetition_penalty": defaults.repetition_penalty.unwrap_or(1.0),
            },
        },
        "total_slots": limits.sequences_max,
        "model_alias": card.name,
        "build_info": concat!("tilewright ", env!("CARGO_PKG_VERSION")),
        "chat_template": card.template.as_ref().map(|template| template.source()),
        "bos_token": card.tokenizer.bos_text(),
        "eos_token": card.tokenizer.eos_text(),
        "modalities": {"vision": false, "audio": false},
        "vocab_size": card.logit_rows,
        "tuned_products": card.tuned,
        "invariance": card.invariance,
        "limits": limits,
        "activations": card.products,
    });
    Ok(json_response(StatusCode::OK, &props))
}
