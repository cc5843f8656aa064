//! Checkpoints made from Fable, or from a fixture: fewer layers, other formats, names, kinds of
//! file, and faults.

use crate::support::root;
use crate::weights::build::{Gguf, row, safetensors, text};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tilewright::base::Format;
use tilewright::engine::fable;
use tilewright::weights::{Meta, Weights, WeightsError, blocks, gguf_type};

pub const EMBEDDING: &str = "model.embed_tokens.weight";
pub const HEAD: &str = "lm_head.weight";

/// GGUF value types.
pub const U32: u32 = 4;
pub const F32: u32 = 6;
pub const STRING: u32 = 8;

/// A checkpoint in memory, with the names of a Hugging Face folder.
#[derive(Clone)]
pub struct Checkpoint {
    pub config: Value,
    pub tensors: BTreeMap<String, Stored>,
}

#[derive(Clone)]
pub struct Stored {
    pub format: Format,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl Stored {
    pub fn values(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.shape.iter().product::<u64>() as usize];
        blocks::decode(self.format, &self.bytes, &mut out);
        out
    }

    /// The same tensor in another format.
    pub fn to(&self, format: Format) -> Self {
        let mut bytes = Vec::new();
        blocks::encode(format, &self.values(), &mut bytes);
        Self { format, shape: self.shape.clone(), bytes }
    }

    /// Rows of each of `heads` heads from halves to adjacent rotary pairs, as in llama's GGUF.
    fn adjacent(&self, heads: usize) -> Self {
        let rows = self.shape[0] as usize;
        let (row_bytes, head) = (self.bytes.len() / rows, rows / heads);
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for r in 0..rows {
            let (first, i) = (r / head * head, r % head);
            let from = first + i / 2 + (i % 2) * (head / 2);
            bytes.extend_from_slice(&self.bytes[from * row_bytes..][..row_bytes]);
        }
        Self { bytes, ..self.clone() }
    }
}

impl Checkpoint {
    /// All of a Hugging Face folder's; it becomes one with Fable's tokenizer ([`Self::folder`]).
    pub fn of(weights: &Weights) -> Self {
        let Meta::Hf(meta) = weights.meta() else { panic!("{} is no folder", weights.name()) };
        let stored = weights.tensors().iter().map(|(name, t)| {
            let bytes = weights.read_rows(t, 0, t.rows()).expect("rows");
            (name.clone(), Stored { format: t.format, shape: t.shape.clone(), bytes })
        });
        Self { config: meta.config.clone(), tensors: stored.collect() }
    }

    /// The first `layers` layers of Fable, f16 with a tied head.
    pub fn fable(layers: u32) -> Self {
        let weights = fable().expect("fable");
        let Meta::Hf(meta) = weights.meta() else { panic!("fable is a folder") };
        let mut config = meta.config.clone();
        config["num_hidden_layers"] = json!(layers);
        let kept = |name: &str| match name.strip_prefix("model.layers.") {
            Some(rest) => {
                rest.split('.').next().and_then(|n| n.parse().ok()).is_some_and(|n: u32| n < layers)
            }
            None => true,
        };
        let stored = weights.tensors().iter().filter(|(name, _)| kept(name)).map(|(name, t)| {
            let bytes = weights.read_rows(t, 0, t.rows()).expect("rows");
            (name.clone(), Stored { format: t.format, shape: t.shape.clone(), bytes })
        });
        Self { config, tensors: stored.collect() }
    }

    /// Every matrix in the format that `choose` gives for its name.
    pub fn in_formats(mut self, choose: impl Fn(&str) -> Format) -> Self {
        for (name, stored) in &mut self.tensors {
            if stored.shape.len() == 2 {
                *stored = stored.to(choose(name));
            }
        }
        self
    }

    /// A head of its own, equal to the embedding.
    pub fn untied(mut self) -> Self {
        self.config["tie_word_embeddings"] = json!(false);
        let head = self.tensors[EMBEDDING].clone();
        self.tensors.insert(HEAD.into(), head);
        self
    }

    /// The embedding for a head.
    pub fn tied(mut self) -> Self {
        self.config["tie_word_embeddings"] = json!(true);
        self.tensors.remove(HEAD);
        self
    }

    /// The vocabulary `times` over, so that the embedding is a large tensor.
    pub fn repeated_vocabulary(mut self, times: u64) -> Self {
        let stored = self.tensors.get_mut(EMBEDDING).expect("an embedding");
        stored.bytes = stored.bytes.repeat(times as usize);
        stored.shape[0] *= times;
        self.config["vocab_size"] = json!(stored.shape[0]);
        self
    }

    /// As a Hugging Face folder.
    pub fn folder(&self) -> Weights {
        self.folder_with(&[]).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same with `more` files, which may take the place of Fable's.
    pub fn folder_with(&self, more: &[(&'static str, Value)]) -> Result<Weights, WeightsError> {
        let mut files = self.files();
        for (name, json) in more {
            files.retain(|(there, _)| there != name);
            files.push((name, json.to_string().into_bytes().into()));
        }
        Weights::from_folder_bytes("crafted", files)
    }

    /// The files of the folder.
    pub fn files(&self) -> Vec<(&'static str, Cow<'static, [u8]>)> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, stored) in &self.tensors {
            let offsets = [data.len(), data.len() + stored.bytes.len()];
            data.extend_from_slice(&stored.bytes);
            let dtype = stored.format.name().to_uppercase();
            let shape = &stored.shape;
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
            header.insert(name.clone(), entry);
        }
        let mut file = safetensors(&Value::Object(header).to_string(), 0);
        file.extend(data);
        let mut files: Vec<(&'static str, Cow<'static, [u8]>)> = vec![
            ("model.safetensors", file.into()),
            ("config.json", self.config.to_string().into_bytes().into()),
        ];
        for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
            let bytes = std::fs::read(root().join("assets/fable").join(name)).expect(name);
            files.push((name, bytes.into()));
        }
        files
    }

    fn number(&self, key: &str) -> u32 {
        self.config[key].as_u64().expect(key) as u32
    }

    /// As a GGUF file whose q and k rows are adjacent pairs (`paired`), or wrongly left as halves.
    pub fn gguf(&self, paired: bool) -> Gguf {
        let mut file = Gguf::new().key("general.architecture", STRING, &text("llama"));
        let mut named = BTreeMap::new();
        for (key, from) in [
            ("block_count", "num_hidden_layers"),
            ("context_length", "max_position_embeddings"),
            ("embedding_length", "hidden_size"),
            ("feed_forward_length", "intermediate_size"),
            ("attention.head_count", "num_attention_heads"),
            ("attention.head_count_kv", "num_key_value_heads"),
            ("attention.key_length", "head_dim"),
            ("rope.dimension_count", "head_dim"),
        ] {
            let value = self.number(from).to_le_bytes();
            file = file.key(&format!("llama.{key}"), U32, &value);
        }
        for (key, value) in [("attention.layer_norm_rms_epsilon", 1e-5f32), ("rope.freq_base", 1e4)]
        {
            file = file.key(&format!("llama.{key}"), F32, &value.to_le_bytes());
        }
        for (name, stored) in &self.tensors {
            let to = gguf_name(name);
            let stored = match &to {
                t if paired && t.ends_with("attn_q.weight") => {
                    stored.adjacent(self.number("num_attention_heads") as usize)
                }
                t if paired && t.ends_with("attn_k.weight") => {
                    stored.adjacent(self.number("num_key_value_heads") as usize)
                }
                t if t.ends_with("norm.weight") => stored.to(Format::F32),
                _ => stored.clone(),
            };
            named.insert(to, stored);
        }
        for (name, stored) in named {
            file = append(file, &name, &stored);
        }
        file
    }
}

/// Adds a tensor with its data.
pub fn append(mut file: Gguf, name: &str, stored: &Stored) -> Gguf {
    let ne: Vec<u64> = stored.shape.iter().rev().copied().collect();
    let kind = gguf_type(stored.format);
    file.data.resize(file.data.len().next_multiple_of(32), 0);
    let offset = file.data.len() as u64;
    file.data.extend_from_slice(&stored.bytes);
    file.tensor(row(name, &ne, kind, offset))
}

fn gguf_name(name: &str) -> String {
    let top = [(EMBEDDING, "token_embd"), ("model.norm.weight", "output_norm"), (HEAD, "output")];
    if let Some((_, to)) = top.iter().find(|(from, _)| *from == name) {
        return format!("{to}.weight");
    }
    let rest = name.strip_prefix("model.layers.").expect("a tensor of a layer");
    let (layer, part) = rest.split_once('.').expect("a layer");
    let to = match part.strip_suffix(".weight").expect("a weight") {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => panic!("{other}"),
    };
    format!("blk.{layer}.{to}.weight")
}
