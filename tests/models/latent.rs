//! Latents: what is kept of a token, widths that are all unlike, and those that are refused.

use super::craft::{Checkpoint, Stored};
use super::{LOGITS_TOLERANCE, golden, table};
use crate::support::{Decoder, On, Rows, shared};
use serde_json::json;
use std::path::Path;
use tilewright::base::{Format, KvType};
use tilewright::model::{Model, Spec};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    let latent = shared("fixtures/deepseek-mla");
    rows.add_if(latent.clone(), "models::latents_are_stored_as_such", |path| kept(&path));
    rows.add_if(latent, "models::latents_refused", |path| refused(&path));
    for (on, present) in On::all() {
        let latent = present.and_then(|()| shared("fixtures/deepseek-moe"));
        let row = format!("models::latents_of_unlike_widths.{}", on.name());
        rows.add_if(latent, row, move |path| unlike(&path, on));
    }
}

/// What is kept of a token is one row of 32 values and a rotated key of 16 for all four heads, not
/// keys of 32 and values of 16 for each.
fn kept(folder: &Path) {
    let weights = Weights::open(folder).unwrap_or_else(|e| panic!("{e}"));
    let spec = Spec::read(&weights).unwrap_or_else(|e| panic!("{e}"));
    let row = |kv| spec.kv_bytes_per_token(kv) / u64::from(spec.layers);
    assert_eq!((row(KvType::F32), row(KvType::F16)), ((32 + 16) * 4, (32 + 16) * 2));
    let decoder = Decoder::of(&weights, On::Cpu, 64);
    let budget = Model::budget(&spec, &weights, &decoder.model.options, decoder.device.facts());
    let tokens = u64::from((decoder.model.options.blocks + 1) * decoder.model.options.block_size);
    assert_eq!(budget.unwrap_or_else(|e| panic!("{e}")).kv, 3 * 48 * 4 * tokens);
    // The widest row is that of 160 gates beside what they are for, or may be that of values.
    let mut valued = Checkpoint::of(&weights);
    valued.config["v_head_dim"] = json!(4096);
    let wide = Spec::read(&valued.folder()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((spec.widest_row(), wide.widest_row()), (2 * 192, 4 * 4096));
    // A stretched context, as DeepSeek's own files say it: scores grow, cos and sin do not.
    let mut stretched = Checkpoint::of(&weights);
    stretched.config["rope_parameters"] = json!({
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 40.0, "mscale": 0.707,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 64,
    });
    let long = Spec::read(&stretched.folder()).unwrap_or_else(|e| panic!("{e}"));
    let grown = long.attention_scale / spec.attention_scale;
    assert!((grown - (0.0707 * 40f32.ln() + 1.0).powi(2)).abs() < 1e-6, "{grown}");
    assert_eq!(long.rope.table(1)[0], 1.0);
}

/// Each `every` of `values`, followed by as many more as `more` says in turn.
fn padded(values: &[f32], every: usize, more: &[usize], fill: fn(usize) -> f32) -> Vec<f32> {
    let parts = values.chunks_exact(every).zip(more.iter().cycle());
    parts.flat_map(|(part, more)| part.iter().copied().chain((0..*more).map(fill))).collect()
}

fn f32s(shape: &[u64], values: &[f32]) -> Stored {
    assert_eq!(shape.iter().product::<u64>(), values.len() as u64);
    let bytes = bytemuck::cast_slice(values).to_vec();
    Stored { format: Format::F32, shape: shape.to_vec(), bytes }
}

/// The fixture, whose widths are alike, as the same model with widths that are not: latents of 64,
/// heads of 48 + 16, values of 24. What is added is multiplied by zeros.
fn widened(weights: &Weights) -> Checkpoint {
    let mut out = Checkpoint::of(weights);
    for (key, value) in [("kv_lora_rank", 64), ("qk_nope_head_dim", 48), ("v_head_dim", 24)] {
        out.config[key] = json!(value);
    }
    let (zero, noise) = (|_| 0.0, |n: usize| ((n * 7919) % 2003) as f32 / 5000.0 - 0.2);
    let times = |values: Vec<f32>, factor: f32| values.iter().map(|v| v * factor).collect();
    for (name, stored) in &mut out.tensors {
        let (from, part) = (stored.values(), name.rsplit('.').nth(1).unwrap_or_default());
        let (shape, values): (&[u64], Vec<f32>) = match part {
            // Scores are divided by the root of twice as many dimensions.
            "q_b_proj" => {
                let wide = padded(&from, 16 * 24, &[32 * 24, 0], zero);
                (&[4 * 64, 24], times(wide, 2f32.sqrt()))
            }
            "kv_a_proj_with_mqa" => {
                (&[64 + 16, 64], padded(&from, 16 * 64, &[0, 32 * 64, 0], zero))
            }
            // The mean square of twice as many values is half.
            "kv_a_layernorm" => (&[64], times(padded(&from, 32, &[32], noise), 0.5f32.sqrt())),
            "kv_b_proj" => {
                let wide = padded(&from, 32, &[32], noise);
                let all = padded(&wide, 16 * 64, &[32 * 64, 8 * 64], noise);
                (&[4 * (48 + 24), 64], all)
            }
            "o_proj" => (&[64, 4 * 24], padded(&from, 16, &[8], zero)),
            _ => continue,
        };
        *stored = f32s(shape, &values);
    }
    out
}

/// What makes keys and values, apart as newer GGUF files have it, keys turned; each rounded to
/// its format first, in the whole tensor too.
fn apart(whole: &mut Checkpoint, formats: [Format; 2]) -> Checkpoint {
    let mut split = whole.clone();
    for (name, stored) in &mut whole.tensors {
        let Some(stem) = name.strip_suffix("kv_b_proj.weight") else { continue };
        split.tensors.remove(name);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let mut rounded = Vec::new();
        for head in stored.values().chunks_exact((48 + 24) * 64) {
            let (key, value) = head.split_at(48 * 64);
            let key = f32s(&[48, 64], key).to(formats[0]).values();
            let value = f32s(&[24, 64], value).to(formats[1]).values();
            keys.extend((0..64 * 48).map(|i| key[i % 48 * 64 + i / 48]));
            values.extend_from_slice(&value);
            rounded.extend([key, value].concat());
        }
        *stored = f32s(&stored.shape, &rounded);
        let keys = f32s(&[4, 64, 48], &keys).to(formats[0]);
        split.tensors.insert(format!("{stem}k_b_proj.weight"), keys);
        let values = f32s(&[4, 24, 64], &values).to(formats[1]);
        split.tensors.insert(format!("{stem}v_b_proj.weight"), values);
    }
    split
}

/// The reference's logits although no two widths are alike; keys and values apart, each in its
/// own format, give the bits of the whole.
fn unlike(folder: &Path, on: On) {
    let fixture = Weights::open(folder).unwrap_or_else(|e| panic!("{e}"));
    let (ids, expected) = golden(&folder.join("golden.safetensors"));
    let logits = |weights: &Checkpoint| {
        let mut decoder = Decoder::of(&weights.folder(), on, 128);
        decoder.logits(&ids, ids.len(), &table(8)).concat()
    };
    let mut wide = widened(&fixture);
    let (got, wanted) = (logits(&wide), expected.concat());
    let far = got.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(got.len() == wanted.len() && far <= LOGITS_TOLERANCE, "{far}");
    for formats in [[Format::F16, Format::F32], [Format::BF16, Format::F16]] {
        let split = logits(&apart(&mut wide, formats));
        assert!(split == logits(&wide), "{formats:?}");
    }
}

/// Widths that kernels cannot do with are named; their products stay in 32 bits.
fn refused(folder: &Path) {
    let fixture = Checkpoint::of(&Weights::open(folder).unwrap_or_else(|e| panic!("{e}")));
    for (changes, says) in [
        (&[("kv_lora_rank", json!(8))][..], "`kv_lora_rank`: latents of 8"),
        (&[("qk_nope_head_dim", json!(24))], "`kv_lora_rank`: latents of 32, q of 24 + 16"),
        (&[("num_attention_heads", json!(1 << 19)), ("v_head_dim", json!(65_504))], "`head_count`"),
        (
            &[("num_attention_heads", json!(1 << 19)), ("qk_nope_head_dim", json!(65_520))],
            "`head_count`",
        ),
        (&[("v_head_dim", json!(20))], "`v_head_dim`: 4 heads of 20"),
        (&[("q_lora_rank", json!(26))], "`q_lora_rank`: 26 is no multiple of 4"),
        (&[("partial_rotary_factor", json!(0.5))], "`partial_rotary_factor`: rotates 8 of the 16"),
    ] {
        let mut checkpoint = fixture.clone();
        for (key, value) in changes {
            checkpoint.config[*key] = value.clone();
        }
        let error = Spec::read(&checkpoint.folder()).expect_err(says).to_string();
        assert!(error.contains(says), "`{error}` does not say {says}");
    }
}
