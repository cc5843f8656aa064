//! `serve`: the socket opens at once, the model loads on the engine's thread behind it.

use crate::cli::ServeArgs;
use crate::{generate, model};
use anyhow::{Context, Result, anyhow};
use std::process::ExitCode;
use std::sync::Arc;
use tilewright::base::MonotonicClock;
use tilewright::engine::{DeviceRunner, Engine, EngineConfig, spawn};
use tilewright::server::{ModelState, ServerConfig, serve};
use tilewright::trace::FileSink;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Events a recording may hold back while the disk is slow.
const RECORD_BUFFER: usize = 1 << 16;

pub fn run(args: ServeArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(listen(args))
}

/// Loads the model; runs on the engine's thread.
fn engine(args: &ServeArgs) -> Result<Engine<DeviceRunner>> {
    let loaded = model::ready(&args.model)?;
    let mut config = EngineConfig::new(loaded.limits, Arc::new(MonotonicClock::default()));
    config.seed = generate::seed();
    if let Some(path) = &args.record {
        let sink = FileSink::create(path, RECORD_BUFFER);
        let sink = sink.with_context(|| format!("--record {}", path.display()))?;
        config.sinks.push(Box::new(sink));
    }
    Ok(Engine::new(loaded.runner, loaded.card, config))
}

async fn listen(args: ServeArgs) -> Result<ExitCode> {
    let address = format!("{}:{}", args.host, args.port);
    let listener = TcpListener::bind((args.host.as_str(), args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    eprintln!("listening on {url}, loading the model");
    let config = ServerConfig {
        api_keys: args.api_key.clone(),
        cors_origins: args.cors_origins.clone(),
        ..ServerConfig::default()
    };
    let (tell, state) = watch::channel(ModelState::Loading);
    let tell = Arc::new(tell);
    let told = tell.clone();
    let thread = spawn(
        move || engine(&args),
        move |loaded| match loaded {
            Ok(handle) => {
                eprintln!("serving {} on {url}/v1", handle.card().name);
                told.send_replace(ModelState::Ready(handle));
            }
            Err(error) => {
                told.send_replace(ModelState::Failed(format!("{error:#}")));
            }
        },
    )?;
    let ending = state.clone();
    serve(config, listener, state, ended(ending)).await?;
    if let ModelState::Failed(why) = &*tell.borrow() {
        return Err(anyhow!("{why}"));
    }
    thread.join().map_err(|_| anyhow!("the engine's thread panicked"))?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves when the server should stop taking connections: the model cannot be loaded, or the
/// first Ctrl-C, which drains the engine. A second Ctrl-C ends the program.
async fn ended(mut state: watch::Receiver<ModelState>) {
    let failed = async {
        if state.wait_for(|s| matches!(s, ModelState::Failed(_))).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let interrupted = tokio::select! {
        () = failed => false,
        _ = tokio::signal::ctrl_c() => true,
    };
    if !interrupted {
        return;
    }
    eprintln!("finishing open requests; press Ctrl-C again to stop now");
    let handle = match &*state.borrow() {
        ModelState::Ready(handle) => Some(handle.clone()),
        _ => None,
    };
    match handle {
        Some(handle) => handle.drain(),
        None => std::process::exit(0),
    }
    tokio::spawn(async {
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
}
