//! Rows of `model`: checkpoints against the logits of a reference implementation, on every device.

mod convert;
pub mod craft;
mod families;
mod gemma;
mod latent;
mod limits;
mod loading;
mod rope;
mod side;
mod smollm;
mod window;

use crate::support::{Decoder, On, Rows, root, shared};
use std::path::{Path, PathBuf};
use tilewright::base::Activations;
use tilewright::model::{Options, self_check};
use tilewright::weights::{Weights, blocks};

/// Largest difference of a logit from the reference (made from the same stored values).
pub const LOGITS_TOLERANCE: f32 = 1e-3;

/// The same where products take bytes. Each value that a product reads is off by up to half a
/// step, 1/254 of the largest of its 32, where f32 rounding is 1/2^24 of a sum: the logits of these
/// models (of size 1) then move by up to a tenth.
const INT8_LOGITS_TOLERANCE: f32 = 0.15;

/// Fixtures all of whose layers' products can take bytes, or some.
const INT8_FORMATS: [&str; 7] = ["q8_0", "q4_0", "q4_1", "q2_k", "q3_k_m", "q4_k_m", "iq4_nl"];

/// Greedy ids are compared up to the first position whose margin is below this.
const FIXTURE_MARGIN: f64 = 0.01;
const REAL_MARGIN: f64 = 0.02;

/// Stems of the quantised fixtures.
pub const FORMATS: [&str; 14] = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k_m", "q4_k_m",
    "q5_k_m", "q6_k", "iq4_nl",
];

pub fn rows(rows: &mut Rows) {
    families::rows(rows);
    convert::rows(rows);
    gemma::rows(rows);
    latent::rows(rows);
    limits::rows(rows);
    loading::rows(rows);
    rope::rows(rows);
    side::rows(rows);
    smollm::rows(rows);
    window::rows(rows);
    for (on, present) in On::all() {
        let device = on.name();
        for format in FORMATS {
            let path =
                present.clone().and_then(|()| shared(&format!("fixtures/gguf/tiny-{format}.gguf")));
            rows.add_if(path, format!("models::gguf_{format}.{device}"), move |p| {
                check_logits(&p, &p.with_extension("golden.safetensors"), on);
            });
        }
        for format in INT8_FORMATS {
            let path =
                present.clone().and_then(|()| shared(&format!("fixtures/gguf/tiny-{format}.gguf")));
            rows.add_if(path, format!("models::int8_{format}.{device}"), move |p| {
                check_int8(&p, &p.with_extension("golden.safetensors"), on);
            });
        }
        rows.add_if(present.clone(), format!("models::fable.{device}"), move |()| fable(on));
        // Made by tests/make_fixtures.py.
        for (row, model, golden) in [
            (
                "gguf_mixed_in_parts",
                "gguf/tiny-mixed-00001-of-00003.gguf",
                "gguf/tiny-mixed.golden.safetensors",
            ),
            ("fp8", "llama-fp8", "llama-fp8/golden.safetensors"),
        ] {
            rows.add_if(present.clone(), format!("models::{row}.{device}"), move |()| {
                let data = root().join("tests/data");
                check_logits(&data.join(model), &data.join(golden), on);
            });
        }
        // IQ4_XS among them.
        rows.add_if(present.clone(), format!("models::int8_mixed.{device}"), move |()| {
            let data = root().join("tests/data/gguf");
            let (model, golden) =
                ("tiny-mixed-00001-of-00003.gguf", "tiny-mixed.golden.safetensors");
            check_int8(&data.join(model), &data.join(golden), on);
        });
    }
}

fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `[id, margin]` pairs.
fn pairs(value: &serde_json::Value) -> Vec<(u32, f64)> {
    let pair = |v: &serde_json::Value| Some((v[0].as_u64()? as u32, v[1].as_f64()?));
    value.as_array().expect("a list").iter().map(|v| pair(v).expect("a pair")).collect()
}

/// Ids as far as the reference is sure of them.
fn sure(reference: &[(u32, f64)], margin: f64) -> Vec<u32> {
    reference.iter().take_while(|r| r.1 >= margin).map(|r| r.0).collect()
}

/// Blocks in no particular order, so that a row is not contiguous by luck.
fn table(blocks: u32) -> Vec<u32> {
    (0..blocks).map(|i| (i * 7 + 3) % blocks).collect()
}

/// Ids of Fable's vocabulary, the same in every run.
pub fn prompt(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 337 + 85) % 1500 + 3).collect()
}

pub fn golden(path: &Path) -> (Vec<u32>, Vec<Vec<f32>>) {
    let golden = Weights::open(path).unwrap_or_else(|e| panic!("{e}"));
    let (_, ids) = golden.read_ints("input_ids").expect("input_ids");
    let logits = golden.tensor("logits").expect("logits");
    let vocab = *logits.shape.last().expect("two axes") as usize;
    let raw = golden.read_rows(logits, 0, logits.rows()).expect("rows");
    let mut values = vec![0.0; raw.len() / 4];
    blocks::decode(logits.format, &raw, &mut values);
    let ids = ids.iter().map(|&id| u32::try_from(id).expect("an id")).collect();
    (ids, values.chunks_exact(vocab).map(<[f32]>::to_vec).collect())
}

fn check_logits(model: &Path, reference: &Path, on: On) {
    let worst = worst(&mut Decoder::open(model, on, 128), reference);
    assert!(worst <= LOGITS_TOLERANCE, "largest difference {worst}");
}

/// The largest difference of a logit from the reference, the same whole and in pieces.
fn worst(decoder: &mut Decoder, reference: &Path) -> f32 {
    let (ids, expected) = golden(reference);
    let whole = decoder.logits(&ids, ids.len(), &table(8));
    assert_eq!(whole.len(), expected.len());
    let mut worst = 0f32;
    for (got, want) in whole.iter().flatten().zip(expected.iter().flatten()) {
        worst = worst.max(if got.is_finite() { (got - want).abs() } else { f32::INFINITY });
    }
    let chunked = decoder.logits(&ids, 7, &table(8));
    assert!(whole == chunked, "chunks of 7 changed bits");
    worst
}

/// Logits of products that take bytes; the start-up check holds for them, too.
fn check_int8(model: &Path, reference: &Path, on: On) {
    let weights = Weights::open(model).unwrap_or_else(|e| panic!("{e}"));
    let options = Options { activations: Activations::Int8, ..Decoder::options(128) };
    let decoder = Decoder::sized(&weights, on.device(), options);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let products = decoder.model.activations();
    assert!(products.values().any(|taken| *taken == Activations::Int8), "{products:?}");
    let check = self_check(&decoder.model, decoder.device.as_mut());
    pollster::block_on(check).unwrap_or_else(|e| panic!("{e}"));
    let worst = worst(&mut decoder, reference);
    // As near as f32 is, no product took bytes.
    let bounds = LOGITS_TOLERANCE..=INT8_LOGITS_TOLERANCE;
    assert!(bounds.contains(&worst), "largest difference {worst}, {products:?}");
}

fn check_greedy(folder: &Path, on: On) {
    let reference = json(&folder.join("golden.json"));
    let prompt_len = reference["greedy_prompt_tokens"].as_u64().expect("a number") as usize;
    let (ids, _) = golden(&folder.join("golden.safetensors"));
    let expected = sure(&pairs(&reference["greedy"]), FIXTURE_MARGIN);
    let mut decoder = Decoder::open(folder, on, 128);
    let got = decoder.greedy(&ids[..prompt_len], expected.len(), 16, &table(8));
    assert_eq!(got, expected);
}

fn fable_path() -> PathBuf {
    root().join("assets/fable")
}

fn fable(on: On) {
    let expected = json(&fable_path().join("expected.json"));
    let tokenizer = std::fs::read(fable_path().join("tokenizer.json")).expect("tokenizer.json");
    let tokenizer = tokenizers::Tokenizer::from_bytes(tokenizer).expect("a tokenizer");
    let mut decoder = Decoder::open(&fable_path(), on, 1024);
    for (n, case) in expected["cases"].as_array().expect("cases").iter().enumerate() {
        let user = case["user"].as_str().expect("user");
        let text = format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n");
        let ids = tokenizer.encode(text, false).expect("encodes").get_ids().to_vec();
        assert_eq!(ids.len() as u64, case["prompt_tokens"].as_u64().expect("a count"));
        let expected = sure(&pairs(&case["ids_and_margins"]), REAL_MARGIN);
        let chunk = [16, 64, 1024][n % 3];
        let got = decoder.greedy(&ids, expected.len(), chunk, &table(64));
        assert_eq!(got, expected, "chunk {chunk}: {user}");
    }
}
