//! Every help page is a file under tests/data/help, so that a change of a flag is seen in review.
//! `TILEWRIGHT_UPDATE=1` writes them anew.

use crate::support::program::{Ran, tilewright};
use crate::support::{Rows, root};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Every command.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["serve"],
    &["generate"],
    &["chat"],
    &["view"],
    &["inspect"],
    &["doctor"],
    &["verify"],
    &["quality"],
    &["convert"],
    &["bench"],
    &["bench", "model"],
    &["bench", "step"],
    &["bench", "kernels"],
    &["bench", "serve"],
    &["tune"],
    &["completions"],
    &["bench", "all"],
    &["bench", "utilization"],
    &["bench", "padding"],
    &["bench", "stall"],
    &["bench", "budget"],
    &["bench", "prefill-is-free"],
    &["bench", "swap-or-recompute"],
    &["bench", "fairness"],
    &["bench", "starvation"],
    &["bench", "knee"],
    &["bench", "prefix"],
    &["bench", "orca"],
    &["bench", "prediction"],
    &["sim"],
    &["replay"],
    &["what-if"],
    &["--version"],
];

/// Flags that end the program: they have no default and no variable.
const ACTIONS: [&str; 3] = ["--help", "--version", "--list-adapters"];

pub fn rows(rows: &mut Rows) {
    rows.add("cli::help_pages", help_pages);
    rows.add("cli::help_of_every_command", help_of_every_command);
    rows.add("cli::every_flag_is_explained", every_flag_is_explained);
}

fn page(command: &[&str]) -> String {
    let args = match command {
        ["--version"] => command.to_vec(),
        command => [command, &["--help"]].concat(),
    };
    // A page shows what a variable is set to, which is this machine's.
    let mut command = tilewright(&args);
    command.env_remove("TILEWRIGHT_CACHE_DIR");
    Ran::of(&command.output().expect("the program starts")).good()
}

fn help_pages() {
    for command in COMMANDS {
        let name = if command.is_empty() { "tilewright".into() } else { command.join("-") };
        let name = name.trim_start_matches("--");
        let path: PathBuf = root().join(format!("tests/data/help/{name}.txt"));
        let lines: Vec<_> = page(command).lines().map(|l| l.trim_end().to_string()).collect();
        let page = lines.join("\n") + "\n";
        if std::env::var_os("TILEWRIGHT_UPDATE").is_some() {
            std::fs::write(&path, &page).expect("a writable checkout");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let remedy = "if this is meant, run the row with TILEWRIGHT_UPDATE=1";
        assert!(page == kept, "{} differs; {remedy}:\n{page}", path.display());
    }
}

/// The names in the list of commands of a help page.
fn listed(page: &str) -> Vec<String> {
    let (_, list) = page.split_once("Commands:\n").unwrap_or_default();
    let names = list.lines().take_while(|l| !l.is_empty());
    let names = names.filter_map(|l| l.split_whitespace().next());
    names.filter(|n| *n != "help").map(str::to_string).collect()
}

fn help_of_every_command() {
    let known = |lead: &[&str]| -> BTreeSet<String> {
        let under = COMMANDS.iter().filter(|c| c.len() == lead.len() + 1 && c.starts_with(lead));
        under.map(|c| c[lead.len()].to_string()).filter(|c| !c.starts_with('-')).collect()
    };
    for lead in [&[][..], &["bench"]] {
        let found: BTreeSet<String> = listed(&page(lead)).into_iter().collect();
        assert_eq!(found, known(lead), "{lead:?}");
    }
    // The README's table names the same commands.
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let rows = readme.lines().filter_map(|l| l.strip_prefix("| `"));
    let first = |l: &str| l.split([' ', '`']).next().unwrap_or_default().to_string();
    let named: BTreeSet<String> = rows.map(first).filter(|n| n != "llama").collect();
    assert_eq!(named, known(&[]));
}

/// (flag, its text) of a help page.
fn flags(page: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        let flag = line.trim_start();
        let lead = line.len() - flag.len();
        let long = flag.split([' ', ',']).find(|word| word.starts_with("--"));
        match long {
            Some(long) if flag.starts_with('-') && lead <= 6 => {
                all.push((long.to_string(), flag.to_string()));
            }
            _ => {
                if let Some((_, text)) = all.last_mut() {
                    text.push(' ');
                    text.push_str(flag);
                }
            }
        }
    }
    all
}

fn unexplained(page: &str) -> Vec<String> {
    let flags = flags(page).into_iter().filter(|(flag, _)| !ACTIONS.contains(&flag.as_str()));
    let lacks = |(flag, text): (String, String)| {
        let required = text.contains("--golden");
        let default = required || text.contains("[default: ");
        (!default || !text.contains("[env: TILEWRIGHT_")).then_some(flag)
    };
    flags.filter_map(lacks).collect()
}

/// The units of flags that end so: what their values are called.
const UNITS: [(&str, &[&str]); 9] = [
    ("-len", &["WORDS", "TOKENS"]),
    ("-tokens", &["TOKENS"]),
    ("-mean", &["TOKENS"]),
    ("-prompt", &["TOKENS"]),
    ("-generate", &["TOKENS"]),
    ("-memory", &["BYTES"]),
    ("timeout", &["SECONDS"]),
    ("-target", &["MS"]),
    ("-watermark", &["PERCENT"]),
];

/// Flags with a value that has a unit which is not told.
fn unitless(page: &str) -> Vec<String> {
    let lacks = |(flag, text): (String, String)| {
        let (_, units) = UNITS.iter().find(|(end, _)| flag.ends_with(end))?;
        let value = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        (!value.is_some_and(|(name, _)| units.contains(&name))).then_some(flag)
    };
    flags(page).into_iter().filter_map(lacks).collect()
}

fn every_flag_is_explained() {
    let mut seen = 0;
    for command in COMMANDS {
        let page = page(command);
        seen += flags(&page).len();
        assert_eq!(unexplained(&page), Vec::<String>::new(), "{command:?}");
        assert_eq!(unitless(&page), Vec::<String>::new(), "{command:?}");
    }
    assert!(seen > 50, "only {seen} flags found");
    // The row can fail.
    let page = "Options:\n  -x, --width <PIXELS>\n          How wide [default: 3]\n";
    assert_eq!(unexplained(page), ["--width"]);
    assert_eq!(unitless("  --input-len <N>\n  --kv-memory <BYTES>\n"), ["--input-len"]);
}
