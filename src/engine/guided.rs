//! The guide of one answer and the mask of its next token. Masks are computed on other threads
//! while the device computes the layers; the runner waits for one only when it comes to sampling.

use super::runner_api::NextIds;
use crate::base::TokenId;
use crate::text::{Grammar, Guide, GuideError, Mask, Next};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A guide and its next mask, one of which may still be under way.
pub(super) struct Guided(Arc<Job>);

#[derive(Default)]
struct Job {
    /// `None` while another thread has it.
    found: Mutex<Option<Found>>,
    done: Condvar,
}

struct Found {
    /// Lost where it panicked.
    guide: Option<Box<dyn Guide>>,
    mask: Result<Mask, GuideError>,
}

impl Guided {
    /// Begins with the first token's mask. Returns at once.
    pub fn start(grammar: Arc<dyn Grammar>) -> Self {
        let job = Arc::new(Job::default());
        job.clone().compute(move || grammar.start());
        Self(job)
    }

    /// Takes the token that was chosen, and begins with the mask of the one after it.
    pub fn accept(&self, id: TokenId) -> Result<Next, GuideError> {
        let found = self.0.wait().take();
        let Some(Found { guide, mask }) = found else { return Ok(Next::More) };
        mask?;
        let mut guide = guide.ok_or_else(lost)?;
        let next = guide.accept(id)?;
        if next == Next::More {
            self.0.clone().compute(move || guide);
        }
        Ok(next)
    }
}

impl NextIds for Guided {
    fn mask(&self) -> Option<Mask> {
        self.0.wait().as_ref().and_then(|found| found.mask.clone().ok())
    }
}

impl Job {
    fn wait(&self) -> MutexGuard<'_, Option<Found>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        self.done.wait_while(found, |f| f.is_none()).unwrap_or_else(PoisonError::into_inner)
    }

    fn compute(self: Arc<Self>, guide: impl FnOnce() -> Box<dyn Guide> + Send + 'static) {
        rayon::spawn(move || {
            let work = || {
                let mut guide = guide();
                let mask = guide.mask();
                Found { guide: Some(guide), mask }
            };
            // Whoever waits must not wait for ever.
            let found = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| Found { guide: None, mask: Err(lost()) });
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            self.done.notify_all();
        });
    }
}

fn lost() -> GuideError {
    GuideError("it panicked".to_string())
}
