//! The model on a device, and its sizes: they come first, and are refused with figures if they
//! cannot fit; then the [`Loader`] brings the weights.

use super::loader::Loader;
use super::{ModelError, Moe, Rope, Spec};
use crate::base::KvType;
use crate::kernels::attn::{Heads, partial_values};
use crate::kernels::experts::{Experts, Route};
use crate::kernels::mul::Matrix;
use crate::kernels::{layout, sample};
use crate::record::{Binding, Device, DeviceError, Facts};
use crate::weights::Weights;

/// Sizes that the engine chooses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How keys and values are stored.
    pub kv: KvType,
    pub block_size: u32,
    /// KV blocks of the pool; one more is made, for padding.
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

impl Options {
    /// Rows that one step may answer: one for each sequence, and every token of a prompt that is
    /// scored.
    pub fn answers_max(&self) -> u32 {
        self.sequences_max.saturating_add(self.step_tokens_max).next_multiple_of(4)
    }
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

/// Partial results of split attention that one step may hold, per head.
const PARTIALS_PER_HEAD: u32 = 512;

/// A product with its bias, where there is one.
pub(super) struct Linear {
    pub w: Matrix,
    pub bias: Option<Binding>,
}

/// What makes q, k and v.
pub(super) struct Attention {
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    /// Norms of q and k.
    pub norms: Option<[Binding; 2]>,
}

/// A gated feed-forward: `down(act(gate x) * (up x))`.
pub(super) struct Gated {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

/// A mixture of such, and one that every token uses, where there is one.
pub(super) struct Mixture {
    pub router: Matrix,
    /// Added to the scores for the choice alone.
    pub router_bias: Option<Binding>,
    pub gate: Experts,
    pub up: Experts,
    pub down: Experts,
    pub shared: Option<Gated>,
}

/// What follows attention.
pub(super) enum FeedForward {
    Dense(Gated),
    Mixture(Mixture),
}

/// The weights of one layer.
pub(super) struct Layer {
    pub attention_norm: Option<Binding>,
    pub attention: Attention,
    pub out: Linear,
    pub attention_post_norm: Option<Binding>,
    pub ffn_norm: Option<Binding>,
    pub ffn: FeedForward,
    pub ffn_post_norm: Option<Binding>,
}

impl Layer {
    /// The matrices; of experts, the first.
    pub fn matrices(&self) -> Vec<Matrix> {
        let a = &self.attention;
        let linears = [&a.q, &a.k, &a.v, &self.out];
        let mut out: Vec<Matrix> = linears.into_iter().map(|l| l.w.clone()).collect();
        let gated = |f: &Gated| [&f.gate, &f.up, &f.down].map(|l| l.w.clone());
        match &self.ffn {
            FeedForward::Dense(f) => out.extend(gated(f)),
            FeedForward::Mixture(m) => {
                out.push(m.router.clone());
                out.extend([&m.gate, &m.up, &m.down].into_iter().filter_map(Experts::first));
                out.extend(m.shared.iter().flat_map(gated));
            }
        }
        out
    }
}

/// All weights of a model.
pub(super) struct Weighed {
    pub embedding: Matrix,
    pub head: Matrix,
    pub final_norm: Binding,
    pub layers: Vec<Layer>,
}

/// The cache of one layer, block by block.
pub(super) struct Cache {
    pub k: Binding,
    pub v: Binding,
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
    pub router: Binding,
    pub routing: Binding,
    pub expert_out: Binding,
    pub last: Binding,
    pub logits: Binding,
    pub weights: Binding,
    pub partial: Binding,
    pub meta: Binding,
    pub rows: Binding,
    pub edits: Binding,
    pub masks: Binding,
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
    /// Table of [`Spec::rope`], and of [`Spec::local_rope`] or the same again.
    pub(super) ropes: [Binding; 2],
    pub(super) layers: Vec<Layer>,
    pub(super) caches: Vec<Cache>,
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
        let kv = spec.kv_bytes_per_token(options.kv).saturating_mul(pool_tokens(options));
        let ropes = [Some(&spec.rope), spec.local_rope.as_ref()].into_iter().flatten();
        let rotary = ropes.map(|rope| u64::from(rope.rotary)).sum::<u64>();
        let rope = u64::from(options.context_max) * rotary * 4;
        let scratch = rope + scratch_sizes(spec, options, facts).iter().map(|s| s.1).sum::<u64>();
        Ok(Budget { weights: bytes, kv, scratch })
    }

    /// Puts the model on `device`. Where the device has not the memory for the KV cache asked for,
    /// `options` of the result say what it has got.
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
        let mut loader = Loader::new(weights, device, &spec, progress);
        let Weighed { embedding, head, final_norm, layers } = loader.load()?;
        let (options, rooms) = rooms(&mut loader, &spec, options, &facts)?;
        let Rooms { caches, ropes, scratch } = rooms;
        Ok(Self {
            spec,
            options,
            facts,
            embedding,
            head,
            final_norm,
            ropes,
            layers,
            caches,
            scratch,
        })
    }

    /// The heads as attention sees them.
    pub(super) fn heads(&self) -> Heads {
        let Spec { heads, kv_heads, head_dim, .. } = self.spec;
        Heads { heads, kv_heads, head_dim }
    }

    /// Bytes of one KV block in all layers.
    pub fn block_bytes(&self) -> u64 {
        self.block_parts(0).map(|part| part.bytes).sum()
    }

    /// Where the keys and values of a block lie, layer by layer.
    pub fn block_parts(&self, block: u32) -> impl Iterator<Item = Binding> {
        let token = self.spec.cache_bytes_per_token(self.options.kv);
        let bytes = token * u64::from(self.options.block_size);
        let part = move |cache: Binding| Binding {
            offset: cache.offset + u64::from(block) * bytes,
            bytes,
            ..cache
        };
        self.caches.iter().flat_map(move |c| [part(c.k), part(c.v)])
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

/// Positions of the pool and of the block after it, which is scratch: padding rows write there.
pub(super) fn pool_tokens(options: &Options) -> u64 {
    (u64::from(options.blocks) + 1) * u64::from(options.block_size)
}

/// Words of the per-step metadata: tokens, positions, slots, rows, tables, work items, merges, and
/// up to two more lists of tokens for what is asked of prompts. In a padded batch a sequence may
/// have a row of its own and one of padding.
fn meta_words(options: &Options) -> u64 {
    let (tokens, rows) = (u64::from(options.step_tokens_max), 2 * u64::from(options.sequences_max));
    let table = u64::from(options.context_max.div_ceil(options.block_size)) + 1;
    tokens * 5 + rows * (1 + table + 4) + 8 * (tokens + u64::from(PARTIALS_PER_HEAD)) + 64
}

/// Name and bytes of every scratch buffer, in the order of [`Scratch`].
fn scratch_sizes(spec: &Spec, options: &Options, facts: &Facts) -> Vec<(&'static str, u64)> {
    let tokens = u64::from(options.step_tokens_max);
    let samples = u64::from(options.sequences_max.next_multiple_of(4));
    let answers = u64::from(options.answers_max());
    let logit_rows = u64::from(Model::logit_rows(spec, options, facts));
    let row = |dim: u32| u64::from(stride(dim)) * 4;
    let partials = u64::from(PARTIALS_PER_HEAD * spec.heads);
    let logits = logit_rows * row(spec.vocab);
    let edits = samples * u64::from(edits_per_row(spec, options) * sample::EDIT_WORDS) * 4;
    let edits = edits.min(facts.binding_bytes_max / 256 * 256);
    let (route, pairs) = match &spec.moe {
        Some(Moe { experts, used, .. }) => {
            let tokens = options.step_tokens_max;
            let route = Route { tokens, experts: *experts, used: *used };
            (route, u64::from(*used))
        }
        None => (Route { tokens: 0, experts: 0, used: 0 }, 0),
    };
    vec![
        ("x", tokens * row(spec.hidden)),
        ("h", tokens * row(spec.hidden)),
        ("q", tokens * row(spec.q_dim())),
        ("k", tokens * row(spec.kv_dim())),
        ("v", tokens * row(spec.kv_dim())),
        ("attention", tokens * row(spec.q_dim())),
        ("gate", tokens * row(spec.widest_ffn())),
        ("up", tokens * row(spec.widest_ffn())),
        ("router logits", tokens * row(route.experts)),
        ("routing", route.words() * 4),
        ("expert outputs", tokens * pairs * row(spec.hidden)),
        ("last rows", logit_rows * row(spec.hidden)),
        ("logits", logits),
        ("sampling weights", logits),
        ("attention partials", partials * u64::from(partial_values(spec.head_dim)) * 4),
        ("step metadata", meta_words(options) * 4),
        ("sampling rows", answers * u64::from(sample::ROW_WORDS) * 4),
        ("sampling edits", edits),
        ("sampling masks", samples * u64::from(sample::mask_words(spec.vocab)) * 4),
        ("sampled", answers * u64::from(sample::OUT_WORDS) * 4),
    ]
}

/// Edits of logits one row may bring: every token it has seen, and the bias entries.
fn edits_per_row(spec: &Spec, options: &Options) -> u32 {
    options.context_max.min(spec.vocab) + 1024 + 64
}

/// What is made beside the weights.
struct Rooms {
    caches: Vec<Cache>,
    ropes: [Binding; 2],
    scratch: Scratch,
}

/// Makes caches, tables and scratch. Where memory runs out, the KV cache is halved until all fit.
fn rooms(
    loader: &mut Loader<'_>,
    spec: &Spec,
    mut options: Options,
    facts: &Facts,
) -> Result<(Options, Rooms), ModelError> {
    let before = loader.made();
    loop {
        match rooms_of(loader, spec, &options, facts) {
            Err(ModelError::Device(DeviceError::OutOfMemory { .. })) if options.blocks > 1 => {
                loader.free_from(before);
                options.blocks /= 2;
                let pool = options.blocks.saturating_mul(options.block_size);
                options.context_max = options.context_max.min(pool);
            }
            done => return Ok((options, done?)),
        }
    }
}

fn rooms_of(
    loader: &mut Loader<'_>,
    spec: &Spec,
    options: &Options,
    facts: &Facts,
) -> Result<Rooms, ModelError> {
    let caches = caches(loader, spec, options)?;
    let mut table = |label: &str, rope: &Rope| {
        let table = rope.table(options.context_max);
        loader.buffer(label, bytemuck::cast_slice(&table))
    };
    let rope = table("rope table", &spec.rope)?;
    let local = match &spec.local_rope {
        Some(local) => table("local rope table", local)?,
        None => rope,
    };
    let scratch = scratch(loader, spec, options, facts)?;
    Ok(Rooms { caches, ropes: [rope, local], scratch })
}

fn caches(
    loader: &mut Loader<'_>,
    spec: &Spec,
    options: &Options,
) -> Result<Vec<Cache>, ModelError> {
    let bytes = spec.cache_bytes_per_token(options.kv) * pool_tokens(options);
    let mut caches = Vec::new();
    for l in 0..spec.layers {
        let k = loader.zeros(&format!("K cache of layer {l}"), bytes)?;
        let v = loader.zeros(&format!("V cache of layer {l}"), bytes)?;
        caches.push(Cache { k, v });
    }
    Ok(caches)
}

fn scratch(
    loader: &mut Loader<'_>,
    spec: &Spec,
    options: &Options,
    facts: &Facts,
) -> Result<Scratch, ModelError> {
    let mut sizes = scratch_sizes(spec, options, facts).into_iter();
    let mut next = || {
        let (label, bytes) = sizes.next().expect("as many as the fields of Scratch");
        loader.zeros(label, bytes)
    };
    Ok(Scratch {
        x: next()?,
        h: next()?,
        q: next()?,
        k: next()?,
        v: next()?,
        attention: next()?,
        gate: next()?,
        up: next()?,
        router: next()?,
        routing: next()?,
        expert_out: next()?,
        last: next()?,
        logits: next()?,
        weights: next()?,
        partial: next()?,
        meta: next()?,
        rows: next()?,
        edits: next()?,
        masks: next()?,
        out: next()?,
    })
}
