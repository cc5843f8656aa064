//! The forward pass: writes the whole recording of a step, from token ids to sampled ids.

use super::family::{Activation, QkNorm};
use super::load::{Attention, Cache, FeedForward, Layer, Linear, stride};
use super::{Batch, Model, Rotation};
use crate::kernels::attn::{Attn, AttnRow, AttnWork, ITEM_WORDS, MERGE_WORDS};
use crate::kernels::block::{Gate, NormQk, NormRms, RopeKv, RopeKvParams, act_glu};
use crate::kernels::mul::{Embed, Mul};
use crate::kernels::sample::{EDIT_WORDS, OUT_WORDS, Sample, SampleResult};
use crate::record::{Binding, Recording};

/// Words of the step's metadata where each list begins.
#[derive(Default)]
struct Meta {
    words: Vec<u32>,
    tokens: u32,
    positions: u32,
    slots: u32,
    rows: u32,
    items: u32,
    merges: u32,
    work: AttnWork,
}

impl Meta {
    fn of(model: &Model, batch: &Batch) -> Self {
        let mut meta = Meta::default();
        let size = model.options.block_size;
        meta.tokens = meta.list(batch.tokens.iter().copied());
        let positions = |r: &super::BatchRow| r.start..r.start + r.len;
        meta.positions = meta.list(batch.rows.iter().flat_map(positions));
        let slot = |r: &super::BatchRow, position: u32| {
            let block = batch.tables[(r.table + position / size) as usize];
            block * size + position % size
        };
        meta.slots =
            meta.list(batch.rows.iter().flat_map(|r| positions(r).map(move |p| slot(r, p))));
        meta.rows = meta.list(batch.samples.iter().map(|s| s.0));
        let tables = meta.list(batch.tables.iter().copied());
        let rows: Vec<AttnRow> = batch
            .rows
            .iter()
            .map(|r| AttnRow {
                first: r.first,
                len: r.len,
                start: r.start,
                table_at: tables + r.table,
            })
            .collect();
        let mut work = AttnWork::default();
        let window = model.spec.widest_window();
        work.fill(&rows, model.heads(), window, model.partials_max());
        debug_assert_eq!(ITEM_WORDS + MERGE_WORDS, 12);
        meta.items = meta.list(work.items.iter().flatten().copied());
        meta.merges = meta.list(work.merges.iter().flatten().copied());
        meta.work = work;
        meta
    }

    fn list(&mut self, words: impl Iterator<Item = u32>) -> u32 {
        let at = self.words.len() as u32;
        self.words.extend(words);
        at
    }
}

/// Where a product goes, whether it adds to what is there, and its factor.
#[derive(Clone, Copy)]
struct BlockEnd {
    y: Binding,
    accumulate: bool,
    scale: f32,
}

impl BlockEnd {
    fn plain(y: Binding) -> Self {
        Self { y, accumulate: false, scale: 1.0 }
    }
}

impl Model {
    /// Writes the step of `batch` into `out` (cleared first). The downloads are the results of the
    /// sampled rows, then, if asked for, their logits.
    ///
    /// # Panics
    /// If the batch exceeds the sizes the model was loaded with: the scheduler keeps to them.
    pub fn record(&self, batch: &Batch, out: &mut Recording) {
        out.clear();
        let tokens = batch.tokens.len() as u32;
        assert!(tokens <= self.options.step_tokens_max, "{tokens} tokens exceed the step budget");
        assert!(batch.samples.len() <= self.options.sequences_max as usize, "too many rows");
        let meta = Meta::of(self, batch);
        let s = &self.scratch;
        assert!(meta.words.len() as u64 * 4 <= s.meta.bytes, "step metadata too long");
        out.upload(s.meta.buffer, 0, bytemuck::cast_slice(&meta.words));
        Embed {
            w: &self.embedding,
            tokens,
            meta: s.meta,
            tokens_at: meta.tokens,
            x: s.x,
            x_stride: stride(self.spec.hidden),
            scale: self.spec.embedding_scale,
        }
        .record(&self.facts, out);
        for (l, layer) in self.layers.iter().enumerate() {
            self.attention(l, layer, tokens, &meta, out);
            let h = self.normed(layer.ffn_norm, tokens, out);
            let to = self.block_end(layer.ffn_post_norm);
            self.feed_forward(&layer.ffn, tokens, h, to, out);
            self.post_norm(layer.ffn_post_norm, tokens, out);
        }
        self.sampling(batch, &meta, out);
    }

    /// The norm `w` of the residual, or the residual itself where the family has no norm here.
    fn normed(&self, w: Option<Binding>, tokens: u32, out: &mut Recording) -> Binding {
        let s = &self.scratch;
        let Some(w) = w else { return s.x };
        self.norm(tokens, (s.x, w, s.h), false, out);
        s.h
    }

    /// Where a block's last product goes: to the residual, or to its post-norm.
    fn block_end(&self, post_norm: Option<Binding>) -> BlockEnd {
        let (s, scale) = (&self.scratch, self.spec.residual_scale);
        match post_norm {
            Some(_) => BlockEnd { y: s.h, accumulate: false, scale },
            None => BlockEnd { y: s.x, accumulate: true, scale },
        }
    }

    /// Adds the norm of what [`Self::block_end`] kept back to the residual.
    fn post_norm(&self, w: Option<Binding>, tokens: u32, out: &mut Recording) {
        let s = &self.scratch;
        if let Some(w) = w {
            self.norm(tokens, (s.h, w, s.x), true, out);
        }
    }

    fn norm(
        &self,
        rows: u32,
        (x, w, y): (Binding, Binding, Binding),
        accumulate: bool,
        out: &mut Recording,
    ) {
        let row = stride(self.spec.hidden);
        NormRms {
            rows,
            dim: self.spec.hidden,
            x,
            x_stride: row,
            w,
            meta: self.scratch.meta,
            rows_at: None,
            y,
            y_stride: row,
            eps: self.spec.norm_eps,
            offset: self.spec.norm_offset,
            accumulate,
        }
        .record(&self.facts, out);
    }

    fn mul(&self, linear: &Linear, tokens: u32, x: Binding, to: BlockEnd, out: &mut Recording) {
        let w = &linear.w;
        let (x_stride, y_stride) = (stride(w.cols), stride(w.rows));
        let BlockEnd { y, accumulate, scale } = to;
        let bias = linear.bias;
        Mul { w, tokens, x, x_stride, y, y_stride, bias, accumulate, scale }
            .record(&self.facts, out);
    }

    fn attention(&self, l: usize, layer: &Layer, tokens: u32, meta: &Meta, out: &mut Recording) {
        let (s, spec, cache) = (&self.scratch, &self.spec, &self.caches[l]);
        let h = self.normed(layer.attention_norm, tokens, out);
        let Attention { q, k, v, norms } = &layer.attention;
        self.mul(q, tokens, h, BlockEnd::plain(s.q), out);
        self.mul(k, tokens, h, BlockEnd::plain(s.k), out);
        self.mul(v, tokens, h, BlockEnd::plain(s.v), out);
        if let Some(norms) = norms {
            self.norm_qk(*norms, tokens, out);
        }
        self.rope_kv(l, cache, tokens, meta, out);
        Attn {
            work: &meta.work,
            items_at: meta.items,
            merges_at: meta.merges,
            heads: self.heads(),
            block_size: self.options.block_size,
            scale: spec.attention_scale,
            window: spec.windows[l],
            q: s.q,
            q_stride: stride(spec.q_dim()),
            k_cache: cache.k,
            v_cache: cache.v,
            meta: s.meta,
            partial: s.partial,
            out: s.attention,
        }
        .record(&self.facts, out);
        self.mul(&layer.out, tokens, s.attention, self.block_end(layer.attention_post_norm), out);
        self.post_norm(layer.attention_post_norm, tokens, out);
    }

    fn norm_qk(&self, [q_weight, k_weight]: [Binding; 2], tokens: u32, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (q_groups, k_groups) = match spec.family.qk_norm {
            QkNorm::Row => (1, 1),
            _ => (spec.heads, spec.kv_heads),
        };
        NormQk {
            tokens,
            q: s.q,
            q_stride: stride(spec.q_dim()),
            q_groups,
            q_dim: spec.q_dim() / q_groups,
            q_weight,
            k: s.k,
            k_stride: stride(spec.kv_dim()),
            k_groups,
            k_dim: spec.kv_dim() / k_groups,
            k_weight,
            eps: spec.norm_eps,
            offset: spec.norm_offset,
        }
        .record(&self.facts, out);
    }

    fn rope_kv(&self, l: usize, cache: &Cache, tokens: u32, meta: &Meta, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (rotary, table) = match spec.rotations[l] {
            Rotation::None => (0, self.ropes[0]),
            Rotation::Global => (spec.rope.rotary, self.ropes[0]),
            Rotation::Local => (spec.rope_of(l as u32).map_or(0, |r| r.rotary), self.ropes[1]),
        };
        let params = RopeKvParams {
            tokens,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            rotary,
            q_stride: stride(spec.q_dim()),
            kv_stride: stride(spec.kv_dim()),
            block_size: self.options.block_size,
            positions_at: meta.positions,
            slots_at: meta.slots,
            grid_x: 0,
        };
        RopeKv {
            params,
            q: s.q,
            k: s.k,
            v: s.v,
            table,
            meta: s.meta,
            k_cache: cache.k,
            v_cache: cache.v,
        }
        .record(&self.facts, out);
    }

    fn feed_forward(
        &self,
        ffn: &FeedForward,
        tokens: u32,
        h: Binding,
        to: BlockEnd,
        out: &mut Recording,
    ) {
        let s = &self.scratch;
        self.mul(&ffn.gate, tokens, h, BlockEnd::plain(s.gate), out);
        self.mul(&ffn.up, tokens, h, BlockEnd::plain(s.up), out);
        let gate = match self.spec.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        act_glu(gate, tokens * stride(ffn.gate.w.rows), s.gate, s.up, &self.facts, out);
        self.mul(&ffn.down, tokens, s.gate, to, out);
    }

    /// Final norm, head and sampling of the wanted rows, as many at once as their logits fit.
    fn sampling(&self, batch: &Batch, meta: &Meta, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let count = batch.samples.len() as u32;
        if count == 0 {
            return;
        }
        let rows: Vec<_> = batch.samples.iter().map(|s| s.1).collect();
        out.upload(s.rows.buffer, 0, bytemuck::cast_slice(&rows));
        assert!(batch.edits.len() as u64 * 32 <= s.edits.bytes, "too many edits of logits");
        if !batch.edits.is_empty() {
            out.upload(s.edits.buffer, 0, bytemuck::cast_slice(&batch.edits));
        }
        let at_once = Self::logit_rows(spec, &self.options, &self.facts);
        assert!(!batch.logits || count <= at_once, "logits of {count} rows do not fit at once");
        for first in (0..count).step_by(at_once as usize) {
            let rows = at_once.min(count - first);
            NormRms {
                rows,
                dim: spec.hidden,
                x: s.x,
                x_stride: stride(spec.hidden),
                w: self.final_norm,
                meta: s.meta,
                rows_at: Some(meta.rows + first),
                y: s.last,
                y_stride: stride(spec.hidden),
                eps: spec.norm_eps,
                offset: spec.norm_offset,
                accumulate: false,
            }
            .record(&self.facts, out);
            Mul {
                w: &self.head,
                tokens: rows,
                x: s.last,
                x_stride: stride(spec.hidden),
                y: s.logits,
                y_stride: stride(spec.vocab),
                bias: None,
                accumulate: false,
                scale: spec.logit_scale,
            }
            .record(&self.facts, out);
            let edit = |row: u32| batch.edits.partition_point(|e| e.row < row) as u32;
            Sample {
                row_base: first,
                count: rows,
                edit_range: edit(first)..edit(first + rows),
                vocab: spec.vocab,
                stride: stride(spec.vocab),
                rows: s.rows,
                edits: s.edits,
                logits: s.logits,
                weights: s.weights,
                out: s.out,
            }
            .record(&self.facts, out);
        }
        out.download(Binding { bytes: u64::from(count * OUT_WORDS) * 4, ..s.out });
        if batch.logits {
            let bytes = u64::from(count) * u64::from(stride(spec.vocab)) * 4;
            out.download(Binding { bytes, ..s.logits });
        }
    }

    /// The results of the sampled rows of `batch`, from the bytes that came back.
    pub fn results(&self, batch: &Batch, bytes: &[u8]) -> Vec<SampleResult> {
        let words: Vec<u32> = bytemuck::allocation::pod_collect_to_vec(bytes);
        let rows = words.chunks_exact(OUT_WORDS as usize).zip(&batch.samples);
        rows.map(|(words, sample)| SampleResult::from_words(words, sample.1.top)).collect()
    }

    /// The logits that came back with `batch`, one vector per sampled row.
    pub fn logits(&self, batch: &Batch, bytes: &[u8]) -> Vec<Vec<f32>> {
        let floats: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(bytes);
        let skip = batch.samples.len() * OUT_WORDS as usize;
        let rows = floats[skip..].chunks_exact(stride(self.spec.vocab) as usize);
        rows.map(|row| row[..self.spec.vocab as usize].to_vec()).collect()
    }

    /// Edits of logits one step can hold.
    pub fn edits_max(&self) -> u32 {
        (self.scratch.edits.bytes / (u64::from(EDIT_WORDS) * 4)) as u32
    }
}
