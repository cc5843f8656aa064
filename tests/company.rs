//! Rows of `company`.

use crate::support::Rows;

pub fn rows(_rows: &mut Rows) {}
