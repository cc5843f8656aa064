//! Rows of `server`.

use crate::support::Rows;

pub fn rows(_rows: &mut Rows) {}
