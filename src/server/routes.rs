//! The routes and the layers around them. What no route answers is answered in the same shape.

use super::app::{App, ModelState};
use super::config::ServerConfig;
use super::error::{ApiError, ApiResult, json_response};
use super::params::model_not_found;
use super::{access, chat, completions, control, embeddings, page, state, tokens};
use crate::engine::EngineHandle;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

/// Every route, as logs and metrics name it.
const ROUTES: &[&str] = &[
    "/health",
    "/metrics",
    "/openapi.json",
    "/props",
    "/slots",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/models",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/engine/check",
    "/v1/engine/policies",
    "/v1/engine/state",
    "/v1/engine/events",
];
const MODEL_ROUTE: &str = "/v1/models/";

/// The name of the route at `path`: one of few, whatever clients ask for.
pub(super) fn known_route(path: &str) -> &'static str {
    if path.starts_with(MODEL_ROUTE) {
        return "/v1/models/{id}";
    }
    ROUTES.iter().find(|route| **route == path).copied().unwrap_or("other")
}

/// The whole service. `model` tells when there is an engine behind it.
pub fn router(config: ServerConfig, model: watch::Receiver<ModelState>) -> Router {
    let cors = access::cors(&config.cors_origins);
    let app = Arc::new(App::new(config, model));
    let router = Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model_by_id))
        .route("/v1/chat/completions", post(chat::post))
        .route("/v1/completions", post(completions::post))
        .route("/v1/embeddings", post(embeddings::post))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/apply-template", post(tokens::apply_template))
        .route("/metrics", get(state::metrics))
        .route("/openapi.json", get(state::openapi))
        .route("/slots", get(state::slots))
        .route("/props", get(state::props))
        .route("/v1/engine/check", get(state::check))
        .route("/v1/engine/policies", get(control::policies).post(control::set_policies))
        .route("/v1/engine/state", get(state::state))
        .route("/v1/engine/events", get(state::events))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method);
    let key = from_fn_with_state(app.clone(), access::require_key);
    let router = match &app.config.page {
        // Every route of the API needs a key; what is none of them can only be a file.
        Some(folder) => page::add(router.route_layer(key), folder),
        None => router.layer(key),
    };
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(from_fn_with_state(app.clone(), access::request_id)).with_state(app)
}

async fn health(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let status = engine.status();
    let body = json!({
        "status": "ok",
        "model": engine.card().name,
        "running": status.running,
        "waiting": status.waiting,
        "kv_blocks_used": status.blocks_used,
        "kv_blocks_total": status.blocks_total,
        "kv_slots_unused": status.slots_unused,
        "steps": status.steps,
        "tokens_computed": status.tokens_computed,
        "tokens_generated": status.tokens_generated,
    });
    Ok(json_response(StatusCode::OK, &body))
}

async fn models(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    let body = json!({"object": "list", "data": [model_value(&app, &engine)]});
    Ok(json_response(StatusCode::OK, &body))
}

async fn model_by_id(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
) -> ApiResult<Response> {
    let engine = app.engine()?;
    let Path(id) = id.map_err(|error| ApiError::field("model", error.body_text()))?;
    if id != engine.card().name {
        return Err(model_not_found(&id, &engine));
    }
    Ok(json_response(StatusCode::OK, &model_value(&app, &engine)))
}

fn model_value(app: &App, engine: &EngineHandle) -> Value {
    json!({
        "id": engine.card().name,
        "object": "model",
        "created": app.started,
        "owned_by": "tilewright",
        "max_model_len": engine.sequence_tokens_max(),
    })
}

pub(super) async fn unknown_route(uri: Uri) -> ApiError {
    let message =
        format!("there is no route {}; GET /openapi.json lists those there are", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, Some("unknown_route"), message)
}

async fn wrong_method(method: Method, request: Request) -> ApiError {
    let message = format!("{method} is not allowed on {}", request.uri().path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed"), message)
}
