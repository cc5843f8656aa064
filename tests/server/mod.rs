//! Rows of `server`: in process, over real sockets, and with the `openai` client.

mod access;
mod bodies;
mod client;
mod host;
mod messages;
mod params;
pub mod shapes;
mod sockets;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    shapes::rows(rows);
    messages::rows(rows);
    params::rows(rows);
    bodies::rows(rows);
    access::rows(rows);
    sockets::rows(rows);
    client::rows(rows);
}

/// What Fable's tokenizer reads in `ids`.
fn host_text(ids: &[tilewright::base::TokenId]) -> String {
    crate::engine::fake::card().tokenizer.decode(ids)
}
