//! The literature's claims, each as something that runs: on a device or on the simulator, with the
//! scheduler and the engine loop that serve.

mod batches;
mod knee;
mod order;
mod predict;
mod prefix;
mod prompts;
mod swap;

use super::claim::Claim;
use crate::base::Policies;
use crate::sim::Lengths;

/// All claims, in the order of a report.
pub const CLAIMS: &[Claim] = &[
    Claim {
        name: "utilization",
        title: "Static batches leave places empty",
        says: "A static batch goes on until its longest answer ends: eight answers of 20 to 900 \
               tokens use 20.2 % of their places, and larger batches use less. Batching by \
               iteration refills each place at once (Orca, OSDI 2022).",
        run: batches::utilization_of_batches,
    },
    Claim {
        name: "padding",
        title: "Static batches compute padding",
        says: "Prompts of one batch are padded to the longest, and ended answers go on as padding; \
               selective batching computes none of it (Orca, OSDI 2022).",
        run: batches::padding,
    },
    Claim {
        name: "stall",
        title: "A long prompt stalls everybody",
        says: "A prompt computed whole makes every running stream wait for it: on an H100 with 8 \
               billion weights about 13 times an undisturbed token. In pieces, with a budget from \
               a latency target, the wait stays within 1.2 times (Sarathi-Serve, OSDI 2024).",
        run: prompts::stall,
    },
    Claim {
        name: "budget",
        title: "The token budget trades first tokens against the others",
        says: "A small budget per step keeps tokens even and makes prompts slow; a large one does \
               the opposite (Sarathi-Serve, OSDI 2024).",
        run: prompts::budget,
    },
    Claim {
        name: "prefill-is-free",
        title: "A piece of a prompt rides along with decoding",
        says: "Decoding is bound by memory, so positions of a prompt added to a decoding step cost \
               little more than the step (Sarathi, 2023).",
        run: prompts::prefill_is_free,
    },
    Claim {
        name: "swap-or-recompute",
        title: "Moving a victim's blocks or computing them again",
        says: "Computing again costs more than in proportion to the length, moving to host memory \
               and back in proportion to it and to the link: which costs less depends on length \
               and device (vLLM, SOSP 2023).",
        run: swap::swap_or_recompute,
    },
    Claim {
        name: "fairness",
        title: "A tenant that asks more is served more",
        says: "First come, first served gives each tenant what it asks for; counters of service \
               per tenant give each the same while both have work (VTC, OSDI 2024).",
        run: order::fairness,
    },
    Claim {
        name: "starvation",
        title: "Shortest first starves long requests",
        says: "With the shortest predicted job first, a long request waits as long as short ones \
               keep coming; aging bounds the wait.",
        run: order::starvation,
    },
    Claim {
        name: "knee",
        title: "Throughput over batch has a knee",
        says: "While a step is bound by reading the weights, a larger batch is nearly free: on an \
               H100 with 8 billion weights 32 sequences give about 15 times the tokens of one. \
               Beyond the knee keys and values are what is read: from 64 to 111 sequences adds \
               about 14 %.",
        run: knee::knee,
    },
    Claim {
        name: "prefix",
        title: "What is known need not be computed",
        says: "Requests that begin alike find their first blocks computed: less work, and first \
               tokens that come sooner (vLLM, SOSP 2023; RadixAttention, 2024).",
        run: prefix::prefix,
    },
    Claim {
        name: "orca",
        title: "Batching by iteration serves more at the same latency",
        says: "At equal median latency continuous batching reaches several times the throughput of \
               static batching (Orca, OSDI 2022: 36.9 times on its own traffic and model).",
        run: batches::orca,
    },
    Claim {
        name: "prediction",
        title: "The simulator predicts a real run",
        says: "Time to first token and, of requests that come all at once, throughput of a real \
               run, predicted from the step times of another, are within 15 % as the median of \
               five interleaved runs.",
        run: predict::prediction,
    },
];

fn lengths(mean: f64, cv: f64, max: u32) -> Lengths {
    Lengths { mean, cv, max }
}

fn policies(change: impl FnOnce(&mut Policies)) -> Policies {
    let mut policies = Policies::default();
    change(&mut policies);
    policies
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}
