//! The [`Loader`] walks the tensors of a model twice: first it only looks (every tensor is there,
//! has its shape, and no tensor of a layer is left over), then it reads each by rows, repacks it
//! once into its streams and writes it to the device. One walk, so that nothing is uploaded that
//! was not checked. What the first one gives has the shapes of the model and no buffers.

mod latent;

use super::family::{Bias, Norms, QkNorm};
use super::load::{Attention, FeedForward, Gated, Layer, Linear, Mixture, Progress, Weighed};
use super::names::{Dialect, Part};
use super::rows::columns;
use super::spec::Pairs;
use super::{ModelError, Moe, Spec};
use crate::base::Format;
use crate::kernels::experts::{ExpertPart, Experts};
use crate::kernels::mul::{Matrix, MatrixPart, TURN};
use crate::kernels::streams::Streams;
use crate::kernels::{layout, texels};
use crate::record::{Binding, BufferId, Device, DeviceError, VariantId};
use crate::weights::{Tensor, Weights, blocks};
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of one weight buffer, so that repacking never holds a huge tensor twice. Memory that
/// a browser has given is never given back, so little is asked of it.
const PART_BYTES_MAX: u64 = if cfg!(target_arch = "wasm32") { 6 << 20 } else { 256 << 20 };

/// Stands for a buffer while tensors are only looked at.
pub(super) const NOT_YET: Binding = Binding { buffer: BufferId(u32::MAX), offset: 0, bytes: 0 };

/// Endings of tensors that a layer may hold without their being weights of ours: tables that are
/// computed here, and scales for what other programs round to eight bits while they run
/// (activations, keys and values), which this one does not.
const IGNORED: [&str; 7] = [
    "rotary_emb.inv_freq",
    "attn_rot_embd.weight",
    "rope_freqs.weight",
    ".input_scale",
    ".activation_scale",
    ".k_scale",
    ".v_scale",
];

/// Rows of a tensor that become rows of a matrix, and the column where their outputs go.
#[derive(Clone, Copy)]
struct Rows<'a> {
    tensor: &'a Tensor,
    first: u32,
    count: u32,
    pairs: Option<Pairs>,
    column: u32,
}

impl Rows<'_> {
    /// Whether `next` goes on where these end, in the same format.
    fn meets(&self, next: &Rows<'_>) -> bool {
        self.tensor.format == next.tensor.format && self.column + self.count == next.column
    }
}

/// The halves of `both` in turns of `turn` elements.
fn turns<T: Copy>(both: &[T], turn: usize) -> Vec<T> {
    let (first, second) = both.split_at(both.len() / 2);
    let pairs = first.chunks(turn).zip(second.chunks(turn));
    pairs.flat_map(|(first, second)| [first, second].concat()).collect()
}

/// Experts that are only looked at.
fn not_yet(format: Format, experts: u32, [rows, cols]: [u32; 2]) -> Experts {
    let part = ExpertPart { first: 0, experts, quants: NOT_YET, scales: NOT_YET };
    Experts { format, rows, cols, parts: vec![part] }
}

pub(super) struct Loader<'a> {
    weights: &'a Weights,
    device: &'a mut dyn Device,
    spec: &'a Spec,
    /// Read and upload; otherwise only look.
    upload: bool,
    /// Every buffer made so far.
    made: Vec<BufferId>,
    used: BTreeSet<String>,
    /// Bytes of matrices that were read in pieces of zeros alone, by tensor.
    zeros: BTreeMap<String, u64>,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl<'a> Loader<'a> {
    pub fn new(
        weights: &'a Weights,
        device: &'a mut dyn Device,
        spec: &'a Spec,
        progress: Progress<'a>,
    ) -> Self {
        let total = weights.tensors().values().map(|t| t.bytes).sum();
        let (used, made, zeros) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
        Self { weights, device, spec, upload: false, made, used, zeros, done: 0, total, progress }
    }

    /// Looks at everything.
    pub fn look(&mut self) -> Result<Weighed, ModelError> {
        let found = self.walk()?;
        self.refuse_left_over()?;
        Ok(found)
    }

    /// Loads what was looked at.
    pub fn load(&mut self) -> Result<Weighed, ModelError> {
        self.upload = true;
        self.walk()
    }

    /// Matrices of which nothing but zeros was read: what a download reserves and has not filled.
    pub fn blank(&self) -> Vec<String> {
        let bytes = |name: &str| self.weights.tensor(name).map_or(0, |tensor| tensor.bytes);
        let all = self.zeros.iter().filter(|(name, zeros)| **zeros >= bytes(name));
        all.map(|(name, _)| name.clone()).collect()
    }

    /// Lets the device build pipelines beside what follows.
    pub fn begin(&mut self, variants: &[VariantId]) {
        self.device.begin(variants);
    }

    fn walk(&mut self) -> Result<Weighed, ModelError> {
        let spec = self.spec;
        let embedding = self.single(Part::Embedding, 0, spec.vocab, spec.hidden)?;
        let head = match spec.tied_head {
            true => embedding.clone(),
            false => self.single(Part::Head, 0, spec.vocab, spec.hidden)?,
        };
        let final_norm = self.vector(Part::FinalNorm, 0, ".weight", spec.hidden)?;
        let mut layers = Vec::new();
        for layer in 0..spec.layers {
            layers.push(self.layer(layer)?);
        }
        Ok(Weighed { embedding, head, final_norm, layers })
    }

    /// A tensor of a layer that nothing read would be a part of the model that is left out.
    fn refuse_left_over(&self) -> Result<(), ModelError> {
        for l in 0..self.spec.layers {
            let lead = self.spec.dialect.layer(l);
            let names = self.weights.tensors().range(lead.clone()..).map(|(name, _)| name);
            for name in names.take_while(|name| name.starts_with(&lead)) {
                if !self.used.contains(name) && !IGNORED.iter().any(|end| name.ends_with(end)) {
                    return Err(ModelError::LeftOver {
                        file: self.weights.name().into(),
                        tensor: name.clone(),
                        family: self.spec.family.name,
                    });
                }
            }
        }
        Ok(())
    }

    fn layer(&mut self, l: u32) -> Result<Layer, ModelError> {
        let spec = self.spec;
        let (before, after) = match spec.family.norms {
            Norms::Before => (true, false),
            Norms::After => (false, true),
            Norms::Both => (true, true),
        };
        let mut norm = |part: Part, there: bool| match there {
            true => self.vector(part, l, ".weight", spec.hidden).map(Some),
            false => Ok(None),
        };
        let attention_norm = norm(Part::AttentionNorm, before)?;
        let attention_post_norm = norm(Part::AttentionPostNorm, after)?;
        let ffn_norm = norm(Part::FfnNorm, before)?;
        let ffn_post_norm = norm(Part::FfnPostNorm, after)?;
        let (out, out_bias) = (spec.out_dim(), spec.attention_bias == Bias::Attention);
        Ok(Layer {
            attention_norm,
            attention: self.attention(l)?,
            out: self.linear(&[(Part::AttentionOut, spec.hidden)], l, out, out_bias, false)?,
            attention_post_norm,
            ffn_norm,
            ffn: self.feed_forward(l)?,
            ffn_post_norm,
        })
    }

    fn attention(&mut self, l: u32) -> Result<Attention, ModelError> {
        let spec = self.spec;
        if let Some(latent) = spec.latent {
            return self.latent(l, latent);
        }
        let (q, kv) = (spec.q_dim(), spec.kv_dim());
        let bias = spec.attention_bias != Bias::None;
        let dims = match spec.family.qk_norm {
            QkNorm::None => None,
            QkNorm::Heads => Some([spec.head_dim; 2]),
            QkNorm::Row => Some([q, kv]),
        };
        let norms = match dims {
            None => None,
            Some([q, k]) => Some([
                self.vector(Part::QNorm, l, ".weight", q)?,
                self.vector(Part::KNorm, l, ".weight", k)?,
            ]),
        };
        let parts = [(Part::Q, q), (Part::K, kv), (Part::V, kv)];
        Ok(Attention::Heads { qkv: self.linear(&parts, l, spec.hidden, bias, false)?, norms })
    }

    fn feed_forward(&mut self, l: u32) -> Result<FeedForward, ModelError> {
        let spec = self.spec;
        let Some(moe) = spec.moe_of(l) else {
            let parts = [Part::Gate, Part::Up, Part::Down];
            return Ok(FeedForward::Dense(self.gated(parts, l, spec.ffn, spec.mlp_bias)?));
        };
        let (hidden, ffn) = (spec.hidden, moe.ffn);
        let shared = match moe.shared_ffn {
            0 => None,
            ffn => {
                let parts = [Part::SharedGate, Part::SharedUp, Part::SharedDown];
                Some(self.gated(parts, l, ffn, false)?)
            }
        };
        let bias = spec.dialect.stem(spec.family, Part::RouterBias, l);
        let router_bias = match self.weights.tensor(&bias) {
            Some(_) => Some(self.vector(Part::RouterBias, l, "", moe.experts)?),
            None => None,
        };
        Ok(FeedForward::Mixture(Mixture {
            router: self.single(Part::Router, l, moe.experts, hidden)?,
            router_bias,
            gate: self.experts(Part::ExpertGate, l, moe, [ffn, hidden])?,
            up: self.experts(Part::ExpertUp, l, moe, [ffn, hidden])?,
            down: self.experts(Part::ExpertDown, l, moe, [hidden, ffn])?,
            shared,
        }))
    }

    fn gated(
        &mut self,
        [gate, up, down]: [Part; 3],
        l: u32,
        ffn: u32,
        bias: bool,
    ) -> Result<Gated, ModelError> {
        let hidden = self.spec.hidden;
        Ok(Gated {
            gate_up: self.linear(&[(gate, ffn), (up, ffn)], l, hidden, bias, true)?,
            down: self.linear(&[(down, hidden)], l, ffn, bias, false)?,
            dim: ffn,
        })
    }

    /// The matrices of all experts: one tensor in GGUF files, one each in the others.
    fn experts(
        &mut self,
        part: fn(u32) -> Part,
        l: u32,
        moe: &Moe,
        [rows, cols]: [u32; 2],
    ) -> Result<Experts, ModelError> {
        let (weights, spec) = (self.weights, self.spec);
        let stacked = spec.dialect == Dialect::Gguf;
        let mut tensors = Vec::new();
        for e in 0..if stacked { 1 } else { moe.experts } {
            let name = spec.dialect.stem(spec.family, part(e), l) + ".weight";
            let shape = [moe.experts, rows, cols].map(u64::from);
            let shape = if stacked { &shape[..] } else { &shape[1..] };
            tensors.push(weights.expect(&name, shape)?);
            self.used.insert(name);
        }
        let format = tensors[0].format;
        if let Some(other) = tensors.iter().find(|t| t.format != format) {
            return Err(ModelError::Config {
                file: weights.name().into(),
                key: other.name.clone(),
                problem: format!("is {}, but the first expert is {format}", other.format),
            });
        }
        let label = tensors[0].name.clone();
        let at_once = self.stack_at_once(&label, format, moe.experts, [rows, cols])?;
        if !self.upload {
            return Ok(not_yet(format, moe.experts, [rows, cols]));
        }
        let mut parts = Vec::new();
        for first in (0..moe.experts).step_by(at_once as usize) {
            let count = at_once.min(moe.experts - first);
            let mut raw = Vec::new();
            for e in first..first + count {
                raw.push(match stacked {
                    true => self.rows(tensors[0], e, 1, None)?,
                    false => self.rows(tensors[e as usize], 0, rows, None)?,
                });
            }
            parts.push(self.expert_part(&label, format, first, [rows, cols], &raw)?);
        }
        Ok(Experts { format, rows, cols, parts })
    }

    /// How many of `count` matrices fit one binding.
    fn stack_at_once(
        &self,
        label: &str,
        format: Format,
        count: u32,
        [rows, cols]: [u32; 2],
    ) -> Result<u32, ModelError> {
        let limit = self.part_limit();
        let one = layout::stream_bytes(format, u64::from(rows), u64::from(cols));
        let bytes = one.map_or(u64::MAX, |one| one.total.next_multiple_of(layout::BINDING_ALIGN));
        // Kernels count the words of a part in 32 bits.
        match (limit.min(1 << 33) / bytes).min(u64::from(count)) {
            0 => Err(DeviceError::TooLarge { label: label.into(), bytes, limit }.into()),
            fit => Ok(fit as u32),
        }
    }

    /// Streams of several matrices: all quants, then all scales.
    fn expert_part(
        &mut self,
        label: &str,
        format: Format,
        first: u32,
        shape: [u32; 2],
        raw: &[Vec<u8>],
    ) -> Result<ExpertPart, ModelError> {
        let (experts, held) = (raw.len() as u32, texels(shape[1], self.device.facts()));
        let made = &mut self.made;
        let mut streams = Streams::create(self.device, label, format, experts, shape, held, made)?;
        for raw in raw {
            streams.write(self.device, raw)?;
        }
        Ok(ExpertPart { first, experts, quants: streams.quants, scales: streams.scales })
    }

    /// Bytes of one weight buffer.
    fn part_limit(&self) -> u64 {
        let facts = self.device.facts();
        facts.binding_bytes_max.min(facts.buffer_bytes_max).min(PART_BYTES_MAX)
    }

    /// Products of one x, each with so many outputs; these lie side by side as [`columns`] says.
    /// With `gates` they are in turns, where the device takes and the matrices allow it.
    fn linear(
        &mut self,
        parts: &[(Part, u32)],
        l: u32,
        cols: u32,
        must: bool,
        gates: bool,
    ) -> Result<Linear, ModelError> {
        let (firsts, width) = columns(parts.iter().map(|part| part.1));
        let mut runs: Vec<Vec<Rows>> = Vec::new();
        let mut bias: Option<Vec<f32>> = None;
        for (&(part, rows), &column) in parts.iter().zip(&firsts) {
            let next = self.find(part, l, [rows, cols], column)?;
            match runs.last_mut() {
                Some(run) if run[run.len() - 1].meets(&next) => run.push(next),
                _ => runs.push(vec![next]),
            }
            let name = self.spec.stored(part, l, rows).stem + ".bias";
            if must || self.weights.tensor(&name).is_some() {
                let values = self.values(part, l, ".bias", rows)?.unwrap_or_default();
                let all = bias.get_or_insert_with(|| vec![0.0; width as usize]);
                all[column as usize..][..values.len()].copy_from_slice(&values);
            }
        }
        let format = runs[0][0].tensor.format;
        let fit = layout::rows_within(format, u64::from(cols), self.part_limit());
        let one = runs.len() == 1 && fit >= u64::from(width);
        let in_turns = gates && one && texels(cols, self.device.facts());
        let matrix = |run: &Vec<Rows<'a>>| self.matrix(run, cols, in_turns);
        let w = runs.iter().map(matrix).collect::<Result<_, _>>()?;
        let bias = match bias.filter(|_| self.upload) {
            Some(mut values) => {
                if in_turns {
                    values = turns(&values, TURN as usize);
                }
                Some(self.buffer("bias", bytemuck::cast_slice(&values))?)
            }
            None => None,
        };
        Ok(Linear { w, bias, in_turns })
    }

    /// Looks for the matrix of `part`, whose outputs begin at `column`.
    fn find(
        &mut self,
        part: Part,
        l: u32,
        [rows, cols]: [u32; 2],
        column: u32,
    ) -> Result<Rows<'a>, ModelError> {
        let stored = self.spec.stored(part, l, rows);
        let name = stored.stem + ".weight";
        let weights = self.weights;
        let tensor = weights.expect(&name, &[u64::from(stored.of), u64::from(cols)])?;
        self.used.insert(name);
        Ok(Rows { tensor, first: stored.first, count: rows, pairs: self.spec.pairs(part), column })
    }

    fn single(&mut self, part: Part, l: u32, rows: u32, cols: u32) -> Result<Matrix, ModelError> {
        let rows = self.find(part, l, [rows, cols], 0)?;
        self.matrix(&[rows], cols, false)
    }

    /// One matrix of `run`, whose rows meet; in parts where it exceeds a binding.
    fn matrix(
        &mut self,
        run: &[Rows<'a>],
        cols: u32,
        in_turns: bool,
    ) -> Result<Matrix, ModelError> {
        let (format, limit) = (run[0].tensor.format, self.part_limit());
        let fit = layout::rows_within(format, u64::from(cols), limit);
        if fit == 0 {
            let label = run[0].tensor.name.clone();
            let bytes = run[0].tensor.bytes / run[0].tensor.rows().max(1);
            return Err(DeviceError::TooLarge { label, bytes, limit }.into());
        }
        let count = run.iter().map(|rows| rows.count).sum();
        let mut out = Matrix { format, rows: count, cols, parts: Vec::new() };
        if !self.upload {
            out.parts.push(MatrixPart { first: 0, rows: count, quants: NOT_YET, scales: NOT_YET });
            return Ok(out);
        }
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        if count <= fit {
            let mut raw = Vec::new();
            for &Rows { tensor, first, count, pairs, .. } in run {
                raw.append(&mut self.rows(tensor, first, count, pairs)?);
            }
            if in_turns {
                raw = turns(&raw, raw.len() / count as usize * TURN as usize);
            }
            out.parts.push(self.part(run[0].tensor, run[0].column, [count, cols], &raw)?);
            return Ok(out);
        }
        for &Rows { tensor, first, count, pairs, column } in run {
            // Heads whose rows are reordered stay whole.
            let step = pairs.map_or(fit, |pairs| (fit / pairs.head).max(1) * pairs.head);
            for at in (0..count).step_by(step as usize) {
                let rows = step.min(count - at);
                let raw = self.rows(tensor, first + at, rows, pairs)?;
                out.parts.push(self.part(tensor, column + at, [rows, cols], &raw)?);
            }
        }
        Ok(out)
    }

    /// Raw rows in the order that kernels want.
    fn rows(
        &mut self,
        tensor: &Tensor,
        first: u32,
        rows: u32,
        pairs: Option<Pairs>,
    ) -> Result<Vec<u8>, ModelError> {
        let raw = self.weights.read_rows(tensor, u64::from(first), u64::from(rows))?;
        self.done += raw.len() as u64;
        // Ends at the first byte that is none.
        if tensor.shape.len() > 1 && raw.iter().all(|byte| *byte == 0) {
            *self.zeros.entry(tensor.name.clone()).or_default() += raw.len() as u64;
        }
        (self.progress)(self.done, self.total);
        Ok(match pairs {
            Some(pairs) => pairs.turned(&raw, rows as usize, false),
            None => raw,
        })
    }

    fn part(
        &mut self,
        tensor: &Tensor,
        first: u32,
        shape: [u32; 2],
        raw: &[u8],
    ) -> Result<MatrixPart, ModelError> {
        let (held, made) = (texels(shape[1], self.device.facts()), &mut self.made);
        let (label, rows) = (&tensor.name, shape[0]);
        let mut streams = Streams::create(self.device, label, tensor.format, 1, shape, held, made)?;
        streams.write(self.device, raw)?;
        Ok(MatrixPart { first, rows, quants: streams.quants, scales: streams.scales })
    }

    /// A one-axis tensor, or a part of one, as f32.
    fn vector(&mut self, part: Part, l: u32, tail: &str, len: u32) -> Result<Binding, ModelError> {
        match self.values(part, l, tail, len)? {
            Some(values) => {
                let name = self.spec.stored(part, l, len).stem + tail;
                self.buffer(&name, bytemuck::cast_slice(&values))
            }
            None => Ok(NOT_YET),
        }
    }

    /// The values of such a tensor; `None` while tensors are only looked at.
    fn values(
        &mut self,
        part: Part,
        l: u32,
        tail: &str,
        len: u32,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let stored = self.spec.stored(part, l, len);
        let name = stored.stem + tail;
        let tensor = self.weights.expect(&name, &[u64::from(stored.of)])?;
        if !self.upload {
            self.used.insert(name);
            return Ok(None);
        }
        let raw = self.rows(tensor, stored.first, len, self.spec.pairs(part))?;
        let mut values = vec![0f32; len as usize];
        blocks::decode(tensor.format, &raw, &mut values);
        Ok(Some(values))
    }

    pub fn buffer(&mut self, label: &str, bytes: &[u8]) -> Result<Binding, ModelError> {
        let binding = self.zeros(label, bytes.len() as u64)?;
        self.device.write_buffer(binding.buffer, 0, bytes)?;
        Ok(binding)
    }

    pub fn zeros(&mut self, label: &str, bytes: u64) -> Result<Binding, ModelError> {
        let limit = self.device.facts().binding_bytes_max;
        let bytes = bytes.next_multiple_of(16).max(16);
        if bytes > limit {
            let label = label.to_string();
            return Err(DeviceError::TooLarge { label, bytes, limit }.into());
        }
        let buffer = self.device.create_buffer(label, bytes)?;
        self.made.push(buffer);
        Ok(Binding { buffer, offset: 0, bytes })
    }

    /// Buffers made so far, for [`Loader::free_from`].
    pub fn made(&self) -> usize {
        self.made.len()
    }

    /// Frees every buffer made since there were `count`.
    pub fn free_from(&mut self, count: usize) {
        for buffer in self.made.split_off(count) {
            self.device.free_buffer(buffer);
        }
    }
}
