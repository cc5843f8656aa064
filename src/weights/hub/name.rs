//! Names of models on a hub: `USER/REPO`, then what of it is wanted.

use super::HubError;

/// What `hf:` stands before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubName {
    /// `USER/REPO`.
    pub repo: String,
    pub revision: String,
    pub(super) wanted: Wanted,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// What suits best.
    Any,
    /// The GGUF file of this quantisation.
    Quant(String),
    /// This very file.
    File(String),
}

impl HubName {
    /// Reads `USER/REPO[@REVISION][:QUANT]` or `USER/REPO[@REVISION]/FILE.gguf`.
    pub fn parse(given: &str) -> Result<Self, HubError> {
        let wrong = |problem| HubError::Name { given: given.to_string(), problem };
        let (head, quant) = match given.split_once(':') {
            Some((head, quant)) if !quant.is_empty() => (head, Some(quant)),
            Some(_) => return Err(wrong("nothing follows the colon")),
            None => (given, None),
        };
        let mut parts = head.splitn(3, '/');
        let (Some(user), Some(repo)) = (parts.next(), parts.next()) else {
            return Err(wrong("a user and a repository are needed"));
        };
        let (repo, revision) = repo.split_once('@').unwrap_or((repo, "main"));
        let wanted = match (parts.next(), quant) {
            (None, None) => Wanted::Any,
            (None, Some(quant)) if is_word(quant) => Wanted::Quant(quant.to_string()),
            (Some(file), None) if is_file(file) && file.ends_with(".gguf") => {
                Wanted::File(file.to_string())
            }
            (Some(_), None) => return Err(wrong("the file is no .gguf file")),
            _ => return Err(wrong("the quantisation is no word")),
        };
        if !(is_word(user) && is_word(repo)) {
            return Err(wrong("user and repository are letters, digits, `-`, `_` and `.`"));
        }
        if !is_word(revision) {
            return Err(wrong("the revision is no word"));
        }
        Ok(Self { repo: format!("{user}/{repo}"), revision: revision.to_string(), wanted })
    }
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 96 && !text.starts_with('.') && text.chars().all(fits)
}

/// A path that stays in its folder.
pub(super) fn is_file(path: &str) -> bool {
    let part = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.contains(['\\', ':', '\0']) && part.len() <= 255
    };
    path.len() <= 1024 && path.split('/').all(part)
}
