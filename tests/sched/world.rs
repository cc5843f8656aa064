//! A scheduler with a fake device, watched in every step.
//!
//! The device keeps a real paged cache: a row writes its tokens where the block table says, and
//! a sampled token is a hash of every token read back through the table. So a wrong table, a
//! block that two sequences write, or a lost token changes the output, and the right output of a
//! request is known without running anything: [`expected`].

use std::collections::{BTreeMap, VecDeque};
use tilewright::base::{
    Batching, BlockId, Limits, Policies, RequestId, SequenceId, TokenId, threefry2x32,
};
use tilewright::sched::{NewSequence, Outcome, Plan, PlanRow, Scheduler};
use tilewright::trace::{Event, FinishReason, Picture, Refusal, Stamped, fold, write_line};

/// Random numbers of a seed.
pub struct Dice(u64, u32);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed, 0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.1 += 1;
        let key = [self.0 as u32, (self.0 >> 32) as u32];
        threefry2x32(key, [self.1, 1])[0] % bound.max(1)
    }

    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

pub fn prompt(sequence: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|p| threefry2x32([sequence, 7], [p, 0])[0]).collect()
}

/// The token that follows `tokens`. The last mixing step keeps a hash that is itself appended
/// from cancelling out.
fn next_token(tokens: impl Iterator<Item = TokenId>) -> TokenId {
    let mix = |hash: u32, t: TokenId| (hash.rotate_left(5) ^ t).wrapping_mul(0x9E37_79B1);
    let hash = tokens.fold(0x811C_9DC5, mix);
    (hash ^ (hash >> 15)).wrapping_mul(0x85EB_CA6B)
}

/// The whole output of a request, prompt included.
pub fn expected(prompt: &[TokenId], new: u32) -> Vec<TokenId> {
    expected_within(prompt, new, None)
}

/// The same of a model that sees the last `window` tokens only.
pub fn expected_within(prompt: &[TokenId], new: u32, window: Option<u32>) -> Vec<TokenId> {
    let mut tokens = prompt.to_vec();
    for _ in 0..new {
        let first = first_seen(tokens.len() as u32, window) as usize;
        tokens.push(next_token(tokens[first..].iter().copied()));
    }
    tokens
}

/// The first of `known` tokens that the last one sees.
fn first_seen(known: u32, window: Option<u32>) -> u32 {
    window.map_or(0, |window| known.saturating_sub(window))
}

/// Where the guesses of speculative rows come from.
pub struct Guesses {
    pub dice: Dice,
    pub most: u32,
    pub right_percent: u32,
}

pub struct World {
    pub sched: Scheduler,
    pub picture: Picture,
    pub events: Vec<Event>,
    /// The stream as JSON lines.
    pub lines: Vec<u8>,
    pub now: u64,
    /// Plans the device may be ahead of the host: 1 = commit before the next plan.
    pub depth: usize,
    /// Tokens after which the fake model says stop, if any: `token % stop == 0`.
    pub stop: Option<u32>,
    /// Guesses offered to rows, and how many of a hundred are right.
    pub guesses: Option<Guesses>,
    /// What every sequence has said, kept after its end.
    pub outputs: BTreeMap<SequenceId, Vec<TokenId>>,
    pub finished: BTreeMap<SequenceId, FinishReason>,
    pub preemptions: BTreeMap<SequenceId, u32>,
    /// Returns with blocks from host memory.
    pub swapped_in: u32,
    /// Plans that have run, oldest first.
    flight: VecDeque<(Plan, Vec<Outcome>)>,
    cache: BTreeMap<(u32, u32), TokenId>,
    host: BTreeMap<u32, Vec<Option<TokenId>>>,
    slots: BTreeMap<SequenceId, u32>,
    seq: u64,
}

impl World {
    pub fn new(limits: Limits) -> Self {
        Self::with(limits, Policies::default())
    }

    pub fn with(limits: Limits, policies: Policies) -> Self {
        Self {
            sched: Scheduler::with_policies(limits, policies),
            picture: Picture::default(),
            events: Vec::new(),
            lines: Vec::new(),
            now: 0,
            depth: 1,
            stop: None,
            guesses: None,
            outputs: BTreeMap::new(),
            finished: BTreeMap::new(),
            preemptions: BTreeMap::new(),
            swapped_in: 0,
            flight: VecDeque::new(),
            cache: BTreeMap::new(),
            host: BTreeMap::new(),
            slots: BTreeMap::new(),
            seq: 0,
        }
    }

    pub fn submit(&mut self, id: u32, prompt_len: u32, max_new: u32) -> Result<(), Refusal> {
        let prompt = prompt(id, prompt_len);
        let new = NewSequence::new(SequenceId(id), RequestId(id), prompt, max_new);
        self.submit_new(new)
    }

    pub fn submit_new(&mut self, new: NewSequence) -> Result<(), Refusal> {
        let (id, prompt) = (new.sequence, new.prompt.clone());
        let result = self.sched.submit(new, self.now, &mut self.events);
        if result.is_ok() {
            self.outputs.insert(id, prompt);
        }
        self.absorb();
        result
    }

    pub fn cancel(&mut self, id: u32) -> bool {
        let found = self.sched.cancel(SequenceId(id), self.now, &mut self.events);
        self.absorb();
        found
    }

    /// Plans and runs a step; commits as much as the depth asks for. False when nothing is left
    /// to do.
    pub fn step(&mut self) -> bool {
        self.now += 1000;
        let mut plan = Plan::default();
        self.offer();
        self.sched.plan(self.now, &mut plan, &mut self.events);
        self.watch(&plan);
        self.swap(&plan);
        let (planned, preempted) = (!plan.rows.is_empty(), plan.preempted > 0);
        if planned {
            let outcomes = self.run(&plan);
            self.flight.push_back((plan, outcomes));
        }
        self.absorb();
        while self.flight.len() >= self.depth || (!planned && !self.flight.is_empty()) {
            let Some((plan, outcomes)) = self.flight.pop_front() else { break };
            self.sched.commit(&plan, &outcomes, self.now, &mut self.events);
            self.absorb();
            if !planned {
                return true;
            }
        }
        planned || preempted
    }

    /// Steps until nothing is left; fails when that takes longer than any right scheduler needs.
    pub fn finish(&mut self, steps_max: u32) -> u32 {
        for steps in 0..steps_max {
            if !self.step() && self.sched.wake_at().is_none() {
                assert!(self.sched.is_idle(), "{:?}", self.sched.snapshot());
                let limits = self.sched.limits();
                assert_eq!(self.sched.free_blocks(), limits.blocks, "leak");
                assert_eq!(self.sched.free_host_blocks(), limits.host_blocks, "leak");
                return steps;
            }
        }
        panic!("not done after {steps_max} steps: {:?}", self.sched.snapshot());
    }

    fn offer(&mut self) {
        let Some(Guesses { dice, most, .. }) = &mut self.guesses else { return };
        let able: Vec<_> = self.sched.draftable().collect();
        for sequence in able {
            self.sched.offer_drafts(sequence, dice.below(*most + 1));
        }
    }

    /// What must hold of any plan.
    fn watch(&self, plan: &Plan) {
        assert_eq!(plan.tokens, plan.rows.iter().map(PlanRow::tokens).sum::<u32>());
        assert!(plan.tokens <= plan.budget, "{} of {}", plan.tokens, plan.budget);
        let real: Vec<_> = plan.rows.iter().filter(|r| !r.pad).collect();
        assert!(real.len() <= self.sched.running() as usize);
        assert!(plan.rows.is_empty() || !real.is_empty(), "nothing but padding");
        assert_eq!(plan.padding + real.iter().map(|r| r.tokens()).sum::<u32>(), plan.tokens);
        // No guess is made at the cost of anybody: whoever runs could still take a block.
        let guesses = plan.rows.iter().any(|r| r.drafts > 0);
        let last = self.sched.running().min(self.sched.limits().blocks);
        let fresh = |r: &&PlanRow| self.needs_blocks(r);
        let takes = plan.rows.iter().any(|r| r.drafts > 0 && fresh(&r));
        assert!(!guesses || !takes || self.sched.free_blocks() >= last, "blocks for guesses");
        let mut seen: Vec<_> = real.iter().map(|r| r.sequence).collect();
        let mut slots: Vec<_> = real.iter().map(|r| r.slot).collect();
        seen.sort();
        slots.sort();
        assert!(seen.is_sorted_by(|a, b| a < b), "a sequence has two rows");
        assert!(slots.is_sorted_by(|a, b| a < b), "a slot has two rows");
        let admitted = self.events.iter().any(|e| matches!(e, Event::SequenceAdmitted { .. }));
        let preempted = self.events.iter().any(|e| matches!(e, Event::SequencePreempted { .. }));
        assert!(!(admitted && preempted), "a step that preempted admitted somebody");
        assert_eq!(preempted, plan.preempted > 0);
    }

    /// Host memory: takes and gives back what blocks hold, before anything of the step runs.
    fn swap(&mut self, plan: &Plan) {
        assert!(plan.swaps_out.is_empty() || plan.swaps_in.is_empty(), "both ways in one step");
        let size = self.sched.limits().block_size;
        for swap in &plan.swaps_out {
            let held = (0..size).map(|at| self.cache.get(&(swap.block.0, at)).copied());
            self.host.insert(swap.host, held.collect());
        }
        for swap in &plan.swaps_in {
            let held = self.host.remove(&swap.host).expect("something is there");
            for (at, token) in (0..).zip(held) {
                match token {
                    Some(token) => self.cache.insert((swap.block.0, at), token),
                    None => self.cache.remove(&(swap.block.0, at)),
                };
            }
        }
    }

    /// The device: writes and reads its cache through the block tables.
    fn run(&mut self, plan: &Plan) -> Vec<Outcome> {
        let size = self.sched.limits().block_size;
        let mut outcomes = Vec::new();
        for copy in &plan.copies {
            let block: Vec<_> =
                (0..size).map(|p| self.cache.get(&(copy.from.0, p)).copied()).collect();
            for (p, token) in (0..size).zip(block) {
                // What is stale stays stale: nobody may read it.
                self.cache.insert((copy.to.0, p), token.unwrap_or(TokenId::MAX));
            }
        }
        for row in &plan.rows {
            if row.pad {
                outcomes.push(Outcome { sequence: row.sequence, ..Outcome::default() });
                continue;
            }
            let blocks = self.sched.blocks(row.sequence).to_vec();
            self.hold_window(row, &blocks);
            let place = |p: u32| (blocks[(p / size) as usize].0, p % size);
            // Only a row of one may start from a token that the host does not know yet.
            let host = self.sched.tokens(row.sequence).len() as u32;
            assert!(row.len == 1 || row.start + row.len <= host, "{row:?} of {host}");
            let said = self.outputs.get_mut(&row.sequence).expect("submitted");
            for p in row.start..row.start + row.len {
                self.cache.insert(place(p), said[p as usize]);
            }
            let mut outcome = Outcome { sequence: row.sequence, ..Outcome::default() };
            if row.drafts > 0 {
                outcomes.extend(self.try_drafts(row, &blocks));
                continue;
            }
            if row.samples {
                let end = row.start + row.len;
                assert_eq!(end as usize, said.len(), "{} samples too early", row.sequence);
                let first = first_seen(end, self.sched.limits().window);
                let token = next_token((first..end).map(|p| self.cache[&place(p)]));
                said.push(token);
                outcome.token = Some(token);
                let stops = self.stop.is_some_and(|s| token % s == 0);
                outcome.finish = stops.then_some(FinishReason::Stop);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Whether a row's guesses reach beyond the blocks that its known tokens need.
    fn needs_blocks(&self, row: &PlanRow) -> bool {
        let limits = self.sched.limits();
        limits.blocks_of(row.start + row.tokens()) > limits.blocks_of(row.start + row.len)
    }

    /// A row with guesses: as many of them right as the dice say, the others wrong and in the cache
    /// all the same.
    fn try_drafts(&mut self, row: &PlanRow, blocks: &[BlockId]) -> Vec<Outcome> {
        let limits = *self.sched.limits();
        let place = |p: u32| (blocks[(p / limits.block_size) as usize].0, p % limits.block_size);
        let said = self.outputs.get_mut(&row.sequence).expect("submitted");
        assert_eq!((row.len, row.start as usize + 1), (1, said.len()), "{row:?}");
        let Some(Guesses { dice, right_percent, .. }) = &mut self.guesses else { return vec![] };
        let mut outcomes = Vec::new();
        let mut right = true;
        for n in 0..=row.drafts {
            let end = row.start + row.len + n;
            let first = first_seen(end, limits.window);
            let token = next_token((first..end).map(|p| self.cache[&place(p)]));
            if right {
                said.push(token);
                let stops = self.stop.is_some_and(|s| token % s == 0);
                let finish = stops.then_some(FinishReason::Stop);
                outcomes.push(Outcome { sequence: row.sequence, token: Some(token), finish });
                right = !stops && dice.chance(*right_percent);
            }
            if n < row.drafts {
                self.cache.insert(place(end), if right { token } else { !token });
            }
        }
        outcomes
    }

    /// Blocks that lie before every window are given back, and none that a row still reads.
    fn hold_window(&self, row: &PlanRow, blocks: &[BlockId]) {
        let limits = self.sched.limits();
        let expired = blocks.iter().take_while(|b| **b == BlockId::EXPIRED).count() as u32;
        let seen = first_seen(row.start + 1, limits.window) / limits.block_size;
        assert!(expired <= seen, "{row:?}: {expired} expired, block {seen} is read");
        let batched = self.sched.policies().batching != Batching::Continuous;
        assert!(batched || expired == seen, "{row:?}: {expired} of {seen} expired");
    }

    /// Folds new events, then compares the picture with the scheduler and checks both.
    fn absorb(&mut self) {
        let state = self.sched.snapshot();
        let all = state.running.iter().chain(&state.waiting);
        let seniority = all.map(|s| (s.sequence, (s.rank, s.order))).collect();
        for event in std::mem::take(&mut self.events) {
            self.note(&event, &seniority);
            let (seq, step, micros) = (self.seq, self.picture.last_step.step, self.now);
            self.seq += 1;
            let stamped = Stamped { seq, step, micros, event };
            write_line(&mut self.lines, &stamped).expect("memory");
            fold(&mut self.picture, &stamped);
        }
        self.sched.check().unwrap_or_else(|e| panic!("{e}\n{:?}", self.sched.snapshot()));
        same(&self.picture, &self.sched);
    }

    fn note(&mut self, event: &Event, seniority: &BTreeMap<SequenceId, (u64, u64)>) {
        match *event {
            Event::SequencePreempted { victim, gainer, times, .. } => {
                let senior = victim == gainer || seniority[&victim] > seniority[&gainer];
                assert!(senior, "{gainer} preempted its senior {victim}");
                self.preemptions.insert(victim, times);
                self.slots.remove(&victim);
            }
            Event::SequenceSwappedIn { .. } => self.swapped_in += 1,
            Event::RowPlanned { sequence, slot, .. } => {
                let held = *self.slots.entry(sequence).or_insert(slot);
                assert_eq!(held, slot, "{sequence} moved");
            }
            Event::SequenceFinished { sequence, reason, prompt, generated, .. } => {
                self.slots.remove(&sequence);
                self.finished.insert(sequence, reason);
                let said = self.outputs.get_mut(&sequence).expect("submitted");
                said.truncate((prompt + generated) as usize);
            }
            _ => {}
        }
    }
}

/// The folded picture says what the scheduler says.
fn same(picture: &Picture, sched: &Scheduler) {
    let state = sched.snapshot();
    if picture.limits.is_none() {
        return;
    }
    assert_eq!(picture.policies.as_ref(), Some(sched.policies()));
    assert_eq!(picture.limits, Some(state.limits));
    assert_eq!(picture.free_blocks(), state.free);
    assert_eq!(picture.cached_blocks(), state.cached_free);
    assert_eq!(picture.shared_blocks(), state.shared);
    let cached = picture.blocks.iter().zip(0..).filter(|(b, _)| b.cached).map(|(_, n)| n);
    assert!(cached.eq(state.cached.iter().map(|c| c.block.0)), "cached blocks");
    let hashes = picture.blocks.iter().zip(0..).filter_map(|(b, n)| Some((n, b.hash?)));
    assert!(hashes.eq(state.cached.iter().map(|c| (c.block.0, c.hash))), "hashes of blocks");
    let in_host = state.waiting.iter().flat_map(|s| s.host.iter().map(|_| s.sequence));
    let mut in_host: Vec<_> = in_host.collect();
    in_host.sort();
    assert!(picture.host_blocks().map(|(id, _)| id).eq(in_host), "host memory");
    assert_eq!(picture.sequences.len(), state.running.len() + state.waiting.len());
    assert_eq!(picture.running() as usize, state.running.len());
    let mut waiting: Vec<_> = state.waiting.iter().map(|s| (s.order, s.sequence)).collect();
    waiting.sort();
    assert!(picture.queue.iter().eq(waiting.iter().map(|(_, s)| s)), "queue");
    for (block, (drawn, &tables)) in picture.blocks.iter().zip(&state.tables).enumerate() {
        assert_eq!(drawn.tables, tables, "tables of block {block}");
    }
    for s in state.running.iter().chain(&state.waiting) {
        let drawn = &picture.sequences[&s.sequence];
        let seen = (drawn.request, drawn.order, drawn.slot, drawn.prompt, drawn.max_new_tokens);
        assert_eq!(seen, (s.request, s.order, s.slot, s.prompt, s.max_new_tokens));
        let seen = (drawn.known, drawn.computed, &drawn.blocks, drawn.preemptions);
        assert_eq!(seen, (s.known - s.pending, s.computed, &s.blocks, s.preemptions));
        assert_eq!(picture.score(drawn), s.key, "what the queue goes by");
        if let Some(slot) = s.slot {
            assert_eq!(picture.slots[slot as usize], Some(s.sequence));
        }
    }
}
