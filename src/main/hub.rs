//! `-m hf:USER/REPO`: which hub and cache, from the variables that the hub's own tools read, and
//! what a person sees while files come.

use crate::folders::{self, first};
use crate::log;
use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use tilewright::weights::hub::{Hub, HubName, Progress};

const ENDPOINT: &str = "https://huggingface.co";

fn hub() -> Result<Hub> {
    let home = || {
        let own = first(&["HF_HOME"]).map(PathBuf::from);
        own.or_else(|| folders::cache().map(|cache| cache.join("huggingface")))
    };
    let own = first(&["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]).map(PathBuf::from);
    let cache = own.or_else(|| home().map(|home| home.join("hub")));
    let cache =
        cache.ok_or_else(|| anyhow!("no place for models: set HF_HUB_CACHE to a folder"))?;
    let file = first(&["HF_TOKEN_PATH"]).map(PathBuf::from);
    let file = file.or_else(|| home().map(|home| home.join("token")));
    let kept = || std::fs::read_to_string(file?).ok();
    let token = first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]).or_else(kept);
    let token = token.map(|token| token.trim().to_string()).filter(|token| !token.is_empty());
    let read = |path: String| std::fs::read(&path).with_context(|| format!("SSL_CERT_FILE {path}"));
    let offline = first(&["HF_HUB_OFFLINE"]).is_some_and(|value| {
        !matches!(value.to_lowercase().as_str(), "0" | "false" | "no" | "off")
    });
    Ok(Hub {
        endpoint: first(&["HF_ENDPOINT"]).unwrap_or_else(|| ENDPOINT.to_string()),
        cache,
        token,
        offline,
        certificates: first(&["SSL_CERT_FILE"]).map(read).transpose()?,
    })
}

/// Fetches what is not here of the model `name` (without `hf:`); where it is.
pub fn get(name: &str) -> Result<PathBuf> {
    let name = HubName::parse(name)?;
    let mut shown = Shown::default();
    let found = hub()?.get(&name, &mut |progress| shown.show(&progress))?;
    shown.end();
    if let Some(why) = found.unasked {
        log::line(format_args!("hf:{}: the copy in the cache is used: {why}", name.repo));
    }
    Ok(found.path)
}

/// A bar per file on a terminal, a line per file elsewhere.
#[derive(Default)]
struct Shown {
    file: String,
    bar: Option<ProgressBar>,
}

impl Shown {
    fn show(&mut self, progress: &Progress<'_>) {
        if self.file != progress.file {
            self.end();
            self.file = progress.file.to_string();
            let size = crate::model::mib(progress.total);
            match std::io::stderr().is_terminal() {
                true => self.bar = Some(bar(progress)),
                false => log::line(format_args!("fetching {} ({size})", progress.file)),
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.done);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(progress: &Progress<'_>) -> ProgressBar {
    let bar = ProgressBar::new(progress.total);
    let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_message(progress.file.to_string());
    bar
}
