//! Rows of `quality`: what the storage types of the KV cache do to answers, within bounds.

use crate::support::{On, Rows, real_model, root};
use std::path::Path;
use tilewright::base::{Activations, Format, KvType};
use tilewright::bench::{Quality, Scores};
use tilewright::engine::{LoadOptions, fable, read_card};
use tilewright::model::Spec;
use tilewright::weights::Weights;

const SMOLLM2: &str = "smollm2-135m-instruct-q4_1.gguf";

/// The same of products that take bytes, on Q8_0 weights: a byte's step is 1/127 of the largest of
/// 32 values, for every value that a product reads, where that of the cache is for keys and values.
const INT8_BOUNDS: (f64, f64, f64) = (0.9, 0.08, 0.03);

/// (type, least agreement, largest mean difference of log-probabilities, of perplexity).
const BOUNDS: [(KvType, f64, f64, f64); 2] =
    [(KvType::F16, 0.98, 0.005, 0.002), (KvType::Q8, 0.93, 0.05, 0.02)];

pub fn rows(rows: &mut Rows) {
    rows.add("quality::of_known_scores", known_scores);
    for (on, present) in On::all() {
        rows.add_if(present.clone(), format!("quality::fable.{}", on.name()), move |()| {
            kv_types(&fable().expect("fable"), on, 160);
        });
        rows.add_if(present.clone(), format!("quality::fable_int8.{}", on.name()), move |()| {
            int8(on, 160);
        });
        let model = present.and_then(|()| real_model(SMOLLM2));
        // The processor's twins are slow in a debug build.
        if on == On::Gpu {
            rows.add_if(model, "quality::smollm2.gpu", move |p| smollm2(&p, on));
        }
    }
}

/// The first `count` tokens of the text that comes with the program.
fn text(weights: &Weights, count: usize) -> Vec<u32> {
    let path = root().join("assets/quality/text.txt");
    let text = std::fs::read_to_string(path).expect("the text");
    let vocab = Spec::read(weights).unwrap_or_else(|e| panic!("{e}")).vocab;
    let card = read_card(weights, vocab, &LoadOptions::default(), &mut Vec::new());
    let ids = card.unwrap_or_else(|e| panic!("{e}")).tokenizer.encode_prompt(&text).unwrap();
    ids[..count].to_vec()
}

type Types = (KvType, Activations);

fn scores(weights: &Weights, on: On, types: Types, ids: &[u32]) -> Scores {
    let scores = Scores::of(weights, on.device().as_mut(), types, ids, &mut |_, _| {});
    scores.unwrap_or_else(|e| panic!("{e}"))
}

fn smollm2(path: &Path, on: On) {
    let weights = Weights::open(path).unwrap_or_else(|e| panic!("{e}"));
    kv_types(&weights, on, 96);
}

fn kv_types(weights: &Weights, on: On, count: usize) {
    let ids = text(weights, count);
    let f32 = Activations::F32;
    let reference = scores(weights, on, (KvType::F32, f32), &ids);
    assert_eq!(reference.best.len(), count - 1);
    let mut last = 0.0;
    for (kv, agreement, difference, perplexity) in BOUNDS {
        let quality = reference.compare(&scores(weights, on, (kv, f32), &ids));
        assert!(quality.greedy_agreement >= agreement, "{kv}: {quality:?}");
        assert!(quality.mean_logprob_difference <= difference, "{kv}: {quality:?}");
        let off = quality.candidate_perplexity / quality.reference_perplexity - 1.0;
        assert!(off.abs() <= perplexity, "{kv}: {quality:?}");
        // Coarser storage shows, so it was in use.
        assert!(quality.mean_logprob_difference > last, "{kv}: {quality:?} after {last}");
        last = quality.mean_logprob_difference;
    }
}

fn int8(on: On, count: usize) {
    let mut weights = fable().expect("fable");
    weights.quantise(Format::Q8_0);
    let ids = text(&weights, count);
    let [reference, bytes] =
        Activations::ALL.map(|taken| scores(&weights, on, (KvType::F32, taken), &ids));
    let quality = reference.compare(&bytes);
    let (agreement, difference, perplexity) = INT8_BOUNDS;
    assert!(quality.greedy_agreement >= agreement, "{quality:?}");
    assert!(quality.mean_logprob_difference <= difference, "{quality:?}");
    let off = quality.candidate_perplexity / quality.reference_perplexity - 1.0;
    assert!(off.abs() <= perplexity, "{quality:?}");
    assert!(quality.mean_logprob_difference > 0.0, "no product took bytes");
}

fn known_scores() {
    let of = |best: [u32; 4], p: [f64; 4]| Scores {
        best: best.to_vec(),
        logprob: p.iter().map(|p| p.ln()).collect(),
    };
    let reference = of([1, 2, 3, 4], [0.5; 4]);
    let same = reference.compare(&reference);
    assert_eq!((same.greedy_agreement, same.mean_logprob_difference), (1.0, 0.0));
    let worse = reference.compare(&of([1, 2, 9, 4], [0.5, 0.25, 0.125, 0.5]));
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    let Quality { tokens, reference_perplexity, candidate_perplexity, .. } = worse;
    assert_eq!(tokens, 4);
    near(reference_perplexity, 2.0);
    near(candidate_perplexity, 2f64.powf(1.75));
    near(worse.greedy_agreement, 0.75);
    near(worse.mean_logprob_difference, 0.75 * 2f64.ln());
}
