//! Whatever goes wrong: one message that names cause and remedy, and the right exit code.

use crate::support::program::{QUICK, run};
use crate::support::{Rows, root};
use std::net::TcpListener;

pub fn rows(rows: &mut Rows) {
    rows.add("cli::wrong_usage_exits_2", wrong_usage_exits_2);
    rows.add("cli::failures_exit_1_and_say_why", failures_exit_1_and_say_why);
    rows.add("cli::tokenizers_that_fail_later_are_errors", tokenizer_fails_later);
    rows.add("cli::port_in_use", port_in_use);
}

fn wrong_usage_exits_2() {
    for (args, said) in [
        (&["serve", "--prot", "1"][..], "--port"),
        (&["generate"], "<PROMPT>"),
        (&["generate", "x", "--device", "tpu"], "auto, gpu, cpu"),
        (&["generate", "x", "--block-size", "17"], "16, 32"),
        (&["generate", "x", "--ctx-size", "0"], "512 or 32k"),
        (&["generate", "x", "--kv-memory", "2 apples"], "512MiB"),
        (&["bench", "model", "--batch", "0"], "512 or 32k"),
        (&["verify"], "--golden"),
        (&["serve", "--port", "99999"], "65535"),
        (&["sing"], "sing"),
        // Names and numbers are refused before anything is opened.
        (&["serve", "--log-level", "verbose"], "off, error, warn, info, debug, trace"),
        (&["serve", "--log-level", "http"], "`http` is no level"),
        (&["serve", "--log-level", "info,htpp=off"], "there are http, tilewright"),
        (&["serve", "--cors-origins", "https://a.example,b.example"], "`b.example`"),
        (&["serve", "--cors-origins", "*"], "--cors-origins"),
        (&["generate", "x", "--device", "cpu", "--adapter", "0"], "--adapter 0"),
        (&["bench", "kernels", "--device", "cpu", "--adapter", "llvm"], "--device cpu"),
        (&["serve", "--tenant-weight", "a=1,b=2,a=1"], "tenant `a`"),
        (&["sim", "--tenant-weight", "1=2,tenant-1=3"], "tenant `tenant-1`"),
        (&["serve", "--batching", "dynamic:8:4000000000"], "an hour"),
        (&["serve", "--watermark", "500"], "0 to 100"),
        (&["serve", "--itl-target", "0"], "above 0"),
        (&["serve", "--queue-max", "99999999"], "--queue-max"),
        (&["generate", "x", "-m", "no-such.gguf", "--temperature", "9"], "--temperature: must be"),
        (&["generate", "x", "-m", "no-such.gguf", "--top-p", "nan"], "--top-p: must be"),
        (&["generate", "x", "-m", "no-such.gguf", "--stop", ""], "--stop: "),
        (&["chat", "-m", "no-such.gguf", "--repetition-penalty", "0"], "--repetition-penalty: "),
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.err.contains(said), "{args:?}: no {said:?} in {ran:?}");
    }
}

fn failures_exit_1_and_say_why() {
    let own = |path: &str| root().join(path).display().to_string();
    let (manifest, folder) = (own("Cargo.toml"), own("tests/data/gguf"));
    let bare = own("tests/data/llama3-rope");
    for (args, said) in [
        (&["generate", "x", "-m", "no-such.gguf"][..], &["`no-such.gguf`", "-m takes"][..]),
        (&["generate", "x", "-m", &manifest], &["Cargo.toml", "neither a GGUF file nor"]),
        (&["generate", "x", "-m", &folder], &["config.json", "name the file"]),
        (&["generate", "x", "-m", &bare, "--device", "cpu"], &["tokenizer.json"]),
        (&["generate", "x", "--adapter", "no-such-adapter"], &["no usable adapter"]),
        (&["generate", "x", "--chat-template", "no-such"], &["--chat-template no-such"]),
        (&["generate", "x", "--device", "cpu", "--record", "/no/such"], &["--record /no/such"]),
        (&["generate", "x", "--device", "cpu", "--kv-memory", "9"], &["--kv-memory allows 9"]),
        // No host memory for the preempted is no fault: what comes after it is told.
        (
            &["generate", "x", "--device", "cpu", "--swap-memory", "0", "--kv-memory", "9"],
            &["--kv-memory allows 9"],
        ),
        (&["verify", "--golden", "no-such"], &["no-such"]),
        (&["bench", "model", "--device", "cpu", "--prompt", "9999"], &["9999", "--ctx-size"]),
        (
            &["bench", "model", "--device", "cpu", "--batch", "64", "--kv-memory", "4MiB"],
            &["--batch", "--kv-memory"],
        ),
        (&["inspect", "no-such"], &["`no-such`"]),
        (&["serve", "--port", "0", "--device", "cpu", "--api-key", "a,"], &["--api-key", "empty"]),
        (
            &["generate", "x", "--device", "cpu", "--record", &manifest],
            &["--record", "Cargo.toml", "no trace"],
        ),
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
        let error = ran.err.lines().last().unwrap_or_default();
        assert!(error.starts_with("error: "), "{args:?}: {ran:?}");
        for part in said {
            assert!(error.contains(part), "{args:?}: no {part:?} in {error:?}");
        }
        // The cause is told once.
        assert!(error.matches("os error").count() <= 1, "{error}");
    }
}

/// The loader tries some text; what a tokenizer fails at comes later.
fn tokenizer_fails_later() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors", "tokenizer_config.json"] {
        let from = root().join("assets/fable").join(file);
        std::fs::copy(from, folder.path().join(file)).expect("a copy");
    }
    let tokenizer = crate::text::panics_at_z().to_string();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer).expect("written");
    let path = folder.path().to_str().expect("a path");
    let generate = |prompt: &str| {
        let lead = ["generate", prompt, "--raw", "-n", "2", "-m", path, "--device", "cpu"];
        run(&[&lead[..], &QUICK].concat())
    };
    generate("A cat").good();
    let ran = generate("A zoo");
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(ran.code == Some(1) && last.starts_with("error: "), "{ran:?}");
    assert!(last.contains("tokenizer") && !ran.err.contains("panicked"), "{ran:?}");
}

fn port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let ran = run(&["serve", "--port", &port]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains(&port) && ran.err.contains("--port"), "{ran:?}");
}
