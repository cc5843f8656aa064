//! Ends work on grammars that takes too long, whoever does it: one thread looks at the times that
//! were set, and tells what is late to stop, which it does within a moment.

use llguidance::CancellationHandle;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How late the thread may be. It is woken only where it had nothing to look after.
const TICK: Duration = Duration::from_millis(20);

struct State {
    number: u64,
    pending: BTreeMap<(Instant, u64), CancellationHandle>,
    idle: bool,
}

static STATE: Mutex<State> = Mutex::new(State { number: 0, pending: BTreeMap::new(), idle: false });
static WORK: Condvar = Condvar::new();

/// Work that is told to stop at its time, unless this is dropped before.
pub(super) struct Deadline((Instant, u64));

/// The thread is there; false if there is none to be had.
pub(super) fn watching() -> bool {
    static WATCHING: OnceLock<bool> = OnceLock::new();
    let thread = || std::thread::Builder::new().name("tilewright-grammars".to_string());
    *WATCHING.get_or_init(|| thread().spawn(watch).is_ok())
}

impl Deadline {
    pub fn set(at: Instant, work: CancellationHandle) -> Self {
        let mut state = locked();
        state.number += 1;
        let key = (at, state.number);
        state.pending.insert(key, work);
        if std::mem::take(&mut state.idle) {
            WORK.notify_one();
        }
        Self(key)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        locked().pending.remove(&self.0);
    }
}

fn locked() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    let mut state = locked();
    loop {
        let now = Instant::now();
        while let Some(first) = state.pending.first_entry()
            && first.key().0 <= now
        {
            first.remove().cancel();
        }
        state.idle = state.pending.is_empty();
        state = match state.idle {
            true => WORK.wait(state).unwrap_or_else(PoisonError::into_inner),
            false => WORK.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
}
