//! The `openai` Python client against a served fake model.

use super::host::Setup;
use super::sockets::served;
use crate::engine::fake::{ids, script};
use crate::support::{Rows, python};
use std::process::Command;

const SCRIPT: &str = include_str!("openai_client.py");

#[cfg(feature = "cli")]
const TOOLS: &str = include_str!("openai_tools.py");

pub fn rows(rows: &mut Rows) {
    rows.add_if(python("openai"), "server::openai_client", |()| openai_client());
    #[cfg(feature = "cli")]
    rows.add_if(python("openai"), "server::openai_client_tools_and_schemas", |()| {
        tools("fable", "all")
    });
    #[cfg(feature = "cli")]
    rows.add_if(
        python("openai").and(crate::support::real_model("smollm2-135m-instruct-q4_1.gguf")),
        "server::openai_client_tools_and_schemas.smollm2",
        |model| tools(&model.display().to_string(), "few"),
    );
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

/// A served model, any: the grammars make its calls and answers right. A slow one is asked less.
#[cfg(feature = "cli")]
fn tools(model: &str, how_many: &str) {
    let more = ["-m", model, "--kv-memory", "64MiB", "-c", "1024", "-b", "64"];
    let serving = crate::support::program::Serving::start(&more);
    let url = format!("http://{}/v1", serving.address);
    let output = Command::new("python3").args(["-c", TOOLS, &url, how_many]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), "ok");
}
