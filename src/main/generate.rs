//! `generate`: a prompt in, text out, through the same engine as the server.

use crate::cli::GenerateArgs;
use crate::session::{Session, check, recorded, render, request};
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::process::ExitCode;
use tilewright::text::Message;

pub fn run(args: &GenerateArgs) -> Result<ExitCode> {
    check(&args.sampling)?;
    let text = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("the prompt on standard input")?;
            text
        }
        text => text.to_string(),
    };
    let mut session = Session::open(&args.model, &args.record)?;
    let card = session.card.clone();
    let prompt = match &card.template {
        Some(template) if !args.raw => render(&card, template, &[Message::new("user", text)])?,
        _ => card.tokenizer.encode_prompt(&text)?,
    };
    let mut out = std::io::stdout().lock();
    session.answer(request(&args.sampling, prompt), &mut out, &|| false)?;
    writeln!(out)?;
    drop(session);
    recorded(&args.record)?;
    Ok(ExitCode::SUCCESS)
}
