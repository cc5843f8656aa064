//! Errors in OpenAI's shape: `{"error":{"message","type","param","code"}}`, always all four.

use crate::engine::{GenerateError, SubmitError};
use crate::text::TextError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Longest message; a body quoted in one must not come back whole.
const MESSAGE_MAX: usize = 2000;

/// A failure as the client sees it.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub status: StatusCode,
    pub kind: &'static str,
    pub code: Option<&'static str>,
    pub param: Option<String>,
    pub message: String,
    /// Seconds after which a retry makes sense.
    pub retry_after: Option<u32>,
}

/// The fields of a request that the engine's faults are told under.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Origin {
    /// Of the prompt.
    pub prompt: String,
    /// Of the grammar; `None` where it came from several.
    pub grammar: Option<String>,
}

impl Origin {
    pub fn of_prompt(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), grammar: None }
    }
}

pub(super) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// The client's mistake.
    pub fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        let (kind, message) = ("invalid_request_error", message.into());
        Self { status, kind, code, param: None, message, retry_after: None }
    }

    /// A field with a value it cannot have.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(StatusCode::BAD_REQUEST, Some("invalid_value"), message).with_param(param)
    }

    /// This side's fault, or not its time yet.
    pub fn server(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: "server_error", ..Self::new(status, Some(code), message) }
    }

    pub fn with_param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub fn with_retry(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// More than this side can take now.
    fn too_many(code: &'static str, message: String) -> Self {
        let kind = "rate_limit_error";
        Self { kind, ..Self::new(StatusCode::TOO_MANY_REQUESTS, Some(code), message) }
    }

    pub fn loading() -> Self {
        let message = "the model is being loaded; try again in a moment";
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "model_loading", message).with_retry(1)
    }

    pub fn engine_failed(message: impl Into<String>) -> Self {
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "engine_failed", message)
    }

    /// A text that the model's tokenizer cannot take: a fault of its file.
    pub fn encode(error: &TextError) -> Self {
        Self::server(StatusCode::INTERNAL_SERVER_ERROR, "tokenizer_error", error.to_string())
    }

    /// A request the engine did not take. `prompt` is the field that the prompt came from.
    pub fn submit(error: &SubmitError, prompt: &str) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Invalid(field) => Self::field(field.field, message),
            SubmitError::Empty => Self::field(prompt, message),
            SubmitError::BeyondContext { .. } | SubmitError::BeyondPool { .. } => {
                let code = Some("context_length_exceeded");
                Self::new(StatusCode::BAD_REQUEST, code, message).with_param(prompt)
            }
            SubmitError::QueueFull { retry_seconds, .. } => {
                Self::too_many("queue_full", message).with_retry(*retry_seconds)
            }
            SubmitError::Stopping => {
                Self::server(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
                    .with_retry(5)
            }
            SubmitError::Failed(_) => Self::engine_failed(message),
        }
    }

    /// A request that was taken and did not finish.
    pub fn generate(error: &GenerateError, origin: &Origin) -> Self {
        let message = error.to_string();
        match error {
            GenerateError::Refused(error) => Self::submit(error, &origin.prompt),
            GenerateError::NonFinite => {
                Self::server(StatusCode::INTERNAL_SERVER_ERROR, "non_finite_logits", message)
            }
            GenerateError::SlowReader(_) | GenerateError::Cancelled => {
                Self::server(StatusCode::INTERNAL_SERVER_ERROR, "cancelled", message)
            }
            // The form came from the client, and so did what could not be followed in it.
            GenerateError::Grammar(_) => {
                let (status, code) = (StatusCode::BAD_REQUEST, Some("invalid_grammar"));
                Self { param: origin.grammar.clone(), ..Self::new(status, code, message) }
            }
            GenerateError::QueueTimeout { retry_seconds, .. } => {
                Self::too_many("queue_timeout", message).with_retry(*retry_seconds)
            }
            GenerateError::Timeout { .. } => {
                let (status, code) = (StatusCode::REQUEST_TIMEOUT, Some("timeout"));
                Self::new(status, code, message).with_param("timeout")
            }
            GenerateError::Stopped => {
                Self::server(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
                    .with_retry(5)
            }
            GenerateError::Run(_) | GenerateError::Engine(_) => Self::engine_failed(message),
        }
    }

    /// The body, which is also what a stream sends for a failure after its start.
    pub fn body(&self) -> Value {
        let message = match self.message.char_indices().nth(MESSAGE_MAX) {
            Some((end, _)) => format!("{}…", &self.message[..end]),
            None => self.message.clone(),
        };
        json!({"error": {
            "message": message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A JSON body with its type.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, [kind], body.to_string()).into_response()
}
