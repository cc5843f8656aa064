//! `inspect`: what a model's files hold, without loading the weights. What this program cannot run
//! is shown too, with the reason.

use crate::cli::InspectArgs;
use crate::{model, print};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use tilewright::base::{Activations, Format, KvType};
use tilewright::engine::{LoadOptions, ModelCard, SamplingDefaults, read_card, template_source};
use tilewright::kernels::mul::activations;
use tilewright::model::Spec;
use tilewright::weights::{GgufValue, Meta, Tensor, Weights};

/// Characters of a metadata value that the table shows.
const SHOWN_MAX: usize = 60;

pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    let weights = model::weights(&args.model)?;
    let json = describe(&weights);
    let text =
        if args.json { serde_json::to_string_pretty(&json)? + "\n" } else { page(&json, &weights) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// `value`, or an object with the reason why there is none.
fn or_error<T, E: std::fmt::Display>(found: Result<T, E>, value: impl Fn(T) -> Value) -> Value {
    found.map_or_else(|error| json!({"error": error.to_string()}), value)
}

fn describe(weights: &Weights) -> Value {
    let spec = Spec::read(weights);
    // Where the shape cannot be read, the tokenizer still can.
    let vocab = spec.as_ref().map_or(u32::MAX, |spec| spec.vocab);
    let mut warnings = Vec::new();
    let card = read_card(weights, vocab, &LoadOptions::default(), &mut warnings);
    let sampling = card.as_ref().ok().map(|card| sampling(&card.defaults));
    let template = template_source(weights, None);
    json!({
        "model": weights.name(),
        "files": match weights.meta() {
            Meta::Gguf(_) => "GGUF",
            Meta::Hf(_) => "Hugging Face",
        },
        "parameters": weights.tensors().values().map(values).sum::<u64>(),
        "bytes": weights.tensors().values().map(|t| t.bytes).sum::<u64>(),
        "warnings": warnings,
        "formats": formats(weights),
        "spec": or_error(spec, |spec| spec_value(&spec)),
        "tokenizer": or_error(card, |card| tokenizer(&card)),
        "template": or_error(template, |template| match template {
            Some(template) => json!({"from": template.origin, "source": template.source}),
            None => Value::Null,
        }),
        "sampling": sampling,
        "metadata": metadata(weights.meta()),
        "tensors": weights.tensors().values().map(tensor).collect::<Vec<_>>(),
    })
}

fn values(tensor: &Tensor) -> u64 {
    tensor.shape.iter().product()
}

fn tensor(t: &Tensor) -> Value {
    json!({"name": t.name, "shape": t.shape, "format": t.format, "bytes": t.bytes})
}

/// Format → tensors, bytes, and whether its products can take activations as bytes.
fn formats(weights: &Weights) -> Value {
    let mut all: BTreeMap<Format, (u64, u64)> = BTreeMap::new();
    for tensor in weights.tensors().values() {
        let entry = all.entry(tensor.format).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.bytes);
    }
    let row = |(format, (tensors, bytes)): (Format, (u64, u64))| {
        let taken = activations(format, Activations::Int8) == Activations::Int8;
        let row = json!({"tensors": tensors, "bytes": bytes, "int8_activations": taken});
        (format.name().to_string(), row)
    };
    Value::Object(all.into_iter().map(row).collect())
}

fn spec_value(spec: &Spec) -> Value {
    json!({
        "architecture": spec.architecture,
        "layers": spec.layers,
        "hidden": spec.hidden,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "ffn": spec.ffn,
        "vocab": spec.vocab,
        "context": spec.context,
        "norm_eps": single(spec.norm_eps),
        "rope_theta": single(spec.rope.theta),
        "rope_dimensions": spec.rope.rotary,
        "rope_scaling": format!("{:?}", spec.rope.scaling),
        "tied_head": spec.tied_head,
        "kv_bytes_per_token": KvType::ALL.map(|kv| (kv.name(), spec.kv_bytes_per_token(kv)))
            .into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    })
}

/// The shortest number that is this one in single precision.
fn single(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
}

fn tokenizer(card: &ModelCard) -> Value {
    let token = |id: u32| json!({"id": id, "text": card.tokenizer.token_text(id)});
    json!({
        "vocab": card.tokenizer.vocab_size(),
        "bos": card.tokenizer.bos().map(token),
        "adds_bos": card.tokenizer.adds_bos(),
        "stop": card.stop_ids.iter().copied().map(token).collect::<Vec<_>>(),
    })
}

fn sampling(defaults: &SamplingDefaults) -> Value {
    json!({
        "temperature": defaults.temperature.map(single),
        "top_k": defaults.top_k,
        "top_p": defaults.top_p.map(single),
        "min_p": defaults.min_p.map(single),
        "repetition_penalty": defaults.repetition_penalty.map(single),
    })
}

/// GGUF's keys, arrays as their lengths; or config.json.
fn metadata(meta: &Meta) -> Value {
    let meta = match meta {
        Meta::Hf(meta) => return meta.config.clone(),
        Meta::Gguf(meta) => meta,
    };
    let value = |value: &GgufValue| match value {
        GgufValue::Unsigned(value) => json!(value),
        GgufValue::Signed(value) => json!(value),
        GgufValue::Float(value) => json!(value),
        GgufValue::Bool(value) => json!(value),
        GgufValue::Text(value) => json!(value),
        GgufValue::Array(array) => json!({"array": format!("{:?}", array.kind()),
                                          "length": array.len()}),
    };
    let entry = |key: &str| Some((key.to_string(), value(meta.get(key)?)));
    Value::Object(meta.keys().filter_map(entry).collect::<Map<_, _>>())
}

/// The same for a person: text, made of the JSON so that the two never differ.
fn page(json: &Value, weights: &Weights) -> String {
    let mut out = String::new();
    let mib = |bytes: &Value| bytes.as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{} ({}): {:.2} million parameters, {:.1} MiB",
        weights.name(),
        json["files"].as_str().unwrap_or_default(),
        json["parameters"].as_f64().unwrap_or(0.0) / 1e6,
        mib(&json["bytes"])
    );
    for warning in json["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  warning: {}", warning.as_str().unwrap_or_default());
    }
    for (name, row) in json["formats"].as_object().into_iter().flatten() {
        let int8 = row["int8_activations"].as_bool().is_some_and(|taken| taken);
        let _ = writeln!(
            out,
            "  {name:<5} {} tensors, {:.1} MiB{}",
            row["tensors"],
            mib(&row["bytes"]),
            if int8 { "; products can take int8 activations" } else { "" }
        );
    }
    for section in ["spec", "tokenizer", "sampling", "metadata"] {
        let _ = writeln!(out, "\n{section}");
        for (key, value) in json[section].as_object().into_iter().flatten() {
            let value = match value.as_str() {
                Some(reason) if key == "error" => reason.to_string(),
                _ => short(value),
            };
            let _ = writeln!(out, "  {key:<24} {value}");
        }
    }
    let template = &json["template"];
    let _ = match (template["source"].as_str(), template["error"].as_str()) {
        (Some(source), _) => {
            let from = template["from"].as_str().unwrap_or_default();
            writeln!(out, "\ntemplate (from {from})\n{}", indented(source))
        }
        (None, Some(error)) => writeln!(out, "\ntemplate\n  error: {error}"),
        (None, None) => writeln!(out, "\ntemplate\n  none: chat is not possible"),
    };
    let _ = writeln!(out, "\ntensors");
    let name_width = weights.tensors().keys().map(String::len).max().unwrap_or(0);
    for t in weights.tensors().values() {
        let shape: Vec<_> = t.shape.iter().map(u64::to_string).collect();
        let shape = shape.join(" x ");
        let _ = writeln!(out, "  {:<name_width$}  {:<5} {shape:>16}", t.name, t.format.name());
    }
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// A value on one line, not too long.
fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.replace('\n', "\\n"),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    };
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    text.chars().take(SHOWN_MAX).chain("...".chars()).collect()
}
