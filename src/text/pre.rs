//! The kinds of `tokenizer.ggml.pre`: how text is split before byte-level BPE. Each is one row of
//! [`KINDS`]; the expressions are those of the models' own tokenizer.json files.

use super::TextError;
use serde_json::{Value, json};

/// How a `pre` kind splits.
pub(super) struct Kind {
    names: &'static [&'static str],
    /// Every digit on its own first.
    pub digits: bool,
    /// Each cuts what the ones before left.
    pub patterns: &'static [&'static str],
    /// A piece that is a token as a whole is taken without merging (vocabularies from tiktoken).
    pub whole_pieces: bool,
    pub nfc: bool,
    /// Whether BOS is wanted when the file does not say.
    pub add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA_BPE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Cased letters, marks and all, as Mistral's tokenizers split words.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEEPSEEK_V3: &str = concat!(
    r"[!\x22#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|",
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const PLAIN: Kind = Kind {
    names: &[],
    digits: false,
    patterns: &[GPT2],
    whole_pieces: false,
    nfc: false,
    add_bos: false,
};

const KINDS: &[Kind] = &[
    Kind { names: &["gpt2", "gpt-2", "olmo"], ..PLAIN },
    // Also of the Granite models.
    Kind { names: &["smollm", "starcoder", "refact"], digits: true, ..PLAIN },
    Kind {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA_BPE],
        whole_pieces: true,
        add_bos: true,
        ..PLAIN
    },
    // Also of OLMo 2.
    Kind { names: &["dbrx", "smaug-bpe"], patterns: &[LLAMA_BPE], ..PLAIN },
    Kind { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], nfc: true, ..PLAIN },
    Kind { names: &["gpt-4o", "llama4"], patterns: &[GPT4O], whole_pieces: true, ..PLAIN },
    Kind { names: &["tekken"], patterns: &[TEKKEN], whole_pieces: true, add_bos: true, ..PLAIN },
    Kind {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
            r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-\u{d7ff}]+",
            r"\p{N}+",
        ],
        ..PLAIN
    },
    Kind {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-\u{d7ff}]+", r"\p{N}"],
        ..PLAIN
    },
    Kind {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", r"[一-龥\u{3040}-ゟ゠-ヿ]+", DEEPSEEK_V3],
        ..PLAIN
    },
    Kind {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
];

fn known_kinds() -> String {
    KINDS.iter().map(|kind| kind.names[0]).collect::<Vec<_>>().join(", ")
}

pub(super) fn kind(pre: Option<&str>) -> Result<&'static Kind, TextError> {
    let found = pre.ok_or_else(|| TextError::PreMissing { known: known_kinds() })?;
    KINDS
        .iter()
        .find(|kind| kind.names.contains(&found))
        .ok_or_else(|| TextError::PreUnknown { found: found.to_string(), known: known_kinds() })
}

/// The pre-tokenizer of a tokenizer.json of this kind.
pub(super) fn to_json(kind: &Kind) -> Value {
    let mut steps = Vec::new();
    if kind.digits {
        steps.push(json!({"type": "Digits", "individual_digits": true}));
    }
    for pattern in kind.patterns {
        steps.push(json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                          "invert": false}));
    }
    steps.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false}));
    json!({"type": "Sequence", "pretokenizers": steps})
}

/// The kind that splits as a tokenizer.json does, by its steps.
pub(super) fn name_of(tokenizer_json: &Value) -> Result<&'static str, TextError> {
    let pre = &tokenizer_json["pre_tokenizer"];
    let whole = std::slice::from_ref(pre);
    let steps = pre["pretokenizers"].as_array().map_or(whole, Vec::as_slice);
    let (mut digits, mut patterns) = (false, Vec::new());
    for step in steps {
        match step["type"].as_str() {
            Some("Digits") if step["individual_digits"] == true && patterns.is_empty() => {
                digits = true;
            }
            Some("Split") => patterns.extend(step["pattern"]["Regex"].as_str()),
            Some("ByteLevel") if step["use_regex"] != false => patterns.push(GPT2),
            Some("ByteLevel") => {}
            _ => patterns.push(""),
        }
    }
    let whole_pieces = tokenizer_json["model"]["ignore_merges"] == true;
    let nfc = tokenizer_json["normalizer"]["type"] == "NFC";
    let splits =
        |kind: &&Kind| kind.digits == digits && kind.patterns == patterns && kind.nfc == nfc;
    // Whole pieces are what merges give anyway in a vocabulary that was trained by merging, so the
    // flag only chooses between kinds that split alike.
    let exact = KINDS.iter().filter(splits).find(|kind| kind.whole_pieces == whole_pieces);
    exact.or(KINDS.iter().find(splits)).map(|kind| kind.names[0]).ok_or_else(|| TextError::File {
        file: "tokenizer.json",
        reason: format!("its pre-tokenizer is none of the kinds of GGUF: {}", known_kinds()),
    })
}
