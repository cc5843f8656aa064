//! Hugging Face folders on disk and in memory: side files, shards, what is missing.

use super::build::*;
use crate::support::{Rows, root};
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use tilewright::weights::{FileSource, Meta, Source, Weights, WeightsError};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::folder_side_files", side_files);
    rows.add("weights::folder_needs", folder_needs);
    rows.add("weights::paths_that_are_no_model", paths_that_are_no_model);
    rows.add("weights::shards", shards);
    rows.add("weights::index_lies", index_lies);
    rows.add("weights::single_safetensors_file", single_safetensors_file);
    rows.add("weights::fable_from_disk_and_memory", fable_from_disk_and_memory);
    rows.add("weights::reads_from_many_threads", reads_from_many_threads);
}

fn tensor(name: &str) -> Vec<u8> {
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}}"#);
    safetensors(&header, 8)
}

type Files<'a> = &'a [(&'static str, &'a [u8])];

/// The same files in memory and on disk must give the same answer.
fn open_both(files: Files, look: impl Fn(Result<Weights, WeightsError>)) {
    let owned = files.iter().map(|(name, bytes)| (*name, Cow::Owned(bytes.to_vec()))).collect();
    look(Weights::from_folder_bytes("f", owned));
    let dir = folder(files);
    look(Weights::open(dir.path()));
}

fn folder(files: Files) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).expect("a file");
    }
    dir
}

fn side_files() {
    let model = tensor("t");
    let files: Files = &[
        ("model.safetensors", &model),
        ("config.json", br#"{"model_type":"llama"}"#),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", b"{{ x }}"),
    ];
    open_both(files, |opened| {
        let weights = opens(opened);
        assert!(matches!(weights.meta(), Meta::Hf(meta) if meta.generation.is_none()));
        let side = |name: &str| weights.side_file(name).expect(name);
        assert_eq!(side("tokenizer.json").as_deref(), Some(&b"{}"[..]));
        assert_eq!(side("chat_template.jinja").as_deref(), Some(&b"{{ x }}"[..]));
        assert_eq!(side("generation_config.json"), None);
        for outside in ["../config.json", "/etc/passwd", "..", "", "a\\b", "a\0b"] {
            fails(weights.side_file(outside), &["plain file name"]);
        }
    });
}

fn folder_needs() {
    let model = tensor("t");
    let config: (&str, &[u8]) = ("config.json", b"{}");
    open_both(&[config], |opened| {
        fails(opened, &["model.safetensors", "missing", "model.safetensors.index.json"]);
    });
    open_both(&[("model.safetensors", &model)], |opened| {
        fails(opened, &["config.json", "missing"]);
    });
    for wrong in ["", "[]", "null", "{", "{\"a\":}"] {
        open_both(&[("model.safetensors", &model), ("config.json", wrong.as_bytes())], |opened| {
            fails(opened, &["config.json"]);
        });
    }
    for name in ["generation_config.json", "tokenizer_config.json"] {
        open_both(&[("model.safetensors", &model), config, (name, b"{")], |opened| {
            fails(opened, &[name, "JSON"]);
        });
    }
}

fn paths_that_are_no_model() {
    let text = b"some words that are no model".as_slice();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".as_slice();
    let dir = folder(&[
        ("notes.txt", text),
        ("short", b"x"),
        ("words.gguf", text),
        ("words.safetensors", text),
        ("pointer.gguf", pointer),
        ("pointer.safetensors", pointer),
        ("empty.gguf", b""),
    ]);
    let open = |name: &str| Weights::open(&dir.path().join(name));
    fails(open("absent.gguf"), &["absent.gguf", "cannot be opened"]);
    fails(open("notes.txt"), &["notes.txt", "neither a GGUF file nor a safetensors file"]);
    fails(open("short"), &["neither"]);
    fails(open("words.gguf"), &["words.gguf", "magic", "some"]);
    fails(open("words.safetensors"), &["words.safetensors", "header length"]);
    fails(open("pointer.gguf"), &["Git LFS", "git lfs pull"]);
    fails(open("pointer.safetensors"), &["Git LFS"]);
    fails(open("empty.gguf"), &["empty.gguf", "magic"]);
    fails(FileSource::open(dir.path()), &["not a regular file"]);
    fails(Weights::open(Path::new("")), &["cannot be opened"]);
    // What the file is decides, not what it is called.
    fs::write(dir.path().join("blob"), good_gguf().bytes()).expect("a file");
    assert_eq!(opens(open("blob")).tensors().len(), 2);
}

const INDEX: &str = "model.safetensors.index.json";

fn shards() {
    let (a, b) = (tensor("a"), tensor("b"));
    let index =
        br#"{"metadata":{"total_size":16},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    let files: Files =
        &[("config.json", b"{}"), (INDEX, index), ("1.safetensors", &a), ("2.safetensors", &b)];
    open_both(files, |opened| {
        let weights = opens(opened);
        assert_eq!(weights.tensors().keys().collect::<Vec<_>>(), ["a", "b"]);
        let [a, b] = ["a", "b"].map(|name| weights.tensor(name).expect(name));
        assert_ne!(a.source, b.source);
        assert_eq!(weights.read_rows(a, 0, 2).ok(), weights.read_rows(b, 0, 2).ok());
    });
    let dir = folder(files);
    fails(Weights::open(&dir.path().join("1.safetensors")), &["1.safetensors", "shard", "folder"]);
    // A whole file wins over an index, as in transformers.
    let whole = tensor("whole");
    let both: Files = &[("config.json", b"{}"), (INDEX, index), ("model.safetensors", &whole)];
    open_both(both, |opened| assert!(opens(opened).tensor("whole").is_some()));
}

fn index_lies() {
    let (a, b) = (tensor("a"), tensor("b"));
    let open = |index: &str, needles: &[&str]| {
        let files: Files = &[
            ("config.json", b"{}"),
            (INDEX, index.as_bytes()),
            ("1.safetensors", &a),
            ("2.safetensors", &b),
            ("3.safetensors", &b),
        ];
        open_both(files, |opened| {
            fails(opened, needles);
        });
    };
    open("{}", &[INDEX, "weight_map"]);
    open(r#"{"weight_map":[]}"#, &[INDEX, "weight_map"]);
    open(r#"{"weight_map":{}}"#, &[INDEX, "no tensor"]);
    open(r#"{"weight_map":{"a":1}}"#, &[INDEX, "`a`"]);
    open("{", &[INDEX, "JSON"]);
    open(r#"{"weight_map":{"a":"9.safetensors"}}"#, &["9.safetensors", "missing", INDEX]);
    for outside in ["../1.safetensors", "/1.safetensors", ".."] {
        open(&format!(r#"{{"weight_map":{{"a":"{outside}"}}}}"#), &["plain file name"]);
    }
    open(r#"{"weight_map":{"b":"1.safetensors"}}"#, &["1.safetensors", "`b`", "not"]);
    open(
        r#"{"weight_map":{"a":"2.safetensors","b":"1.safetensors"}}"#,
        &["2.safetensors", "`a`", "not"],
    );
    open(
        r#"{"weight_map":{"b":"2.safetensors","c":"3.safetensors"}}"#,
        &["3.safetensors", "`b`", "2.safetensors too"],
    );
}

/// Without config.json the tensors are there all the same: reference logits are such a file.
fn single_safetensors_file() {
    let dir = folder(&[("golden.safetensors", &tensor("logits"))]);
    let path = dir.path().join("golden.safetensors");
    let weights = opens(Weights::open(&path));
    assert!(weights.tensor("logits").is_some());
    let Meta::Hf(meta) = weights.meta() else { panic!("a folder") };
    fails(meta.u64("hidden_size"), &["config.json", "hidden_size", "missing"]);
    fs::write(dir.path().join("config.json"), br#"{"hidden_size":64}"#).expect("a file");
    let weights = opens(Weights::open(&path));
    let Meta::Hf(meta) = weights.meta() else { panic!("a folder") };
    assert_eq!(meta.u64("hidden_size").ok(), Some(64));
}

fn fable_from_disk_and_memory() {
    let dir = root().join("assets/fable");
    let disk = opens(Weights::open(&dir));
    let names = ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"];
    let files = names.map(|name| (name, Cow::Owned(fs::read(dir.join(name)).expect(name))));
    let memory = opens(Weights::from_folder_bytes("fable", files.to_vec()));
    assert_eq!(disk.tensors(), memory.tensors());
    assert_eq!(disk.tensors().len(), 56);
    for tensor in disk.tensors().values() {
        let [a, b] = [&disk, &memory].map(|w| w.read_rows(tensor, 0, tensor.rows()).expect("rows"));
        assert_eq!(a, b);
    }
    let [a, b] = [&disk, &memory].map(|w| w.side_file("tokenizer.json").expect("read"));
    assert!(a.is_some() && a == b);
}

/// Reads carry their own position: what one thread reads does not move another's.
fn reads_from_many_threads() {
    let weights = opens(Weights::open(&root().join("assets/fable")));
    let tensor = weights.tensor("model.embed_tokens.weight").expect("embedding");
    let all = weights.read_rows(tensor, 0, tensor.rows()).expect("all");
    let row = all.len() / tensor.rows() as usize;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (weights, all) = (&weights, &all);
            scope.spawn(move || {
                for first in (thread..tensor.rows()).step_by(4) {
                    let bytes = weights.read_rows(tensor, first, 1).expect("row");
                    assert_eq!(bytes, all[first as usize * row..][..row], "row {first}");
                }
            });
        }
    });
    let source = FileSource::open(&root().join("assets/fable/config.json")).expect("config");
    assert!(!source.is_empty());
    let mut past = [0; 2];
    fails(source.read(source.len() - 1, &mut past), &["config.json", "2 bytes"]);
}
