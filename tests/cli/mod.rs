//! Rows of the command line: the built program, run as a user runs it.

mod bench_script;
mod bench_serve;
mod chat;
mod clients;
mod commands;
mod config;
mod doc_commands;
mod docs;
mod errors;
mod help;
mod readme;
mod recorded;
mod serve;
mod tune;
mod webui;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    bench_script::rows(rows);
    bench_serve::rows(rows);
    chat::rows(rows);
    clients::rows(rows);
    commands::rows(rows);
    config::rows(rows);
    doc_commands::rows(rows);
    docs::rows(rows);
    errors::rows(rows);
    help::rows(rows);
    readme::rows(rows);
    recorded::rows(rows);
    serve::rows(rows);
    tune::rows(rows);
    webui::rows(rows);
}
