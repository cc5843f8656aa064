//! Recordings as commands use them: simulated, run again, and laid beside another run.

use crate::support::Rows;
use crate::support::program::{QUICK, run};
use serde_json::Value;

pub fn rows(rows: &mut Rows) {
    rows.add("cli::record_and_replay", record_and_replay);
    rows.add("cli::sim_view_and_what_if", simulate);
    rows.add("cli::view_draws_a_recording", view_draws_a_recording);
    rows.add("cli::sim_reads_traces", traces);
    rows.add("cli::sim_says_what_is_wrong", wrong);
    rows.add("cli::claims", claims);
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(args).good()).expect("JSON")
}

fn record_and_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.jsonl");
    let path = file.to_str().expect("a path");
    let ask = ["generate", "Tell me a story.", "-n", "24", "--seed", "3", "--device", "cpu"];
    run(&[&ask[..], &QUICK, &["--temperature", "0.9", "--record", path]].concat()).good();
    let said = run(&["replay", path, "--device", "cpu"]).good();
    assert!(said.starts_with("the same: 1 requests, "), "{said}");
    assert!(said.ends_with(" 24 tokens, 0 preemptions\n"), "{said}");
    // As it was recorded, though no flag says so.
    let off = ["--temperature", "0.9", "--record", path, "--invariance", "off"];
    run(&[&ask[..], &QUICK, &off].concat()).good();
    let ran = run(&["replay", path, "--device", "cpu"]);
    assert!(ran.err.contains("invariance off"), "{ran:?}");
    assert!(ran.good().starts_with("the same: 1 requests, "), "replayed with it off");
    // One recorded token is another.
    let text = std::fs::read_to_string(&file).expect("a recording");
    let line = text.lines().filter(|l| l.contains("TokenSampled")).nth(9).expect("ten tokens");
    let stamped: Value = serde_json::from_str(line).expect("JSON");
    let (step, token) = (&stamped["step"], &stamped["event"]["token"]);
    let other = line.replace(&format!("\"token\":{token}"), "\"token\":7");
    std::fs::write(&file, text.replace(line, &other)).expect("a writable folder");
    let ran = run(&["replay", path, "--device", "cpu"]);
    let told = format!("step {step} differs: the token at position ");
    assert!(ran.code == Some(1) && ran.out.starts_with(&told), "{ran:?}");
    assert!(ran.out.ends_with(&format!(" was 7 and is {token} now\n")), "{ran:?}");
}

fn simulate() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.jsonl");
    let path = file.to_str().expect("a path");
    let sim = ["sim", "--requests", "60", "--rate", "200", "--seed", "4", "--json"];
    let found = json(&[&sim[..], &["--out", path]].concat());
    assert_eq!(found["summary"]["counts"]["finished"], 60);
    assert_eq!(found, json(&sim), "the same seed");
    let table = run(&["sim", "--requests", "60", "--slo-ttft", "1"]).good();
    let goodput = table.lines().find(|line| line.starts_with("requests/s within the SLOs"));
    assert!(goodput.is_some_and(|line| line.ends_with(" 0.00")), "{table}");
    assert!(table.contains("memory bounds a step below 295 operations a byte"), "{table}");
    let compared = json(&["what-if", path, "--batching", "static:4", "--json"]);
    assert_eq!(compared["other"]["policies"]["batching"], "static:4");
    let tokens = |run: &str| compared[run]["summary"]["counts"]["output_tokens"].clone();
    assert_eq!((tokens("same"), tokens("other")), {
        let tokens = &found["summary"]["counts"]["output_tokens"];
        (tokens.clone(), tokens.clone())
    });
    let table = run(&["what-if", path, "--max-num-seqs", "2"]).good();
    assert!(table.lines().next().is_some_and(|l| l.contains("recorded  simulated")), "{table}");
    // The recording's header tells what moving a block takes, though none was moved.
    let small = ["what-if", path, "--kv-blocks", "300", "--preemption", "swap", "--json"];
    let other = &json(&small)["other"]["summary"]["counts"];
    assert!(other["preemptions"].as_u64().is_some_and(|n| n > 0), "{other}");
    assert_eq!(other["lost_tokens"], 0, "{other}");
    let out = folder.path().join("other.jsonl");
    let weighted = ["--order", "fair:tokens", "--tenant-weight", "tenant-1=5", "--out"];
    run(&[&["what-if", path][..], &weighted, &[out.to_str().expect("a path")]].concat()).good();
    let other = std::fs::read_to_string(out).expect("a recording");
    assert!(other.contains("TenantWeighted"), "{}", &other[..2000]);
    let csv = folder.path().join("steps.csv");
    run(&["view", path, "--export", csv.to_str().expect("a path")]).good();
    let steps = std::fs::read_to_string(csv).expect("steps").lines().count() - 1;
    assert_eq!(found["steps"], steps);
}

/// Width and height of a PNG, from its first chunk.
fn size_of(png: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}

/// Compressed or not, at any step, size, scale and theme; and what is exported is the same again.
fn view_draws_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("a path").to_string();
    let packed = crate::support::root().join("assets/traces/overload.jsonl.gz");
    let packed = packed.to_str().expect("a path");
    let (plain, again, png) = (file("run.jsonl"), file("again.jsonl"), file("step.png"));
    run(&["view", packed, "--export", &plain]).good();
    run(&["view", &plain, "--export", &again]).good();
    let read = |name: &str| std::fs::read_to_string(name).expect("an export");
    let text = read(&plain);
    assert_eq!(text, read(&again));
    assert!(text.lines().next().is_some_and(|l| l.contains("\"model\":\"fable\"")), "its header");
    let mut seen = Vec::new();
    for (view, theme, at) in
        [("timeline", "light", "70"), ("all", "dark", "70"), ("all", "dark", "9")]
    {
        let how = ["--view", view, "--theme", theme, "--at", at];
        let form = ["--size", "800x600", "--scale", "1.5", "--screenshot", &png];
        run(&[&["view", packed][..], &how, &form].concat()).good();
        let bytes = std::fs::read(&png).expect("a picture");
        assert_eq!(size_of(&bytes), (1200, 900), "{view}");
        assert!(!seen.contains(&bytes), "{view} at {at} is another picture");
        seen.push(bytes);
    }
    let ran = run(&["view", packed, "--screenshot", &png, "--view", "nothing"]);
    assert!(ran.code == Some(1) && ran.err.contains("choose all, slots, blocks"), "{ran:?}");
}

fn traces() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("arrivals");
    let path = file.to_str().expect("a path");
    for (text, prompt, output) in [
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-29 23:59:59.5,10,3\n", 10, 3),
        (r#"{"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [4]}"#, 600, 2),
        (
            r#"[{"conversations": [{"from": "human", "value": "one two three"},
                {"from": "gpt", "value": "four five"}]}]"#,
            5,
            5,
        ),
    ] {
        std::fs::write(&file, text).expect("a writable folder");
        let counts = &json(&["sim", "--arrivals", path, "--json"])["summary"]["counts"];
        assert_eq!(counts["prompt_tokens"], prompt, "{text}");
        assert_eq!(counts["output_tokens"], output, "{text}");
    }
}

fn claims() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("knee.svg");
    let path = svg.to_str().expect("a path");
    let found = json(&["bench", "knee", "--sim", "--json", "--svg", path]);
    assert_eq!(found["name"], "knee");
    assert!(found["values"]["gain_1_to_32"].as_f64().is_some_and(|v| v > 14.0), "{found}");
    let drawn = std::fs::read_to_string(&svg).expect("a plot");
    assert!(drawn.starts_with("<svg ") && drawn.contains("knee: 27"), "{drawn}");
    assert!(folder.path().join("knee.2.svg").exists());
    let told = run(&["bench", "fairness", "--sim", "--quick"]).good();
    assert!(told.contains("fairness index") && told.contains("h100-8b, simulated"), "{told}");
}

fn wrong() {
    let told = |args: &[&str]| {
        let ran = run(args);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        ran.err
    };
    assert!(told(&["sim", "--prompt-mean", "0"]).contains("prompt.mean: 0 is not at least 1"));
    assert!(told(&["sim", "--rate=-1"]).contains("expected a number above 0"));
    assert!(told(&["sim", "--hardware", "h200"]).contains("neither h100-8b nor a recording"));
    assert!(told(&["sim", "--arrivals", "nowhere"]).contains("nowhere"));
    assert!(told(&["sim", "--tenant-weight", "me=2"]).contains("tenant-1"));
    assert!(told(&["what-if", "nowhere"]).contains("nowhere"));
    assert!(told(&["replay", "nowhere"]).contains("nowhere"));
    let blocks = told(&["sim", "--requests", "1", "--kv-blocks", "4000000000"]);
    assert!(blocks.contains("blocks is 4000000000, and can be 1 to "), "{blocks}");
    // No output takes the place of an input, and no size of a recording is taken on trust.
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_string();
    let file = path("run.jsonl");
    run(&["sim", "--requests", "3", "--out", &file]).good();
    let before = std::fs::read_to_string(&file).expect("a recording");
    for args in
        [&["what-if", &file][..], &["sim", "--arrivals", &file], &["sim", "--hardware", &file]]
    {
        assert!(told(&[args, &["--out", &file]].concat()).contains("itself, which is read"));
    }
    assert_eq!(std::fs::read_to_string(&file).expect("a recording"), before);
    for (size, right) in [("block_size", 16), ("sequences_max", 256), ("context_max", 8192)] {
        let wrong = before.replacen(&format!("\"{size}\":{right}"), &format!("\"{size}\":0"), 1);
        let place = path("wrong.jsonl");
        std::fs::write(&place, wrong).expect("a writable folder");
        for command in ["what-if", "replay"] {
            let told = told(&[command, &place]);
            assert!(told.contains(&format!("{size} is 0, and can be 1 to ")), "{told}");
        }
    }
    // A disk that is full is told, and the recording fails with it.
    #[cfg(target_os = "linux")]
    {
        let ask = ["generate", "x", "-n", "2", "--device", "cpu", "--record", "/dev/full"];
        let ran = run(&[&ask[..], &QUICK].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("--record /dev/full: ") && !ran.out.is_empty(), "{ran:?}");
    }
}
