//! /v1/engine/policies: the policies and limits in force, and their change while requests run.
//! Changing needs the operator's consent (`allow_control`): a key lets a client ask, not rule.

use super::app::App;
use super::body;
use super::error::{ApiError, ApiResult, Origin, json_response};
use super::fields::Fields;
use crate::engine::{GenerateError, SettingError, Status};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) async fn policies(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let engine = app.engine()?;
    Ok(json_response(StatusCode::OK, &in_force(&engine.status())))
}

/// Changes what the body names and leaves the rest; answers with what is in force then.
pub(super) async fn set_policies(
    State(app): State<Arc<App>>,
    request: Request,
) -> ApiResult<Response> {
    if !app.config.allow_control {
        let message = "this server lets nobody change its policies; start it with --allow-control";
        return Err(ApiError::new(StatusCode::FORBIDDEN, Some("control_not_allowed"), message));
    }
    let engine = app.engine()?;
    let body = body::object(&app, request).await?;
    // One change at a time: each starts from what the one before it left.
    let _turn = app.changing.lock().await;
    let now = engine.status();
    let mut fields = Fields::new(&body, "");
    let policies = changed(fields.object("policies")?, "policies", &now.policies)?;
    let limits = changed(fields.object("limits")?, "limits", &now.limits)?;
    if let Some(name) = fields.unknown().next() {
        return Err(fields.wrong(name, "is not known: `policies` and `limits` can change"));
    }
    // All or nothing.
    policies.check().map_err(|error| refused("policies", error.into()))?;
    if limits != now.limits {
        engine.set_limits(limits).map_err(|error| refused("limits", error))?;
    }
    if policies != now.policies {
        engine.set_policies(policies).map_err(|error| refused("policies", error))?;
    }
    // Words to the engine keep their order, so this answer comes after the change.
    let Some(checked) = engine.check().await else {
        return Err(ApiError::generate(&GenerateError::Stopped, &Origin::default()));
    };
    Ok(json_response(StatusCode::OK, &in_force(&checked.status)))
}

fn refused(of: &str, error: SettingError) -> ApiError {
    ApiError::field(format!("{of}.{}", error.field()), error.to_string())
}

fn in_force(status: &Status) -> Value {
    json!({"object": "engine.policies", "policies": status.policies, "limits": status.limits})
}

/// `now` with the fields that `change` names replaced. Here `null` is a value.
fn changed<T>(change: Option<&Map<String, Value>>, path: &str, now: &T) -> ApiResult<T>
where
    T: Serialize + DeserializeOwned + Clone,
{
    let (mut all, mut new) = (json!(now), now.clone());
    for (name, value) in change.into_iter().flatten() {
        let field = format!("{path}.{name}");
        let Some(place) = all.get_mut(name) else {
            let message = format!("{field} is not known; GET /v1/engine/policies tells the names");
            return Err(ApiError::field(field, message));
        };
        *place = value.clone();
        new = T::deserialize(&all).map_err(|error| {
            let message = format!("{field}: {error}");
            ApiError::field(field, message)
        })?;
    }
    Ok(new)
}
