//! Loading: sizes first (refused with figures if they cannot fit), then every tensor read by rows,
//! repacked once into its streams and written to the device.

use super::names::Place;
use super::{ModelError, Spec};
use crate::kernels::attn::{Heads, partial_values};
use crate::kernels::mul::{Matrix, MatrixPart};
use crate::kernels::{layout, sample};
use crate::record::{Binding, Device, Facts};
use crate::weights::{Tensor, Weights, blocks};

/// Sizes that the engine chooses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub block_size: u32,
    pub blocks: u32,
    /// Tokens of one step.
    pub step_tokens_max: u32,
    /// Rows sampled in one step.
    pub sequences_max: u32,
    /// Positions of one sequence.
    pub context_max: u32,
    /// Memory that weights, KV and scratch may take; `None` if unknown.
    pub memory_bytes: Option<u64>,
}

/// Bytes a model takes on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
}

impl Budget {
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.scratch)
    }
}

/// Told of (bytes read so far, bytes in all).
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Most bytes of one weight buffer, so that repacking never holds a huge tensor twice.
const PART_BYTES_MAX: u64 = 256 << 20;

/// Partial results of split attention that one step may hold, per head.
const PARTIALS_PER_HEAD: u32 = 512;

pub(super) struct Layer {
    pub attention_norm: Binding,
    pub q: Matrix,
    pub k: Matrix,
    pub v: Matrix,
    pub out: Matrix,
    pub ffn_norm: Binding,
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
    /// Biases of q, k, v, out, gate, up, down, where there are any.
    pub bias: [Option<Binding>; 7],
    pub k_cache: Binding,
    pub v_cache: Binding,
}

/// Buffers of one step.
pub(super) struct Scratch {
    pub x: Binding,
    pub h: Binding,
    pub q: Binding,
    pub k: Binding,
    pub v: Binding,
    pub attention: Binding,
    pub gate: Binding,
    pub up: Binding,
    pub last: Binding,
    pub logits: Binding,
    pub weights: Binding,
    pub partial: Binding,
    pub meta: Binding,
    pub rows: Binding,
    pub edits: Binding,
    pub out: Binding,
}

/// A model on a device.
pub struct Model {
    pub spec: Spec,
    pub options: Options,
    pub(super) facts: Facts,
    pub(super) embedding: Matrix,
    pub(super) head: Matrix,
    pub(super) final_norm: Binding,
    pub(super) rope: Binding,
    pub(super) layers: Vec<Layer>,
    pub(super) scratch: Scratch,
}

/// Values between rows of an activation: whole k-blocks, the tail stays zero.
pub(super) fn stride(dim: u32) -> u32 {
    dim.next_multiple_of(layout::K_BLOCK)
}

impl Model {
    /// Sizes of `weights` on a device with `facts`; fails where a single part cannot fit.
    pub fn budget(
        spec: &Spec,
        weights: &Weights,
        options: &Options,
        facts: &Facts,
    ) -> Result<Budget, ModelError> {
        let mut bytes = 0u64;
        for tensor in weights.tensors().values() {
            let rows = tensor.rows();
            let cols = tensor.shape.iter().skip(1).product::<u64>().max(1);
            let streams = layout::stream_bytes(tensor.format, rows, cols);
            bytes = bytes.saturating_add(streams.map_or(u64::MAX, |s| s.total));
        }
        let kv = spec.kv_bytes_per_token().saturating_mul(pool_tokens(options));
        let rope = u64::from(options.context_max) * u64::from(spec.rope.rotary) * 4;
        let scratch = rope + scratch_sizes(spec, options, facts).iter().map(|s| s.1).sum::<u64>();
        Ok(Budget { weights: bytes, kv, scratch })
    }

    /// Puts the model on `device`.
    pub fn load(
        weights: &Weights,
        device: &mut dyn Device,
        options: Options,
        progress: Progress<'_>,
    ) -> Result<Self, ModelError> {
        let spec = Spec::read(weights)?;
        let facts = device.facts().clone();
        let budget = Self::budget(&spec, weights, &options, &facts)?;
        if let Some(have) = options.memory_bytes.or(facts.memory_bytes)
            && budget.total() > have
        {
            return Err(ModelError::DoesNotFit {
                file: weights.name().into(),
                weights: budget.weights,
                kv: budget.kv,
                scratch: budget.scratch,
                needed: budget.total(),
                have,
            });
        }
        let total = weights.tensors().values().map(|t| t.bytes).sum();
        Loader { weights, device, spec: &spec, done: 0, total, progress }.load(options, facts)
    }

    /// The heads as attention sees them.
    pub(super) fn heads(&self) -> Heads {
        let Spec { heads, kv_heads, head_dim, .. } = self.spec;
        Heads { heads, kv_heads, head_dim }
    }

    /// Partial slots of one step.
    pub(super) fn partials_max(&self) -> u32 {
        PARTIALS_PER_HEAD * self.spec.heads
    }

    /// Rows whose logits are computed at once: what one binding holds, a multiple of 4.
    pub fn logit_rows(spec: &Spec, options: &Options, facts: &Facts) -> u32 {
        let row = u64::from(stride(spec.vocab)) * 4;
        let fits = (facts.binding_bytes_max / row).min(128) as u32;
        options.sequences_max.next_multiple_of(4).min(fits / 4 * 4).max(4)
    }
}

fn pool_tokens(options: &Options) -> u64 {
    u64::from(options.blocks) * u64::from(options.block_size)
}

/// Words of the per-step metadata: tokens, positions, slots, rows, tables, work items, merges.
fn meta_words(options: &Options) -> u64 {
    let (tokens, rows) = (u64::from(options.step_tokens_max), u64::from(options.sequences_max));
    let table = u64::from(options.context_max.div_ceil(options.block_size)) + 1;
    tokens * 3 + rows * (1 + table + 4) + 8 * (tokens + u64::from(PARTIALS_PER_HEAD)) + 64
}

/// Name and bytes of every scratch buffer, in the order of [`Scratch`].
fn scratch_sizes(spec: &Spec, options: &Options, facts: &Facts) -> [(&'static str, u64); 16] {
    let tokens = u64::from(options.step_tokens_max);
    let samples = u64::from(options.sequences_max.next_multiple_of(4));
    let logit_rows = u64::from(Model::logit_rows(spec, options, facts));
    let row = |dim: u32| u64::from(stride(dim)) * 4;
    let partials = u64::from(PARTIALS_PER_HEAD * spec.heads);
    let logits = logit_rows * row(spec.vocab);
    let edits = samples * u64::from(edits_per_row(spec, options) * sample::EDIT_WORDS) * 4;
    let edits = edits.min(facts.binding_bytes_max / 256 * 256);
    [
        ("x", tokens * row(spec.hidden)),
        ("h", tokens * row(spec.hidden)),
        ("q", tokens * row(spec.q_dim())),
        ("k", tokens * row(spec.kv_dim())),
        ("v", tokens * row(spec.kv_dim())),
        ("attention", tokens * row(spec.q_dim())),
        ("gate", tokens * row(spec.ffn)),
        ("up", tokens * row(spec.ffn)),
        ("last rows", logit_rows * row(spec.hidden)),
        ("logits", logits),
        ("sampling weights", logits),
        ("attention partials", partials * u64::from(partial_values(spec.head_dim)) * 4),
        ("step metadata", meta_words(options) * 4),
        ("sampling rows", samples * u64::from(sample::ROW_WORDS) * 4),
        ("sampling edits", edits),
        ("sampled", samples * u64::from(sample::OUT_WORDS) * 4),
    ]
}

/// Edits of logits one row may bring: every token it has seen, and the bias entries.
fn edits_per_row(spec: &Spec, options: &Options) -> u32 {
    options.context_max.min(spec.vocab) + 1024 + 64
}

/// The matrices of a layer with their rows and columns, in the order of [`Layer::bias`].
fn matrices(spec: &Spec, l: u32) -> [(Place, u32, u32); 7] {
    let (hidden, q, kv, ffn) = (spec.hidden, spec.q_dim(), spec.kv_dim(), spec.ffn);
    [
        (Place::Q(l), q, hidden),
        (Place::K(l), kv, hidden),
        (Place::V(l), kv, hidden),
        (Place::AttentionOut(l), hidden, q),
        (Place::Gate(l), ffn, hidden),
        (Place::Up(l), ffn, hidden),
        (Place::Down(l), hidden, ffn),
    ]
}

struct Loader<'a> {
    weights: &'a Weights,
    device: &'a mut dyn Device,
    spec: &'a Spec,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl Loader<'_> {
    fn load(mut self, options: Options, facts: Facts) -> Result<Model, ModelError> {
        let spec = self.spec;
        self.check()?;
        let embedding = self.matrix(Place::Embedding, spec.vocab, spec.hidden)?;
        let head = match spec.tied_head {
            true => embedding.clone(),
            false => self.matrix(Place::Head, spec.vocab, spec.hidden)?,
        };
        let final_norm = self.vector(Place::FinalNorm, ".weight", spec.hidden)?;
        let mut layers = Vec::new();
        for layer in 0..spec.layers {
            layers.push(self.layer(layer, &options)?);
        }
        let table = spec.rope.table(options.context_max);
        let rope = self.buffer("rope table", bytemuck::cast_slice(&table))?;
        let mut buffers = Vec::new();
        for (label, bytes) in scratch_sizes(spec, &options, &facts) {
            buffers.push(self.zeros(label, bytes)?);
        }
        let [x, h, q, k, v, attention, gate, up, last, logits, weights, partial, ..] = buffers[..]
        else {
            unreachable!("scratch_sizes gives sixteen")
        };
        let [meta, rows, edits, out] = buffers[12..] else { unreachable!("sixteen") };
        let scratch = Scratch {
            x,
            h,
            q,
            k,
            v,
            attention,
            gate,
            up,
            last,
            logits,
            weights,
            partial,
            meta,
            rows,
            edits,
            out,
        };
        let spec = spec.clone();
        Ok(Model { spec, options, facts, embedding, head, final_norm, rope, layers, scratch })
    }

    /// Every tensor is there and has its shape: known before anything is uploaded.
    fn check(&self) -> Result<(), ModelError> {
        let spec = self.spec;
        let expect = |place: Place, shape: &[u32]| {
            let shape: Vec<u64> = shape.iter().map(|&axis| u64::from(axis)).collect();
            self.weights.expect(&(spec.dialect.stem(place) + ".weight"), &shape).map(|_| ())
        };
        expect(Place::Embedding, &[spec.vocab, spec.hidden])?;
        if !spec.tied_head {
            expect(Place::Head, &[spec.vocab, spec.hidden])?;
        }
        expect(Place::FinalNorm, &[spec.hidden])?;
        for l in 0..spec.layers {
            expect(Place::AttentionNorm(l), &[spec.hidden])?;
            expect(Place::FfnNorm(l), &[spec.hidden])?;
            for (place, rows, cols) in matrices(spec, l) {
                expect(place, &[rows, cols])?;
            }
        }
        Ok(())
    }

    fn layer(&mut self, l: u32, options: &Options) -> Result<Layer, ModelError> {
        let spec = self.spec;
        let (attention_norm, ffn_norm) = (Place::AttentionNorm(l), Place::FfnNorm(l));
        let places = matrices(spec, l);
        let mut bias = [None; 7];
        for (n, (place, rows, _)) in places.into_iter().enumerate() {
            let must = if n < 4 { spec.attention_bias } else { spec.mlp_bias };
            bias[n] = self.bias(place, rows, must)?;
        }
        let mut matrix = |n: usize| {
            let (place, rows, cols) = places[n];
            self.matrix(place, rows, cols)
        };
        let [q, k, v, out] = [matrix(0)?, matrix(1)?, matrix(2)?, matrix(3)?];
        let [gate, up, down] = [matrix(4)?, matrix(5)?, matrix(6)?];
        let cache = u64::from(spec.kv_dim()) * 4 * pool_tokens(options);
        Ok(Layer {
            attention_norm: self.vector(attention_norm, ".weight", spec.hidden)?,
            q,
            k,
            v,
            out,
            ffn_norm: self.vector(ffn_norm, ".weight", spec.hidden)?,
            gate,
            up,
            down,
            bias,
            k_cache: self.zeros(&format!("K cache of layer {l}"), cache)?,
            v_cache: self.zeros(&format!("V cache of layer {l}"), cache)?,
        })
    }

    /// Heads whose rows are stored with adjacent rotary pairs at this place.
    fn paired_heads(&self, place: Place) -> Option<u32> {
        match place {
            Place::Q(_) if self.spec.adjacent_pairs => Some(self.spec.heads),
            Place::K(_) if self.spec.adjacent_pairs => Some(self.spec.kv_heads),
            _ => None,
        }
    }

    fn matrix(&mut self, place: Place, rows: u32, cols: u32) -> Result<Matrix, ModelError> {
        let name = self.spec.dialect.stem(place) + ".weight";
        let weights = self.weights;
        let tensor = weights.expect(&name, &[u64::from(rows), u64::from(cols)])?;
        let facts = self.device.facts();
        let limit = facts.binding_bytes_max.min(facts.buffer_bytes_max).min(PART_BYTES_MAX);
        let fit = layout::rows_within(tensor.format, u64::from(cols), limit);
        if fit == 0 {
            let bytes = tensor.bytes / u64::from(rows);
            let error = crate::record::DeviceError::TooLarge { label: name, bytes, limit };
            return Err(error.into());
        }
        let fit = u32::try_from(fit).unwrap_or(rows).min(rows);
        // Heads whose rows are reordered stay whole.
        let step = match self.paired_heads(place) {
            Some(heads) => (fit / (rows / heads)).max(1) * (rows / heads),
            None => fit,
        };
        let mut parts = Vec::new();
        for first in (0..rows).step_by(step as usize) {
            parts.push(self.part(tensor, place, first, step.min(rows - first), cols)?);
        }
        Ok(Matrix { format: tensor.format, rows, cols, parts })
    }

    fn part(
        &mut self,
        tensor: &Tensor,
        place: Place,
        first: u32,
        rows: u32,
        cols: u32,
    ) -> Result<MatrixPart, ModelError> {
        let mut raw = self.weights.read_rows(tensor, u64::from(first), u64::from(rows))?;
        self.advance(raw.len() as u64);
        if self.paired_heads(place).is_some() {
            let heads = rows / self.spec.head_dim;
            raw = half_split(&raw, rows as usize, heads as usize);
        }
        let words = layout::repack(tensor.format, rows as usize, cols as usize, &raw);
        let sizes = layout::stream_bytes(tensor.format, u64::from(rows), u64::from(cols));
        let sizes = sizes.expect("repack computed the same");
        let all = self.buffer(&tensor.name, bytemuck::cast_slice(&words))?;
        let quants = Binding { bytes: sizes.quants, ..all };
        let scales = match sizes.scales {
            0 => Binding { bytes: 16, ..all },
            bytes => Binding { offset: sizes.scales_at, bytes, ..all },
        };
        Ok(MatrixPart { first, rows, quants, scales })
    }

    fn bias(&mut self, place: Place, len: u32, must: bool) -> Result<Option<Binding>, ModelError> {
        let name = self.spec.dialect.stem(place) + ".bias";
        if !must && self.weights.tensor(&name).is_none() {
            return Ok(None);
        }
        self.vector(place, ".bias", len).map(Some)
    }

    /// A one-axis tensor as f32.
    fn vector(&mut self, place: Place, tail: &str, len: u32) -> Result<Binding, ModelError> {
        let name = self.spec.dialect.stem(place) + tail;
        let tensor = self.weights.expect(&name, &[u64::from(len)])?;
        let mut raw = self.weights.read_rows(tensor, 0, u64::from(len))?;
        self.advance(raw.len() as u64);
        if let Some(heads) = self.paired_heads(place) {
            raw = half_split(&raw, len as usize, heads as usize);
        }
        let mut values = vec![0f32; len as usize];
        blocks::decode(tensor.format, &raw, &mut values);
        self.buffer(&name, bytemuck::cast_slice(&values))
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(self.done, self.total);
    }

    fn buffer(&mut self, label: &str, bytes: &[u8]) -> Result<Binding, ModelError> {
        let binding = self.zeros(label, bytes.len() as u64)?;
        self.device.write_buffer(binding.buffer, 0, bytes)?;
        Ok(binding)
    }

    fn zeros(&mut self, label: &str, bytes: u64) -> Result<Binding, ModelError> {
        let limit = self.device.facts().binding_bytes_max;
        let bytes = bytes.next_multiple_of(16).max(16);
        if bytes > limit {
            let label = label.to_string();
            return Err(crate::record::DeviceError::TooLarge { label, bytes, limit }.into());
        }
        let buffer = self.device.create_buffer(label, bytes)?;
        Ok(Binding { buffer, offset: 0, bytes })
    }
}

/// Reorders the rows of each head from adjacent rotary pairs (2i, 2i + 1) to halves (i, i + n/2).
fn half_split(raw: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let (row_bytes, head) = (raw.len() / rows, rows / heads);
    let mut out = Vec::with_capacity(raw.len());
    for row in 0..rows {
        let (first, i) = (row / head * head, row % head);
        let from = if i < head / 2 { 2 * i } else { 2 * (i - head / 2) + 1 };
        out.extend_from_slice(&raw[(first + from) * row_bytes..][..row_bytes]);
    }
    out
}
