//! What each event means for the picture. Total: a stream with losses or lies folds without a
//! panic, only to a picture that is off; a test keeps it equal to the scheduler's own state.

use super::event::{Event, PreemptMethod, Stamped};
use super::list::BlockList;
use super::picture::{BlockPicture, Picture, RowPicture, SequencePicture, StepPicture, count};
use crate::base::{BlockId, SequenceId};

/// Slots and blocks beyond this are lies of a damaged file.
const TABLE_MAX: usize = 1 << 24;

/// Adds one event to the picture.
pub fn fold(picture: &mut Picture, stamped: &Stamped) {
    picture.seq = stamped.seq.saturating_add(1);
    picture.step = stamped.step;
    picture.micros = stamped.micros;
    match &stamped.event {
        Event::LimitsChanged { limits, .. } => {
            picture.limits = Some(*limits);
            let blocks = limits.blocks as usize;
            if picture.blocks.len() < blocks && blocks <= TABLE_MAX {
                picture.blocks.resize_with(blocks, Default::default);
            }
        }
        Event::PoliciesChanged { policies, .. } => picture.policies = Some(*policies),
        Event::AdmissionDelayed { sequence, reason, .. } => {
            if let Some(s) = picture.sequences.get_mut(sequence) {
                s.delay = Some(*reason);
            }
        }
        Event::RequestArrived { .. } | Event::RequestRefused { .. } => arrive(picture, stamped),
        Event::SequenceAdmitted { sequence, slot, .. } => admit(picture, *sequence, *slot),
        Event::PrefixMatched { .. }
        | Event::PromptShared { .. }
        | Event::BlockCopied { .. }
        | Event::BlocksCached { .. }
        | Event::BlocksHashed { .. }
        | Event::BlockMerged { .. }
        | Event::BlockEvicted { .. } => reuse(picture, &stamped.event),
        Event::BlocksTaken { sequence, blocks, .. } => {
            picture.counters.blocks_taken += blocks.as_slice().len() as u64;
            extend(picture, *sequence, blocks);
        }
        Event::BlocksReturned { sequence, from, count, .. } => {
            give_back(picture, *sequence, *from, *count);
        }
        Event::BlocksExpired { sequence, from, count, .. } => {
            expire(picture, *sequence, *from, *count);
        }
        Event::StepPlanned { .. }
        | Event::RowPlanned { .. }
        | Event::RowPadded { .. }
        | Event::RowDrafted { .. }
        | Event::DraftsTried { .. }
        | Event::StepRan { .. } => step(picture, &stamped.event),
        Event::RowDelayed { .. } => picture.counters.delayed += 1,
        Event::RowCut { .. } => picture.counters.cut += 1,
        Event::TokenSampled { sequence, position, .. } => {
            picture.counters.sampled_tokens += 1;
            if let Some(s) = picture.sequences.get_mut(sequence) {
                s.known = position.saturating_add(1);
                s.first_token_micros.get_or_insert(stamped.micros);
            }
        }
        Event::SequencePreempted { .. }
        | Event::SequenceSwappedIn { .. }
        | Event::BlocksSwapped { .. } => preemption(picture, &stamped.event),
        Event::SequenceFinished { sequence, reason, .. } => {
            *picture.counters.finished.entry(*reason).or_default() += 1;
            leave(picture, *sequence);
        }
        Event::EventsDropped { count } => add(&mut picture.counters.events_dropped, *count),
        Event::KernelTimed { .. }
        | Event::BudgetChosen { .. }
        | Event::StepAhead { .. }
        | Event::RowDiscarded { .. }
        | Event::TenantWeighted { .. }
        | Event::RequestAsked { .. }
        | Event::PromptGiven { .. }
        | Event::Unknown => {}
    }
}

/// Counts what a damaged file may make too much.
fn add(total: &mut u64, more: u64) {
    *total = total.saturating_add(more);
}

fn arrive(picture: &mut Picture, stamped: &Stamped) {
    let Event::RequestArrived {
        request,
        sequence,
        prompt,
        max_new_tokens,
        tenant,
        class,
        predicted,
        ..
    } = stamped.event
    else {
        picture.counters.refused += 1;
        return;
    };
    let order = picture.counters.arrived;
    picture.counters.arrived += 1;
    let done = &picture.counters;
    let new = SequencePicture {
        request,
        order,
        prompt,
        max_new_tokens,
        tenant,
        class,
        predicted,
        arrived_after: done.decode_tokens + done.prefill_tokens + done.padding_tokens,
        known: prompt,
        arrived_micros: stamped.micros,
        ..Default::default()
    };
    picture.sequences.insert(sequence, new);
    picture.queue.push(sequence);
}

fn admit(picture: &mut Picture, sequence: SequenceId, slot: u32) {
    picture.counters.admitted += 1;
    picture.queue.retain(|&s| s != sequence);
    if let Some(s) = picture.sequences.get_mut(&sequence) {
        s.slot = Some(slot);
        s.delay = None;
        // What comes back is told next; the rest is given up.
        (s.swapped, s.swapped_expired) = (0, 0);
    }
    let at = slot as usize;
    if at < TABLE_MAX {
        if picture.slots.len() <= at {
            picture.slots.resize(at + 1, None);
        }
        picture.slots[at] = Some(sequence);
    }
}

fn extend(picture: &mut Picture, sequence: SequenceId, blocks: &BlockList) {
    for &block in blocks.as_slice() {
        let Some(s) = picture.sequences.get_mut(&sequence) else { return };
        let index = u32::try_from(s.blocks.len()).unwrap_or(u32::MAX);
        s.blocks.push(block);
        hold(picture, block, sequence, index);
    }
}

/// Blocks that are shared, and what of them is kept.
fn reuse(picture: &mut Picture, event: &Event) {
    match event {
        Event::PrefixMatched { sequence, blocks, tokens } => {
            picture.counters.matched_tokens += found(picture, *sequence, blocks, *tokens);
        }
        Event::PromptShared { sequence, blocks, tokens, .. } => {
            picture.counters.shared_tokens += found(picture, *sequence, blocks, *tokens);
        }
        Event::BlockCopied { .. } => picture.counters.blocks_copied += 1,
        Event::BlocksCached { sequence, from, count } => {
            picture.counters.blocks_cached += u64::from(*count);
            let Some(s) = picture.sequences.get(sequence) else { return };
            for block in s.blocks.iter().skip(*from as usize).take(*count as usize) {
                if let Some(b) = picture.blocks.get_mut(block.index()) {
                    b.cached = true;
                }
            }
        }
        Event::BlocksHashed { sequence, from, hashes } => {
            let Some(s) = picture.sequences.get(sequence) else { return };
            let blocks = s.blocks.iter().skip(*from as usize);
            for (block, hash) in blocks.zip(hashes.as_slice()) {
                if let Some(b) = picture.blocks.get_mut(block.index()) {
                    b.hash = Some(*hash);
                }
            }
        }
        Event::BlockMerged { sequence, index, from, to } => {
            picture.counters.blocks_merged += 1;
            let s = picture.sequences.get_mut(sequence);
            if let Some(entry) = s.and_then(|s| s.blocks.get_mut(*index as usize)) {
                *entry = *to;
                hold(picture, *to, *sequence, *index);
                let_go(&mut picture.blocks, *from);
            }
        }
        Event::BlockEvicted { block, idle_micros, .. } => {
            picture.counters.blocks_evicted += 1;
            add(&mut picture.counters.evicted_idle_micros, *idle_micros);
            if let Some(b) = picture.blocks.get_mut(block.index()) {
                (b.cached, b.hash) = (false, None);
            }
        }
        _ => {}
    }
}

/// Adds blocks with computed positions to a table; how many positions they added.
fn found(picture: &mut Picture, sequence: SequenceId, blocks: &BlockList, tokens: u32) -> u64 {
    extend(picture, sequence, blocks);
    let Some(s) = picture.sequences.get_mut(&sequence) else { return 0 };
    let before = std::mem::replace(&mut s.computed, tokens);
    u64::from(tokens.saturating_sub(before))
}

fn hold(picture: &mut Picture, block: BlockId, sequence: SequenceId, index: u32) {
    if let Some(b) = picture.blocks.get_mut(block.index()) {
        b.tables = b.tables.saturating_add(1);
        (b.owner, b.index) = (Some(sequence), index);
    }
}

fn let_go(blocks: &mut [BlockPicture], block: BlockId) {
    if let Some(b) = blocks.get_mut(block.index()) {
        b.tables = b.tables.saturating_sub(1);
        if b.tables == 0 {
            b.owner = None;
        }
    }
}

fn give_back(picture: &mut Picture, sequence: SequenceId, from: u32, count: u32) {
    picture.counters.blocks_returned += u64::from(count);
    let Some(s) = picture.sequences.get_mut(&sequence) else { return };
    let from = (from as usize).min(s.blocks.len());
    let to = from.saturating_add(count as usize).min(s.blocks.len());
    for block in s.blocks.drain(from..to) {
        let_go(&mut picture.blocks, block);
    }
    if s.blocks.iter().all(|b| *b == BlockId::EXPIRED) {
        s.blocks.clear();
    }
}

fn expire(picture: &mut Picture, sequence: SequenceId, from: u32, count: u32) {
    picture.counters.blocks_returned += u64::from(count);
    let Some(s) = picture.sequences.get_mut(&sequence) else { return };
    for block in s.blocks.iter_mut().skip(from as usize).take(count as usize) {
        let block = std::mem::replace(block, BlockId::EXPIRED);
        let_go(&mut picture.blocks, block);
    }
}

fn step(picture: &mut Picture, event: &Event) {
    let (last, none) = (&mut picture.last_step, RowPicture::default());
    match *event {
        Event::StepPlanned { step, decode, tokens, padding, budget, unused, .. } => {
            picture.counters.steps += 1;
            picture.counters.decode_tokens += u64::from(decode);
            let prefill = tokens.saturating_sub(decode).saturating_sub(padding);
            picture.counters.prefill_tokens += u64::from(prefill);
            picture.counters.padding_tokens += u64::from(padding);
            let mut rows = std::mem::take(&mut last.rows);
            rows.clear();
            let zero = StepPicture::default();
            *last = StepPicture { step, budget, tokens, decode, padding, unused, rows, ..zero };
        }
        Event::RowPlanned { sequence, slot, start, len, samples } => {
            let row = RowPicture { sequence: Some(sequence), slot, start, len, samples, ..none };
            last.rows.push(row);
            if let Some(s) = picture.sequences.get_mut(&sequence) {
                s.computed = start.saturating_add(len);
            }
        }
        Event::RowDrafted { len, .. } => {
            picture.counters.drafted_tokens += u64::from(len);
            if let Some(row) = last.rows.last_mut() {
                row.drafts = len;
            }
        }
        Event::DraftsTried { sequence, right, .. } => {
            picture.counters.drafts_right += u64::from(right);
            // Who was preempted in between has lost what they computed.
            let running = picture.sequences.get_mut(&sequence).filter(|s| s.slot.is_some());
            if let Some(s) = running {
                s.computed = s.computed.saturating_add(right);
            }
        }
        Event::RowPadded { sequence, slot, start, len } => {
            last.rows.push(RowPicture { sequence, slot, start, len, pad: true, ..none });
        }
        Event::StepRan { step, plan_micros, build_micros, device_micros } => {
            add(&mut picture.counters.device_micros, device_micros);
            if last.step == step {
                last.plan_micros = plan_micros;
                last.build_micros = build_micros;
                last.device_micros = device_micros;
            }
        }
        _ => {}
    }
}

fn preemption(picture: &mut Picture, event: &Event) {
    match *event {
        Event::SequencePreempted { victim, method, lost, times, .. } => {
            picture.counters.lost_tokens += u64::from(lost);
            preempt(picture, victim, method, times);
        }
        Event::SequenceSwappedIn { sequence, expired, tokens, .. } => {
            if let Some(s) = picture.sequences.get_mut(&sequence) {
                s.computed = tokens;
                let blocks = s.blocks.len().saturating_add(expired as usize).min(TABLE_MAX);
                s.blocks.resize(blocks, BlockId::EXPIRED);
            }
        }
        Event::BlocksSwapped { out, back, bytes, .. } => {
            picture.counters.swapped_out += u64::from(out);
            picture.counters.swapped_in += u64::from(back);
            add(&mut picture.counters.swapped_bytes, bytes);
        }
        _ => {}
    }
}

fn preempt(picture: &mut Picture, victim: SequenceId, method: PreemptMethod, times: u32) {
    picture.counters.preempted += 1;
    let size = picture.limits.map_or(0, |l| l.block_size);
    let Some(s) = picture.sequences.get_mut(&victim) else { return };
    let computed = std::mem::take(&mut s.computed);
    if method == PreemptMethod::Swap {
        // Its blocks leave the table next; what they hold is in host memory from now on.
        let room = count(s.blocks.len()).saturating_mul(size);
        let expired = s.blocks.iter().take_while(|b| **b == BlockId::EXPIRED).count();
        (s.swapped, s.swapped_expired) = (computed.min(room), count(expired));
    }
    s.preemptions = times;
    let order = s.order;
    if let Some(slot) = s.slot.take() {
        clear_slot(picture, slot, victim);
    }
    let of = |id: &SequenceId| picture.sequences.get(id).map_or(u64::MAX, |s| s.order);
    let at = picture.queue.partition_point(|id| of(id) < order);
    picture.queue.insert(at, victim);
}

fn leave(picture: &mut Picture, sequence: SequenceId) {
    picture.queue.retain(|&s| s != sequence);
    let Some(s) = picture.sequences.remove(&sequence) else { return };
    if let Some(slot) = s.slot {
        clear_slot(picture, slot, sequence);
    }
}

fn clear_slot(picture: &mut Picture, slot: u32, sequence: SequenceId) {
    if let Some(place) = picture.slots.get_mut(slot as usize)
        && *place == Some(sequence)
    {
        *place = None;
    }
}
