//! Rows of `server`: in process, over real sockets, and with the `openai` client.

mod access;
mod bodies;
mod client;
mod echo;
mod host;
mod messages;
mod openapi;
mod page;
mod params;
#[cfg(feature = "cli")]
mod proxy;
mod scheduling;
mod scoring;
pub mod shapes;
#[cfg(feature = "cli")]
mod soak;
mod sockets;
mod structured;
mod telemetry;
mod tokens;
mod tools;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    shapes::rows(rows);
    messages::rows(rows);
    page::rows(rows);
    params::rows(rows);
    bodies::rows(rows);
    access::rows(rows);
    sockets::rows(rows);
    structured::rows(rows);
    tools::rows(rows);
    client::rows(rows);
    echo::rows(rows);
    openapi::rows(rows);
    scheduling::rows(rows);
    scoring::rows(rows);
    #[cfg(feature = "cli")]
    soak::rows(rows);
    #[cfg(feature = "cli")]
    proxy::rows(rows);
    tokens::rows(rows);
    telemetry::rows(rows);
}

/// What Fable's tokenizer reads in `ids`.
fn host_text(ids: &[tilewright::base::TokenId]) -> String {
    crate::engine::fake::card().tokenizer.decode(ids)
}
