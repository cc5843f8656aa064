//! Each decision as a sentence for people: who, what, for whom, and the numbers it was decided on.

use super::event::{DelayReason, Event, EvictReason, FinishReason, LimitsReason, PreemptReason};

/// What was decided and why; `None` for events that only report what happened.
pub fn sentence(event: &Event) -> Option<String> {
    Some(match event {
        Event::LimitsChanged { limits, reason } => format!(
            "limits {}: {} blocks of {} positions, {} sequences, {} tokens a step",
            since(*reason),
            limits.blocks,
            limits.block_size,
            limits.sequences_max,
            limits.step_tokens_max
        ),
        Event::PoliciesChanged { policies, reason } => format!(
            "policies {}: {} batching, prefill {}, admission {}, victim {}, order {}",
            since(*reason),
            policies.batching,
            policies.prefill,
            policies.admission,
            policies.victim,
            policies.order
        ),
        Event::RequestRefused { request, refusal, .. } => {
            format!("request {request} was refused: {refusal}")
        }
        Event::SequenceAdmitted { .. } => admitted(event)?,
        Event::AdmissionDelayed { sequence, reason, needed, available } => {
            let what = delayed(*reason, *needed, *available);
            format!("sequence {sequence} is next and waits: {what}")
        }
        Event::PromptShared { .. }
        | Event::PrefixMatched { .. }
        | Event::BlockCopied { .. }
        | Event::BlockMerged { .. }
        | Event::BlockEvicted { .. }
        | Event::BlocksExpired { .. } => blocks_moved(event)?,
        Event::RowDelayed { sequence, free } => format!(
            "sequence {sequence} got no row: it needs a block, {free} are free and nobody junior \
             is left to preempt"
        ),
        Event::SequencePreempted { .. } => preempted(event)?,
        Event::SequenceFinished { sequence, reason, generated, .. } => {
            let why = match reason {
                FinishReason::Stop => "it wrote an end",
                FinishReason::Length => "it reached its limit",
                FinishReason::Cancelled => "it was cancelled",
                FinishReason::Failed => "it failed",
            };
            format!("sequence {sequence} ended after {generated} new tokens: {why}")
        }
        Event::EventsDropped { count } => {
            format!("{count} events were lost here: what is shown may be off until they pass")
        }
        _ => return None,
    })
}

fn since(reason: LimitsReason) -> &'static str {
    match reason {
        LimitsReason::Start => "at the start",
        LimitsReason::Asked => "changed as asked",
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_string() } else { format!("{word}s") }
}

fn admitted(event: &Event) -> Option<String> {
    let Event::SequenceAdmitted { sequence, slot, blocks, free, kept, peak, passed, .. } = event
    else {
        return None;
    };
    let Event::SequenceAdmitted { waited_micros, .. } = event else { return None };
    let mut text = format!(
        "sequence {sequence} was admitted to slot {slot} after {:.1} ms: it needs {blocks} {}, \
         {free} were free",
        *waited_micros as f64 / 1e3,
        plural(*blocks as usize, "block")
    );
    if *kept > 0 {
        text += &format!(", {kept} stay free for those that run");
    }
    if *peak > 0 {
        text += &format!(", all together are foreseen to need {peak}");
    }
    if *passed > 0 {
        text += &format!("; it passed {passed} that did not fit");
    }
    Some(text)
}

fn delayed(reason: DelayReason, needed: u32, available: u32) -> String {
    match reason {
        DelayReason::Slots => format!("{available} slots allowed, all are taken"),
        DelayReason::Blocks => {
            format!("it needs {needed} blocks, what stays free included; {available} are free")
        }
        DelayReason::Peak => {
            format!("with it {needed} blocks are foreseen at the peak, the pool has {available}")
        }
        DelayReason::Protected => {
            format!("it was preempted often: {needed} blocks shall be there, {available} are")
        }
        DelayReason::Sibling => format!(
            "its prompt is computed by another sequence of the request, {available} of {needed} \
             positions so far"
        ),
        DelayReason::InFlight => "the step it was preempted out of has not come back".to_string(),
    }
}

fn preempted(event: &Event) -> Option<String> {
    let Event::SequencePreempted { victim, gainer, reason, lost, blocks, times } = event else {
        return None;
    };
    let why = match reason {
        PreemptReason::OutOfBlocks => "needed a block and none was free",
    };
    let again = if *times > 1 { format!(" (for the {times}. time)") } else { String::new() };
    Some(format!(
        "sequence {victim} was preempted{again} because sequence {gainer} {why}: it gave {blocks} \
         {} and has {lost} computed positions to compute again",
        plural(*blocks as usize, "block")
    ))
}

/// What happened to blocks beside being taken and given back.
fn blocks_moved(event: &Event) -> Option<String> {
    Some(match event {
        Event::PrefixMatched { sequence, blocks, tokens } => format!(
            "sequence {sequence} found its first {tokens} positions computed already, in {} \
             shared {}",
            blocks.as_slice().len(),
            plural(blocks.as_slice().len(), "block")
        ),
        Event::PromptShared { sequence, sibling, tokens, .. } => format!(
            "sequence {sequence} shares {tokens} positions of its prompt with sequence {sibling} \
             of the same request"
        ),
        Event::BlockCopied { sequence, from, to, tokens } => format!(
            "sequence {sequence} goes on in block {to} with a copy of the {tokens} positions of \
             block {from}, which others read"
        ),
        Event::BlockMerged { sequence, from, to, .. } => format!(
            "sequence {sequence} computed what block {to} holds already, and gave block {from} back"
        ),
        Event::BlockEvicted { block, reason, idle_micros } => {
            let why = match reason {
                EvictReason::OutOfBlocks => "its place was needed",
                EvictReason::Failed => "the sequence that computed it failed",
            };
            let idle = *idle_micros as f64 / 1e3;
            format!("block {block} lost its cached content, unused for {idle:.1} ms: {why}")
        }
        Event::BlocksExpired { sequence, count, .. } => format!(
            "sequence {sequence} gave {count} {} back that no layer's window reaches any more",
            plural(*count as usize, "block")
        ),
        _ => return None,
    })
}
