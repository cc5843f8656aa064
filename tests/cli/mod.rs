//! Rows of the command line: the built program, run as a user runs it.

mod chat;
mod commands;
mod errors;
mod help;
mod readme;
mod recorded;
mod serve;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    chat::rows(rows);
    commands::rows(rows);
    errors::rows(rows);
    help::rows(rows);
    readme::rows(rows);
    recorded::rows(rows);
    serve::rows(rows);
}
