//! Id of a sequence or a tenant → its place in a table. Open addressing with linear probing: no
//! allocation once it is large enough, and no order that could reach a decision, because it is
//! only ever asked for one id.

const EMPTY: u32 = u32::MAX;

/// Ids in use and their entries. At most half full.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// `(id, entry)`; the entry is `EMPTY` where the place is free.
    places: Vec<(u32, u32)>,
    used: usize,
}

impl Index {
    fn home(&self, id: u32) -> usize {
        // Fibonacci hashing spreads ids that count up; the length is a power of two.
        (id.wrapping_mul(0x9E37_79B9) as usize) & (self.places.len() - 1)
    }

    /// Where `id` is, or the free place where it would go.
    fn place(&self, id: u32) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(id);
        while self.places[at].1 != EMPTY && self.places[at].0 != id {
            at = (at + 1) & mask;
        }
        at
    }

    pub fn get(&self, id: u32) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let entry = self.places[self.place(id)].1;
        (entry != EMPTY).then_some(entry)
    }

    pub fn insert(&mut self, id: u32, entry: u32) {
        if (self.used + 1) * 2 > self.places.len() {
            let bigger = vec![(0, EMPTY); (self.places.len() * 2).max(64)];
            for (id, entry) in std::mem::replace(&mut self.places, bigger) {
                if entry != EMPTY {
                    let at = self.place(id);
                    self.places[at] = (id, entry);
                }
            }
        }
        let at = self.place(id);
        self.used += usize::from(self.places[at].1 == EMPTY);
        self.places[at] = (id, entry);
    }

    pub fn remove(&mut self, id: u32) {
        if self.places.is_empty() {
            return;
        }
        let mask = self.places.len() - 1;
        let mut hole = self.place(id);
        if self.places[hole].1 == EMPTY {
            return;
        }
        self.used -= 1;
        // Close the gap: whoever probed past the hole moves back into it.
        let mut at = hole;
        loop {
            self.places[hole].1 = EMPTY;
            loop {
                at = (at + 1) & mask;
                if self.places[at].1 == EMPTY {
                    return;
                }
                let home = self.home(self.places[at].0);
                if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                    break;
                }
            }
            self.places[hole] = self.places[at];
            hole = at;
        }
    }
}
