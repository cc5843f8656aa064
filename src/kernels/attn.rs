//! Paged attention: the work list a step is cut into on the host, and the launches that read it.

use super::{Kernel, fold_grid, named};
use crate::base::KvType;
use crate::record::{Binding, Facts, Recording, VariantId};

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttnParams {
    pub heads: u32,
    pub kv_heads: u32,
    pub block_size: u32,
    pub items_at: u32,
    pub q_stride: u32,
    pub group: u32,
    pub group_parts: u32,
    pub scale: f32,
    pub window: u32,
    pub cap: f32,
    pub items: u32,
    pub grid_x: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttnMergeParams {
    pub heads: u32,
    pub merges_at: u32,
    pub q_stride: u32,
    pub merges: u32,
    pub grid_x: u32,
}

pub const ATTN_PAGED: Kernel = Kernel { stem: "attn_paged", bindings: 6, writes: &[4, 5] };
pub const ATTN_MERGE: Kernel = Kernel { stem: "attn_merge", bindings: 3, writes: &[2] };

/// Head sizes that have a variant.
pub const HEAD_DIMS: [u32; 10] = [16, 24, 32, 48, 64, 80, 96, 128, 256, 576];

/// Keys per split; splits lie at absolute positions.
pub const SPLIT_KEYS: u32 = 256;

/// (token, head) rows one work item carries.
pub const ITEM_ROWS: u32 = 8;

/// Words of one work item and of one merge item.
pub const ITEM_WORDS: u32 = 8;
pub const MERGE_WORDS: u32 = 4;

const NO_PARTIAL: u32 = u32::MAX;

/// First key that the query at `position` sees through a window of so many keys, itself included.
pub fn first_key(position: u32, window: Option<u32>) -> u32 {
    window.map_or(0, |keys| position.saturating_sub(keys.saturating_sub(1)))
}

/// f32s of one partial: the unnormalised output, its maximum and its sum, padded.
pub fn partial_values(head_dim: u32) -> u32 {
    head_dim + 4
}

/// The heads of a model as attention sees them.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
}

impl Heads {
    fn group(self) -> u32 {
        self.heads / self.kv_heads
    }

    /// Tokens one work item carries.
    fn item_tokens(self) -> u32 {
        (ITEM_ROWS / self.group().min(ITEM_ROWS)).max(1)
    }
}

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug)]
pub struct AttnRow {
    /// First token of the row in the batch, and how many.
    pub first: u32,
    pub len: u32,
    /// Position of the first token.
    pub start: u32,
    /// Word of the block table in the step's metadata.
    pub table_at: u32,
}

/// The work list of one step.
#[derive(Clone, Default, Debug)]
pub struct AttnWork {
    pub items: Vec<[u32; ITEM_WORDS as usize]>,
    pub merges: Vec<[u32; MERGE_WORDS as usize]>,
    /// Partial slots that the items write.
    pub partials: u32,
}

impl AttnWork {
    /// Cuts `rows` into work items. Splits of a single-token row become items of their own while
    /// `partials_max` slots last; the results are the same bits either way. Splits that no layer
    /// sees, where the widest window is `window` keys, are left out.
    pub fn fill(&mut self, rows: &[AttnRow], heads: Heads, window: Option<u32>, partials_max: u32) {
        self.items.clear();
        self.merges.clear();
        self.partials = 0;
        let tokens = heads.item_tokens();
        for row in rows {
            let seen_from = |start: u32| first_key(start, window) / SPLIT_KEYS;
            let (begin, end) = (seen_from(row.start), (row.start + row.len).div_ceil(SPLIT_KEYS));
            let splits = end - begin;
            let wanted = splits * heads.heads;
            if row.len == 1 && splits > 1 && self.partials + wanted <= partials_max {
                self.merges.push([row.first, self.partials, splits, 0]);
                for split in begin..end {
                    let slot = self.partials + (split - begin) * heads.heads;
                    let table = row.table_at;
                    self.items.push([row.first, 1, row.start, table, split, split + 1, slot, 0]);
                }
                self.partials += wanted;
                continue;
            }
            for at in (0..row.len).step_by(tokens as usize) {
                let len = tokens.min(row.len - at);
                let start = row.start + at;
                let end = (start + len).div_ceil(SPLIT_KEYS);
                let (first, table) = (row.first + at, row.table_at);
                let begin = seen_from(start);
                self.items.push([first, len, start, table, begin, end, NO_PARTIAL, 0]);
            }
        }
    }
}

/// Operands of the attention of one layer.
pub struct Attn<'a> {
    pub work: &'a AttnWork,
    /// Words of `meta` where the items and merges of `work` lie.
    pub items_at: u32,
    pub merges_at: u32,
    pub heads: Heads,
    pub kv: KvType,
    pub block_size: u32,
    pub scale: f32,
    /// Keys that a row sees, itself included; `None` for all before it.
    pub window: Option<u32>,
    /// Scores become cap * tanh(score / cap).
    pub cap: Option<f32>,
    pub q: Binding,
    pub q_stride: u32,
    pub k_cache: Binding,
    pub v_cache: Binding,
    pub meta: Binding,
    pub partial: Binding,
    pub out: Binding,
}

impl Attn<'_> {
    /// Items of few rows have a narrower variant on software devices, where idle rows cost time.
    fn variant(&self, facts: &Facts) -> VariantId {
        let (Heads { head_dim, .. }, kv) = (self.heads, self.kv);
        match super::width_suffix(facts) {
            "" => named(&format!("attn_paged.hd{head_dim}.{kv}")),
            suffix => {
                let narrow = self.heads.group() <= 4 && self.work.items.iter().all(|i| i[1] == 1);
                let rows = if narrow { 4 } else { ITEM_ROWS };
                named(&format!("attn_paged.hd{head_dim}.{kv}.r{rows}{suffix}"))
            }
        }
    }

    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let Heads { heads, kv_heads, head_dim } = self.heads;
        let group = self.heads.group();
        let group_parts = group.div_ceil(ITEM_ROWS);
        let items = self.work.items.len() as u32;
        let mut grid = fold_grid(items, facts);
        grid[2] = kv_heads * group_parts;
        let params = AttnParams {
            heads,
            kv_heads,
            block_size: self.block_size,
            items_at: self.items_at,
            q_stride: self.q_stride,
            group,
            group_parts,
            scale: self.scale,
            window: self.window.map_or(u32::MAX, |keys| keys.max(1)),
            cap: self.cap.unwrap_or(0.0),
            items,
            grid_x: grid[0],
        };
        let cache = [self.k_cache, self.v_cache];
        let bindings = vec![self.q, cache[0], cache[1], self.meta, self.out, self.partial];
        let variant = self.variant(facts);
        recording.dispatch(variant, &params, bindings, grid);
        if self.work.merges.is_empty() {
            return;
        }
        let merges = self.work.merges.len() as u32;
        let mut grid = fold_grid(merges, facts);
        grid[2] = heads;
        let params = AttnMergeParams {
            heads,
            merges_at: self.merges_at,
            q_stride: self.q_stride,
            merges,
            grid_x: grid[0],
        };
        let bindings = vec![self.partial, self.meta, self.out];
        let variant = named(&format!("attn_merge.hd{head_dim}"));
        recording.dispatch(variant, &params, bindings, grid);
    }
}
