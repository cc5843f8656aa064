//! Paged attention: the work list a step is cut into on the host, and the launches that read it.

use super::{Kernel, fold_grid, named};
use crate::base::{Invariance, KvType};
use crate::record::{Binding, Facts, Recording, VariantId};
use std::ops::Range;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttnParams {
    pub heads: u32,
    pub kv_heads: u32,
    pub block_size: u32,
    pub items_at: u32,
    pub q_stride: u32,
    pub out_stride: u32,
    pub group: u32,
    pub group_parts: u32,
    pub scale: f32,
    pub window: u32,
    pub cap: f32,
    pub items: u32,
    pub grid_x: u32,
    pub split: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttnMergeParams {
    pub heads: u32,
    pub merges_at: u32,
    pub out_stride: u32,
    pub merges: u32,
    pub grid_x: u32,
}

pub const ATTN_PAGED: Kernel = Kernel { stem: "attn_paged", bindings: 6, writes: &[4, 5] };
pub const ATTN_MERGE: Kernel = Kernel { stem: "attn_merge", bindings: 3, writes: &[2] };

/// Head sizes that have a variant.
pub const HEAD_DIMS: [u32; 10] = [16, 24, 32, 48, 64, 80, 96, 128, 256, 576];

/// Keys per split where no number depends on company; splits lie at absolute positions.
const SPLIT_KEYS: u32 = 256;

/// Keys of the kernel's tiles, which no split is shorter than.
const TILE_KEYS: u32 = 64;

/// Splits of a row worth having: the merge takes one after the other.
const SPLITS_WORTH: u32 = 32;

/// Workgroups that keep a wide device busy, and one that is a processor's few threads.
const GROUPS_WANTED: u32 = 1024;
const GROUPS_WANTED_SOFTWARE: u32 = 16;

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

    /// Workgroups of one work item.
    fn groups(self) -> u32 {
        self.kv_heads * self.group().div_ceil(ITEM_ROWS)
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

impl AttnRow {
    fn end(&self) -> u32 {
        self.start + self.len
    }

    /// Splits of so many keys that any of its tokens sees.
    fn splits(&self, split: u32, window: Option<u32>) -> Range<u32> {
        first_key(self.start, window) / split..self.end().div_ceil(split)
    }
}

/// Keys per split for a step of `rows`. Where numbers may depend on company, as many as spread the
/// step's work evenly over the device, with no more splits than the merge and the slots are for.
fn split_keys(
    rows: &[AttnRow],
    heads: Heads,
    window: Option<u32>,
    partials_max: u32,
    facts: &Facts,
) -> u32 {
    if facts.invariance == Invariance::On {
        return SPLIT_KEYS;
    }
    let seen = |row: &AttnRow| row.end() - first_key(row.start, window);
    let items = |row: &AttnRow| u64::from(row.len.div_ceil(heads.item_tokens()));
    let keys: u64 = rows.iter().map(|row| items(row) * u64::from(seen(row))).sum();
    let wanted = if facts.software() { GROUPS_WANTED_SOFTWARE } else { GROUPS_WANTED };
    let parts = (wanted / heads.groups()).min(partials_max / heads.heads).max(1);
    let longest = rows.iter().map(seen).max().unwrap_or(0);
    let least = u64::from(longest.div_ceil(SPLITS_WORTH));
    let even = keys.div_ceil(u64::from(parts)).clamp(least, u64::from(longest)) as u32;
    even.next_multiple_of(TILE_KEYS).max(TILE_KEYS)
}

/// The work list of one step.
#[derive(Clone, Default, Debug)]
pub struct AttnWork {
    /// Keys per split.
    pub split: u32,
    pub items: Vec<[u32; ITEM_WORDS as usize]>,
    pub merges: Vec<[u32; MERGE_WORDS as usize]>,
    /// Partial slots that the items write.
    pub partials: u32,
}

impl AttnWork {
    /// Cuts `rows` into work items. Splits of a single-token row become items of their own while
    /// `partials_max` slots last; the results are the same bits either way. Splits that no layer
    /// sees, where the widest window is `window` keys, are left out.
    pub fn fill(
        &mut self,
        rows: &[AttnRow],
        heads: Heads,
        window: Option<u32>,
        partials_max: u32,
        facts: &Facts,
    ) {
        self.items.clear();
        self.merges.clear();
        self.partials = 0;
        self.split = split_keys(rows, heads, window, partials_max, facts);
        let tokens = heads.item_tokens();
        for row in rows {
            let Range { start: begin, end } = row.splits(self.split, window);
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
                let (first, len, start) =
                    (row.first + at, tokens.min(row.len - at), row.start + at);
                let part = AttnRow { first, len, start, ..*row };
                let Range { start: begin, end } = part.splits(self.split, window);
                let table = row.table_at;
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
    pub out_stride: u32,
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
        grid[2] = self.heads.groups();
        let params = AttnParams {
            heads,
            kv_heads,
            block_size: self.block_size,
            items_at: self.items_at,
            q_stride: self.q_stride,
            out_stride: self.out_stride,
            group,
            group_parts,
            scale: self.scale,
            window: self.window.map_or(u32::MAX, |keys| keys.max(1)),
            cap: self.cap.unwrap_or(0.0),
            items,
            grid_x: grid[0],
            split: self.work.split,
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
            out_stride: self.out_stride,
            merges,
            grid_x: grid[0],
        };
        let bindings = vec![self.partial, self.meta, self.out];
        let variant = named(&format!("attn_merge.hd{head_dim}"));
        recording.dispatch(variant, &params, bindings, grid);
    }
}
