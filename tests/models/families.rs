//! Families: which of them have a reference here, the GGUF form of each, and the table of the
//! documents that is made from these lists and from the code's own.

use super::convert::FAMILIES as BLOCKS;
use super::{check_greedy, check_logits};
use crate::support::{On, Rows, root, shared};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tilewright::base::Format;
use tilewright::model::FAMILIES;

/// Folders of `fixtures` with the family that each is of, as config.json names it.
const REFERENCES: [(&str, &str); 17] = [
    ("llama", "llama"),
    ("llama-mqa-bias", "llama"),
    ("llama3-rope", "llama"),
    ("llama-yarn", "llama"),
    ("mistral-window", "mistral"),
    ("mixtral", "mixtral"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("qwen3-moe", "qwen3_moe"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi3", "phi3"),
    ("smollm3", "smollm3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
    ("deepseek-mla", "deepseek_v2"),
    ("deepseek-moe", "deepseek_v2"),
];

/// Of those, what the script writes as GGUF (scaled rotations have rows of their own).
fn as_gguf() -> impl Iterator<Item = (&'static str, &'static str)> {
    let gguf = |hf: &str| FAMILIES.iter().any(|f| f.hf == hf && f.gguf.is_some());
    REFERENCES.into_iter().filter(move |(name, hf)| *name != "llama3-rope" && gguf(hf))
}

pub fn rows(rows: &mut Rows) {
    rows.add("models::documents_table", table);
    rows.add("models::every_family_has_a_reference", every_family_has_a_reference);
    for (on, present) in On::all() {
        for (name, _) in REFERENCES {
            let path = present.clone().and_then(|()| shared(&format!("fixtures/{name}")));
            rows.add_if(path, format!("models::{name}.{}", on.name()), move |p| {
                check_logits(&p, &p.join("golden.safetensors"), on);
                check_greedy(&p, on);
            });
        }
    }
    let script = python();
    for (name, _) in as_gguf() {
        let path = script.clone().and_then(|()| shared(&format!("fixtures/{name}")));
        rows.add_if(path, format!("models::from_gguf.{name}"), move |p| from_gguf(&p));
    }
}

/// Whether python can run the script.
fn python() -> Result<(), String> {
    match Command::new("python3").args(["-c", "import gguf, numpy"]).output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err("python3 lacks gguf or numpy".into()),
    }
}

/// The checkpoint as its family's GGUF files are: names and keys of the `gguf` package, rows of q
/// and k in their order, norms with their 1.
fn from_gguf(folder: &Path) {
    let out = tempfile::tempdir().expect("a folder");
    let file = out.path().join("model.gguf");
    let script = root().join("tests/gguf_families.py");
    let run = Command::new("python3").arg(script).arg(folder).arg(&file).output();
    let run = run.expect("python3 was there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    check_logits(&file, &folder.join("golden.safetensors"), On::Cpu);
}

fn every_family_has_a_reference() {
    for family in &FAMILIES {
        assert!(REFERENCES.iter().any(|r| r.1 == family.hf), "{} has none", family.name);
    }
    for (name, hf) in REFERENCES {
        assert!(FAMILIES.iter().any(|f| f.hf == hf), "{name} is of an unknown family");
    }
}

/// The page of the documents. `TILEWRIGHT_WRITE_DOCS=1` writes it.
fn page() -> String {
    let mut out = String::from(
        "# Models\n\n\
         Made from the code by the row `models::documents_table`; with \
         `TILEWRIGHT_WRITE_DOCS=1` it writes this page anew.\n\n\
         *checked*: of safetensors, all logits within 1e-3 of the reference implementation's, and \
         the same greedy ids; of GGUF floats, the logits alone; of GGUF blocks, all logits within \
         1e-3 of what the blocks' values as floats give. *read*: the same code path, with no such \
         check of its own. *–*: not read; the error names what was found.\n\n\
         | family | `model_type` | safetensors | `architecture` | GGUF floats | GGUF blocks |\n\
         |---|---|---|---|---|---|\n",
    );
    for family in &FAMILIES {
        let hf = if REFERENCES.iter().any(|r| r.1 == family.hf) { "checked" } else { "read" };
        let (gguf, floats, blocks) = match family.gguf {
            None => ("–".to_string(), "–", "–"),
            Some(gguf) => {
                let checked = as_gguf().any(|(_, hf)| hf == family.hf);
                let floats = if checked { "checked" } else { "read" };
                let of = |name: &str| REFERENCES.contains(&(name, family.hf));
                let blocks = if BLOCKS.into_iter().any(of) { "checked" } else { "read" };
                (format!("`{gguf}`"), floats, blocks)
            }
        };
        let (name, model) = (family.name, family.hf);
        let _ = writeln!(out, "| {name} | `{model}` | {hf} | {gguf} | {floats} | {blocks} |");
    }
    out.push_str(
        "\nA weight keeps its format on the device, whatever its family. Bits per weight on \
         disk:\n\n\
         | format | bits |\n|---|---|\n",
    );
    for format in Format::ALL {
        let bits = format.block_bytes() as f64 * 8.0 / format.block_len() as f64;
        let _ = writeln!(out, "| {} | {bits} |", format.name().to_uppercase());
    }
    out
}

fn path() -> PathBuf {
    root().join("assets/docs/models.md")
}

fn table() {
    let page = page();
    if std::env::var_os("TILEWRIGHT_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(path().parent().expect("a folder")).expect("made");
        std::fs::write(path(), &page).expect("written");
    }
    let there = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(there == page, "assets/docs/models.md is older than the code:\n{page}");
}
