//! Each decision as a sentence for people: who, what, for whom, and the numbers it was decided on.

use super::event::{
    DelayReason, Event, EvictReason, FinishReason, LimitsReason, PreemptMethod, PreemptReason,
};
use crate::base::{Policies, counted, duration, form};

/// What was decided and why; `None` for events that only report what happened.
pub fn sentence(event: &Event) -> Option<String> {
    Some(match event {
        Event::LimitsChanged { limits, reason } => format!(
            "limits {}: {} of {}, {}, {} a step",
            since(*reason),
            counted(limits.blocks, "block"),
            counted(limits.block_size, "position"),
            counted(limits.sequences_max, "sequence"),
            counted(limits.step_tokens_max, "token")
        ),
        Event::PoliciesChanged { policies, reason } => chosen(policies, *reason),
        Event::TenantWeighted { .. } => weighted(event)?,
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
        | Event::BlocksExpired { .. }
        | Event::SequenceSwappedIn { .. } => blocks_moved(event)?,
        Event::RowDelayed { sequence, free } => format!(
            "sequence {sequence} got no row: it needs a block, {} free and nobody junior is left \
             to preempt",
            are(*free)
        ),
        Event::SequencePreempted { .. } => preempted(event)?,
        Event::RowCut { sequence, wanted, given, budget } => format!(
            "sequence {sequence} computes {given} of the {wanted} positions it lacks: the step may \
             have {budget} in all, and others take the rest"
        ),
        Event::RowDiscarded { sequence, len, .. } => format!(
            "sequence {sequence} computed {} for nothing: it had ended with the token before, \
             which was not known when this step was planned",
            counted(*len, "position")
        ),
        Event::BudgetChosen { .. } => budget(event)?,
        Event::RowPadded { .. } => padded(event)?,
        Event::SequenceFinished { sequence, reason, generated, .. } => {
            let why = match reason {
                FinishReason::Stop => "it wrote an end",
                FinishReason::Length => "it reached its limit",
                FinishReason::Cancelled => "it was cancelled",
                FinishReason::Failed => "it failed",
                FinishReason::TimedOut => "its time was up",
            };
            let new = counted(*generated, "new token");
            format!("sequence {sequence} ended after {new}: {why}")
        }
        Event::EventsDropped { count } => {
            let lost = counted(*count, "event");
            format!("{lost} lost here: what is shown may be off until the loss has passed")
        }
        _ => return None,
    })
}

/// "1 is", "2 are".
fn are(count: u32) -> String {
    format!("{count} {}", form(count, "is", "are"))
}

fn since(reason: LimitsReason) -> &'static str {
    match reason {
        LimitsReason::Start => "at the start",
        LimitsReason::Asked => "changed as asked",
    }
}

fn chosen(policies: &Policies, reason: LimitsReason) -> String {
    let mut text = format!(
        "policies {}: {} batching, prefill {}, admission {}, victim {}, preemption {}, order {}, \
         prefix cache {}, guesses {}",
        since(reason),
        policies.batching,
        policies.prefill,
        policies.admission,
        policies.victim,
        policies.preemption,
        policies.order,
        policies.prefix_cache,
        policies.speculate
    );
    if let Some(micros) = policies.itl_target_micros {
        text += &format!(", {:.1} ms a step at most", f64::from(micros) / 1e3);
    }
    text
}

fn padded(event: &Event) -> Option<String> {
    let Event::RowPadded { sequence, len, .. } = event else { return None };
    let len = counted(*len, "position");
    Some(match sequence {
        Some(sequence) => format!(
            "the place of sequence {sequence} computes {len} for nothing: its batch goes on until \
             the last of it ends"
        ),
        None => format!(
            "a place that nobody took computes {len} for nothing: the batch has a fixed size"
        ),
    })
}

fn admitted(event: &Event) -> Option<String> {
    let Event::SequenceAdmitted { sequence, slot, blocks, free, kept, peak, passed, .. } = event
    else {
        return None;
    };
    let Event::SequenceAdmitted { waited_micros, .. } = event else { return None };
    let mut text = format!(
        "sequence {sequence} was admitted to slot {slot} after {}: it needs {}, {free} {} free",
        duration(*waited_micros),
        counted(*blocks, "block"),
        form(*free, "was", "were")
    );
    if *kept > 0 {
        let stay = form(*kept, "stays", "stay");
        text += &format!(", {kept} {stay} free for those that run");
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
        DelayReason::Slots => format!("{} allowed, none is free", counted(available, "slot")),
        DelayReason::Blocks => {
            let needed = counted(needed, "block");
            format!("it needs {needed}, what stays free included; {available} of them free")
        }
        DelayReason::Peak => format!(
            "with it {} {} foreseen at the peak, the pool has {available}",
            counted(needed, "block"),
            form(needed, "is", "are")
        ),
        DelayReason::Protected => format!(
            "it was preempted often: {} shall be there, {}",
            counted(needed, "block"),
            are(available)
        ),
        DelayReason::Sibling => format!(
            "its prompt is computed by another sequence of the request, {available} of {} so far",
            counted(needed, "position")
        ),
        DelayReason::InFlight => "the step it was preempted out of has not come back".to_string(),
    }
}

fn preempted(event: &Event) -> Option<String> {
    let Event::SequencePreempted { victim, gainer, reason, lost, blocks, times, .. } = event else {
        return None;
    };
    let Event::SequencePreempted { policy, juniors, method, .. } = event else { return None };
    let Event::SequencePreempted { recompute_micros, swap_micros, host_free, .. } = event else {
        return None;
    };
    let why = match reason {
        // Older recordings do not tell how many there were.
        PreemptReason::OutOfBlocks if *juniors == 0 => {
            format!("because sequence {gainer} needed a block and none was free ({policy})")
        }
        PreemptReason::OutOfBlocks => {
            let of = match juniors {
                1 => "the only one".to_string(),
                more => format!("{policy} of the {more}"),
            };
            format!("because sequence {gainer} needed a block and none was free ({of} after it)")
        }
        PreemptReason::Forced => "because somebody asked for it".to_string(),
    };
    let then = match method {
        PreemptMethod::Recompute => {
            format!("has {} to compute again", counted(*lost, "computed position"))
        }
        PreemptMethod::Swap => "keeps what it computed in host memory".to_string(),
    };
    let again = if *times > 1 { format!(" (for the {times}. time)") } else { String::new() };
    let costs = match (*recompute_micros, *swap_micros) {
        // Older recordings do not tell.
        (0, 0) => String::new(),
        (recompute, swap) => format!(
            " (computing again is taken to cost {}, moving {}; {} {} free)",
            duration(recompute),
            duration(swap),
            counted(*host_free, "host block"),
            form(*host_free, "is", "are")
        ),
    };
    Some(format!(
        "sequence {victim} was preempted{again} {why}: it gave {} and {then}{costs}",
        counted(*blocks, "block")
    ))
}

fn budget(event: &Event) -> Option<String> {
    let Event::BudgetChosen { budget, decode, target_micros, predicted_micros, .. } = *event else {
        return None;
    };
    let Event::BudgetChosen { fixed_micros, token_nanos, pair_picos, slack_permille, .. } = *event
    else {
        return None;
    };
    let millis = |micros: u64| micros as f64 / 1e3;
    let end = match predicted_micros > u64::from(target_micros) {
        true if decode == 0 => "; nobody waits for a next token, and it binds nobody",
        true => "; the target cannot be met, and prompts still get a few tokens a step",
        false => "",
    };
    Some(format!(
        "a step may have {} from here on, {decode} of which {}: {:.1} ms are predicted ({:.1} ms \
         a step, {token_nanos} ns a token, {pair_picos} ps a key read, {:.1} % for errors), the \
         target is {:.1} ms{end}",
        counted(budget, "token"),
        form(decode, "decodes", "decode"),
        millis(predicted_micros),
        millis(fixed_micros),
        f64::from(slack_permille) / 10.0,
        millis(u64::from(target_micros)),
    ))
}

/// What happened to blocks beside being taken and given back.
fn blocks_moved(event: &Event) -> Option<String> {
    Some(match event {
        Event::PrefixMatched { sequence, blocks, tokens } => format!(
            "sequence {sequence} found its first {} computed already, in {}",
            counted(*tokens, "position"),
            counted(blocks.as_slice().len() as u64, "shared block")
        ),
        Event::PromptShared { sequence, sibling, tokens, .. } => format!(
            "sequence {sequence} shares {} of its prompt with sequence {sibling} of the same \
             request",
            counted(*tokens, "position")
        ),
        Event::BlockCopied { sequence, from, to, tokens } => format!(
            "sequence {sequence} goes on in block {to} with a copy of {} of block {from}, which \
             others read",
            counted(*tokens, "position")
        ),
        Event::BlockMerged { sequence, from, to, .. } => format!(
            "sequence {sequence} computed what block {to} holds already, and gave block {from} back"
        ),
        Event::BlockEvicted { block, reason, idle_micros } => {
            let why = match reason {
                EvictReason::OutOfBlocks => "its place was needed",
                EvictReason::Failed => "the sequence that computed it failed",
            };
            let idle = duration(*idle_micros);
            format!("block {block} lost its cached content, unused for {idle}: {why}")
        }
        Event::SequenceSwappedIn { sequence, blocks, tokens, .. } => format!(
            "sequence {sequence} goes on from its {}; {} of them back from host memory",
            counted(*tokens, "computed position"),
            counted(*blocks, "block")
        ),
        Event::BlocksExpired { sequence, count, .. } => format!(
            "sequence {sequence} gave {} back that no layer's window reaches any more",
            counted(*count, "block")
        ),
        _ => return None,
    })
}

fn weighted(event: &Event) -> Option<String> {
    let Event::TenantWeighted { tenant, weight } = event else { return None };
    Some(format!("tenant {tenant} has a share of {weight} from here on, relative to 1"))
}
