//! Flags as users of llama-server and vLLM write them, where clap's aliases cannot: short names of
//! several letters, a model by its place, switches for what is always on here.

use std::ffi::OsString;

/// (theirs, ours); each takes a value.
const RENAMED: [(&str, &str); 8] = [
    ("-np", "--max-num-seqs"),
    ("-ctk", "--kv-dtype"),
    ("-ctv", "--kv-dtype"),
    ("--cache-type-k", "--kv-dtype"),
    ("--cache-type-v", "--kv-dtype"),
    ("-ub", "--max-num-batched-tokens"),
    ("--ubatch-size", "--max-num-batched-tokens"),
    ("-dev", "--adapter"),
];

/// Names of a model on the hub follow these.
const HUB: [&str; 4] = ["-hf", "-hfr", "--hf", "--hf-repo"];

/// Switches for what is never off here.
const ALWAYS_ON: [&str; 7] = [
    "--jinja",
    "--metrics",
    "--slots",
    "--cont-batching",
    "--enable-auto-tool-choice",
    "--enable-chunked-prefill",
    "--no-webui",
];

/// `args` in this program's own words, the program's name first.
pub fn translate(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let Some(text) = arg.to_str().map(str::to_string) else {
            out.push(arg);
            continue;
        };
        if text == "--" {
            out.push(arg);
            out.extend(args);
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, Some(value.to_string())),
            _ => (text.as_str(), None),
        };
        if ALWAYS_ON.contains(&name) {
            continue;
        }
        if HUB.contains(&name) {
            let value = value.map(OsString::from).or_else(|| args.next()).unwrap_or_default();
            let mut model = OsString::from("hf:");
            model.push(value);
            out.extend([OsString::from("--model"), model]);
            continue;
        }
        if let Some((_, ours)) = RENAMED.iter().find(|(theirs, _)| *theirs == name) {
            out.push(ours.into());
            out.extend(value.map(OsString::from).or_else(|| args.next()).map(kv_name));
            continue;
        }
        let places_model = out.len() == 1 && text == "serve";
        out.push(arg);
        let follows = |next: &OsString| !next.to_string_lossy().starts_with('-');
        if places_model && args.peek().is_some_and(follows) {
            out.push("--model".into());
        }
    }
    out
}

/// llama.cpp's names of storage types.
fn kv_name(value: OsString) -> OsString {
    match value.to_str() {
        Some("q8_0") => "q8".into(),
        _ => value,
    }
}
