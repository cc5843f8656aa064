//! `convert`: a checkpoint as the other kind of file says the same model, and back again.

use super::craft::{Checkpoint, Stored, U32, append};
use super::{LOGITS_TOLERANCE, check_logits, fable_path, golden, table};
use crate::support::{Decoder, On, Rows, python, shared};
use crate::weights::build::Gguf;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tilewright::base::Format;
use tilewright::engine::{LoadOptions, convert, read_card};
use tilewright::text::Tokenizer;
use tilewright::weights::{Meta, Tensor, Weights, blocks};

/// Fixtures of families that GGUF has a form of.
pub const FAMILIES: [&str; 15] = [
    "llama",
    "llama3-rope",
    "llama-yarn",
    "mistral-window",
    "qwen2",
    "qwen3",
    "phi3",
    "olmo2",
    "granite",
    "gemma2",
    "gemma3",
    "mixtral",
    "qwen3-moe",
    "smollm3",
    "llama-mqa-bias",
];

pub fn rows(rows: &mut Rows) {
    for family in FAMILIES {
        let path = shared(&format!("fixtures/{family}"));
        rows.add_if(path.clone(), format!("models::convert_{family}"), |path| {
            there_and_back(&path)
        });
        rows.add_if(path, format!("models::blocks_{family}"), |path| blocks_of(&path));
    }
    // Not converted, but quantised on load like all.
    let latent = shared("fixtures/deepseek-moe");
    rows.add_if(latent, "models::blocks_deepseek-moe", |path| blocks_of(&path));
    rows.add("models::convert_fable_with_its_tokenizer", fable_with_its_tokenizer);
    rows.add("models::convert_refuses", refuses);
    rows.add("models::convert_refuses_shapes", refuses_shapes);
    rows.add_if(python("gguf"), "models::convert_opens_in_the_gguf_package", |()| {
        opens_in_python()
    });
}

fn open(path: &Path) -> Weights {
    Weights::open(path).unwrap_or_else(|e| panic!("{e}"))
}

fn run(from: &Path, to: &Path) {
    convert(&open(from), to).unwrap_or_else(|e| panic!("{e}"));
}

fn same_tensors(a: &Weights, b: &Weights) {
    let names = |w: &Weights| w.tensors().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    for (name, tensor) in a.tensors() {
        let other = b.tensor(name).expect(name);
        let values = |w: &Weights, t: &Tensor| {
            let raw = w.read_rows(t, 0, t.rows()).expect("rows");
            let mut values = vec![0.0; t.shape.iter().product::<u64>() as usize];
            blocks::decode(t.format, &raw, &mut values);
            values
        };
        assert_eq!(tensor.shape, other.shape, "{name}");
        // Norms and biases pass through f32; no value changes.
        assert!(tensor.shape.len() == 1 || tensor.format == other.format, "{name}");
        assert!(values(a, tensor) == values(b, other), "{name}");
    }
}

/// The reference's logits from the GGUF file and from the folder made of that; the folder's
/// values are the first folder's, bit for bit where no norm was shifted by one.
fn there_and_back(folder: &Path) {
    let place = tempfile::tempdir().expect("a folder");
    let (file, back) = (place.path().join("model.gguf"), place.path().join("back"));
    run(folder, &file);
    let reference = folder.join("golden.safetensors");
    check_logits(&file, &reference, On::Cpu);
    let divisors = open(&file).tensor("rope_freqs.weight").is_some();
    if divisors {
        let error = convert(&open(&file), &back).expect_err("divisors have no place").to_string();
        assert!(error.contains("rope_freqs.weight"), "{error}");
        return;
    }
    run(&file, &back);
    check_logits(&back, &reference, On::Cpu);
    if !folder.ends_with("gemma2") && !folder.ends_with("gemma3") {
        same_tensors(&open(folder), &open(&back));
    }
    assert!(golden(&reference).0.len() > 8);
}

/// A GGUF file of blocks, written from a folder that was quantised on load, against the values of
/// those blocks as floats; of a family that is not converted, the folder itself.
fn blocks_of(folder: &Path) {
    let place = tempfile::tempdir().expect("a folder");
    let (ids, _) = golden(&folder.join("golden.safetensors"));
    let logits = |weights: &Weights| {
        let mut decoder = Decoder::of(weights, On::Cpu, 64);
        decoder.logits(&ids[..24], 24, &table(4)).concat()
    };
    let floats = logits(&open(folder));
    for format in [Format::Q8_0, Format::Q4_0] {
        let quantised = || {
            let mut weights = open(folder);
            weights.quantise(format);
            weights
        };
        let weights = quantised();
        let file = place.path().join(format!("{format}.gguf"));
        let latent = folder.ends_with("deepseek-moe");
        let file = match convert(&weights, &file) {
            Ok(()) => open(&file),
            Err(refusal) => {
                assert!(latent && refusal.to_string().contains("are not converted"), "{refusal}");
                quantised()
            }
        };
        let blocks = file.tensors().values().filter(|t| t.format == format).count();
        assert!(blocks >= 10, "{blocks} tensors in {format}");
        let wanted = logits(&Checkpoint::of(&weights).in_formats(|_| Format::F32).folder());
        let far = |other: &[f32]| {
            let pairs = wanted.iter().zip(other);
            pairs.map(|(a, b)| (a - b).abs()).fold(0f32, |far, d| far.max(d))
        };
        let got = logits(&file);
        assert!(got.len() == wanted.len() && far(&got) <= LOGITS_TOLERANCE, "{}", far(&got));
        assert!(far(&floats) > LOGITS_TOLERANCE, "the comparison sees what rounding changes");
    }
}

fn tokenizer(weights: &Weights) -> (Arc<Tokenizer>, bool, Vec<u32>) {
    let vocab = 1551;
    let card = read_card(weights, vocab, &LoadOptions::default(), &mut Vec::new());
    let card = card.unwrap_or_else(|e| panic!("{e}"));
    (card.tokenizer, card.template.is_some(), card.stop_ids)
}

fn fable_with_its_tokenizer() {
    let place = tempfile::tempdir().expect("a folder");
    let (file, back) = (place.path().join("fable.gguf"), place.path().join("back"));
    run(&fable_path(), &file);
    run(&file, &back);
    let (source, there, again) = (open(&fable_path()), open(&file), open(&back));
    same_tensors(&source, &again);
    let Meta::Gguf(meta) = there.meta() else { panic!("a GGUF file") };
    assert_eq!(meta.architecture().ok(), Some("llama"));
    let (one, template, stops) = tokenizer(&source);
    assert!(template);
    for weights in [&there, &again] {
        let (other, template, same_stops) = tokenizer(weights);
        assert!(template, "{}", weights.name());
        assert_eq!(same_stops, stops, "{}", weights.name());
        assert_eq!((one.bos(), one.adds_bos()), (other.bos(), other.adds_bos()));
        for text in crate::text::HARD {
            assert_eq!(
                one.encode(text).unwrap(),
                other.encode(text).unwrap(),
                "{}: {text:?}",
                weights.name()
            );
            assert_eq!(one.encode_prompt(text).unwrap(), other.encode_prompt(text).unwrap());
        }
    }
}

fn refuses() {
    let place = tempfile::tempdir().expect("a folder");
    let fable = open(&fable_path());
    let error = |to: PathBuf| convert(&fable, &to).expect_err("refused").to_string();
    assert!(error(place.path().join("folder")).contains("one kind"));
    assert!(error(fable_path()).contains("is there already"));
    assert!(!place.path().join("folder").exists());
}

/// A tensor that is not of the shape that its metadata promise is not cut short or torn.
fn refuses_shapes() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("folder");
    let halves = |shape: &[u64]| {
        let bytes = vec![0; 2 * shape.iter().product::<u64>() as usize];
        Stored { format: Format::F16, shape: shape.to_vec(), bytes }
    };
    let error = |file: Gguf| {
        let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
        let error = convert(&weights, &folder).expect_err("refused").to_string();
        assert!(!folder.exists(), "{error}");
        error
    };
    let stack = "blk.0.ffn_gate_exps.weight";
    for (shape, says) in [
        (&[6, 16, 192][..], "of [6, 16, 192] is not of 4 experts"),
        (&[3, 16, 192], "of [3, 16, 192] is not of 4 experts"),
        (&[64, 192], "of [64, 192] is no stack of matrices"),
    ] {
        let mut file = Checkpoint::fable(1).gguf(true);
        for (key, value) in [("llama.expert_count", 4u32), ("llama.expert_used_count", 2)] {
            file = file.key(key, U32, &value.to_le_bytes());
        }
        let error = error(append(file, stack, &halves(shape)));
        assert!(error.contains(&format!("`{stack}` {says}")), "{error}");
    }
    let mut torn = Checkpoint::fable(1);
    torn.tensors.insert("model.layers.0.self_attn.q_proj.weight".into(), halves(&[100, 192]));
    let error = error(torn.gguf(false));
    assert!(error.contains("`blk.0.attn_q.weight` of [100, 192] is not of whole heads"), "{error}");
}

/// Read by another program, quantised on the way.
fn opens_in_python() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("fable.gguf");
    let mut weights = open(&fable_path());
    weights.quantise(Format::Q8_0);
    convert(&weights, &file).unwrap_or_else(|e| panic!("{e}"));
    let script = "import gguf, sys\n\
        r = gguf.GGUFReader(sys.argv[1])\n\
        t = {t.name: t for t in r.tensors}\n\
        e = [int(n) for n in t['token_embd.weight'].shape]\n\
        print(t['blk.0.attn_q.weight'].tensor_type.name, e)\n\
        print(r.fields['llama.block_count'].contents(), t['output_norm.weight'].tensor_type.name)\n\
        print(len(r.fields['tokenizer.ggml.tokens'].contents()))";
    let run = Command::new("python3").args(["-c", script]).arg(&file).output().expect("python3");
    let said = String::from_utf8_lossy(&run.stdout);
    let failed = String::from_utf8_lossy(&run.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"Q8_0 [192, 1551]"), "{failed}");
    assert_eq!(lines.get(2), Some(&"1551"), "{failed}");
    assert!(lines[1].ends_with("F32"), "{said}");
}
