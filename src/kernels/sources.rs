//! The WGSL texts, compiled in. The row `shaders::sources_match_folder` holds this list to the
//! files in `shaders/`.

macro_rules! sources {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../shaders/", $path, ".wgsl")))),*]
    };
}

/// (path below `shaders/` without its ending, text); imports lie in `lib/`.
pub const SOURCES: &[(&str, &str)] = sources! {
    "copy_words"
};

/// The text of `shaders/PATH.wgsl`.
pub fn source(path: &str) -> Option<&'static str> {
    SOURCES.iter().find(|s| s.0 == path).map(|s| s.1)
}
