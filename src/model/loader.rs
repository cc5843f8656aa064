//! The [`Loader`] walks the tensors of a model twice: first it only looks (every tensor is there,
//! has its shape, and no tensor of a layer is left over), then it reads each by rows, repacks it
//! once into its streams and writes it to the device. One walk, so that nothing is uploaded that
//! was not checked.

use super::family::{Bias, Norms, QkNorm};
use super::load::{Attention, FeedForward, Gated, Layer, Linear, Mixture, Progress, Weighed};
use super::names::{Dialect, Part};
use super::spec::Pairs;
use super::{Latent, ModelError, Moe, Spec};
use crate::base::Format;
use crate::kernels::experts::{ExpertPart, Experts};
use crate::kernels::mul::{Matrix, MatrixPart};
use crate::kernels::streams::Streams;
use crate::kernels::{layout, texels};
use crate::record::{Binding, BufferId, Device, DeviceError};
use crate::weights::{Tensor, Weights, blocks};
use std::collections::BTreeSet;

/// Most bytes of one weight buffer, so that repacking never holds a huge tensor twice. Memory that
/// a browser has given is never given back, so little is asked of it.
const PART_BYTES_MAX: u64 = if cfg!(target_arch = "wasm32") { 6 << 20 } else { 256 << 20 };

/// Stands for a buffer while tensors are only looked at.
const NOT_YET: Binding = Binding { buffer: BufferId(u32::MAX), offset: 0, bytes: 0 };

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

pub(super) struct Loader<'a> {
    weights: &'a Weights,
    device: &'a mut dyn Device,
    spec: &'a Spec,
    /// Read and upload; otherwise only look.
    upload: bool,
    /// Every buffer made so far.
    made: Vec<BufferId>,
    used: BTreeSet<String>,
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
        let used = BTreeSet::new();
        let made = Vec::new();
        Self { weights, device, spec, upload: false, made, used, done: 0, total, progress }
    }

    /// Looks at everything, then loads it.
    pub fn load(&mut self) -> Result<Weighed, ModelError> {
        self.walk()?;
        self.refuse_left_over()?;
        self.upload = true;
        self.walk()
    }

    fn walk(&mut self) -> Result<Weighed, ModelError> {
        let spec = self.spec;
        let embedding = self.matrix(Part::Embedding, 0, spec.vocab, spec.hidden)?;
        let head = match spec.tied_head {
            true => embedding.clone(),
            false => self.matrix(Part::Head, 0, spec.vocab, spec.hidden)?,
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
        let out_bias = spec.attention_bias == Bias::Attention;
        Ok(Layer {
            attention_norm,
            attention: self.attention(l)?,
            out: self.linear(Part::AttentionOut, l, [spec.hidden, spec.out_dim()], out_bias)?,
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
        Ok(Attention::Heads {
            q: self.linear(Part::Q, l, [q, spec.hidden], bias)?,
            k: self.linear(Part::K, l, [kv, spec.hidden], bias)?,
            v: self.linear(Part::V, l, [kv, spec.hidden], bias)?,
            norms,
        })
    }

    fn latent(&mut self, l: u32, latent: Latent) -> Result<Attention, ModelError> {
        let (spec, q_dim) = (self.spec, self.spec.own_q_dim());
        let bias = spec.attention_bias != Bias::None;
        let (q_down, q) = match latent.q_rank {
            Some(rank) => {
                let down = self.linear(Part::QDown, l, [rank, spec.hidden], bias)?;
                let norm = self.vector(Part::QDownNorm, l, ".weight", rank)?;
                (Some((down, norm)), self.linear(Part::QUp, l, [q_dim, rank], false)?)
            }
            None => (None, self.linear(Part::Q, l, [q_dim, spec.hidden], false)?),
        };
        let down = self.linear(Part::LatentDown, l, [spec.head_dim, spec.hidden], bias)?;
        let norm = self.vector(Part::LatentNorm, l, ".weight", latent.rank)?;
        let [key_up, value_up] = self.latent_up(l, latent)?;
        Ok(Attention::Latent { q_down, q, down, norm, key_up, value_up })
    }

    /// What makes keys and values from a latent, per head, turned so that it can be folded: q of a
    /// head by `[rank + rope][nope + rope]` (the transposed keys, and the rotated part as it is),
    /// and the output by `[value][rank]`.
    fn latent_up(&mut self, l: u32, latent: Latent) -> Result<[Experts; 2], ModelError> {
        let Latent { rank, rope, nope, value, .. } = latent;
        let heads = self.spec.heads;
        let whole = self.spec.stored(Part::LatentUp, l, 0).stem + ".weight";
        // Newer GGUF files have keys, turned already, and values apart.
        let apart = [Part::LatentKeys, Part::LatentValues]
            .map(|part| self.spec.dialect.stem(self.spec.family, part, l) + ".weight");
        let split = self.weights.tensor(&apart[0]).is_some();
        let tensors = match split {
            true => {
                let [keys, values] = apart;
                let shape = |rows: u32, cols: u32| [heads, rows, cols].map(u64::from);
                vec![(keys, shape(rank, nope).to_vec()), (values, shape(value, rank).to_vec())]
            }
            false => vec![(whole, [heads * (nope + value), rank].map(u64::from).to_vec())],
        };
        let label = tensors[0].0.clone();
        let mut formats = Vec::new();
        for (name, shape) in &tensors {
            formats.push(self.weights.expect(name, shape)?.format);
        }
        // Transposing breaks blocks up; halves stay what they are.
        let kept = |format: Format| match format {
            half @ (Format::F16 | Format::BF16) => half,
            _ => Format::F32,
        };
        let formats = [formats[0], formats[formats.len() - 1]].map(kept);
        let shapes = [[rank + rope, nope + rope], [value, rank]];
        for (format, shape) in formats.into_iter().zip(shapes) {
            self.stack_at_once(&label, format, heads, shape)?;
        }
        let mut decoded = Vec::new();
        for (name, shape) in tensors {
            let tensor = self.weights.expect(&name, &shape)?;
            if self.upload {
                let raw = self.rows(tensor, 0, tensor.rows() as u32, None)?;
                let mut values = vec![0f32; shape.iter().product::<u64>() as usize];
                blocks::decode(tensor.format, &raw, &mut values);
                decoded.push(values);
            }
            self.used.insert(name);
        }
        if !self.upload {
            let empty =
                |format, [rows, cols]: [u32; 2]| Experts { format, rows, cols, parts: vec![] };
            return Ok([0, 1].map(|n| empty(formats[n], shapes[n])));
        }
        let encoded = |format: Format, values: &[f32]| {
            let mut out = Vec::new();
            blocks::encode(format, values, &mut out);
            out
        };
        let mut stacks = [Vec::new(), Vec::new()];
        for head in 0..heads as usize {
            let (key, value) = latent.head(&decoded, head);
            stacks[0].push(encoded(formats[0], &latent.fold(key, split)));
            stacks[1].push(encoded(formats[1], value));
        }
        Ok([
            self.stack(&label, formats[0], shapes[0], &stacks[0])?,
            self.stack(&label, formats[1], shapes[1], &stacks[1])?,
        ])
    }

    /// Matrices of one shape in parts that fit a binding each.
    fn stack(
        &mut self,
        label: &str,
        format: Format,
        shape: [u32; 2],
        raw: &[Vec<u8>],
    ) -> Result<Experts, ModelError> {
        let at_once = self.stack_at_once(label, format, raw.len() as u32, shape)?;
        let mut parts = Vec::new();
        for (n, raw) in raw.chunks(at_once as usize).enumerate() {
            parts.push(self.expert_part(label, format, n as u32 * at_once, shape, raw)?);
        }
        Ok(Experts { format, rows: shape[0], cols: shape[1], parts })
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
            router: self.matrix(Part::Router, l, moe.experts, hidden)?,
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
            gate: self.linear(gate, l, [ffn, hidden], bias)?,
            up: self.linear(up, l, [ffn, hidden], bias)?,
            down: self.linear(down, l, [hidden, ffn], bias)?,
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
        let mut parts = Vec::new();
        for first in (0..moe.experts).step_by(at_once as usize) {
            if !self.upload {
                break;
            }
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

    fn linear(
        &mut self,
        part: Part,
        l: u32,
        [rows, cols]: [u32; 2],
        must: bool,
    ) -> Result<Linear, ModelError> {
        let w = self.matrix(part, l, rows, cols)?;
        let name = self.spec.stored(part, l, rows).stem + ".bias";
        let bias = match must || self.weights.tensor(&name).is_some() {
            true => Some(self.vector(part, l, ".bias", rows)?),
            false => None,
        };
        Ok(Linear { w, bias })
    }

    fn matrix(&mut self, part: Part, l: u32, rows: u32, cols: u32) -> Result<Matrix, ModelError> {
        let stored = self.spec.stored(part, l, rows);
        let name = stored.stem + ".weight";
        let weights = self.weights;
        let tensor = weights.expect(&name, &[u64::from(stored.of), u64::from(cols)])?;
        let limit = self.part_limit();
        let fit = layout::rows_within(tensor.format, u64::from(cols), limit);
        if fit == 0 {
            let bytes = tensor.bytes / u64::from(stored.of);
            return Err(DeviceError::TooLarge { label: name, bytes, limit }.into());
        }
        let mut parts = Vec::new();
        if !self.upload {
            self.used.insert(name);
            return Ok(Matrix { format: tensor.format, rows, cols, parts });
        }
        let fit = u32::try_from(fit).unwrap_or(rows).min(rows);
        // Heads whose rows are reordered stay whole.
        let pairs = self.spec.pairs(part);
        let step = pairs.map_or(fit, |pairs| (fit / pairs.head).max(1) * pairs.head);
        for first in (0..rows).step_by(step as usize) {
            let count = step.min(rows - first);
            let raw = self.rows(tensor, stored.first + first, count, pairs)?;
            parts.push(self.part(tensor, first, count, cols, &raw)?);
        }
        Ok(Matrix { format: tensor.format, rows, cols, parts })
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
        rows: u32,
        cols: u32,
        raw: &[u8],
    ) -> Result<MatrixPart, ModelError> {
        let (held, made) = (texels(cols, self.device.facts()), &mut self.made);
        let (label, shape) = (&tensor.name, [rows, cols]);
        let mut streams = Streams::create(self.device, label, tensor.format, 1, shape, held, made)?;
        streams.write(self.device, raw)?;
        Ok(MatrixPart { first, rows, quants: streams.quants, scales: streams.scales })
    }

    /// A one-axis tensor, or a part of one, as f32.
    fn vector(&mut self, part: Part, l: u32, tail: &str, len: u32) -> Result<Binding, ModelError> {
        let stored = self.spec.stored(part, l, len);
        let name = stored.stem + tail;
        let tensor = self.weights.expect(&name, &[u64::from(stored.of)])?;
        if !self.upload {
            self.used.insert(name);
            return Ok(NOT_YET);
        }
        let raw = self.rows(tensor, stored.first, len, self.spec.pairs(part))?;
        let mut values = vec![0f32; len as usize];
        blocks::decode(tensor.format, &raw, &mut values);
        self.buffer(&name, bytemuck::cast_slice(&values))
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
