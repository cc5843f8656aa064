//! Looking ahead at memory: the highest point of all outputs together, and the promise that
//! nobody is preempted more than [`PREEMPTIONS_MAX`] times.

use super::scheduler::Scheduler;
use super::sequence::Sequence;
use crate::base::Admission;

/// A sequence that was preempted this often returns only when everything it and its seniors can
/// still need fits the pool, so that it is never preempted again.
pub(super) const PREEMPTIONS_MAX: u32 = 3;

impl Scheduler {
    /// Blocks that all which run, and `entry`, are foreseen to need at the worst moment; 0 where
    /// the admission policy does not look ahead or nothing else runs.
    pub(super) fn peak_with(&mut self, entry: u32) -> u32 {
        if self.running.is_empty() {
            return 0;
        }
        let blocks = match self.policies.admission {
            Admission::Optimistic => return 0,
            Admission::Conservative => {
                let all = self.running.iter().chain([&entry]);
                all.map(|&e| u64::from(self.table[e as usize].full_need(&self.limits))).sum()
            }
            Admission::ExactPeak | Admission::Quantile { .. } => self.exact_peak(entry),
        };
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// In the order of tokens still to come, longest first, the pool is fullest at one of the
    /// moments when a sequence ends: those that outlast it have grown as much as it has.
    fn exact_peak(&mut self, entry: u32) -> u64 {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        ahead.reserve(self.running.len() + 1);
        for &e in &self.running {
            let s = &self.table[e as usize];
            ahead.push((self.to_come(s, s.guess), s.known()));
        }
        let s = &self.table[entry as usize];
        ahead.push((self.to_come(s, self.guess(entry)), s.known()));
        ahead.sort_unstable_by(|a, b| b.cmp(a));
        let size = u64::from(self.limits.block_size);
        let (mut held, mut peak) = (0u64, 0u64);
        for (n, &(left, known)) in (1u64..).zip(&ahead) {
            // Each table may have all but one place of its last block empty.
            held += u64::from(known) + size - 1;
            peak = peak.max(held + u64::from(left) * n);
        }
        self.ahead = ahead;
        peak / size
    }

    /// Tokens still to come. One that outlived its estimate is taken to run as long again.
    fn to_come(&self, s: &Sequence, guess: u32) -> u32 {
        let (generated, most) = (s.generated(), s.max_new - s.generated());
        match self.policies.admission {
            Admission::Quantile { .. } if guess > generated => (guess - generated).min(most),
            Admission::Quantile { .. } => generated.clamp(1, most.max(1)),
            _ => most,
        }
    }

    /// The output a sequence is expected to make, where admission goes by estimates.
    pub(super) fn guess(&self, entry: u32) -> u32 {
        let s = &self.table[entry as usize];
        let Admission::Quantile { percent } = self.policies.admission else { return s.max_new };
        let guess = s.foretold.unwrap_or_else(|| self.predict(s.tenant, s.prompt, percent));
        guess.min(s.max_new)
    }

    /// Blocks that must fit the pool so that nobody is preempted too often if `entry` enters.
    ///
    /// Take the most junior of those that were: it and all its seniors must fit together at
    /// their longest. Then whatever one of them lacks is free or held by a junior of theirs,
    /// which is preempted first.
    pub(super) fn protected_need(&self, entry: u32) -> u32 {
        let seniority = |e: u32| self.table[e as usize].seniority();
        let running = self.running.iter().copied();
        let tired = running.clone().chain([entry]).filter(|&e| self.is_tired(e));
        let Some(junior) = tired.map(seniority).max() else { return 0 };
        if seniority(entry) > junior {
            return 0;
        }
        let all = running.filter(|&e| seniority(e) <= junior).chain([entry]);
        let need = |e: u32| u64::from(self.table[e as usize].full_need(&self.limits));
        u32::try_from(all.map(need).sum::<u64>()).unwrap_or(u32::MAX)
    }
}
