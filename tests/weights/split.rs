//! GGUF models in several files: any part opens all, and parts that do not fit are refused.

use super::build::*;
use crate::support::{Rows, root};
use std::path::Path;
use tilewright::base::Format;
use tilewright::weights::{Meta, Weights, blocks};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::parts_open_as_one", parts_open_as_one);
    rows.add("weights::parts_that_do_not_fit", parts_that_do_not_fit);
}

fn name(number: usize) -> String {
    format!("tests/data/gguf/tiny-mixed-{number:05}-of-00003.gguf")
}

/// The fixture that pip's `gguf` cut.
fn parts_open_as_one() {
    let all = opens(Weights::open(&root().join(name(1))));
    assert_eq!(all.tensors().len(), 11);
    for number in [2, 3] {
        let same = opens(Weights::open(&root().join(name(number))));
        assert_eq!(same.tensors(), all.tensors(), "part {number}");
        let Meta::Gguf(meta) = same.meta() else { panic!("a GGUF file") };
        assert_eq!(meta.positive("llama.block_count").ok(), Some(1));
    }
    let mut sources = Vec::new();
    for tensor in all.tensors().values() {
        sources.push(tensor.source);
        let raw = all.read_rows(tensor, 0, tensor.rows()).expect("rows");
        let mut values = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
        blocks::decode(tensor.format, &raw, &mut values);
        // Neither zeros nor noise: weights of a small model.
        let mean = values.iter().map(|v| v.abs()).sum::<f32>() / values.len() as f32;
        assert!((0.01..2.0).contains(&mean), "{}: {mean}", tensor.name);
    }
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources, [0, 1, 2]);
    let formats = [Format::IQ4_XS, Format::Q5_0, Format::BF16];
    let has = |format| all.tensors().values().any(|t| t.format == format);
    assert!(formats.into_iter().all(has));
}

fn part(number: u16, count: u16, tensor: &str) -> Gguf {
    Gguf::new()
        .key("general.architecture", 8, &text("llama"))
        .key("split.no", 2, &number.to_le_bytes())
        .key("split.count", 2, &count.to_le_bytes())
        .key("split.tensors.count", 5, &2i32.to_le_bytes())
        .tensor(row(tensor, &[4], 0, 0))
        .data(16)
}

fn write(folder: &Path, name: &str, file: &Gguf) {
    std::fs::write(folder.join(name), file.bytes()).expect("written");
}

fn parts_that_do_not_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (first, second) = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf");
    let open = || Weights::open(&folder.join(first));
    write(folder, first, &part(0, 2, "a"));
    fails(open(), &[second, "cannot be opened"]);
    write(folder, second, &part(1, 2, "b"));
    assert_eq!(opens(open()).tensors().len(), 2);
    write(folder, second, &part(1, 2, "a"));
    fails(open(), &["`a`", "two parts"]);
    write(folder, second, &part(0, 2, "b"));
    fails(open(), &[second, "split.no", "found 0"]);
    write(folder, second, &part(1, 3, "b"));
    fails(open(), &[second, "split.count", "found 3"]);
    write(folder, second, &part(1, 2, "b").tensor(row("c", &[4], 0, 32)).data(48));
    fails(open(), &["split.tensors.count", "2, but the parts hold 3"]);
    write(folder, "odd.gguf", &part(0, 2, "a"));
    fails(Weights::open(&folder.join("odd.gguf")), &["split.count", "-00001-of-00002.gguf"]);
    // A count that no name fits asks for no file.
    write(folder, first, &part(0, u16::MAX, "a"));
    fails(open(), &["split.count", "65535 parts"]);
}
