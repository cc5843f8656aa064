//! Models that are a shape and nothing else: the tensors of a GGUF file that is nowhere, drawn
//! from a seed as they are read. Speed does not depend on what the weights say.

use crate::base::Format;
use crate::weights::{
    GGUF_ALIGNMENT, KeyValue, Source, TensorHead, Weights, WeightsError, blocks, gguf_header,
};

/// Values drawn; tensors repeat them from different places.
const DRAWN: usize = 1 << 20;

/// The sizes of a decoder.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    pub name: &'static str,
    /// As GGUF files call it.
    pub architecture: &'static str,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn: u32,
    pub vocab: u32,
    pub context: u32,
    pub theta: f32,
    /// The embedding is the head too.
    pub tied: bool,
}

/// A Llama, to be changed into others.
const LLAMA: Shape = Shape {
    name: "llama-3-8b",
    architecture: "llama",
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    ffn: 14336,
    vocab: 128_256,
    context: 8192,
    theta: 500_000.0,
    tied: false,
};

/// Shapes by name, from their config.json. `tiny` is nobody's: it is for trying a script.
pub const SHAPES: [Shape; 6] = [
    LLAMA,
    Shape {
        name: "llama-3.2-1b",
        layers: 16,
        hidden: 2048,
        head_dim: 64,
        ffn: 8192,
        context: 131_072,
        tied: true,
        ..LLAMA
    },
    Shape {
        name: "qwen3-0.6b",
        architecture: "qwen3",
        layers: 28,
        hidden: 1024,
        heads: 16,
        ffn: 3072,
        vocab: 151_936,
        context: 40_960,
        theta: 1e6,
        tied: true,
        ..LLAMA
    },
    Shape {
        name: "qwen3-8b",
        architecture: "qwen3",
        layers: 36,
        ffn: 12_288,
        vocab: 151_936,
        context: 40_960,
        theta: 1e6,
        ..LLAMA
    },
    Shape {
        name: "smollm2-135m",
        layers: 30,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        ffn: 1536,
        vocab: 49_152,
        theta: 100_000.0,
        tied: true,
        ..LLAMA
    },
    Shape {
        name: "tiny",
        layers: 2,
        hidden: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        ffn: 512,
        vocab: 1024,
        ..LLAMA
    },
];

impl Shape {
    pub fn find(name: &str) -> Option<Shape> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// The format of rows of `cols` values: `format`, where they are whole blocks of it.
    pub fn stored(format: Format, cols: u32) -> Format {
        if cols.is_multiple_of(format.block_len() as u32) { format } else { Format::Q8_0 }
    }

    /// The different matrices of a layer and the head, `[rows, cols]`, under the names of GGUF.
    pub fn matrices(&self) -> Vec<(&'static str, [u32; 2])> {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut out = self.of_layer(q, kv).to_vec();
        out.push(("output", [self.vocab, self.hidden]));
        out
    }

    fn of_layer(&self, q: u32, kv: u32) -> [(&'static str, [u32; 2]); 7] {
        let Shape { hidden, ffn, .. } = *self;
        [
            ("attn_q", [q, hidden]),
            ("attn_k", [kv, hidden]),
            ("attn_v", [kv, hidden]),
            ("attn_output", [hidden, q]),
            ("ffn_gate", [ffn, hidden]),
            ("ffn_up", [ffn, hidden]),
            ("ffn_down", [hidden, ffn]),
        ]
    }

    /// Weights of this shape. Rows that are no whole blocks of `format`, and below eight bits
    /// embedding and head, are [`Format::Q8_0`], as files of such formats have them.
    pub fn weights(&self, format: Format, seed: u64) -> Result<Weights, WeightsError> {
        Weights::from_gguf_source(Box::new(Drawn::new(self, format, seed)))
    }

    fn keys(&self) -> Vec<(String, KeyValue)> {
        let numbers = [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.head_dim),
        ];
        let own = |key: &str| format!("{}.{key}", self.architecture);
        let mut out =
            vec![("general.architecture".into(), KeyValue::Text(self.architecture.into()))];
        out.extend(numbers.map(|(key, value)| (own(key), KeyValue::U32(value))));
        out.push((own("attention.layer_norm_rms_epsilon"), KeyValue::F32(1e-5)));
        out.push((own("rope.freq_base"), KeyValue::F32(self.theta)));
        out
    }

    fn heads(&self, format: Format) -> Vec<TensorHead> {
        let mut out = Vec::new();
        let mut add = |name: String, shape: &[u32], format: Format| {
            let format = Shape::stored(format, shape.last().copied().unwrap_or(1));
            let shape: Vec<u64> = shape.iter().map(|n| u64::from(*n)).collect();
            let bytes = format.bytes_of(shape.iter().product()).unwrap_or(0);
            out.push(TensorHead { name: name + ".weight", shape, format, bytes });
        };
        let small = format.block_bytes() < format.block_len();
        let words = if small { Format::Q8_0 } else { format };
        add("token_embd".into(), &[self.vocab, self.hidden], words);
        add("output_norm".into(), &[self.hidden], Format::F32);
        if !self.tied {
            add("output".into(), &[self.vocab, self.hidden], words);
        }
        let matrices = self.matrices();
        for layer in 0..self.layers {
            let named = |name: &str| format!("blk.{layer}.{name}");
            for (name, shape) in matrices.iter().filter(|m| m.0 != "output") {
                add(named(name), shape, format);
            }
            for norm in ["attn_norm", "ffn_norm"] {
                add(named(norm), &[self.hidden], Format::F32);
            }
            if self.architecture == "qwen3" {
                for norm in ["attn_q_norm", "attn_k_norm"] {
                    add(named(norm), &[self.head_dim], Format::F32);
                }
            }
        }
        out
    }
}

/// Where a tensor lies, and what it is read from.
struct Part {
    start: u64,
    end: u64,
    pool: usize,
}

/// The file that is nowhere.
struct Drawn {
    name: String,
    header: Vec<u8>,
    parts: Vec<Part>,
    pools: Vec<(Format, Vec<u8>)>,
    len: u64,
}

impl Drawn {
    fn new(shape: &Shape, format: Format, seed: u64) -> Self {
        let heads = shape.heads(format);
        let header = gguf_header(&shape.keys(), &heads);
        let (mut parts, mut pools) = (Vec::new(), Vec::<(Format, Vec<u8>)>::new());
        let mut at = header.len() as u64;
        for head in &heads {
            let pool = pools.iter().position(|p| p.0 == head.format).unwrap_or_else(|| {
                // An odd number: rows, whose blocks are even in number, begin at other places.
                let count = DRAWN / head.format.block_len() + 1;
                let bytes = blocks::random(head.format, count, seed + pools.len() as u64);
                pools.push((head.format, bytes));
                pools.len() - 1
            });
            parts.push(Part { start: at, end: at + head.bytes, pool });
            at += head.bytes.next_multiple_of(GGUF_ALIGNMENT);
        }
        let name = format!("{} ({format}, random)", shape.name);
        Self { name, header, parts, pools, len: at }
    }

    /// The bytes of the part that `offset` lies in, from there on; as many as lie together.
    fn piece(&self, offset: u64) -> &[u8] {
        if let Some(header) = self.header.get(offset as usize..).filter(|rest| !rest.is_empty()) {
            return header;
        }
        let after = self.parts.partition_point(|part| part.start <= offset);
        let Some(part) = after.checked_sub(1).map(|at| &self.parts[at]) else { return &[] };
        let bytes = &self.pools[part.pool].1;
        let from = (offset - part.start) as usize % bytes.len();
        let left = part.end.saturating_sub(offset).min((bytes.len() - from) as u64) as usize;
        &bytes[from..from + left]
    }
}

impl Source for Drawn {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            if at >= self.len {
                return Err(WeightsError::Io {
                    file: self.name.clone(),
                    doing: format!("reading {} bytes at {at} of {}", rest.len(), self.len),
                    source: std::io::ErrorKind::UnexpectedEof.into(),
                });
            }
            let piece = self.piece(at);
            // Between two tensors lie zeros.
            let count = piece.len().min(rest.len()).max(1);
            let (head, tail) = rest.split_at_mut(count);
            match piece.get(..count) {
                Some(piece) => head.copy_from_slice(piece),
                None => head.fill(0),
            }
            (at, rest) = (at + count as u64, tail);
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}
