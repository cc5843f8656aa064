//! Which moment is shown. Paused stands still while the stream may go on; Playing moves along the
//! recorded time at a speed; Following shows the newest event.

use super::steps::Steps;

/// How the shown moment moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Play {
    Paused,
    Playing,
    #[default]
    Following,
}

/// An idle stretch longer than this is skipped while playing.
const IDLE_MICROS_MAX: f64 = 1e6;

/// The view's place in time. (The engine's own pause is another thing: see `EngineState`.)
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Time {
    pub play: Play,
    /// Recorded seconds per second.
    pub speed: f64,
    step: u64,
    /// Recorded time while playing.
    micros: f64,
}

impl Default for Time {
    fn default() -> Self {
        Self { play: Play::Following, speed: 1.0, step: 0, micros: 0.0 }
    }
}

impl Time {
    /// The step that is shown; `None` is the newest moment.
    pub fn shown(&self) -> Option<u64> {
        (self.play != Play::Following).then_some(self.step)
    }

    /// Stands at `step`, within what is kept.
    pub fn go(&mut self, step: u64, steps: &Steps) {
        self.play = Play::Paused;
        self.step = within(step, steps);
    }

    /// Moves by so many steps and stands there. Beyond the newest it stays on the newest.
    pub fn shift(&mut self, by: i64, steps: &Steps) {
        let newest = steps.last().map_or(0, |r| r.step);
        let from = self.shown().unwrap_or(newest);
        self.go(from.saturating_add_signed(by), steps);
    }

    pub fn home(&mut self, steps: &Steps) {
        self.go(0, steps);
    }

    pub fn follow(&mut self) {
        self.play = Play::Following;
    }

    /// Space: stand, or go on; at the end going on means to follow.
    pub fn toggle(&mut self, steps: &Steps) {
        let newest = steps.last().map_or(0, |r| r.step);
        match self.play {
            Play::Paused if self.step < newest => {
                self.play = Play::Playing;
                self.micros = moment(self.step, steps);
            }
            Play::Paused => self.play = Play::Following,
            Play::Playing => self.play = Play::Paused,
            Play::Following => self.go(newest, steps),
        }
    }

    /// Moves on while playing. `dt` is the time since the last frame, in seconds.
    pub fn advance(&mut self, dt: f64, steps: &Steps) {
        if self.play == Play::Paused {
            self.step = within(self.step, steps);
        }
        let Some(newest) = steps.last().filter(|_| self.play == Play::Playing) else { return };
        self.micros += dt * self.speed * 1e6;
        let index = steps.index_at(self.micros as u64);
        let (here, next) = (steps.get(index), steps.get(index + 1));
        self.step = here.map_or(self.step, |r| r.step);
        if let Some(next) = next {
            let ahead = next.planned_micros as f64;
            if ahead - self.micros > IDLE_MICROS_MAX {
                self.micros = ahead;
            }
        }
        if self.step >= newest.step {
            self.play = Play::Paused;
        }
    }
}

fn within(step: u64, steps: &Steps) -> u64 {
    let oldest = steps.get(0).map_or(0, |r| r.step);
    let newest = steps.last().map_or(oldest, |r| r.step);
    step.clamp(oldest, newest)
}

fn moment(step: u64, steps: &Steps) -> f64 {
    steps.get(steps.index_of(step)).map_or(0.0, |r| r.planned_micros as f64)
}
