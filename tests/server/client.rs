//! The `openai` Python client against a served fake model.

use super::host::Setup;
use super::sockets::served;
use crate::engine::fake::{ids, script};
use crate::support::{Rows, python};
use std::process::Command;

const SCRIPT: &str = include_str!("openai_client.py");

pub fn rows(rows: &mut Rows) {
    rows.add_if(python("openai"), "server::openai_client", |()| openai_client());
}

fn openai_client() {
    let setup = Setup::new(script(ids("The capital of France is Paris.")));
    let served = served(setup, |config| config.api_keys = vec!["secret".to_string()]);
    let url = format!("http://{}/v1", served.address);
    let output = Command::new("python3").args(["-c", SCRIPT, &url]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), "ok");
}
