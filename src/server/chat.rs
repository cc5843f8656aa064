//! POST /v1/chat/completions.

use super::access::key_holder;
use super::app::App;
use super::body;
use super::choice::{Reading, Shape};
use super::error::{ApiError, ApiResult, Origin};
use super::fields::Fields;
use super::params::{Params, check_model, note_unknown};
use super::prompt::Conversation;
use super::reply::Prompt;
use super::structured::{self, Form};
use super::tools::{self, ToolChoice, Tools};
use crate::base::TokenId;
use crate::engine::{EngineHandle, TOP_LOGPROBS_MAX};
use crate::text::{CallStyle, Calling, Grammar, GrammarSource, Tokenizer};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value};
use std::sync::Arc;

const ROUTE: &str = "/v1/chat/completions";

/// A request, read.
struct Asked {
    params: Params,
    conversation: Conversation,
}

/// What the engine and the answer need beside the parameters.
struct Ready {
    ids: Vec<TokenId>,
    grammar: Option<Arc<dyn Grammar>>,
    shown: Vec<TokenId>,
    reading: Option<Reading>,
}

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let Asked { mut params, conversation } = read(&app, &engine, &body)?;
    params.request.tenant = holder.or(params.request.tenant);
    let (shared, form) = (app.clone(), params.form.take());
    // What the answer is held to is made of one of these or of both.
    let grammar = match (&form, conversation.tools()) {
        (Some(form), None) => Some(form.field.clone()),
        (None, Some(_)) => Some("tools".to_string()),
        _ => None,
    };
    let origin = Origin { grammar, ..Origin::of_prompt("messages") };
    let work = move |engine: &EngineHandle| ready(&shared, engine, &conversation, form);
    let Ready { ids, grammar, shown, reading } = app.off_thread(&engine, work).await?;
    params.request.grammar = grammar;
    params.request.shown = shown;
    params.reading = reading;
    let prompts = vec![Prompt { ids, text: String::new() }];
    super::reply::generate(&app, &engine, params, Shape::Chat, prompts, origin).await
}

fn read(app: &App, engine: &EngineHandle, body: &Map<String, Value>) -> ApiResult<Asked> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let mut params = Params::read(&mut fields)?;
    params.request.logprobs = logprobs(&mut fields)?;
    let conversation = Conversation::read(app, &mut fields)?;
    if conversation.tools().is_some_and(Tools::forced) {
        structured::check(&mut fields, "a forced tool_choice")?;
        if let Some(form) = &params.form {
            let message = "cannot be used with a forced tool_choice: the answer is a call";
            return Err(ApiError::field(&form.field, format!("{} {message}", form.field)));
        }
    }
    note_unknown(app, ROUTE, &mut fields);
    Ok(Asked { params, conversation })
}

/// Renders, encodes and compiles: text work, off the async threads.
fn ready(
    app: &App,
    engine: &EngineHandle,
    conversation: &Conversation,
    form: Option<Form>,
) -> ApiResult<Ready> {
    let (card, tools) = (engine.card(), conversation.tools());
    let rendered = conversation.render(engine)?;
    let ids = card.tokenizer.encode_rendered(&rendered);
    let ids = ids.map_err(|error| ApiError::encode(&error))?;
    let source = conversation.template_source(card);
    let thinks = app.config.reasoning && source.contains("</think>");
    let thinking = thinks && rendered.text().trim_end().ends_with("<think>");
    let style = tools.is_some().then(|| conversation.style(card));
    let lead = thinks.then(|| lead(&card.tokenizer, thinking));
    let lead = lead.as_deref();
    let (field, wanted) = match (tools, style, &form) {
        (Some(tools), Some(style), _) => {
            let newer = source.contains("[ARGS]");
            let calls = tools.grammar(style, newer, &card.tokenizer, form.is_some());
            ("tools", Some(calls))
        }
        (_, _, Some(form)) => (form.field.as_str(), Some(form.source.clone())),
        _ => ("", None),
    };
    let part = form.as_ref().filter(|_| tools.is_some()).map(|form| &form.source);
    let compile = |source: GrammarSource| {
        let grammars = app.grammars(engine)?;
        grammars.compile(&source, part, lead).map_err(|error| {
            // A fault of the form within is not told of the tools.
            let own = form.as_ref().filter(|_| part.is_some()).and_then(|form| {
                let error = grammars.compile(&form.source, None, lead).err()?;
                Some(tools::fault(&error, &form.field))
            });
            own.unwrap_or_else(|| tools::fault(&error, field))
        })
    };
    let grammar = wanted.map(compile).transpose()?;
    let shown = shown(&card.tokenizer, style, thinks);
    let named = tools.is_some_and(|tools| matches!(tools.choice, ToolChoice::Named(_)));
    let calling = |(tools, style): (&Tools, _)| {
        Arc::new(Calling { style, tools: tools.names(), or_form: form.is_some() })
    };
    let reading = Reading { calling: tools.zip(style).map(calling), thinks, thinking, named };
    Ok(Ready { ids, grammar, shown, reading: (thinks || style.is_some()).then_some(reading) })
}

/// What may stand before an answer's form: a thought, if the model has one, its opening where the
/// prompt has not opened it. The markers are control tokens in some vocabularies, text in others.
fn lead(tokenizer: &Tokenizer, thinking: bool) -> String {
    let [open, close] = ["<think>", "</think>"].map(|mark| tools::control(tokenizer, mark));
    let open = open.unwrap_or_else(|| "\"<think>\"".to_string());
    let lead = if thinking { "thought SPACE?" } else { "(OPEN thought SPACE?)?" };
    let thought = match close {
        Some(close) => format!("thought: THOUGHT? {close}\nTHOUGHT: /(.|\\n)+/"),
        None => "thought[lazy]: /(.|\\n)*<\\/think>/".to_string(),
    };
    let lead = lead.replace("OPEN", &open);
    format!("lead: {lead}\n{thought}\nSPACE: /[ \\n]{{1,4}}/")
}

/// Control tokens that tell the parts of an answer apart.
fn shown(tokenizer: &Tokenizer, style: Option<CallStyle>, thinks: bool) -> Vec<TokenId> {
    let calls: &[&str] = match style {
        Some(CallStyle::Hermes) => &["<tool_call>", "</tool_call>"],
        Some(CallStyle::Llama) => &["<|python_tag|>"],
        Some(CallStyle::Mistral) => &["[TOOL_CALLS]", "[ARGS]"],
        None => &[],
    };
    let thoughts: &[&str] = if thinks { &["<think>", "</think>"] } else { &[] };
    let ids = calls.iter().chain(thoughts).filter_map(|marker| tokenizer.token_id(marker));
    ids.filter(|id| tokenizer.is_special(*id)).collect()
}

/// `logprobs` switches them on, `top_logprobs` says how many alternatives.
fn logprobs(fields: &mut Fields<'_>) -> ApiResult<Option<u32>> {
    let on = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.count("top_logprobs")? {
        Some(top) if top > TOP_LOGPROBS_MAX => {
            Err(fields.wrong("top_logprobs", format!("must be at most {TOP_LOGPROBS_MAX}")))
        }
        Some(_) if !on => Err(fields.wrong("top_logprobs", "is allowed only with logprobs: true")),
        top => Ok(on.then_some(top.unwrap_or(0))),
    }
}
