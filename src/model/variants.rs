//! Which variants a model needs, whatever its steps will be: it records one of every kind.

use super::batch::{Edit, SampleRow};
use super::{Batch, Model};
use crate::kernels::sample::mask_words;
use crate::record::{Command, Recording, VariantId};
use std::collections::{BTreeSet, HashSet};

impl Model {
    /// The variants of every step the model may be asked for; those of the first steps come first.
    pub fn variants(&self) -> Vec<VariantId> {
        let (mut out, mut seen) = (Vec::new(), HashSet::new());
        let mut recording = Recording::default();
        for batch in self.kinds() {
            self.record(&batch, &mut recording);
            for command in &recording.commands {
                if let Command::Dispatch(launch) = command
                    && seen.insert(launch.variant)
                {
                    out.push(launch.variant);
                }
            }
        }
        out
    }

    /// Steps of so many tokens, decoded and of a prompt, as products and experts tell them apart;
    /// a long context, whose parts are merged; and everything that sampling can be asked for.
    fn kinds(&self) -> Vec<Batch> {
        let o = &self.options;
        let tokens = o.step_tokens_max.min(o.context_max);
        let froms = || self.facts.tuned.iter().flat_map(|t| &t.choices).map(|choice| choice.from);
        let sizes = |most: u32| {
            let all: BTreeSet<u32> = (0..32).map(|n| 1 << n).chain(froms()).collect();
            all.into_iter().filter(move |n| (1..most).contains(n)).chain([most])
        };
        let mut out: Vec<_> = sizes(o.sequences_max.min(o.step_tokens_max))
            .map(|rows| self.kind((0..rows).map(|_| (1, 0))))
            .collect();
        out.extend(sizes(tokens).map(|len| self.kind([(len, 0)])));
        out.push(self.kind([(1, o.context_max - 1)]));
        let mut asked = self.kind([(1, 0)]);
        asked.edits.push(Edit::default());
        asked.samples[0].1.edits = 1;
        asked.hold(0, &vec![u32::MAX; mask_words(self.spec.vocab) as usize]);
        asked.hidden.push(0);
        out.push(asked);
        out
    }

    /// Rows of (tokens, start). As many tokens of each are sampled from as a product takes at once:
    /// prompts are scored so.
    fn kind(&self, rows: impl IntoIterator<Item = (u32, u32)>) -> Batch {
        let most = Self::logit_rows(&self.spec, &self.options, &self.facts);
        let mut batch = Batch::default();
        for (len, start) in rows {
            let blocks = (start + len).div_ceil(self.options.block_size);
            let first = batch.push_row(&vec![0; len as usize], start, &vec![0; blocks as usize]);
            let sampled = first + len.saturating_sub(most)..first + len;
            batch.samples.extend(sampled.map(|at| (at, SampleRow::default())));
        }
        batch
    }
}
