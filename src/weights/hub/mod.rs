//! Models fetched by name from a hub that speaks as huggingface.co does, into the cache that its
//! own tools use, so that what they have fetched is found and what is fetched here they find.
//!
//! Invariant: a file stands under its final name only after its size and hash were found right.

mod cache;
mod choose;
mod digest;
mod fetch;
mod name;

pub use name::HubName;

use cache::Cache;
use choose::{Chosen, Listed, choose};
use fetch::Fetch;
use name::Wanted;
use std::fmt;
use std::path::PathBuf;

/// Why a model could not be had from a hub.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error(
        "hf:{given}: {problem}; write hf:USER/REPO, hf:USER/REPO:QUANT or hf:USER/REPO/FILE.gguf, \
         with @REVISION after REPO if it is not main"
    )]
    Name { given: String, problem: &'static str },
    #[error(
        "{repo}: the hub has no such model, or it is not public; check the name, or set HF_TOKEN"
    )]
    NoRepo { repo: String },
    #[error(
        "{repo}: the hub refuses ({status}); accept the model's terms at {page} and set HF_TOKEN"
    )]
    Refused { repo: String, status: u16, page: String },
    #[error("{repo}: the hub answered {status} for {what}")]
    Status { repo: String, status: u16, what: String },
    #[error("{repo}: the hub was not reached ({reason}), and there is no copy of it in {cache}")]
    Unreached { repo: String, reason: String, cache: String },
    #[error("{repo}: {problem}")]
    Listing { repo: String, problem: String },
    #[error("{repo}: {problem}; there are: {there}")]
    NoFile { repo: String, problem: String, there: String },
    #[error("{file}: {problem}; it was removed, try again")]
    Damaged { file: String, problem: String },
    #[error("{file}: {problem}")]
    Interrupted { file: String, problem: String },
    #[error("{path}: {doing}: {source}")]
    Io { path: String, doing: &'static str, source: std::io::Error },
}

/// Bytes of one file that are here, of so many.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub file: &'a str,
    pub done: u64,
    pub total: u64,
}

/// A hub and the cache before it.
#[derive(Clone)]
pub struct Hub {
    /// `https://huggingface.co`, without a slash at the end.
    pub endpoint: String,
    /// Where models are kept: `models--USER--REPO` below it.
    pub cache: PathBuf,
    pub token: Option<String>,
    /// Never asks the hub.
    pub offline: bool,
    /// Certificates to trust, PEM, in place of the usual ones.
    pub certificates: Option<Vec<u8>>,
}

impl fmt::Debug for Hub {
    /// Without the token, which is nobody's to read in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hub = f.debug_struct("Hub");
        hub.field("endpoint", &self.endpoint).field("cache", &self.cache);
        hub.field("offline", &self.offline).finish_non_exhaustive()
    }
}

/// What was found under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// A .gguf file (the first of several) or a folder.
    pub path: PathBuf,
    /// Why the hub was not asked or did not answer; the copy in the cache is used.
    pub unasked: Option<String>,
}

impl Hub {
    /// The model `name`, fetched as far as it is not here.
    ///
    /// # Errors
    /// See [`HubError`]. What was fetched of a file stays, and the next call goes on from there.
    pub fn get(
        &self,
        name: &HubName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Found, HubError> {
        let cache = Cache::new(&self.cache, &name.repo);
        let fetch = Fetch::new(self, &name.repo)?;
        let reason = match self.offline {
            true => "it is not to be asked".to_string(),
            false => match fetch.listing(&name.revision) {
                Ok(listing) => return self.fetched(name, &cache, &fetch, listing, progress),
                Err(fetch::Failure::Final(error)) => return Err(error),
                Err(fetch::Failure::Passing(reason)) => reason,
            },
        };
        let path = self.kept(name, &cache, &reason).map_err(|error| match error {
            HubError::Interrupted { .. } => error,
            _ => HubError::Unreached {
                repo: name.repo.clone(),
                reason: reason.clone(),
                cache: self.cache.display().to_string(),
            },
        })?;
        Ok(Found { path, unasked: Some(reason) })
    }

    fn fetched(
        &self,
        name: &HubName,
        cache: &Cache,
        fetch: &Fetch,
        (commit, files): (String, Vec<Listed>),
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Found, HubError> {
        let chosen = choose(name, &files)?;
        for file in &chosen.files {
            if !cache.has(&commit, file) {
                fetch.file(cache, &commit, file, progress)?;
            }
        }
        cache.set_listing(&commit, &files)?;
        cache.set_revision(&name.revision, &commit)?;
        Ok(Found { path: path(cache, &commit, &chosen), unasked: None })
    }

    /// The copy in the cache, whole by the list that the hub once gave.
    fn kept(&self, name: &HubName, cache: &Cache, reason: &str) -> Result<PathBuf, HubError> {
        let commit = cache.revision(&name.revision)?;
        let chosen = choose(name, &cache.files(&commit)?)?;
        let exactly = match &chosen.main {
            Some(main) => HubName { wanted: Wanted::File(main.clone()), ..name.clone() },
            None => name.clone(),
        };
        // Where no list was kept, the loader will say what is missing.
        let whole = choose(&exactly, &cache.listing(&commit)).map(|whole| whole.files);
        match whole.unwrap_or_default().iter().find(|file| !cache.has(&commit, file)) {
            Some(file) => {
                let problem = format!(
                    "the copy in the cache is not whole, and the hub was not reached ({reason})"
                );
                Err(HubError::Interrupted { file: file.path.clone(), problem })
            }
            None => Ok(path(cache, &commit, &chosen)),
        }
    }
}

fn path(cache: &Cache, commit: &str, chosen: &Chosen) -> PathBuf {
    let folder = cache.snapshot(commit);
    match &chosen.main {
        Some(main) => folder.join(main),
        None => folder,
    }
}
