//! The config file: flags by their long names, as TOML. A table of a command's name holds for that
//! command, what stands outside any table for every command that has such a flag. The command line
//! goes before the environment, that before the file.

use crate::cli::DeviceChoice;
use anyhow::{Context, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The variable that names the file.
const VARIABLE: &str = "TILEWRIGHT_CONFIG";

/// The file that `args` or the environment name, and the arguments without it.
fn named(args: Vec<OsString>) -> Result<(Option<PathBuf>, Vec<OsString>)> {
    let (mut path, mut rest) = (None, Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--") => {
                rest.push(arg);
                rest.extend(args);
                break;
            }
            Some("--config") => {
                path = Some(args.next().ok_or_else(|| anyhow!("--config needs a file"))?.into());
            }
            Some(text) if text.starts_with("--config=") => path = Some(text[9..].into()),
            _ => rest.push(arg),
        }
    }
    let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    Ok((path.or_else(|| variable().map(PathBuf::from)), rest))
}

/// `args` with what the config file says put in where they and the environment are silent.
pub fn filled_in(command: &Command, args: Vec<OsString>) -> Result<Vec<OsString>> {
    let (path, args) = named(args)?;
    let Some(path) = path else { return Ok(args) };
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("--config {}", path.display()))?;
    let table: Table = text.parse().with_context(|| format!("--config {}", path.display()))?;
    // Faults of the arguments themselves are told when they are read for good.
    let lenient = command.clone().ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from(&args) else { return Ok(args) };
    let (mut trail, mut at, mut found) = (Vec::new(), command, &matches);
    while let Some((name, sub)) = found.subcommand() {
        let Some(next) = at.find_subcommand(name) else { break };
        (at, found) = (next, sub);
        trail.push(name.to_string());
    }
    let own = trail.join("-");
    check(command, &table, &path)?;
    let mut more = Vec::new();
    let general = table.iter().filter(|(_, value)| !value.is_table());
    let of_command = table.get(&own).and_then(Value::as_table).into_iter().flatten();
    for (name, value) in of_command {
        put(at, found, name, value, &mut more)?;
    }
    for (name, value) in general {
        let twice = table.get(&own).is_some_and(|of| of.get(name).is_some());
        if !twice && flag(at, name).is_some() {
            put(at, found, name, value, &mut more)?;
        }
    }
    // After the command's name, before what the person wrote.
    let mut all = args;
    let place = position(&all, &trail);
    all.splice(place..place, more);
    Ok(all)
}

/// Where the arguments of the command begin.
fn position(args: &[OsString], trail: &[String]) -> usize {
    let mut at = 1.min(args.len());
    for name in trail {
        let next = args[at..].iter().position(|arg| arg == name.as_str());
        at += next.map_or(0, |next| next + 1);
    }
    at
}

fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// Every name must be some command's, so that a slip of the pen is not passed over.
fn check(command: &Command, table: &Table, path: &Path) -> Result<()> {
    let file = path.display();
    let commands = commands(command, "");
    for (name, value) in table {
        match value {
            Value::Table(flags) => {
                let Some((_, of)) = commands.iter().find(|(found, _)| found == name) else {
                    let known: Vec<_> = commands.iter().map(|(name, _)| name.as_str()).collect();
                    bail!("{file}: [{name}] is no command; there are {}", known.join(", "));
                };
                if let Some(wrong) = flags.keys().find(|flag_name| flag(of, flag_name).is_none()) {
                    bail!("{file}: [{name}] has no flag --{wrong}; `{name} --help` lists them");
                }
            }
            _ if commands.iter().any(|(_, of)| flag(of, name).is_some()) => {}
            _ => bail!("{file}: no command has a flag --{name}"),
        }
    }
    Ok(())
}

/// All commands that do something, by their names joined with `-`.
fn commands<'a>(command: &'a Command, lead: &str) -> Vec<(String, &'a Command)> {
    let subs = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    subs.flat_map(|sub| {
        let name = format!("{lead}{}", sub.get_name());
        let mut all = commands(sub, &format!("{name}-"));
        all.push((name, sub));
        all
    })
    .collect()
}

/// Adds the flag `name` unless the person or the environment has given it.
fn put(
    command: &Command,
    matches: &ArgMatches,
    name: &str,
    value: &Value,
    out: &mut Vec<OsString>,
) -> Result<()> {
    let arg = flag(command, name).ok_or_else(|| anyhow!("there is no flag --{name}"))?;
    let source = matches.try_contains_id(arg.get_id().as_str()).ok();
    let source = source.and_then(|_| matches.value_source(arg.get_id().as_str()));
    let variable = arg.get_env().is_some_and(|name| std::env::var_os(name).is_some());
    if source == Some(ValueSource::CommandLine) || variable {
        return Ok(());
    }
    // Nor an adapter where they ask for the processor.
    let device = matches.try_get_one::<DeviceChoice>("device").ok().flatten();
    if arg.get_id() == "adapter" && device == Some(&DeviceChoice::Cpu) {
        return Ok(());
    }
    let wrong = || anyhow!("{name}: expected a text, a number, true, false or a list of these");
    let text = match value {
        Value::Array(list) if list.is_empty() => return Ok(()),
        Value::Array(list) => {
            let texts: Option<Vec<String>> = list.iter().map(plain).collect();
            texts.ok_or_else(wrong)?.join(",")
        }
        value => plain(value).ok_or_else(wrong)?,
    };
    let long = arg.get_long().unwrap_or(name);
    match arg.get_action() {
        ArgAction::SetTrue if text == "true" => out.push(format!("--{long}").into()),
        ArgAction::SetTrue if text == "false" => {}
        ArgAction::SetTrue => bail!("{name}: expected true or false"),
        _ => out.push(format!("--{long}={text}").into()),
    }
    Ok(())
}

/// A value as the command line has it.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}
