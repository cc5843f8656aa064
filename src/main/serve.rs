//! `serve`: the socket opens at once, the model loads on the engine's thread behind it.

use crate::cli::ServeArgs;
use crate::interrupt::INTERRUPTED;
use crate::{log, model, session};
use anyhow::{Context, Result, anyhow};
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;
use tilewright::engine::spawn;
use tilewright::server::{ModelState, OriginError, ServerConfig, Telemetry, WebOrigin, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub fn run(args: ServeArgs) -> Result<ExitCode> {
    log::start(args.log_format, &args.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(listen(args))
}

/// An origin; none in an empty text, as a variable may be.
pub fn origin(text: &str) -> Result<Option<WebOrigin>, OriginError> {
    (!text.is_empty()).then(|| text.parse()).transpose()
}

/// The keys of the command line and of the file.
fn api_keys(args: &ServeArgs) -> Result<Vec<String>> {
    let mut keys = args.api_key.clone();
    if keys.iter().any(|key| key.trim().is_empty()) {
        return Err(anyhow!("--api-key (TILEWRIGHT_API_KEY): a key is empty; leave it out"));
    }
    if let Some(path) = &args.api_key_file {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("--api-key-file {}", path.display()))?;
        keys.extend(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from));
        if keys.is_empty() {
            return Err(anyhow!("--api-key-file {}: holds no key", path.display()));
        }
    }
    Ok(keys)
}

async fn listen(args: ServeArgs) -> Result<ExitCode> {
    let address = format!("{}:{}", args.host, args.port);
    let listener = TcpListener::bind((args.host.as_str(), args.port)).await;
    let listener = listener.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "; another program has it: choose with --port, 0 finds one",
            ErrorKind::AddrNotAvailable => "; --host must be an address of this machine",
            ErrorKind::PermissionDenied => "; ports below 1024 need rights: choose with --port",
            _ => "",
        };
        anyhow!("cannot listen on {address}: {error}{remedy}")
    })?;
    let url = format!("http://{}", listener.local_addr()?);
    log::line(format_args!("listening on {url}, loading the model"));
    let telemetry = Telemetry::default();
    let config = ServerConfig {
        api_keys: api_keys(&args)?,
        cors_origins: args.cors_origins.iter().flatten().cloned().collect(),
        trust_request_templates: args.trust_request_chat_template,
        allow_control: args.allow_control,
        tool_style: args.tool_call_parser,
        reasoning: args.reasoning_format == "auto",
        page: args.page.clone(),
        telemetry: telemetry.clone(),
        ..ServerConfig::default()
    };
    let (tell, state) = watch::channel(ModelState::Loading);
    let tell = Arc::new(tell);
    let told = tell.clone();
    let record = args.record.clone();
    let thread = spawn(
        // Loads the model; runs on the engine's thread.
        move || {
            let mut loaded = model::ready(&args.model)?;
            let policies = args.policies.apply(&mut loaded.limits);
            let weights = args.policies.tenant_weight;
            session::engine(loaded, &args.record, |config| {
                (config.policies, config.weights) = (policies, weights);
                config.sinks.push(telemetry.tap());
            })
        },
        move |loaded| match loaded {
            Ok(handle) => {
                log::line(format_args!("serving {} on {url}/v1", handle.card().name));
                told.send_replace(ModelState::Ready(handle));
            }
            Err(error) => {
                told.send_replace(ModelState::Failed(crate::told(&error)));
            }
        },
    )?;
    let ending = state.clone();
    serve(config, listener, state, ended(ending)).await?;
    if let ModelState::Failed(why) = &*tell.borrow() {
        return Err(anyhow!("{why}"));
    }
    thread.join().map_err(|_| anyhow!("the engine's thread panicked"))?;
    session::recorded(&record)?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves when the server should stop taking connections: the model cannot be loaded, or the
/// first Ctrl-C (or SIGTERM), which drains the engine. A second one ends the program.
async fn ended(mut state: watch::Receiver<ModelState>) {
    let failed = async {
        if state.wait_for(|s| matches!(s, ModelState::Failed(_))).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = failed => return,
        () = asked_to_end() => {}
    }
    let handle = match &*state.borrow() {
        ModelState::Ready(handle) => handle.clone(),
        // Nothing is open yet.
        _ => std::process::exit(0),
    };
    tokio::spawn(async {
        asked_to_end().await;
        std::process::exit(INTERRUPTED);
    });
    let open = handle.status().open;
    log::line(format_args!("finishing {open} open requests; press Ctrl-C again to stop now"));
    handle.drain();
}

/// Ctrl-C, or what a service manager sends.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler the signal itself ends the program.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
