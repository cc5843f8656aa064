//! Each decision as a sentence for people: who, what, for whom, and the numbers it was decided on.

use super::event::{
    DelayReason, Event, EvictReason, FinishReason, LimitsReason, PreemptMethod, PreemptReason,
};

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
            "sequence {sequence} got no row: it needs a block, {free} are free and nobody junior \
             is left to preempt"
        ),
        Event::SequencePreempted { .. } => preempted(event)?,
        Event::RowCut { sequence, wanted, given, budget } => format!(
            "sequence {sequence} computes {given} of the {wanted} positions it lacks: the step may \
             have {budget} in all, and others take the rest"
        ),
        Event::BudgetChosen { .. } => budget(event)?,
        Event::RowPadded { sequence: Some(sequence), len, .. } => format!(
            "{len} positions are computed for nothing in the place of sequence {sequence}: its \
             batch goes on until the last of it ends"
        ),
        Event::RowPadded { sequence: None, len, .. } => format!(
            "{len} positions are computed for nothing in a place that nobody took: the batch has \
             a fixed size"
        ),
        Event::SequenceFinished { sequence, reason, generated, .. } => {
            let why = match reason {
                FinishReason::Stop => "it wrote an end",
                FinishReason::Length => "it reached its limit",
                FinishReason::Cancelled => "it was cancelled",
                FinishReason::Failed => "it failed",
                FinishReason::TimedOut => "its time was up",
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
    let Event::SequencePreempted { victim, gainer, reason, lost, blocks, times, .. } = event else {
        return None;
    };
    let Event::SequencePreempted { policy, juniors, method, .. } = event else { return None };
    let Event::SequencePreempted { recompute_micros, swap_micros, host_free, .. } = event else {
        return None;
    };
    let why = match reason {
        PreemptReason::OutOfBlocks => format!(
            "because sequence {gainer} needed a block and none was free ({policy} of the {juniors} \
             after it)"
        ),
        PreemptReason::Forced => "because somebody asked for it".to_string(),
    };
    let then = match method {
        PreemptMethod::Recompute => format!("has {lost} computed positions to compute again"),
        PreemptMethod::Swap => "keeps what it computed in host memory".to_string(),
    };
    let again = if *times > 1 { format!(" (for the {times}. time)") } else { String::new() };
    Some(format!(
        "sequence {victim} was preempted{again} {why}: it gave {blocks} {} and {then} (computing \
         again is taken to cost {:.1} ms, moving {:.1} ms; {host_free} host blocks are free)",
        plural(*blocks as usize, "block"),
        *recompute_micros as f64 / 1e3,
        *swap_micros as f64 / 1e3
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
        true => "; the target cannot be met, and prompts still get a few tokens a step",
        false => "",
    };
    Some(format!(
        "a step may have {budget} tokens from here on, {decode} of which decode: {:.1} ms are \
         predicted ({:.1} ms a step, {token_nanos} ns a token, {pair_picos} ps a key read, {:.1} % \
         for errors), the target is {:.1} ms{end}",
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
        Event::SequenceSwappedIn { sequence, blocks, tokens, .. } => format!(
            "sequence {sequence} goes on from its {tokens} computed positions; {blocks} {} of them \
             come back from host memory",
            plural(*blocks as usize, "block")
        ),
        Event::BlocksExpired { sequence, count, .. } => format!(
            "sequence {sequence} gave {count} {} back that no layer's window reaches any more",
            plural(*count as usize, "block")
        ),
        _ => return None,
    })
}

fn weighted(event: &Event) -> Option<String> {
    let Event::TenantWeighted { tenant, weight } = event else { return None };
    Some(format!("tenant {tenant} has a share of {weight} from here on, relative to 1"))
}
