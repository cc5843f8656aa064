//! A conversation on its way to ids: the messages, how they are rendered, and by which template.
//! Rendering and encoding run off the async threads, with the template floor's fuel.

use super::app::{App, unix_seconds};
use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use super::messages;
use super::tools::{Tools, spelled_out};
use crate::engine::{EngineHandle, ModelCard};
use crate::text::{CallStyle, Message, RenderOptions, Rendered, TextError};
use axum::http::StatusCode;

/// What a request says of its conversation.
pub(super) struct Conversation {
    messages: Vec<Message>,
    options: RenderOptions,
    /// The request's own template, where the operator allows that.
    template: Option<String>,
    tools: Option<Tools>,
    /// The operator's word on how calls are written.
    style: Option<CallStyle>,
}

impl Conversation {
    /// What is read beside the messages.
    pub const FIELDS: &[&'static str] = &[
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "reasoning_effort",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
    ];

    pub fn read(app: &App, fields: &mut Fields<'_>) -> ApiResult<Self> {
        let mut kwargs = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
        if let Some(effort) = fields.string("reasoning_effort")? {
            kwargs.entry("reasoning_effort").or_insert_with(|| effort.into());
        }
        let template = fields.string("chat_template")?.map(str::to_string);
        if template.is_some() && !app.config.trust_request_templates {
            let message = "is not accepted: the server was started without \
                           --trust-request-chat-template";
            return Err(fields.wrong("chat_template", message));
        }
        let tools = Tools::read(fields)?;
        let options = RenderOptions {
            add_generation_prompt: fields.boolean("add_generation_prompt")?.unwrap_or(true),
            tools: tools.as_ref().map(|tools| tools.sent.clone()),
            kwargs,
            now: i64::try_from(unix_seconds()).ok(),
        };
        let style = app.config.tool_style;
        Ok(Self { messages: messages::read(fields)?, options, template, tools, style })
    }

    /// The tools that the model is told of and may call.
    pub fn tools(&self) -> Option<&Tools> {
        self.tools.as_ref()
    }

    /// The template's text, where the model or the request has one.
    pub fn template_source<'a>(&'a self, card: &'a ModelCard) -> &'a str {
        let own = card.template.as_ref().map(|template| template.source());
        self.template.as_deref().or(own).unwrap_or_default()
    }

    /// How calls are written in this conversation.
    pub fn style(&self, card: &ModelCard) -> CallStyle {
        self.style.unwrap_or_else(|| CallStyle::of_template(self.template_source(card)))
    }

    /// The conversation as the model reads it.
    pub fn render(&self, engine: &EngineHandle) -> ApiResult<Rendered> {
        let card: &ModelCard = engine.card();
        let own = match &self.template {
            Some(source) => Some(card.tokenizer.template(source).map_err(|error| {
                ApiError::field("chat_template", error.to_string()).with_code("chat_template_error")
            })?),
            None => None,
        };
        let Some(template) = own.as_ref().or(card.template.as_ref()) else {
            let message = "this model has no chat template; use /v1/completions, or start the \
                           server with one";
            return Err(ApiError::field("messages", message).with_code("no_chat_template"));
        };
        let field = if own.is_some() { "chat_template" } else { "messages" };
        let knows = |word: &str| template.source().contains(word);
        let uses = self.options.tools.is_some() || self.messages.iter().any(is_about_tools);
        let (messages, options) = match uses && !knows("tools") && !knows("tool_call") {
            true => {
                let tools = self.options.tools.as_ref();
                let messages = spelled_out(&self.messages, tools, self.style(card));
                (messages, RenderOptions { tools: None, ..self.options.clone() })
            }
            false => (self.messages.clone(), self.options.clone()),
        };
        template
            .render(&messages, &options)
            .map_err(|error| told(&error, field, own.is_some() || error.is_from_request()))
    }
}

fn is_about_tools(message: &Message) -> bool {
    message.role == "tool" || message.tool_calls.is_some()
}

fn told(error: &TextError, field: &str, clients: bool) -> ApiError {
    let message = error.to_string();
    if clients {
        return ApiError::field(field, message).with_code("chat_template_error");
    }
    ApiError::server(StatusCode::INTERNAL_SERVER_ERROR, "chat_template_error", message)
}
