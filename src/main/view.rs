//! `view`: recordings and presets, in the window or as pictures and files with no display at all.

use crate::cli::{ViewArgs, ViewTheme};
use crate::live::Live;
use crate::recording;
use crate::remote::{Server, is_url};
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use tilewright::trace::{Stamped, Told};
use tilewright::viewer::{
    EngineState, Preset, Shot, Source, View, Viewer, render, to_csv, to_jsonl, to_perfetto,
};

pub fn run(args: ViewArgs) -> Result<ExitCode> {
    let server = server(&args);
    if let (Some(file), None) = (&args.file, &server)
        && !file.exists()
    {
        bail!(
            "there is no recording {}: `--record FILE` of `serve` or `chat` makes one",
            file.display()
        );
    }
    let preset = args.preset.as_deref().map(preset).transpose()?;
    if args.screenshot.is_none() && args.export.is_none() {
        return in_window(args, preset, server);
    }
    let mut viewer = Viewer::default().without_hint();
    match (&args.file, preset, server) {
        (_, _, Some(server)) => now(&mut viewer, &server)?,
        (Some(file), _, _) => recording::open(&mut viewer, file, &args.model)?,
        (None, Some(preset), _) => run_preset(&mut viewer, &args, preset)?,
        (None, None, _) => {
            bail!("nothing to draw: name a recording, a server, or a preset with --preset")
        }
    }
    if let Some(step) = args.at {
        viewer.go(step);
    }
    if let Some(path) = &args.export {
        export(&viewer, path)?;
    }
    if let Some(path) = &args.screenshot {
        let image = render(&mut viewer, &shot(&args)?);
        std::fs::write(path, image.to_png()?).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The server that is named in place of a file.
fn server(args: &ViewArgs) -> Option<Server> {
    let url = args.file.as_ref()?.to_str().filter(|text| is_url(text))?;
    Some(Server::new(url, args.api_key.clone()))
}

/// The state of a server, as its feed tells it first.
fn now(viewer: &mut Viewer, server: &Server) -> Result<()> {
    viewer.open(Source::Remote { url: server.url().to_string() }, None);
    server.watch(|told| match told {
        Told::Snapshot(picture) => {
            viewer.resume(*picture);
            false
        }
        Told::Event(_) => true,
    })
}

#[cfg(feature = "window")]
fn in_window(args: ViewArgs, preset: Option<Preset>, server: Option<Server>) -> Result<ExitCode> {
    use crate::window::{Begin, run};
    let begin = match (args.file, preset, server) {
        (_, _, Some(server)) => Begin::Server(server),
        (Some(file), _, _) => Begin::Recording(file),
        (None, Some(preset), _) => Begin::Preset(preset),
        (None, None, _) => Begin::Model,
    };
    run(args.model, args.record, begin)
}

#[cfg(not(feature = "window"))]
fn in_window(_: ViewArgs, _: Option<Preset>, _: Option<Server>) -> Result<ExitCode> {
    bail!("this build has no window (feature `window`); --screenshot and --export work without one")
}

fn preset(name: &str) -> Result<Preset> {
    Preset::find(name).ok_or_else(|| {
        let names: Vec<&str> = Preset::all().iter().map(|p| p.name).collect();
        anyhow!("there is no preset `{name}`: choose from {}", names.join(", "))
    })
}

/// Runs a preset to its end.
fn run_preset(viewer: &mut Viewer, args: &ViewArgs, preset: Preset) -> Result<()> {
    let (tell, told) = channel();
    let wake = Arc::new(move || {
        // Nobody listens any more once the run is over.
        let _ = tell.send(());
    });
    let mut live = Live::start(&args.model, &args.record, (preset.setup, preset.policies), wake)?;
    let requests = preset.traffic.len() as u64;
    preset.traffic.into_iter().for_each(|one| live.submit(one));
    viewer.open(Source::Recording { name: preset.name.to_string() }, None);
    let mut events: Vec<Stamped> = Vec::new();
    loop {
        told.recv()?;
        events.clear();
        let notes = live.take(viewer.next_seq(), &mut events);
        events.iter().for_each(|event| viewer.push(event));
        notes.into_iter().for_each(|note| viewer.note(note));
        if let EngineState::Failed(why) = live.state() {
            bail!("{why}");
        }
        let Some((handle, device)) = live.ready() else { continue };
        let status = handle.status();
        let ended = status.requests_finished + status.requests_failed + status.requests_cancelled;
        if ended >= requests && status.open == 0 {
            events.clear();
            live.take(viewer.next_seq(), &mut events);
            events.iter().for_each(|event| viewer.push(event));
            let card = handle.card().clone();
            viewer.set_header(live.header());
            viewer.introduce(
                Source::Engine { model: card.name.clone(), device },
                std::rc::Rc::new(move |token| Some(card.tokenizer.token_text(token))),
            );
            return Ok(());
        }
    }
}

fn shot(args: &ViewArgs) -> Result<Shot> {
    let view = match args.view.as_deref() {
        None | Some("all") => None,
        Some(name) => Some(View::find(name).ok_or_else(|| {
            let names: Vec<&str> = View::ALL.iter().map(|v| v.name()).collect();
            anyhow!("there is no view `{name}`: choose all, {}", names.join(", "))
        })?),
    };
    let (width, height) = args.size;
    let dark = args.theme == ViewTheme::Dark;
    Ok(Shot { view, width, height, scale: args.scale, dark })
}

/// By the ending of the name.
fn export(viewer: &Viewer, path: &Path) -> Result<()> {
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("jsonl") => to_jsonl(viewer.header(), viewer.history()),
        Some("csv") => to_csv(viewer.steps()),
        Some("json") => to_perfetto(viewer.history()),
        _ => bail!("--export {}: the name must end in .jsonl, .csv or .json", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}
