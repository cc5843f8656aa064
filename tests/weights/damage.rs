//! Files that were cut short or changed: an error or a readable file, never a panic, in every
//! build. Seeds are fixed.

use super::build::*;
use crate::support::{Rows, peak_bytes, root};
use tilewright::base::threefry2x32;
use tilewright::weights::{GgufArray, GgufValue, Meta, Weights, WeightsError};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::gguf_cut_anywhere", gguf_cut_anywhere);
    rows.add("weights::gguf_cut_real", gguf_cut_real);
    rows.add("weights::safetensors_cut_anywhere", safetensors_cut_anywhere);
    for seed in 0..4 {
        rows.add(format!("weights::gguf_mutated_{seed}"), move || gguf_mutated(seed));
        rows.add(format!("weights::safetensors_mutated_{seed}"), move || safetensors_mutated(seed));
    }
    rows.add("weights::random_bytes", random_bytes);
    rows.add("weights::memory_is_counted", memory_is_counted);
}

/// What opened must be readable to the last byte, and every key must answer.
fn read_all(weights: &Weights) {
    for tensor in weights.tensors().values() {
        let bytes = weights.read_rows(tensor, 0, tensor.rows());
        assert_eq!(bytes.map_err(|e| e.to_string()).map(|b| b.len() as u64), Ok(tensor.bytes));
        assert_eq!(tensor.format.bytes_of(tensor.shape.iter().product()), Some(tensor.bytes));
    }
    if let Meta::Gguf(meta) = weights.meta() {
        for key in meta.keys() {
            let _ = (meta.u64(key), meta.f32s(key), meta.str(key), meta.u32s(key), meta.strs(key));
            if let Some(GgufValue::Array(array)) = meta.get(key) {
                assert_eq!(array.is_empty(), GgufArray::len(array) == 0);
            }
        }
    }
}

/// Case 03 for a small file: every prefix fails, and a longer file opens.
fn gguf_cut_anywhere() {
    let bytes = good_gguf().bytes();
    for len in 0..bytes.len() {
        fails(open_gguf(bytes[..len].to_vec()), &["t.gguf"]);
    }
    read_all(&opens(open_gguf(bytes.clone())));
    read_all(&opens(open_gguf([bytes, vec![0; 100]].concat())));
}

/// Case 03 for a real file: the first tensor out of range is named, in the file's order.
fn gguf_cut_real() {
    let path = root().join("tests/data/gguf/tiny-q4_1.gguf");
    let bytes = std::fs::read(path).expect("tiny-q4_1.gguf");
    let whole = opens(open_gguf(bytes.clone()));
    let data = whole.tensors().values().map(|t| t.offset).min().expect("tensors") as usize;
    let last = whole.tensors().values().max_by_key(|t| t.offset).expect("tensors");
    assert_eq!(last.offset + last.bytes, bytes.len() as u64);
    let cut = |len: usize| open_gguf(bytes[..len].to_vec());
    fails(cut(bytes.len() - 1), &[&last.name, "offset", "cut short"]);
    fails(cut(bytes.len() - 4096), &[&last.name, "offset", "cut short"]);
    fails(cut(data), &["`output_norm.weight`", "offset", "cut short"]);
    fails(cut(data - 1), &["`output_norm.weight`", "cut short"]);
    fails(cut(data + 4), &["`output_norm.weight`", "cut short"]);
    fails(cut(4000), &["key `tokenizer.ggml.tokens`", "cut short"]);
    for len in (0..data + 64).step_by(97) {
        fails(cut(len), &["t.gguf"]);
    }
}

/// Cases 03 and 05.
fn safetensors_cut_anywhere() {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],
        "data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}"#;
    let small = safetensors(header, 22);
    for len in 0..small.len() {
        fails(open_safetensors(small[..len].to_vec()), &["model.safetensors"]);
    }
    let path = root().join("tests/data/llama3-rope/model.safetensors");
    let bytes = std::fs::read(path).expect("llama3-rope");
    let whole = opens(open_safetensors(bytes.clone()));
    let data = whole.tensors().values().map(|t| t.offset).min().expect("tensors") as usize;
    let last = whole.tensors().values().max_by_key(|t| t.offset).expect("tensors");
    let cut = |len: usize| open_safetensors(bytes[..len].to_vec());
    fails(cut(bytes.len() - 1), &[&last.name, "data_offsets", "cut short"]);
    fails(cut(bytes.len() - 4096), &["data_offsets", "cut short"]);
    fails(cut(data), &["data_offsets", "cut short"]);
    fails(cut(data - 1), &["header length", "cut short"]);
}

/// A stream of numbers that depends on the seed only.
struct Draws(u32, u32);

impl Draws {
    fn next(&mut self) -> u32 {
        self.1 += 1;
        threefry2x32([self.0, 0], [self.1, 0])[0]
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// Changes a few places: a bit, a byte, a whole number, a cut, a piece repeated.
fn mutate(draws: &mut Draws, bytes: &mut Vec<u8>, reach: usize) {
    const NUMBERS: [u64; 10] =
        [0, 1, 5, 31, 255, 1 << 31, u32::MAX as u64, 1 << 62, 1 << 63, u64::MAX];
    for _ in 0..1 + draws.below(3) {
        let at = draws.below(reach.min(bytes.len()).max(1));
        let here = bytes.len() - at.min(bytes.len());
        match draws.below(6) {
            0 if here > 0 => bytes[at] ^= 1 << draws.below(8),
            1 if here > 0 => bytes[at] = draws.next() as u8,
            2 if here >= 4 => {
                let number = NUMBERS[draws.below(10)] as u32;
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            3 if here >= 8 => {
                let number = NUMBERS[draws.below(10)];
                bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            4 => bytes.truncate(at),
            _ => {
                let piece = bytes[at..at + here.min(1 + draws.below(16))].to_vec();
                let to = draws.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

fn gguf_mutated(seed: u32) {
    let mut draws = Draws(seed, 0);
    let small = good_gguf().bytes();
    let path = root().join("tests/data/gguf/tiny-q4_1.gguf");
    let real = std::fs::read(path).expect("tiny-q4_1.gguf");
    let (mut opened, mut refused) = (0, 0);
    for round in 0..5000 {
        let from = if round % 50 == 0 { &real } else { &small };
        let mut bytes = from.clone();
        mutate(&mut draws, &mut bytes, if round % 50 == 0 { 17_000 } else { small.len() });
        match open_gguf(bytes) {
            Ok(weights) => {
                opened += 1;
                read_all(&weights);
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().len() < 2000, "{error}");
            }
        }
    }
    assert!(opened > 50 && refused > 1000, "{opened} opened, {refused} refused");
}

/// Held against the safetensors crate: what it refuses is refused here, what it reads is read
/// here alike, but for two things the crate lets pass.
fn safetensors_mutated(seed: u32) {
    let header = r#"{"__metadata__":{"format":"pt"},
        "a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
        "b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},
        "i":{"dtype":"I32","shape":[1,1],"data_offsets":[22,26]},
        "e":{"dtype":"F16","shape":[0],"data_offsets":[26,26]}}"#;
    let small = safetensors(header, 26);
    let mut draws = Draws(seed, 1 << 20);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..5000 {
        let mut bytes = small.clone();
        mutate(&mut draws, &mut bytes, small.len());
        let theirs = safetensors::SafeTensors::deserialize(&bytes);
        match (open_safetensors(bytes.clone()), theirs) {
            (Ok(weights), Ok(theirs)) => {
                opened += 1;
                read_all(&weights);
                for (name, view) in theirs.iter() {
                    let Some(tensor) = weights.tensor(name) else { continue };
                    let rows = weights.read_rows(tensor, 0, tensor.rows()).expect("rows");
                    assert_eq!(rows, view.data(), "{name}");
                    let shape: Vec<u64> = view.shape().iter().map(|n| *n as u64).collect();
                    assert_eq!(tensor.shape, shape, "{name}");
                }
            }
            (Ok(_), Err(theirs)) => panic!("the crate says {theirs} of {bytes:?}"),
            (Err(ours), Ok(_)) => assert!(let_pass(&ours), "the crate reads what is {ours}"),
            (Err(_), Err(_)) => refused += 1,
        }
    }
    assert!(opened > 50 && refused > 1000, "{opened} opened, {refused} refused");
}

fn let_pass(error: &WeightsError) -> bool {
    let text = error.to_string();
    text.contains("given twice") || text.contains("names no tensor")
}

fn random_bytes() {
    let mut draws = Draws(99, 0);
    for round in 0..2000 {
        let mut bytes: Vec<u8> = (0..draws.below(200)).map(|_| draws.next() as u8).collect();
        let _ = open_safetensors(bytes.clone());
        if round % 2 == 0 {
            bytes.splice(0..0, *b"GGUF\x03\0\0\0");
        }
        let _ = open_gguf(bytes);
    }
}

/// What every opening of a file here is bounded by ([`open_gguf`]) sees a file that makes the
/// reader hold more than it has.
fn memory_is_counted() {
    let ((), peak) = peak_bytes(|| drop(vec![1u8; 3 << 20]));
    assert!((3 << 20..4 << 20).contains(&peak), "{peak}");
    let ((), peak) = peak_bytes(|| (0..100).for_each(|_| drop(vec![1u8; 1 << 20])));
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}: what was freed counts no more");
    // An honest file whose parts are many and small.
    let keys = (0..2000).fold(good_gguf(), |file, n| file.key(&format!("k{n}"), 0, &[1]));
    read_all(&opens(keys.open()));
    let began = std::time::Instant::now();
    let claims = Gguf { key_count: Some(1 << 62), ..good_gguf() };
    fails(claims.open(), &["t.gguf"]);
    println!("a file that claims 2^62 keys is refused in {:?}", began.elapsed());
}
