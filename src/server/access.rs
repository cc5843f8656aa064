//! Who may ask, and how answers are tied to questions: bearer keys, request ids, origins.

use super::app::App;
use super::config::WebOrigin;
use super::error::ApiError;
use super::routes::known_route;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tower_http::cors::{AllowOrigin, CorsLayer};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_MAX: usize = 128;

/// Sends the client's `x-request-id` back, or a new one; counts the request and logs it. Logged are
/// route and status: headers hold keys, queries may, and bodies are the client's own.
pub(super) async fn request_id(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let usable =
        |id: &&HeaderValue| id.len() <= REQUEST_ID_MAX && !id.is_empty() && id.to_str().is_ok();
    let given = request.headers().get(&REQUEST_ID).filter(usable).cloned();
    let id = given.or_else(|| HeaderValue::from_str(&format!("req-{}", app.fresh_id())).ok());
    let (method, route) = (request.method().clone(), known_route(request.uri().path()));
    let began = Instant::now();
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    app.config.telemetry.observe_http(route, status);
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let shown = id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
    tracing::info!(target: "http", request_id = shown, %method, route, status, micros);
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Whose request it is, where several keys tell clients apart: the key's place in the list.
#[derive(Clone)]
pub(super) struct KeyHolder(String);

/// The tenant that the client's key names, if keys name any.
pub(super) fn key_holder(request: &Request) -> Option<String> {
    request.extensions().get::<KeyHolder>().map(|holder| holder.0.clone())
}

/// Lets only holders of a key pass, if keys are set. `/health` is open to all.
pub(super) async fn require_key(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let keys = &app.config.api_keys;
    if keys.is_empty() || request.uri().path() == "/health" {
        return next.run(request).await;
    }
    let given = bearer(request.headers()).unwrap_or_default();
    // Every key is compared, so that time tells nothing about which one was near.
    let matches = (1..).zip(keys).filter(|(_, key)| same(key.as_bytes(), given));
    let known = matches.fold(None, |_, (number, _)| Some(number));
    if let Some(number) = known.filter(|_: &u32| !given.is_empty()) {
        if keys.len() > 1 {
            request.extensions_mut().insert(KeyHolder(format!("key-{number}")));
        }
        return next.run(request).await;
    }
    let message = "a valid key is required: Authorization: Bearer KEY";
    let error = ApiError::new(StatusCode::UNAUTHORIZED, Some("invalid_api_key"), message);
    ApiError { kind: "authentication_error", ..error }.into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
}

/// Equality in time that depends on the length of `given` alone.
fn same(key: &[u8], given: &[u8]) -> bool {
    let mut differs = u8::from(key.len() != given.len());
    for (index, byte) in given.iter().enumerate() {
        let other = key.get(index).copied().unwrap_or(!byte);
        differs = black_box(differs | (byte ^ other));
    }
    differs == 0
}

/// Lets pages of the listed origins read answers; no list, no layer.
pub(super) fn cors(origins: &[WebOrigin]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins.iter().map(WebOrigin::header)))
            .allow_methods([Method::GET, Method::POST])
            .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, REQUEST_ID])
            .expose_headers([REQUEST_ID]),
    )
}
