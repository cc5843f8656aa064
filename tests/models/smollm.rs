//! Rows over SmolLM2, a real model that `models/fetch` brings: its reference generations, and case
//! 08, the same weights from GGUF and from a Hugging Face folder.

use super::{REAL_MARGIN, json, pairs, sure, table};
use crate::support::{Decoder, On, Rows, real_model, shared};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODEL: &str = "smollm2-135m-instruct-q4_1.gguf";

/// `[{user, "Hi"}]` with the default system text and the prompt for an answer.
const HI: [u32; 31] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407,
    19712, 8182, 2, 198, 1, 4093, 198, 26843, 2, 198, 1, 520, 9531, 198,
];

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        let model = present.clone().and_then(|()| real_model(MODEL));
        let golden = model.and_then(|m| Ok((m, shared("models/smollm2-golden.json")?)));
        rows.add_if(golden, format!("models::smollm2.{device}"), move |(model, golden)| {
            smollm2(&model, &golden, on);
        });
    }
    let exporter = real_model(MODEL).and_then(|m| Ok((m, exporter()?)));
    rows.add_if(exporter, "models::smollm2_both_ways", |(model, export)| {
        both_ways(&model, &export);
    });
}

/// The script that writes a folder from a GGUF file, if python can run it.
fn exporter() -> Result<PathBuf, String> {
    let script = shared("models/to-hf")?;
    let imports = Command::new("python3").args(["-c", "import gguf, numpy, safetensors"]).output();
    match imports {
        Ok(output) if output.status.success() => Ok(script),
        _ => Err("python3 lacks gguf, numpy or safetensors".into()),
    }
}

/// The export holds the same values rounded to f16: greedy ids are equal, logits close at every
/// position. A row order that is wrong agrees at position 0 only.
fn both_ways(model: &Path, exporter: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Command::new("python3").arg(exporter).arg(model).arg(folder.path()).output();
    let run = run.expect("python3 was there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for (on, present) in On::all() {
        if present.is_err() {
            continue;
        }
        let of = |path: &Path| {
            let mut decoder = Decoder::open(path, on, 64);
            let logits = decoder.logits(&HI, HI.len(), &table(4));
            (logits, decoder.greedy(&HI, 12, 64, &table(4)))
        };
        let (gguf, gguf_ids) = of(model);
        let (hf, hf_ids) = of(folder.path());
        assert_eq!(gguf_ids, hf_ids, "{}", on.name());
        for (position, (a, b)) in gguf.iter().zip(&hf).enumerate() {
            let worst = a.iter().zip(b).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
            assert!(worst < 0.05, "{}, position {position}: {worst}", on.name());
        }
    }
}

fn smollm2(model: &Path, golden: &Path, on: On) {
    let reference = json(golden);
    let mut decoder = Decoder::open(model, on, 1280);
    for case in reference["cases"].as_array().expect("cases") {
        let ids: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).expect("ids");
        // In chunks, since a step of a thousand tokens takes a software device half a minute.
        let logits = decoder.prefill(&ids, 128, &table(80));
        for (id, want) in pairs(&case["first_logits_top10"]) {
            let got = f64::from(logits[id as usize]);
            assert!((got - want).abs() <= 2e-2, "logit of {id}: {got}, reference {want}");
        }
        let expected = sure(&pairs(&case["greedy_id_and_margin"]), REAL_MARGIN);
        let Some((first, rest)) = expected.split_first() else { continue };
        let best = (0..logits.len()).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
        assert_eq!(best as u32, *first, "{}", case["prompt"]);
        let known = [&ids[..], &[*first]].concat();
        let got = decoder.extend(known, ids.len(), rest.len(), 1, &table(80));
        assert_eq!(got, rest, "{}", case["prompt"]);
    }
}
