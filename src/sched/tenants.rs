//! Who the work is for, and how much each was served: virtual token counters (Sheng et al.,
//! "Fairness in serving large language models", 2024).
//!
//! The next request is one of the tenant with the lowest counter. A counter rises by the service
//! given, divided by the tenant's weight; a tenant that had nothing waiting comes back at no less
//! than the lowest of those that have, so idling earns no credit. Two tenants that both always
//! have something waiting differ in service by at most
//! 2 · max(prompt cost of the longest prompt, output cost of the tokens that fit the pool).
//!
//! Counters alone let ever new tenants hold up one that was served before. So a tenant that waits
//! unserved while `aging` tokens are processed goes first; `aging` bounds its wait, and where
//! tenants are so many that their turns come more seldom than that, turns become round-robin.

use super::index::Index;
use super::lengths::Histogram;

/// Service is counted in this part of a unit, so that weights divide finely.
const SCALE: u64 = 1 << 16;
/// Idle tenants beyond this many make room, those served least first.
const TENANTS_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Tenant {
    id: u32,
    pub counter: u64,
    /// Tokens that had been processed when it was last let in.
    pub served_at: u64,
    weight: u32,
    /// Its sequences that wait or run.
    live: u32,
    pub lengths: Histogram,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tenants {
    index: Index,
    list: Vec<Tenant>,
    /// The counter of the last tenant that ran out of waiting requests.
    pub last_left: u64,
}

impl Tenants {
    pub fn get(&self, at: u32) -> &Tenant {
        &self.list[at as usize]
    }

    pub fn get_mut(&mut self, at: u32) -> &mut Tenant {
        &mut self.list[at as usize]
    }

    /// A tenant by its id.
    pub fn find(&self, id: u32) -> Option<&Tenant> {
        self.index.get(id).map(|at| self.get(at))
    }

    /// The place of a tenant, one more sequence of which is now alive.
    pub fn join(&mut self, id: u32) -> u32 {
        let at = self.place(id);
        self.list[at as usize].live += 1;
        at
    }

    pub fn leave(&mut self, at: u32) {
        self.list[at as usize].live -= 1;
    }

    pub fn set_weight(&mut self, id: u32, weight: u32) {
        let at = self.place(id);
        self.list[at as usize].weight = weight.max(1);
    }

    pub fn charge(&mut self, at: u32, service: u64) {
        let tenant = &mut self.list[at as usize];
        let cost = service.saturating_mul(SCALE) / u64::from(tenant.weight);
        tenant.counter = tenant.counter.saturating_add(cost);
    }

    /// Another unit: all start again.
    pub fn reset(&mut self) {
        self.list.iter_mut().for_each(|t| t.counter = 0);
        self.last_left = 0;
    }

    fn place(&mut self, id: u32) -> u32 {
        if let Some(at) = self.index.get(id) {
            return at;
        }
        let new = Tenant {
            id,
            counter: 0,
            served_at: 0,
            weight: 1,
            live: 0,
            lengths: Histogram::default(),
        };
        let at = match self.least_idle() {
            Some(at) => {
                self.index.remove(self.list[at].id);
                self.list[at] = new;
                at
            }
            None => {
                self.list.push(new);
                self.list.len() - 1
            }
        };
        // Tenants are bounded by sequences alive plus TENANTS_MAX.
        self.index.insert(id, at as u32);
        at as u32
    }

    fn least_idle(&self) -> Option<usize> {
        if self.list.len() < TENANTS_MAX {
            return None;
        }
        let idle = self.list.iter().enumerate().filter(|(_, t)| t.live == 0 && t.weight == 1);
        idle.min_by_key(|(_, t)| t.counter).map(|(at, _)| at)
    }
}
