//! The one integration binary. Every module adds rows; a row that cannot run here (no adapter,
//! no ../shared) is listed as ignored with its reason, and fails under `TILEWRIGHT_REQUIRE=1`.

mod support;
mod tidy;

mod asked;
mod base;
mod claims;
#[cfg(all(feature = "cli", feature = "server"))]
mod cli;
mod company;
mod engine;
#[cfg(feature = "server")]
mod fable_http;
#[cfg(feature = "gpu")]
mod gpu;
mod guesses;
#[cfg(feature = "hub")]
mod hub;
mod in_flight;
mod invariance;
mod kernels;
#[cfg(feature = "viewer")]
mod measures;
mod models;
#[cfg(feature = "gpu")]
mod pipelines;
mod quality;
mod sampling;
mod sched;
#[cfg(feature = "server")]
mod server;
mod shaders;
mod share;
mod sim;
mod text;
mod trace;
mod tuned;
#[cfg(feature = "viewer")]
mod viewer;
mod weights;

fn main() -> std::process::ExitCode {
    let mut rows = support::Rows::default();
    tidy::rows(&mut rows);
    asked::rows(&mut rows);
    base::rows(&mut rows);
    claims::rows(&mut rows);
    #[cfg(all(feature = "cli", feature = "server"))]
    cli::rows(&mut rows);
    company::rows(&mut rows);
    guesses::rows(&mut rows);
    in_flight::rows(&mut rows);
    engine::rows(&mut rows);
    #[cfg(feature = "server")]
    fable_http::rows(&mut rows);
    #[cfg(feature = "gpu")]
    gpu::rows(&mut rows);
    #[cfg(feature = "hub")]
    hub::rows(&mut rows);
    invariance::rows(&mut rows);
    kernels::rows(&mut rows);
    #[cfg(feature = "viewer")]
    measures::rows(&mut rows);
    models::rows(&mut rows);
    #[cfg(feature = "gpu")]
    pipelines::rows(&mut rows);
    quality::rows(&mut rows);
    sampling::rows(&mut rows);
    sched::rows(&mut rows);
    #[cfg(feature = "server")]
    server::rows(&mut rows);
    shaders::rows(&mut rows);
    share::rows(&mut rows);
    sim::rows(&mut rows);
    text::rows(&mut rows);
    trace::rows(&mut rows);
    tuned::rows(&mut rows);
    #[cfg(feature = "viewer")]
    viewer::rows(&mut rows);
    weights::rows(&mut rows);
    rows.run()
}
