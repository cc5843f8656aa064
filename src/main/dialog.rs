//! File dialogs of the system, and what is done where it has none: they are other programs, which
//! are not installed everywhere.

use std::path::{Path, PathBuf};

/// Names tried for a file that nobody named.
const NAMES_MAX: u32 = 1000;

/// Whether some program may open a dialog. On Linux that is one on the session's bus, or zenity;
/// where neither is there, a dialog would be closed without having been seen.
pub fn is_there() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let bus =
        || set("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).join("bus").exists());
    let mut folders =
        set("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    !cfg!(target_os = "linux")
        || set("DBUS_SESSION_BUS_ADDRESS").is_some()
        || bus()
        || folders.any(|folder| folder.join("zenity").exists())
}

/// The file that the person chose to open.
pub fn open() -> Option<PathBuf> {
    let dialog = rfd::FileDialog::new()
        .set_title("Open a model or a recording")
        .add_filter("models and recordings", &["gguf", "safetensors", "jsonl", "gz"]);
    dialog.pick_file()
}

/// Where the person wants it saved.
pub fn save(name: &str) -> Option<PathBuf> {
    rfd::FileDialog::new().set_file_name(name).save_file()
}

/// A file of the current folder that is not there yet: `name`, or `name` with a number.
pub fn fresh(name: &str) -> PathBuf {
    let path = Path::new(name);
    let (stem, ending) = (path.with_extension(""), path.extension().unwrap_or_default());
    let numbered = (2..NAMES_MAX).map(|number| {
        let name = format!("{}-{number}", stem.display());
        PathBuf::from(name).with_extension(ending)
    });
    let mut names = std::iter::once(path.to_path_buf()).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| path.to_path_buf())
}

/// The path from the root on, for people.
pub fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}
