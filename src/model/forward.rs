//! The forward pass: writes the whole recording of a step, from token ids to sampled ids.

use super::layer::BlockEnd;
use super::load::{Cache, pool_tokens};
use super::rows::stride;
use super::{Batch, Model};
use crate::kernels::attn::{AttnRow, AttnWork, ITEM_WORDS, MERGE_WORDS};
use crate::kernels::block::{NormRms, SoftCap};
use crate::kernels::mul::Embed;
use crate::kernels::sample::{EDIT_WORDS, OUT_WORDS, Sample, SampleResult};
use crate::record::{Binding, Recording};

/// Words of the step's metadata where each list begins.
#[derive(Default)]
pub struct Meta {
    words: Vec<u32>,
    tokens: u32,
    pub(super) positions: u32,
    pub(super) slots: u32,
    rows: u32,
    hidden: u32,
    pub(super) items: u32,
    pub(super) merges: u32,
    pub(super) work: AttnWork,
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
        meta.hidden = meta.list(batch.hidden.iter().copied());
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
        work.fill(&rows, model.heads(), window, model.partials_max(), &model.facts);
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

impl Model {
    /// Writes the step of `batch` into `out` (cleared first). The downloads are the results of the
    /// sampled rows, then, if asked for, their logits, then hidden states.
    ///
    /// # Panics
    /// If the batch exceeds the sizes the model was loaded with: the scheduler keeps to them.
    pub fn record(&self, batch: &Batch, out: &mut Recording) {
        out.clear();
        let meta = self.record_layers(batch, out);
        self.record_answers(batch, &meta, out);
    }

    /// The first part of a step: everything up to the last layer, nothing to come back. What this
    /// gives belongs to [`Model::record_answers`], which needs the masks of the same batch.
    ///
    /// # Panics
    /// As [`Model::record`].
    pub fn record_layers(&self, batch: &Batch, out: &mut Recording) -> Meta {
        let tokens = batch.tokens.len() as u32;
        assert!(tokens <= self.options.step_tokens_max, "{tokens} tokens exceed the step budget");
        assert!(batch.samples.len() <= self.options.answers_max() as usize, "too many rows");
        let meta = Meta::of(self, batch);
        let s = &self.scratch;
        assert!(meta.words.len() as u64 * 4 <= s.meta.bytes, "step metadata too long");
        out.upload(s.meta.buffer, 0, bytemuck::cast_slice(&meta.words));
        self.copy_blocks(&batch.copies, out);
        Embed {
            w: &self.embedding,
            tokens,
            meta: s.meta,
            tokens_at: meta.tokens,
            sampled: s.out,
            x: s.x,
            x_stride: stride(self.spec.hidden),
            scale: self.spec.embedding_scale,
        }
        .record(&self.facts, out);
        for l in 0..self.layers.len() {
            self.layer(l, tokens, &meta, out);
        }
        meta
    }

    /// The rest of a step, in the same recording or in one submitted after it.
    pub fn record_answers(&self, batch: &Batch, meta: &Meta, out: &mut Recording) {
        self.sampling(batch, meta, out);
        self.hidden_states(batch, meta, out);
    }

    /// Copies whole blocks of every cache, by way of scratch: no buffer is copied into itself.
    fn copy_blocks(&self, copies: &[(u32, u32)], out: &mut Recording) {
        if copies.is_empty() {
            return;
        }
        let via = self.scratch.partial;
        for cache in self.caches.iter().flat_map(Cache::buffers) {
            let token = cache.bytes / pool_tokens(&self.options);
            let block = token * u64::from(self.options.block_size);
            let at =
                |b: u32, offset: u64| (cache.buffer, cache.offset + u64::from(b) * block + offset);
            let piece = block.min(via.bytes / 4 * 4);
            let at_once = (via.bytes / piece) as usize;
            for offset in (0..block).step_by(piece as usize) {
                let bytes = piece.min(block - offset);
                for group in copies.chunks(at_once) {
                    let staged = |n: u64| (via.buffer, via.offset + n * piece);
                    for (n, &(from, _)) in (0..).zip(group) {
                        out.copy(at(from, offset), staged(n), bytes);
                    }
                    for (n, &(_, to)) in (0..).zip(group) {
                        out.copy(staged(n), at(to, offset), bytes);
                    }
                }
            }
        }
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
        if !batch.masks.is_empty() {
            assert!(batch.masks.len() as u64 * 4 <= s.masks.bytes, "too many masks");
            out.upload(s.masks.buffer, s.masks.offset, bytemuck::cast_slice(&batch.masks));
        }
        let at_once = Self::logit_rows(spec, &self.options, &self.facts);
        assert!(!batch.logits || count <= at_once, "logits of {count} rows do not fit at once");
        for first in (0..count).step_by(at_once as usize) {
            let rows = at_once.min(count - first);
            let norm = self.norm_of(rows, (s.x, self.final_norm, s.last));
            let norm = NormRms { rows_at: Some(meta.rows + first), ..norm };
            let last = self.normed_operand(norm, [self.head.format], out);
            let to = BlockEnd {
                scale: spec.logit_scale,
                ..BlockEnd::plain(s.logits, stride(spec.vocab))
            };
            self.product(&self.head, None, rows, last, to, out);
            if let Some(cap) = spec.logit_cap {
                SoftCap { cap, count: rows * stride(spec.vocab), x: s.logits }
                    .record(&self.facts, out);
            }
            let edit = |row: u32| batch.edits.partition_point(|e| e.row < row) as u32;
            Sample {
                row_base: first,
                count: rows,
                edit_range: edit(first)..edit(first + rows),
                masked: Self::masked(batch, first, rows),
                vocab: spec.vocab,
                stride: stride(spec.vocab),
                rows: s.rows,
                edits: s.edits,
                masks: s.masks,
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

    fn masked(batch: &Batch, first: u32, rows: u32) -> bool {
        let part = &batch.samples[first as usize..(first + rows) as usize];
        part.iter().any(|(_, row)| row.mask > 0)
    }

    /// Final hidden states of the wanted tokens. They overwrite `h`, which no layer needs any more.
    fn hidden_states(&self, batch: &Batch, meta: &Meta, out: &mut Recording) {
        let (s, row) = (&self.scratch, stride(self.spec.hidden));
        let rows = batch.hidden.len() as u32;
        if rows == 0 {
            return;
        }
        let norm = self.norm_of(rows, (s.x, self.final_norm, s.h));
        NormRms { rows_at: Some(meta.hidden), ..norm }.record(&self.facts, out);
        out.download(Binding { bytes: u64::from(rows) * u64::from(row) * 4, ..s.h });
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
        rows.take(batch.samples.len()).map(|row| row[..self.spec.vocab as usize].to_vec()).collect()
    }

    /// The hidden states that came back with `batch`, a vector of `hidden` values for each.
    pub fn hidden(&self, batch: &Batch, bytes: &[u8]) -> Vec<Vec<f32>> {
        let row = stride(self.spec.hidden) as usize * 4;
        let from = bytes.len().saturating_sub(batch.hidden.len() * row);
        let states = bytes[from..].chunks_exact(row);
        let dim = self.spec.hidden as usize;
        states.map(|state| bytemuck::allocation::pod_collect_to_vec(&state[..dim * 4])).collect()
    }

    /// Edits of logits one step can hold.
    pub fn edits_max(&self) -> u32 {
        (self.scratch.edits.bytes / (u64::from(EDIT_WORDS) * 4)) as u32
    }
}
