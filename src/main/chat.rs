//! `chat`: a conversation in the terminal, or read from a pipe. The whole history goes to the model
//! at every turn, as the model's own chat template writes it.

use crate::cli::ChatArgs;
use crate::interrupt::Interrupt;
use crate::session::{Session, check, recorded, render, request};
use anyhow::{Context, Result, bail};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use tilewright::engine::SubmitError;
use tilewright::text::Message;
use tilewright::trace::FinishReason;

const HELP: &str = "\
/help           this list
/system [TEXT]  show the system message, or set it
/reset          forget the conversation, keep the system message
/save FILE      write the conversation as JSON, as the server's API takes it
/quit           end (so does Ctrl-D; Ctrl-C ends an answer or drops a line)";

pub fn run(args: &ChatArgs) -> Result<ExitCode> {
    check(&args.sampling)?;
    let session = Session::open(&args.model, &args.record)?;
    if session.card.template.is_none() {
        let name = &session.card.name;
        bail!(
            "{name} has no chat template: bring one with --chat-template FILE, or continue text \
             with `tilewright generate --raw`"
        );
    }
    let person = std::io::stdin().is_terminal();
    let (mut lines, mut out) = (Lines::open(person)?, std::io::stdout().lock());
    let mut chat =
        Chat { args, session, interrupt: Interrupt::listen()?, system: None, turns: Vec::new() };
    chat.system.clone_from(&args.system);
    if person {
        eprintln!("/help lists the commands, Ctrl-D ends");
    }
    while let Some(line) = lines.next()? {
        match chat.take(line.trim(), &mut out) {
            Ok(true) => {}
            Ok(false) => break,
            // A person can mend it; a pipe cannot.
            Err(error) if person && !crate::broken_pipe(&error) => {
                eprintln!("error: {}", crate::told(&error))
            }
            Err(error) => return Err(error),
        }
    }
    drop(chat);
    recorded(&args.record)?;
    Ok(ExitCode::SUCCESS)
}

/// Where lines come from: an editor with the lines said before, for a person; else a pipe.
enum Lines {
    Editor(Box<DefaultEditor>),
    Pipe(std::io::Lines<std::io::StdinLock<'static>>),
}

impl Lines {
    fn open(person: bool) -> Result<Self> {
        Ok(match person {
            true => Self::Editor(Box::new(DefaultEditor::new().context("the terminal")?)),
            false => Self::Pipe(std::io::stdin().lines()),
        })
    }

    /// The next line; `None` at the end. Ctrl-C empties a line that is being written.
    fn next(&mut self) -> Result<Option<String>> {
        let editor = match self {
            Self::Editor(editor) => editor,
            Self::Pipe(lines) => return lines.next().transpose().context("standard input"),
        };
        loop {
            match editor.readline("> ") {
                Ok(line) => {
                    editor.add_history_entry(&line).context("the history of lines")?;
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error).context("the terminal"),
            }
        }
    }
}

struct Chat<'a> {
    args: &'a ChatArgs,
    session: Session,
    interrupt: Interrupt,
    system: Option<String>,
    turns: Vec<Message>,
}

impl Chat<'_> {
    /// One line of input; false if it was the last.
    fn take(&mut self, line: &str, out: &mut dyn Write) -> Result<bool> {
        let Some(command) = line.strip_prefix('/') else {
            if !line.is_empty() {
                self.say(line, out)?;
            }
            return Ok(true);
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match name {
            "help" => writeln!(out, "{HELP}")?,
            "reset" => self.turns.clear(),
            "system" if rest.is_empty() => {
                writeln!(out, "{}", self.system.as_deref().unwrap_or("(none)"))?;
            }
            "system" => self.system = Some(rest.to_string()),
            "save" if rest.is_empty() => bail!("/save needs the name of a file"),
            "save" => self.save(Path::new(rest))?,
            "quit" | "exit" => return Ok(false),
            _ => bail!("there is no /{name}; /help lists the commands"),
        }
        Ok(true)
    }

    /// The conversation, the system message first.
    fn messages(&self) -> Vec<Message> {
        let system = self.system.as_ref().map(|text| Message::new("system", text));
        system.into_iter().chain(self.turns.iter().cloned()).collect()
    }

    fn say(&mut self, line: &str, out: &mut dyn Write) -> Result<()> {
        self.turns.push(Message::new("user", line));
        match self.answer(out) {
            Ok(text) => {
                self.turns.push(Message::new("assistant", text));
                Ok(())
            }
            Err(error) => {
                // The next turn must not follow one that was never answered.
                self.turns.pop();
                Err(error)
            }
        }
    }

    fn answer(&mut self, out: &mut dyn Write) -> Result<String> {
        let card = self.session.card.clone();
        let template = card.template.as_ref().context("the model has no chat template")?;
        let prompt = render(&card, template, &self.messages())?;
        let request = request(&self.args.sampling, prompt);
        let session = &mut self.session;
        let answer = self.interrupt.during(|stopped| session.answer(request, out, stopped));
        let answer = answer.map_err(|error| match error.downcast_ref() {
            Some(SubmitError::BeyondContext { .. } | SubmitError::BeyondPool { .. }) => {
                error.context("the conversation is too long, /reset begins a new one")
            }
            _ => error,
        })?;
        writeln!(out)?;
        match answer.reason {
            FinishReason::Length => eprintln!("(cut off: no room for more tokens)"),
            FinishReason::Cancelled => eprintln!("(stopped)"),
            FinishReason::Stop | FinishReason::Failed | FinishReason::TimedOut => {}
        }
        Ok(answer.text)
    }

    fn save(&self, path: &Path) -> Result<()> {
        let message = |m: &Message| serde_json::json!({"role": m.role, "content": m.content});
        let messages: Vec<_> = self.messages().iter().map(message).collect();
        let json = serde_json::json!({"model": self.session.card.name, "messages": messages});
        let text = serde_json::to_string_pretty(&json)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("saved to {}", path.display());
        Ok(())
    }
}
