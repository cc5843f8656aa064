//! Sampling: what a row asks for, its words on the device, and the launches.

use super::{Kernel, fold_grid, named};
use crate::record::{Binding, Facts, Recording};

/// Words per row of the parameters, of the results, and per edit.
pub const ROW_WORDS: u32 = 16;
pub const OUT_WORDS: u32 = 64;
pub const EDIT_WORDS: u32 = 8;

/// Most alternatives a row can ask for (`top_logprobs`).
pub const TOP_MAX: u32 = 20;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleParams {
    pub rows: u32,
    pub vocab: u32,
    pub stride: u32,
    pub grid_x: u32,
    pub row_base: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleEditParams {
    pub count: u32,
    pub stride: u32,
    pub first: u32,
    pub row_base: u32,
    pub grid_x: u32,
}

pub const SAMPLE_EDIT: Kernel = Kernel { stem: "sample_edit", bindings: 3, writes: &[1, 2] };
pub const SAMPLE_MASK: Kernel = Kernel { stem: "sample_mask", bindings: 3, writes: &[2] };
pub const SAMPLE_STATS: Kernel = Kernel { stem: "sample_stats", bindings: 3, writes: &[2] };
pub const SAMPLE: Kernel = Kernel { stem: "sample", bindings: 5, writes: &[3, 4] };

/// How one row's token is chosen. Plain words, as `sample.wgsl` reads them.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleRow {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: u32,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// The draw, in [0, 1).
    pub unit: f32,
    pub first_edit: u32,
    pub edits: u32,
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
    /// 0: no logprobs; n + 1: the chosen token's and those of the n most likely tokens.
    pub top: u32,
    /// 0: choose; id + 1: the token is given, as where a prompt's own tokens are scored.
    pub given: u32,
    /// 0: any token; n + 1: those of mask n.
    pub mask: u32,
    pub unused: [u32; 3],
}

impl Default for SampleRow {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            unit: 0.0,
            first_edit: 0,
            edits: 0,
            repetition: 1.0,
            presence: 0.0,
            frequency: 0.0,
            top: 0,
            given: 0,
            mask: 0,
            unused: [0; 3],
        }
    }
}

/// A change to one logit of one row before sampling.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Edit {
    pub row: u32,
    pub token: u32,
    /// Times the token was produced (presence and frequency penalties).
    pub times: u32,
    /// 1 if it stands in the prompt or the output (repetition penalty).
    pub seen: u32,
    pub bias: f32,
    /// Filled in by the device: the logit before the edit.
    pub raw: f32,
    pub unused: [u32; 2],
}

/// What came back for one row.
#[derive(Clone, PartialEq, Debug)]
pub struct SampleResult {
    pub token: u32,
    /// False if any logit of the row was infinite or not a number; the token means nothing then.
    pub finite: bool,
    /// log-softmax of the raw logits at `token`; 0 unless asked for.
    pub logprob: f32,
    /// The most likely tokens with their logprobs, as many as asked for.
    pub top: Vec<(u32, f32)>,
}

impl SampleResult {
    /// Reads the `OUT_WORDS` words of one row that asked for `top` (see [`SampleRow::top`]).
    pub fn from_words(words: &[u32], top: u32) -> Self {
        let float = |at: usize| f32::from_bits(words[at]);
        let logprob = |at: usize| (float(at) - float(4)) - float(5);
        let pairs = top.saturating_sub(1) as usize;
        Self {
            token: words[0],
            finite: words[1] == 1,
            logprob: if top > 0 { logprob(2) } else { 0.0 },
            top: (0..pairs).map(|n| (words[8 + 2 * n], logprob(9 + 2 * n))).collect(),
        }
    }
}

/// Words of a mask: one bit for each id.
pub fn mask_words(vocab: u32) -> u32 {
    vocab.div_ceil(32)
}

/// Operands of sampling rows `row_base..row_base + count` of a step, whose logits lie at the start
/// of `logits`. `rows` and `edits` hold the [`SampleRow`]s and [`Edit`]s of the whole step.
pub struct Sample {
    pub row_base: u32,
    pub count: u32,
    /// The edits of these rows.
    pub edit_range: std::ops::Range<u32>,
    /// Whether any of these rows names a mask.
    pub masked: bool,
    pub vocab: u32,
    /// Values between two rows of `logits` and of `weights`.
    pub stride: u32,
    pub rows: Binding,
    pub edits: Binding,
    /// `[mask][mask_words(vocab)]`.
    pub masks: Binding,
    pub logits: Binding,
    pub weights: Binding,
    pub out: Binding,
}

impl Sample {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        // lavapipe silently ends a thread's loops after 65535 rounds in all; a draw passes over the
        // vocabulary many times, so a large one needs more threads.
        let narrow = facts.software() && self.vocab <= 1 << 16;
        let width = if narrow { 64 } else { 256 };
        let grid = fold_grid(self.count, facts);
        let (rows, vocab, stride) = (self.count, self.vocab, self.stride);
        let row_base = self.row_base;
        let params = SampleParams { rows, vocab, stride, grid_x: grid[0], row_base };
        let bindings = vec![self.rows, self.logits, self.out];
        recording.dispatch(named(&format!("sample_stats.w{width}")), &params, bindings, grid);
        let (first, count) = (self.edit_range.start, self.edit_range.len() as u32);
        if count > 0 {
            let grid = fold_grid(count.div_ceil(64), facts);
            let grid_x = grid[0];
            let params = SampleEditParams { count, stride, first, row_base, grid_x };
            let bindings = vec![self.rows, self.edits, self.logits];
            recording.dispatch(named("sample_edit"), &params, bindings, grid);
        }
        if self.masked {
            let bindings = vec![self.rows, self.masks, self.logits];
            recording.dispatch(named("sample_mask"), &params, bindings, grid);
        }
        let bindings = vec![self.rows, self.edits, self.logits, self.weights, self.out];
        recording.dispatch(named(&format!("sample.w{width}")), &params, bindings, grid);
    }
}
