//! The operands of each kernel, and how much work it is.

use super::lab::Lab;
use super::{KernelBench, KernelMeasured};
use crate::base::{Activations, KvType};
use crate::bench::Shape;
use crate::kernels::attn::{self, Attn, AttnRow, AttnWork, Heads};
use crate::kernels::block::{ActGlu, Gate, NormRms, RopeKv, RopeKvParams};
use crate::kernels::layout;
use crate::kernels::mul::{Pack, packed_stride};
use crate::kernels::sample::{OUT_WORDS, Sample, SampleRow, mask_words};
use crate::record::{DeviceError, Recording, VariantId};

const BLOCK_SIZE: u32 = 16;

/// Rounds of the shader of multiply-adds, and those of a round and thread.
const ROUNDS: u32 = 1024;
const FMAS: u32 = 32;
const THREADS: u32 = 64;

/// What is measured, and how much work it is.
pub struct Case {
    pub kernel: String,
    pub shape: String,
    pub format: Option<&'static str>,
    pub tokens: u32,
    pub operations: f64,
    /// Read and written once, however often the kernel does.
    pub bytes: f64,
}

/// GB/s of copies between two large buffers, read and written.
pub fn copies(lab: &mut Lab) -> Result<f64, DeviceError> {
    let bytes = lab.turn_bytes().min(lab.facts.buffer_bytes_max);
    let (from, to) = (lab.zeros(bytes)?, lab.zeros(bytes)?);
    let mut record = |_: usize, recording: &mut Recording| {
        recording.copy((from.buffer, 0), (to.buffer, 0), bytes);
    };
    let timed = lab.time(&mut record)?;
    lab.clear();
    Ok(2.0 * bytes as f64 / timed.nanos)
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FmaParams {
    rounds: u32,
    factor: f32,
}

/// Gop/s of the shader `id`.
pub fn multiply_adds(lab: &mut Lab, id: VariantId) -> Result<f64, DeviceError> {
    let groups = if lab.facts.software() { 64 } else { 8192 };
    let out = lab.zeros(u64::from(groups * THREADS) * 4)?;
    let params = FmaParams { rounds: ROUNDS, factor: 0.5 };
    let mut record = |_: usize, recording: &mut Recording| {
        recording.dispatch(id, &params, vec![out], [groups, 1, 1]);
    };
    let timed = lab.time(&mut record)?;
    lab.clear();
    let fmas = f64::from(groups * THREADS) * f64::from(ROUNDS) * f64::from(FMAS);
    Ok(2.0 * fmas / timed.nanos)
}

/// Values between rows.
fn stride(dim: u32) -> u32 {
    dim.next_multiple_of(layout::K_BLOCK)
}

/// Block tables one after the other, each block named once, and the rows that they belong to.
fn tables(rows: &[(u32, u32, u32)]) -> (Vec<u32>, Vec<AttnRow>) {
    let mut tables: Vec<u32> = Vec::new();
    let row = |&(first, len, start): &(u32, u32, u32)| {
        let table_at = tables.len() as u32;
        let count = (start + len).div_ceil(BLOCK_SIZE);
        tables.extend(table_at..table_at + count);
        AttnRow { first, len, start, table_at }
    };
    let out = rows.iter().map(row).collect();
    (tables, out)
}

impl KernelBench {
    fn case(&self, kernel: &str, shape: String, tokens: u32, work: (f64, f64)) -> Case {
        let (operations, bytes) = work;
        Case { kernel: kernel.into(), shape, format: None, tokens, operations, bytes }
    }

    /// Rows of (first token, tokens, position of the first), each a sequence of its own.
    pub(super) fn attention(
        &mut self,
        shape: &Shape,
        kv: KvType,
        decode: bool,
        rows: &[(u32, u32, u32)],
    ) -> Result<KernelMeasured, DeviceError> {
        let Shape { heads, kv_heads, head_dim, .. } = *shape;
        let facts = self.lab.facts.clone();
        let tokens: u32 = rows.iter().map(|r| r.1).sum();
        let (mut meta, attn_rows) = tables(rows);
        let blocks = meta.len() as u32;
        let mut work = AttnWork::default();
        let all = Heads { heads, kv_heads, head_dim };
        work.fill(&attn_rows, all, None, 512 * heads, &facts);
        let items_at = meta.len() as u32;
        meta.extend(work.items.iter().flatten());
        let merges_at = meta.len() as u32;
        meta.extend(work.merges.iter().flatten());
        let q_dim = heads * head_dim;
        let (q, out) = (self.lab.rows(tokens, q_dim)?, self.lab.rows(tokens, q_dim)?);
        let cached = u64::from(kv_heads) * kv.row_bytes(head_dim);
        let cache_bytes = u64::from(blocks * BLOCK_SIZE) * cached;
        let (k_cache, v_cache) = (self.lab.zeros(cache_bytes)?, self.lab.zeros(cache_bytes)?);
        let meta = self.lab.words(&meta)?;
        let partial = u64::from(work.partials.max(1)) * u64::from(attn::partial_values(head_dim));
        let partial = self.lab.zeros(partial * 4)?;
        let mut record = |_: usize, recording: &mut Recording| {
            Attn {
                work: &work,
                items_at,
                merges_at,
                heads: all,
                kv,
                block_size: BLOCK_SIZE,
                scale: 1.0 / (head_dim as f32).sqrt(),
                window: None,
                cap: None,
                q,
                q_stride: stride(q_dim),
                k_cache,
                v_cache,
                meta,
                partial,
                out,
                out_stride: stride(q_dim),
            }
            .record(&facts, recording);
        };
        let seen = |&(_, len, start): &(u32, u32, u32)| {
            let (len, start) = (u64::from(len), u64::from(start));
            (len * start + len * (len + 1) / 2, start + len)
        };
        let (pairs, keys) = rows.iter().map(seen).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let operations = 4.0 * pairs as f64 * f64::from(q_dim);
        let bytes = keys * 2 * cached + u64::from(tokens * q_dim) * 8;
        let keys = rows.iter().map(|r| r.1 + r.2).max().unwrap_or(0);
        let name = if decode { "attention decode" } else { "attention prefill" };
        let text = format!("{heads}/{kv_heads}x{head_dim}, {keys} keys {kv}");
        let case = self.case(name, text, tokens, (operations, bytes as f64));
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }

    pub(super) fn norm(
        &mut self,
        shape: &Shape,
        tokens: u32,
    ) -> Result<KernelMeasured, DeviceError> {
        let (dim, facts) = (shape.hidden, self.lab.facts.clone());
        let (x, y) = (self.lab.rows(tokens, dim)?, self.lab.rows(tokens, dim)?);
        let (w, meta) = (self.lab.rows(1, dim)?, self.lab.zeros(16)?);
        let mut record = |_: usize, recording: &mut Recording| {
            NormRms {
                rows: tokens,
                dim,
                x,
                x_stride: stride(dim),
                w,
                meta,
                rows_at: None,
                y,
                y_stride: stride(dim),
                taken: Activations::F32,
                eps: 1e-5,
                offset: 0.0,
                accumulate: false,
            }
            .record(&facts, recording);
        };
        let values = f64::from(tokens) * f64::from(dim);
        let work = (4.0 * values, 8.0 * values + 4.0 * f64::from(dim));
        let case = self.case("norm", dim.to_string(), tokens, work);
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }

    /// Rows of the residual as the bytes that products take.
    pub(super) fn pack(
        &mut self,
        shape: &Shape,
        tokens: u32,
    ) -> Result<KernelMeasured, DeviceError> {
        let (cols, facts) = (shape.hidden, self.lab.facts.clone());
        let x = self.lab.rows(tokens, cols)?;
        let packed = u64::from(tokens) * u64::from(packed_stride(cols)) * 4;
        let y = self.lab.zeros(packed)?;
        let mut record = |_: usize, recording: &mut Recording| {
            Pack { rows: tokens, cols, x, x_stride: stride(cols), y }.record(&facts, recording);
        };
        let values = f64::from(tokens) * f64::from(cols);
        let work = (4.0 * values, 4.0 * values + packed as f64);
        let case = self.case("pack", cols.to_string(), tokens, work);
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }

    pub(super) fn rope(
        &mut self,
        shape: &Shape,
        kv: KvType,
        tokens: u32,
    ) -> Result<KernelMeasured, DeviceError> {
        let Shape { heads, kv_heads, head_dim, .. } = *shape;
        let facts = self.lab.facts.clone();
        let (q_dim, kv_dim) = (heads * head_dim, kv_heads * head_dim);
        let x = self.lab.rows(tokens, q_dim + 2 * kv_dim)?;
        let table = self.lab.rows(tokens, head_dim)?;
        let places: Vec<u32> = (0..tokens).chain(0..tokens).collect();
        let meta = self.lab.words(&places)?;
        let row_bytes = u64::from(kv_heads) * kv.row_bytes(head_dim);
        // Whole blocks: the heads of one lie one after the other.
        let cache_bytes = row_bytes * u64::from(tokens.next_multiple_of(BLOCK_SIZE));
        let cached = row_bytes * u64::from(tokens);
        let (k_cache, v_cache) = (self.lab.zeros(cache_bytes)?, self.lab.zeros(cache_bytes)?);
        let params = RopeKvParams {
            tokens,
            heads,
            kv_heads,
            head_dim,
            first: 0,
            rotary: head_dim,
            values: head_dim,
            x_stride: stride(q_dim + 2 * kv_dim),
            q_at: 0,
            k_at: q_dim,
            v_at: q_dim + kv_dim,
            block_size: BLOCK_SIZE,
            positions_at: 0,
            slots_at: tokens,
            grid_x: 0,
        };
        let mut record = |_: usize, recording: &mut Recording| {
            RopeKv { params, kv, x, table, meta, k_cache, v_cache }.record(&facts, recording);
        };
        let values = f64::from(tokens) * f64::from(q_dim + kv_dim);
        let read = f64::from(tokens) * f64::from(2 * q_dim + 2 * kv_dim) * 4.0;
        let case = self.case(
            "rope",
            format!("{heads}/{kv_heads}x{head_dim} {kv}"),
            tokens,
            (3.0 * values, read + 2.0 * cached as f64),
        );
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }

    pub(super) fn gate(
        &mut self,
        shape: &Shape,
        tokens: u32,
    ) -> Result<KernelMeasured, DeviceError> {
        let (dim, facts) = (shape.ffn, self.lab.facts.clone());
        let (x, y) = (self.lab.rows(tokens, 2 * dim)?, self.lab.rows(tokens, dim)?);
        let (x_stride, y_stride) = (stride(2 * dim), stride(dim));
        let mut record = |_: usize, recording: &mut Recording| {
            let act = Gate::Silu;
            ActGlu { act, rows: tokens, dim, x, x_stride, up_at: dim, y, y_stride }
                .record(&facts, recording);
        };
        let values = f64::from(tokens) * f64::from(dim);
        let case = self.case("gate", dim.to_string(), tokens, (4.0 * values, 12.0 * values));
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }

    /// Greedy; rows of more than 128 are sampled in several goes in a model too.
    pub(super) fn sampling(
        &mut self,
        shape: &Shape,
        tokens: u32,
    ) -> Result<KernelMeasured, DeviceError> {
        let (vocab, count, facts) = (shape.vocab, tokens.min(128), self.lab.facts.clone());
        let rows = vec![SampleRow::default(); count as usize];
        let rows = self.lab.words(bytemuck::cast_slice(&rows))?;
        let (edits, masks) =
            (self.lab.zeros(32)?, self.lab.zeros(u64::from(mask_words(vocab)) * 4)?);
        let (logits, weights) = (self.lab.rows(count, vocab)?, self.lab.rows(count, vocab)?);
        let out = self.lab.zeros(u64::from(count * OUT_WORDS) * 4)?;
        let mut record = |_: usize, recording: &mut Recording| {
            Sample {
                row_base: 0,
                count,
                edit_range: 0..0,
                masked: false,
                vocab,
                stride: stride(vocab),
                rows,
                edits,
                masks,
                logits,
                weights,
                out,
            }
            .record(&facts, recording);
        };
        let values = f64::from(count) * f64::from(vocab);
        let case = self.case("sampling", vocab.to_string(), count, (2.0 * values, 4.0 * values));
        let measured = self.measured(case, &mut record)?;
        self.lab.clear();
        Ok(measured)
    }
}
