//! `view`: recordings as pictures and files, with no display at all.

use crate::cli::{ViewArgs, ViewTheme};
use crate::recording;
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::process::ExitCode;
use tilewright::viewer::{Shot, View, Viewer, render, to_csv, to_jsonl, to_perfetto};

pub fn run(args: ViewArgs) -> Result<ExitCode> {
    if !args.file.exists() {
        let file = args.file.display();
        bail!("there is no recording {file}: `--record FILE` of `serve` or `chat` makes one");
    }
    if args.screenshot.is_none() && args.export.is_none() {
        bail!("nothing to do: name a picture with --screenshot, or a file with --export");
    }
    let mut viewer = Viewer::default().without_hint();
    recording::open(&mut viewer, &args.file, &args.model)?;
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
        Some("jsonl") => to_jsonl(viewer.history()),
        Some("csv") => to_csv(viewer.steps()),
        Some("json") => to_perfetto(viewer.history()),
        _ => bail!("--export {}: the name must end in .jsonl, .csv or .json", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}
