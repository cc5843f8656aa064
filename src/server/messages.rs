//! The `messages` of a chat request in the plain form that templates expect: known roles,
//! content as one string.

use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use crate::text::Message;
use serde_json::Value;

/// Reads the conversation.
pub(super) fn read(fields: &mut Fields<'_>) -> ApiResult<Vec<Message>> {
    let Some(list) = fields.array("messages")? else {
        return Err(fields.wrong("messages", "is required"));
    };
    if list.is_empty() {
        return Err(fields.wrong("messages", "must hold at least one message"));
    }
    let one = |(index, value)| message(value, &format!("messages[{index}]"));
    list.iter().enumerate().map(one).collect()
}

fn message(value: &Value, path: &str) -> ApiResult<Message> {
    let mut fields = Fields::of(value, path)?;
    let role = match fields.string("role")? {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        Some(_) => {
            let message = "must be one of system, developer, user, assistant, tool";
            return Err(fields.wrong("role", message));
        }
        None => return Err(fields.wrong("role", "is required")),
    };
    let calls = fields.array("tool_calls")?.filter(|calls| !calls.is_empty());
    let tool_calls = match calls {
        Some(calls) if role == "assistant" => Some(tool_calls(calls, path)?),
        Some(_) => return Err(fields.wrong("tool_calls", "belongs to assistant messages only")),
        None => None,
    };
    let content = match fields.get("content") {
        Some(content) => text(content, &fields.path("content"))?,
        None if tool_calls.is_some() => String::new(),
        None => return Err(fields.wrong("content", "is required")),
    };
    Ok(Message {
        role: role.to_string(),
        content,
        name: fields.string("name")?.map(str::to_string),
        reasoning_content: fields.string("reasoning_content")?.map(str::to_string),
        tool_calls,
        tool_call_id: fields.string("tool_call_id")?.map(str::to_string),
    })
}

/// A string, or text parts joined in order.
fn text(content: &Value, path: &str) -> ApiResult<String> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) if !parts.is_empty() => parts,
        Value::Array(_) => {
            let message = format!("{path} must hold at least one part");
            return Err(ApiError::field(path, message));
        }
        _ => {
            let message = format!("{path} must be a string or an array of text parts");
            return Err(ApiError::field(path, message));
        }
    };
    let mut all = String::new();
    for (index, part) in parts.iter().enumerate() {
        let mut part = Fields::of(part, &format!("{path}[{index}]"))?;
        match part.string("type")? {
            Some("text") => {}
            Some(kind) => {
                let message = format!("is {kind:?}: this model takes text parts only");
                return Err(part.wrong("type", message));
            }
            None => return Err(part.wrong("type", "is required")),
        }
        match part.string("text")? {
            Some(text) => all.push_str(text),
            None => return Err(part.wrong("text", "is required")),
        }
    }
    Ok(all)
}

/// Calls in the API's own form, checked; the template floor knows how templates want them.
fn tool_calls(calls: &[Value], path: &str) -> ApiResult<Value> {
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}.tool_calls[{index}]");
        let mut fields = Fields::of(call, &path)?;
        fields.string("id")?;
        let Some(function) = fields.object("function")? else {
            return Err(fields.wrong("function", "is required"));
        };
        let mut function = Fields::new(function, format!("{path}.function."));
        if function.string("name")?.is_none() {
            return Err(function.wrong("name", "is required"));
        }
        function.string("arguments")?;
    }
    Ok(Value::Array(calls.to_vec()))
}
