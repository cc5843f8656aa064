//! Which template a model has.

use crate::support::Rows;
use serde_json::{Value, json};
use tilewright::text::{TemplateSources, TextError};

pub fn rows(rows: &mut Rows) {
    rows.add("text::template_lookup_order", order);
    rows.add("text::template_list_form", list_form);
    rows.add("text::template_absent_everywhere_is_none", absent);
}

fn found(sources: &TemplateSources, tools: bool) -> Option<(String, &'static str)> {
    sources.choose(tools).expect("no error").map(|chosen| (chosen.source, chosen.origin))
}

fn order() {
    let config = json!({"chat_template": "config"});
    let mut sources = TemplateSources {
        explicit: Some("explicit"),
        jinja_file: Some("file"),
        tokenizer_config: Some(&config),
        gguf: Some("gguf"),
        gguf_tool_use: Some("gguf tools"),
    };
    let of = |source: &str, origin| Some((source.to_string(), origin));
    assert_eq!(found(&sources, true), of("explicit", "--chat-template"));
    sources.explicit = None;
    assert_eq!(found(&sources, true), of("file", "chat_template.jinja"));
    sources.jinja_file = Some("");
    assert_eq!(found(&sources, true), of("config", "tokenizer_config.json"));
    sources.tokenizer_config = None;
    assert_eq!(found(&sources, false), of("gguf", "tokenizer.chat_template"));
    assert_eq!(found(&sources, true), of("gguf tools", "tokenizer.chat_template"));
    sources.gguf_tool_use = None;
    assert_eq!(found(&sources, true), of("gguf", "tokenizer.chat_template"));
}

fn list_form() {
    let choose = |config: &Value, tools| {
        let sources = TemplateSources { tokenizer_config: Some(config), ..Default::default() };
        sources.choose(tools).map(|chosen| chosen.map(|c| c.source))
    };
    let both = json!({"chat_template": [
        {"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]});
    assert_eq!(choose(&both, false), Ok(Some("D".into())));
    assert_eq!(choose(&both, true), Ok(Some("T".into())));
    let one = json!({"chat_template": [{"name": "default", "template": "D"}]});
    assert_eq!(choose(&one, true), Ok(Some("D".into())));
    let map = json!({"chat_template": {"default": "D", "tool_use": "T"}});
    assert_eq!(choose(&map, true), Ok(Some("T".into())));
    let other = json!({"chat_template": [{"name": "rag", "template": "R"}]});
    assert_eq!(choose(&other, false), Err(TextError::NoDefaultTemplate { found: "rag".into() }));
    // An explicit template needs no default in a list that is not used.
    let sources = TemplateSources {
        explicit: Some("E"),
        tokenizer_config: Some(&other),
        ..Default::default()
    };
    assert_eq!(sources.choose(false).expect("ok").map(|c| c.source), Some("E".into()));
}

fn absent() {
    for config in [json!({}), json!({"chat_template": null}), json!({"chat_template": []})] {
        let sources = TemplateSources { tokenizer_config: Some(&config), ..Default::default() };
        assert_eq!(found(&sources, false), None);
    }
    assert_eq!(found(&TemplateSources::default(), true), None);
}
