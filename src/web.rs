//! The composition root of the page. One module is instantiated twice: the page runs the viewer
//! ([`page`]), a dedicated worker the engine ([`worker`]), so that a step never keeps a frame
//! waiting; a simulation has a worker of its own. They share nothing; `wire` is all that passes
//! between them: the trace as lines of its codec one way, commands the other.
//!
//! Nothing here blocks on the event loop and nothing panics on what a page, a server or a file
//! brings; a panic that happens all the same is told to the page before the module ends.

#[path = "web/device.rs"]
mod device;
#[path = "web/io.rs"]
mod io;
#[path = "web/link.rs"]
mod link;
#[path = "web/page.rs"]
mod page;
#[path = "web/remote.rs"]
mod remote;
#[path = "web/request.rs"]
mod request;
#[path = "web/simulation.rs"]
mod simulation;
#[path = "web/wire.rs"]
mod wire;
#[path = "web/worker.rs"]
mod worker;

pub use page::{Page, start};
pub use worker::receive;

use crate::kernels::assemble::{Target, assemble};
use crate::kernels::variants::{self, Need};
use wasm_bindgen::prelude::*;

/// Every shader that a browser may be given, as JSON: name, text, and whether it needs f16. The
/// browser's own compiler is stricter than naga, so the tests have it compile them all.
#[wasm_bindgen]
pub fn shaders() -> String {
    // The names of subgroups and of 64-bit integers do not reach browsers.
    let reachable = |needs: &[Need]| needs.iter().all(|need| *need == Need::F16);
    let all = variants::table().iter().filter(|(_, variant)| reachable(&variant.needs));
    let texts = all.map(|(_, variant)| {
        let text = assemble(variant, Target::Browser).unwrap_or_else(|error| error.to_string());
        (&variant.name, text, !variant.needs.is_empty())
    });
    serde_json::to_string(&texts.collect::<Vec<_>>()).unwrap_or_default()
}
