//! A [`Spec`] as GGUF metadata and as config.json.

use super::{ConvertError, cannot};
use crate::model::{Moe, Rotation, Scaling, Spec, yarn_attention};
use crate::weights::{KeyValue, Meta, Weights};
use serde_json::{Value, json};

/// The model's own keys; rotary divisors come as a tensor ([`divisors`]).
pub(super) fn to_gguf(
    weights: &Weights,
    spec: &Spec,
) -> Result<Vec<(String, KeyValue)>, ConvertError> {
    let family = spec.family;
    let Some(arch) = family.gguf else {
        return Err(cannot(weights.name(), format!("GGUF has no form of {} models", family.name)));
    };
    let mut out = vec![
        ("general.architecture".to_string(), KeyValue::Text(arch.into())),
        ("general.quantization_version".to_string(), KeyValue::U32(2)),
    ];
    let mut push = |tail: &str, value: KeyValue| out.push((format!("{arch}.{tail}"), value));
    for (tail, value) in [
        ("context_length", spec.context),
        ("embedding_length", spec.hidden),
        ("block_count", spec.layers),
        ("feed_forward_length", spec.ffn),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("attention.key_length", spec.head_dim),
        ("attention.value_length", spec.head_dim),
        ("rope.dimension_count", spec.rope.rotary),
        ("vocab_size", spec.vocab),
    ] {
        push(tail, KeyValue::U32(value));
    }
    push("attention.layer_norm_rms_epsilon", KeyValue::F32(spec.norm_eps));
    push("rope.freq_base", KeyValue::F32(spec.rope.theta));
    if let Some(window) = spec.windows.iter().flatten().next() {
        push("attention.sliding_window", KeyValue::U32(*window));
    }
    if family.multipliers {
        push("embedding_scale", KeyValue::F32(spec.embedding_scale / root(spec)));
        push("residual_scale", KeyValue::F32(spec.residual_scale));
        push("logit_scale", KeyValue::F32(1.0 / spec.logit_scale));
        push("attention.scale", KeyValue::F32(spec.attention_scale));
    }
    for (tail, cap) in caps(spec) {
        cap.into_iter().for_each(|cap| push(tail, KeyValue::F32(cap)));
    }
    for (tail, value) in spec.moe.iter().flat_map(experts) {
        push(tail, value);
    }
    let text = |text: &str| KeyValue::Text(text.into());
    match &spec.rope.scaling {
        Scaling::None | Scaling::Divisors(_) | Scaling::Llama3 { .. } => {}
        Scaling::Linear { factor } => {
            push("rope.scaling.type", text("linear"));
            push("rope.scaling.factor", KeyValue::F32(*factor));
        }
        Scaling::Yarn { factor, original, fast, slow, attention } => {
            push("rope.scaling.type", text("yarn"));
            for (tail, value) in [
                ("factor", *factor),
                ("yarn_beta_fast", *fast),
                ("yarn_beta_slow", *slow),
                ("attn_factor", attention / yarn_attention(*factor, 1.0)),
            ] {
                push(&format!("rope.scaling.{tail}"), KeyValue::F32(value));
            }
            push("rope.scaling.original_context_length", KeyValue::U32(*original as u32));
        }
    }
    Ok(out)
}

fn experts(moe: &Moe) -> Vec<(&'static str, KeyValue)> {
    let dense = moe.layers.iter().take_while(|sparse| !**sparse).count();
    let mut out = vec![
        ("expert_count", KeyValue::U32(moe.experts)),
        ("expert_used_count", KeyValue::U32(moe.used)),
        ("expert_feed_forward_length", KeyValue::U32(moe.ffn)),
        ("leading_dense_block_count", KeyValue::U32(dense as u32)),
        ("expert_gating_func", KeyValue::U32(moe.gating())),
        ("expert_weights_norm", KeyValue::Bool(moe.normalise)),
        ("expert_weights_scale", KeyValue::F32(moe.scale)),
    ];
    if moe.shared_ffn > 0 {
        out.push(("expert_shared_count", KeyValue::U32(moe.shared_ffn / moe.ffn)));
    }
    out
}

/// Both kinds of file call them alike.
fn caps(spec: &Spec) -> [(&'static str, Option<f32>); 2] {
    let (attention, logits) = (spec.attention_cap, spec.logit_cap);
    [("attn_logit_softcapping", attention), ("final_logit_softcapping", logits)]
}

/// What the rotary frequencies are divided by, where GGUF says so in a tensor.
pub(super) fn divisors(spec: &Spec) -> Option<Vec<f32>> {
    match &spec.rope.scaling {
        Scaling::Divisors(divisors) => Some(divisors.clone()),
        Scaling::Llama3 { .. } => {
            let plain = crate::model::Rope { scaling: Scaling::None, ..spec.rope.clone() };
            let pairs =
                plain.inverse_frequencies().into_iter().zip(spec.rope.inverse_frequencies());
            Some(pairs.map(|(plain, scaled)| plain / scaled).collect())
        }
        _ => None,
    }
}

fn root(spec: &Spec) -> f32 {
    if spec.family.root_scale { (spec.hidden as f32).sqrt() } else { 1.0 }
}

/// The config.json of a checkpoint of this family.
pub(super) fn to_config(weights: &Weights, spec: &Spec) -> Result<Vec<u8>, ConvertError> {
    let window = spec.windows.iter().flatten().next();
    // Both read GGUF's `llama`; only one has windows.
    let kind = match (spec.family.hf, window) {
        ("llama", Some(_)) => "mistral",
        (kind, _) => kind,
    };
    let has = |name: &str| weights.tensor(name).is_some();
    let mut config = json!({
        "architectures": [architecture(kind)],
        "model_type": kind,
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.ffn,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.context,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tied_head,
        "attention_bias": has("blk.0.attn_output.bias"),
        "mlp_bias": has("blk.0.ffn_down.bias"),
        "rope_parameters": rope(weights, spec)?,
        "dtype": "float16",
    });
    if let Some(local) = &spec.local_rope {
        config["rope_local_base_freq"] = json!(local.theta);
    }
    if let Some(window) = window {
        let kind =
            |w: &Option<u32>| if w.is_some() { "sliding_attention" } else { "full_attention" };
        config["sliding_window"] = json!(window);
        config["use_sliding_window"] = json!(true);
        config["layer_types"] = spec.windows.iter().map(kind).collect();
    }
    if spec.family.no_rope_every.is_some() {
        let rotates = |r: &Rotation| u32::from(*r != Rotation::None);
        config["no_rope_layers"] = spec.rotations.iter().map(rotates).collect();
    }
    if spec.family.multipliers {
        config["embedding_multiplier"] = json!(spec.embedding_scale / root(spec));
        config["residual_multiplier"] = json!(spec.residual_scale);
        config["attention_multiplier"] = json!(spec.attention_scale);
        config["logits_scaling"] = json!(1.0 / spec.logit_scale);
    } else if spec.family.norm_minus_one {
        config["query_pre_attn_scalar"] = json!(spec.attention_scale.powi(-2));
        config["hidden_activation"] = json!("gelu_pytorch_tanh");
    }
    for (key, cap) in caps(spec) {
        config[key] = json!(cap);
    }
    if let Some(moe) = &spec.moe {
        let experts = if kind == "mixtral" { "num_local_experts" } else { "num_experts" };
        config[experts] = json!(moe.experts);
        config["num_experts_per_tok"] = json!(moe.used);
        config["moe_intermediate_size"] = json!(moe.ffn);
        config["norm_topk_prob"] = json!(moe.normalise);
        config["routed_scaling_factor"] = json!(moe.scale);
        let dense = (0u32..).zip(&moe.layers).filter(|(_, sparse)| !**sparse).map(|(l, _)| l);
        config["mlp_only_layers"] = dense.collect();
    }
    if let Meta::Gguf(meta) = weights.meta() {
        for (key, from) in [("bos", "bos"), ("eos", "eos"), ("pad", "padding")] {
            let id = meta.find_u64(&format!("tokenizer.ggml.{from}_token_id"))?;
            config[format!("{key}_token_id")] = json!(id);
        }
    }
    Ok(format!("{config:#}\n").into_bytes())
}

fn architecture(kind: &str) -> String {
    let name = match kind {
        "gemma3_text" => "Gemma3",
        "smollm3" => "SmolLM3",
        "qwen3_moe" => "Qwen3Moe",
        other => &(other[..1].to_uppercase() + &other[1..]),
    };
    format!("{name}ForCausalLM")
}

fn rope(weights: &Weights, spec: &Spec) -> Result<Value, ConvertError> {
    let mut out = json!({"rope_theta": spec.rope.theta, "rope_type": "default"});
    if spec.rope.rotary != spec.head_dim {
        out["partial_rotary_factor"] = json!(spec.rope.rotary as f32 / spec.head_dim as f32);
    }
    let more = match &spec.rope.scaling {
        Scaling::None => json!({}),
        Scaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        Scaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original,
        }),
        Scaling::Yarn { factor, original, fast, slow, attention } => json!({
            "rope_type": "yarn", "factor": factor, "beta_fast": fast, "beta_slow": slow,
            "original_max_position_embeddings": original, "attention_factor": attention,
        }),
        Scaling::Divisors(_) => {
            let problem = "config.json cannot say the divisors in `rope_freqs.weight`";
            return Err(cannot(weights.name(), problem));
        }
    };
    for (key, value) in more.as_object().into_iter().flatten() {
        out[key] = value.clone();
    }
    Ok(out)
}
