//! Rows of `cli`: flags by other programs' names, the config file, completions.

use crate::support::Rows;
use crate::support::program::{QUICK, Ran, Serving, run, tilewright};
use std::path::PathBuf;

pub fn rows(rows: &mut Rows) {
    rows.add("cli::config_file_fills_in", fills_in);
    rows.add("cli::config_file_faults_are_told", faults);
    rows.add("cli::flags_of_llama_server_and_vllm", dialects);
    rows.add("cli::numbers_for_people", numbers);
    rows.add("cli::completions_of_every_shell", completions);
    rows.add("cli::keys_from_a_file", keys);
}

struct File(tempfile::TempDir);

impl File {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tilewright.toml")
    }

    fn flag(&self) -> String {
        format!("--config={}", self.path().display())
    }
}

/// `inspect` is quick and shows what it was told.
fn json(ran: Ran) -> bool {
    ran.good().starts_with('{')
}

fn fills_in() {
    let file = File::new("model = \"fable\"\n[inspect]\njson = true\n[bench-model]\nruns = 3\n");
    assert!(json(run(&["inspect", &file.flag()])));
    assert!(json(run(&[&file.flag(), "inspect"])));
    let path = file.path();
    let two = run(&["--config", path.to_str().unwrap(), "inspect", "fable"]);
    assert!(json(two), "in two words");
    let mut command = tilewright(&["inspect"]);
    command.env("TILEWRIGHT_CONFIG", &path);
    assert!(json(Ran::of(&command.output().unwrap())), "from the environment");
    // The environment goes before the file, the command line before both.
    let mut command = tilewright(&["inspect", &file.flag()]);
    command.env("TILEWRIGHT_JSON", "false");
    assert!(!json(Ran::of(&command.output().unwrap())));
    let file = File::new("[generate]\nmax-tokens = 1\ntemp = 0.0\nstop = [\"a\", \"b\"]\n");
    let said = |more: &[&str]| {
        let line = [&["generate", "Once upon", &file.flag(), "--device", "cpu"], &QUICK[..], more];
        run(&line.concat()).good()
    };
    assert!(said(&["-n", "12"]).len() > said(&[]).len());
    // An adapter of file or environment gives way to a processor of the command line.
    let file = File::new("adapter = \"0\"\n");
    let line = [&["generate", "Once upon", "-n", "1", "--device", "cpu"], &QUICK[..]].concat();
    run(&[&line[..], &[&file.flag()]].concat()).good();
    let mut command = tilewright(&line);
    command.env("TILEWRIGHT_ADAPTER", "0");
    Ran::of(&command.output().unwrap()).good();
    // Lists and variables may be empty.
    let file = File::new("[serve]\ncors-origins = []\ntenant-weight = []\n");
    Serving::start(&[&["--device", "cpu", &file.flag()], &QUICK[..]].concat());
    let mut command =
        tilewright(&[&["serve", "--port", "0", "--device", "cpu"], &QUICK[..]].concat());
    command.env("TILEWRIGHT_CORS_ORIGINS", "");
    Serving::of(command);
}

fn faults() {
    for (text, parts) in [
        ("jsn = true", &["--jsn", "tilewright.toml"][..]),
        ("[inspekt]\njson = true", &["[inspekt]", "inspect"]),
        ("[inspect]\nport = 3", &["[inspect]", "--port"]),
        ("[inspect]\njson = { a = 1 }", &["json", "expected"]),
        ("[inspect]\njson = \"perhaps\"", &["json", "true or false"]),
        ("json = ", &["tilewright.toml"]),
    ] {
        let ran = run(&["inspect", &File::new(text).flag()]);
        assert_eq!(ran.code, Some(2), "{text}: {ran:?}");
        for part in parts {
            assert!(ran.err.contains(part), "{text}: {part:?} in {}", ran.err);
        }
    }
    let ran = run(&["inspect", "--config", "/no/such/file.toml"]);
    assert!(ran.code == Some(2) && ran.err.contains("/no/such/file.toml"), "{ran:?}");
    // A value that a flag refuses is told as the flag tells it.
    let ran = run(&["serve", &File::new("[serve]\nctx-size = \"many\"").flag()]);
    assert!(ran.code == Some(2) && ran.err.contains("--ctx-size"), "{ran:?}");
}

/// A start as users of other servers write it.
fn dialects() {
    for args in [
        &[
            "-c",
            "512",
            "-np",
            "3",
            "-b",
            "32",
            "-ctk",
            "q8_0",
            "-ctv",
            "q8_0",
            "-a",
            "x",
            "--jinja",
            "--metrics",
            "--slots",
            "--kv-memory",
            "16MiB",
        ][..],
        &[
            "--max-model-len=512",
            "--max-num-seqs",
            "3",
            "--max-num-batched-tokens",
            "32",
            "--kv-cache-dtype",
            "q8",
            "--served-model-name",
            "x",
            "--enable-auto-tool-choice",
            "--tool-call-parser",
            "hermes",
            "--kv-cache-memory-bytes",
            "16777216",
        ],
    ] {
        let serving = Serving::start(&[&["--device", "cpu"][..], args].concat());
        let log = serving.log();
        assert!(log.contains("(q8,") && log.contains("32 tokens per step, 3 sequences"), "{log}");
        assert!(log.contains("context 512") && log.contains("serving x"), "{log}");
    }
    // A model by its place, and one on a hub that is not there.
    let ran = run(&["serve", "no/such.gguf", "--port", "0"]);
    assert!(ran.err.contains("`no/such.gguf`"), "{}", ran.err);
    for args in [&["serve", "--port", "0", "-hf", "a/b:Q4_0"][..], &["inspect", "hf:a/b:Q4_0"]] {
        let mut command = tilewright(args);
        command.env("HF_ENDPOINT", "http://127.0.0.1:1").env("HF_HUB_CACHE", "/no/such/cache");
        let ran = Ran::of(&command.output().unwrap());
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("a/b: the hub was not reached"), "{}", ran.err);
    }
}

fn numbers() {
    let context = |size: &str| {
        let ran = run(&[
            "generate",
            "x",
            "-n",
            "1",
            "--device",
            "cpu",
            "--kv-memory",
            "8MiB",
            "-b",
            "16",
            "-c",
            size,
        ]);
        (ran.code, ran.err)
    };
    for (size, tokens) in [("512", "512"), ("1k", "1024"), ("1K", "1024"), ("0.5k", "512")] {
        let (code, log) = context(size);
        assert!(code == Some(0) && log.contains(&format!("context {tokens}")), "{size}: {log}");
    }
    for size in ["0", "1.5", "k", "1e3", "0.0001k", "5000000k", "0x10"] {
        let (code, log) = context(size);
        assert!(code == Some(2) && log.contains("such as 512 or 32k"), "{size}: {log}");
    }
}

fn completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = run(&["completions", shell]).good();
        assert!(text.contains("tilewright") && text.contains("max-num-seqs"), "{shell}");
    }
    assert_eq!(run(&["completions", "csh"]).code, Some(2));
}

fn keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, "one\n\n two \n").unwrap();
    let path = path.to_str().unwrap();
    let args = [&["--device", "cpu", "--api-key-file", path][..], &QUICK].concat();
    let serving = Serving::start(&args);
    let models = serving.ask("GET", "/v1/models", "");
    assert!(models.starts_with("HTTP/1.1 401"), "{models}");
    let ask = |key: &str| {
        std::process::Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H"])
            .args([
                &format!("Authorization: Bearer {key}"),
                &format!("http://{}/v1/models", serving.address),
            ])
            .output()
            .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    if let (Ok(one), Ok(two), Ok(three)) = (ask("one"), ask("two"), ask("three")) {
        assert_eq!([one, two, three], ["200", "200", "401"]);
    }
}
