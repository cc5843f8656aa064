//! Reads the sources and fails on an import outside the floor table, on files and functions
//! that grow too long, and on words and calls that this project does without.

use crate::support::{Rows, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module → modules it may import. ARCHITECTURE.md holds the same table.
const FLOORS: &[(u32, &str, &str)] = &[
    (0, "base", ""),
    (1, "trace", "base"),
    (1, "record", "base"),
    (2, "sched", "base trace"),
    (2, "text", "base"),
    (2, "weights", "base"),
    (2, "kernels", "base record"),
    (3, "model", "base weights record kernels"),
    (3, "cpu", "base record kernels"),
    (3, "gpu", "base record kernels"),
    (4, "engine", "base trace record sched text weights model"),
    (5, "sim", "base trace sched engine"),
    (5, "server", "base trace text engine"),
    (5, "viewer", "base trace"),
    (6, "bench", "*"),
    (7, "main", "*"),
    (7, "web", "*"),
];

const FILE_LINES_MAX: usize = 600;
const WGSL_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

pub fn rows(rows: &mut Rows) {
    rows.add("tidy::floors", floors);
    rows.add("tidy::floor_checker_sees_faults", floor_checker_sees_faults);
    rows.add("tidy::architecture_table", architecture_table);
    rows.add("tidy::architecture_names_real_files", architecture_names_real_files);
    rows.add("tidy::sizes", sizes);
    rows.add("tidy::headers_and_words", headers_and_words);
    rows.add("tidy::scheduler_is_pure", scheduler_is_pure);
    rows.add("tidy::shaders_are_used", shaders_are_used);
    rows.add("tidy::viewer_runs_in_a_browser", viewer_runs_in_a_browser);
}

fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, ending: &str, out: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, ending, out);
            } else if path.to_string_lossy().ends_with(ending) {
                out.push(path);
            }
        }
    }
    let mut out = Vec::new();
    walk(&root().join(dir), ending, &mut out);
    out.sort();
    out
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The source without comments and string contents, so that only code is scanned.
fn code_of(text: &str) -> String {
    text.lines().map(|l| l.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Modules that `text`, a file of module `own`, names through `crate::` or enough `super::`.
fn imports(text: &str, own: &str, depth: usize) -> BTreeSet<String> {
    let code = code_of(text);
    let mut out = BTreeSet::new();
    let climb = "super::".repeat(depth);
    for lead in ["crate::", "tilewright::", climb.as_str()] {
        if lead.is_empty() {
            continue;
        }
        for (at, _) in code.match_indices(lead) {
            if lead == climb && code[..at].ends_with("super::") {
                continue;
            }
            let rest = &code[at + lead.len()..];
            match rest.strip_prefix('{') {
                Some(group) => out.extend(group_heads(group)),
                None => out.extend(ident(rest)),
            }
        }
    }
    out.remove(own);
    out.remove("self");
    out
}

fn ident(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_string())
}

/// First names of the members of a `{a::b, c::{d, e}}` group.
fn group_heads(text: &str) -> Vec<String> {
    let (mut depth, mut out, mut start) = (0, Vec::new(), true);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                out.extend(ident(&text[at..]));
                start = false;
            }
            _ => {}
        }
    }
    out
}

fn module_of(path: &Path) -> (String, usize) {
    let inner = path.strip_prefix(root().join("src")).expect("under src");
    let parts: Vec<_> = inner.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    let depth = parts.len() - usize::from(parts.last().is_some_and(|p| p == "mod.rs"));
    (parts[0].trim_end_matches(".rs").to_string(), depth)
}

fn floors() {
    let allowed: BTreeMap<_, _> = FLOORS.iter().map(|f| (f.1, f.2)).collect();
    let mut faults = Vec::new();
    for path in files("src", ".rs") {
        let (module, depth) = module_of(&path);
        if module == "lib" {
            continue;
        }
        let Some(list) = allowed.get(module.as_str()) else {
            faults.push(format!("{}: module `{module}` is not in the table", short(&path)));
            continue;
        };
        let list: BTreeSet<_> = list.split(' ').collect();
        for name in imports(&read(&path), &module, depth) {
            if !list.contains("*") && !list.contains(name.as_str()) {
                faults.push(format!("{}: `{module}` may not import `{name}`", short(&path)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The checker itself must be able to fail.
fn floor_checker_sees_faults() {
    let found = |text: &str| imports(text, "sched", 2).into_iter().collect::<Vec<_>>();
    assert_eq!(found("use crate::engine::X;"), ["engine"]);
    assert_eq!(found("use crate::{base::A, gpu::{B, C}, sched::D};"), ["base", "gpu"]);
    assert_eq!(found("let x = super::super::model::f();"), ["model"]);
    assert_eq!(found("use super::plan::Plan; // crate::server"), Vec::<String>::new());
}

fn architecture_table() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let mut expected = Vec::new();
    for (floor, module, list) in FLOORS {
        let list = match *list {
            "" => "–".to_string(),
            "*" => "anything".to_string(),
            list => list.replace(' ', ", "),
        };
        let row = text.lines().find(|l| l.starts_with(&format!("| {floor} | `{module}` |")));
        match row {
            Some(row) if row.trim_end().ends_with(&format!("| {list} |")) => {}
            _ => expected.push(format!("| {floor} | `{module}` | … | {list} |")),
        }
    }
    let rows = text.lines().filter(|l| {
        let mut cells = l.split('|').map(str::trim).skip(1);
        cells.next().is_some_and(|c| c.len() == 1 && c.chars().all(char::is_numeric))
    });
    assert_eq!(rows.count(), FLOORS.len(), "rows of the floor table in ARCHITECTURE.md");
    assert!(expected.is_empty(), "ARCHITECTURE.md lacks:\n{}", expected.join("\n"));
}

fn architecture_names_real_files() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let named = text.split('`').skip(1).step_by(2);
    let paths: Vec<&str> =
        named.filter(|n| ["src/", "shaders/", "tests/"].iter().any(|d| n.starts_with(d))).collect();
    assert!(paths.len() > 20, "{paths:?}");
    // Names with a capital letter stand for several files.
    let missing = paths.iter().filter(|p| !p.contains('X') && !root().join(p).exists());
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

fn sizes() {
    let mut faults = Vec::new();
    for path in
        files("src", ".rs").iter().chain(&files("tests", ".rs")).chain(&files("examples", ".rs"))
    {
        let text = read(path);
        let count = text.lines().count();
        if count > FILE_LINES_MAX {
            faults.push(format!("{}: {count} lines", short(path)));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX && !line.contains("http") {
                faults.push(format!("{}:{}: line too long", short(path), number + 1));
            }
        }
        faults.extend(long_functions(&text).into_iter().map(|f| format!("{}: {f}", short(path))));
    }
    for path in files("shaders", ".wgsl") {
        let count = read(&path).lines().count();
        if count > WGSL_LINES_MAX {
            faults.push(format!("{}: {count} lines", short(&path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Functions longer than the bound; relies on rustfmt's indentation.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let is_fn = [
            "fn ",
            "pub fn ",
            "async fn ",
            "pub async fn ",
            "pub(super) fn ",
            "pub(crate) fn ",
            "unsafe fn ",
        ]
        .iter()
        .any(|lead| body.starts_with(lead));
        if !is_fn || body.trim_end().ends_with(';') || body.trim_end().ends_with('}') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - body.len()]);
        if let Some(length) = lines[start..].iter().position(|l| l.trim_end() == close)
            && length + 1 > FUNCTION_LINES_MAX
        {
            out.push(format!("function of {} lines: {}", length + 1, body.trim_end()));
        }
    }
    out
}

fn headers_and_words() {
    let mut faults = Vec::new();
    for path in files("src", ".rs") {
        let text = read(&path);
        if !text.starts_with("//!") {
            faults.push(format!("{}: no `//!` header", short(&path)));
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        for word in ["manager", "utils", "helper", "common", "misc"] {
            if stem.contains(word) {
                faults.push(format!("{}: named `{word}`", short(&path)));
            }
        }
        let code = code_of(&text);
        for (call, why) in [
            ("Arc<Mutex<Sequence", "requests are ids in a table"),
            ("pub use crate::", "re-exports hide the graph"),
        ] {
            if code.contains(call) {
                faults.push(format!("{}: `{call}`: {why}", short(&path)));
            }
        }
    }
    for path in files("shaders", ".wgsl") {
        if !read(&path).starts_with("//") {
            faults.push(format!("{}: no header", short(&path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn scheduler_is_pure() {
    let mut faults = Vec::new();
    for path in files("src/sched", ".rs") {
        let code = code_of(&read(&path));
        for word in ["HashMap", "HashSet", "Instant", "SystemTime", "f32", "f64", "async ", "Mutex"]
        {
            if code.contains(word) {
                faults.push(format!("{}: `{word}`", short(&path)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every file in shaders/ is a kernel of the variant table or an import of one.
fn shaders_are_used() {
    let table = fs::read_to_string(root().join("shaders/variants.txt")).unwrap_or_default();
    let all = files("shaders", ".wgsl");
    let bodies: String = all.iter().map(|p| read(p)).collect();
    for path in &all {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let words =
            |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == stem);
        // Members of a set of the table.
        let sets =
            ["quant_", "dots_", "kv_", "put_"].iter().find_map(|lead| stem.strip_prefix(lead));
        let quant = sets.is_some_and(|member| table.contains(member));
        assert!(
            words(&table) || bodies.contains(&format!("#import {stem}")) || quant,
            "{} is unused",
            short(path)
        );
    }
}

/// The viewer asks for no thread, no clock and no file; and egui is named nowhere else, but by the
/// window and the page that eframe opens.
fn viewer_runs_in_a_browser() {
    let mut faults = Vec::new();
    for path in files("src", ".rs") {
        let (name, code) = (short(&path), code_of(&read(&path)));
        let words: &[&str] = if name.starts_with("src/viewer/") {
            &["std::thread", "Instant", "SystemTime", "std::fs", "std::env", "eframe"]
        } else if name == "src/main/window.rs" || name == "src/web/page.rs" {
            &[]
        } else {
            &["egui", "eframe"]
        };
        let found = words.iter().filter(|w| code.contains(**w));
        faults.extend(found.map(|word| format!("{name}: `{word}`")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
