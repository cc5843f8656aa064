//! Slots: the places of running sequences, small integers that a sequence keeps while it runs.
//! The lowest free one is given out, so that the highest in use stays low.

/// A bit per slot, set where it is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    words: Vec<u64>,
}

impl Slots {
    pub fn take(&mut self) -> u32 {
        let word = self.words.iter().position(|w| *w != u64::MAX).unwrap_or_else(|| {
            self.words.push(0);
            self.words.len() - 1
        });
        let bit = self.words[word].trailing_ones();
        self.words[word] |= 1 << bit;
        // Slots are bounded by running sequences, a u32.
        (word as u32) * u64::BITS + bit
    }

    pub fn release(&mut self, slot: u32) {
        self.words[(slot / u64::BITS) as usize] &= !(1 << (slot % u64::BITS));
    }
}
