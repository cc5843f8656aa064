//! From bytes to a JSON object: size, time, type, encoding and shape are checked here, each
//! with its own status.

use super::app::App;
use super::error::{ApiError, ApiResult};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde_json::{Map, Value};

/// Bytes of a body that is too large which are still read (and dropped), so that a client that
/// is busy sending gets to see the answer.
const DISCARD_MAX: usize = 64 << 20;

/// The request's body as a JSON object.
pub(super) async fn object(app: &App, request: Request) -> ApiResult<Map<String, Value>> {
    check_type(request.headers())?;
    let reading = read(request.into_body(), app.config.body_max);
    let bytes = tokio::time::timeout(app.config.body_timeout, reading).await.map_err(|_| {
        let message = "the request body did not arrive in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, Some("body_timeout"), message)
    })??;
    parse(&bytes)
}

fn check_type(headers: &HeaderMap) -> ApiResult<()> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let kind = given.split(';').next().unwrap_or("").trim();
    let json = kind.eq_ignore_ascii_case("application/json")
        || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case("+json"));
    if json {
        return Ok(());
    }
    let message = "the header `Content-Type: application/json` is required";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Some("unsupported_media_type"), message))
}

async fn read(body: Body, max: usize) -> ApiResult<Bytes> {
    let mut chunks = body.into_data_stream();
    let (mut all, mut seen) = (Vec::new(), 0usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| bad("the request body ended early"))?;
        seen = seen.saturating_add(chunk.len());
        if seen > max {
            all = Vec::new();
        } else {
            all.extend_from_slice(&chunk);
        }
        if seen > DISCARD_MAX.max(max) {
            break;
        }
    }
    if seen > max {
        let message = format!("the request body is larger than {max} bytes");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(ApiError::new(status, Some("request_too_large"), message));
    }
    Ok(all.into())
}

fn parse(bytes: &[u8]) -> ApiResult<Map<String, Value>> {
    if bytes.is_empty() {
        return Err(bad("the request body is empty; a JSON object is expected"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad(format!("the request body is not UTF-8: bad byte at {}", error.valid_up_to()))
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(bad("the request body must be a JSON object")),
        Err(error) => Err(bad(format!("the request body is not valid JSON: {error}"))),
    }
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, Some("invalid_json"), message)
}
