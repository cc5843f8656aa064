//! Where things are kept that could be had again: the user's cache folder, as the system's other
//! programs find it.

use std::env;
use std::path::{Path, PathBuf};

/// The first of these variables that says something.
pub fn first(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.trim().is_empty()))
}

/// The cache folder of all programs.
pub fn cache() -> Option<PathBuf> {
    let home = || first(&["HOME", "USERPROFILE"]).map(|home| PathBuf::from(home).join(".cache"));
    first(&["XDG_CACHE_HOME"]).map(PathBuf::from).or_else(home)
}

/// A folder of this program's own: `name` in the one chosen, or in the user's cache.
pub fn own(chosen: Option<&Path>, name: &str) -> Option<PathBuf> {
    let folder = chosen.map(Path::to_path_buf).or_else(|| Some(cache()?.join("tilewright")));
    folder.map(|folder| folder.join(name))
}
