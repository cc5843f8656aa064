//! What each command does when all goes well, and the exit codes.

use crate::support::program::{QUICK, run, run_with};
use crate::support::{On, Rows, gpu, root};
use serde_json::Value;

const FRANCE: &str = "What is the capital of France?";
const PARIS: &str = "The capital of France is Paris.\n";

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        rows.add_if(present.clone(), format!("cli::generate.{device}"), move |()| generate(on));
        rows.add_if(present, format!("cli::verify.{device}"), move |()| verify(on));
    }
    rows.add("cli::generate_reads_standard_input", generate_reads_standard_input);
    rows.add("cli::generate_takes_sampling_flags", generate_takes_sampling_flags);
    rows.add("cli::variables_stand_for_flags", variables_stand_for_flags);
    rows.add("cli::verify_fails_beyond_the_tolerance", verify_fails_beyond_the_tolerance);
    rows.add("cli::quality", quality);
    rows.add("cli::bench_model_json", bench_model_json);
    rows.add("cli::bench_step", bench_step);
    rows.add("cli::bench_kernels", bench_kernels);
    rows.add("cli::bench_shape", bench_shape);
    rows.add("cli::doctor", doctor);
    rows.add("cli::kernel_times", kernel_times);
    rows.add("cli::inspect", inspect);
    rows.add("cli::inspect_shows_the_warnings_of_a_load", inspect_warns);
    rows.add_if(gpu(), "cli::a_place_that_keeps_no_pipelines_is_told", |_| {
        no_place_for_pipelines()
    });
    rows.add_if(gpu(), "cli::software_adapters_are_passed_over", |_| passed_over());
    rows.add("cli::no_command_points_to_serve", no_command_points_to_serve);
}

/// Where to run, with checked shaders if the suite runs so.
fn device(on: On) -> Vec<&'static str> {
    let mut args = vec!["--device", on.name()];
    if on == On::Gpu && std::env::var_os("TILEWRIGHT_CHECKED").is_some() {
        args.push("--checked-shaders");
    }
    args
}

fn generate(on: On) {
    let args = [&["generate", FRANCE][..], &device(on), &QUICK].concat();
    assert_eq!(run(&args).good(), PARIS);
}

fn generate_reads_standard_input() {
    let args = [&["generate", "-", "--device", "cpu"][..], &QUICK].concat();
    assert_eq!(run_with(&args, FRANCE).good(), PARIS);
}

fn generate_takes_sampling_flags() {
    let lead = ["generate", FRANCE, "--device", "cpu"];
    let with = |more: &[&str]| run(&[&lead[..], &QUICK, more].concat()).good();
    assert_eq!(with(&["-n", "3"]), "The capital of\n");
    assert_eq!(with(&["--stop", " France"]), "The capital of\n");
    let story = |seed: &str| {
        let drawn = ["--temperature", "2", "-n", "20", "--seed", seed, "--device", "cpu"];
        run(&[&["generate", "Tell me a story."][..], &QUICK, &drawn].concat()).good()
    };
    assert_eq!(story("1"), story("1"), "same seed, same text");
    assert_ne!(story("1"), story("2"));
}

fn variables_stand_for_flags() {
    let args = [&["generate", FRANCE][..], &QUICK].concat();
    let mut command = crate::support::program::tilewright(&args);
    command.env("TILEWRIGHT_DEVICE", "cpu").env("TILEWRIGHT_MAX_TOKENS", "2");
    // A switch takes 1 as well as true.
    command.env("TILEWRIGHT_RAW", "1");
    let ran = crate::support::program::Ran::of(&command.output().expect("the program starts"));
    assert!(ran.err.contains("device: cpu"), "{ran:?}");
    let out = ran.good();
    assert!(!out.starts_with("The capital"), "without the template it continues: {out}");
}

fn data(path: &str) -> String {
    root().join("tests/data").join(path).display().to_string()
}

fn verify(on: On) {
    for (model, golden) in [
        ("llama-mqa-bias", "llama-mqa-bias/golden.safetensors"),
        ("gguf/tiny-q4_1.gguf", "gguf/tiny-q4_1.golden.safetensors"),
    ] {
        let (model, golden) = (data(model), data(golden));
        let args = [&["verify", "-m", &model, "--golden", &golden][..], &device(on)].concat();
        let out = run(&args).good();
        assert!(out.contains("passed") && out.contains("largest difference"), "{out}");
        let counts = out.split("agrees at ").nth(1).expect("the agreement");
        let words: Vec<&str> = counts.split_whitespace().collect();
        assert_eq!(words[0], words[2], "{out}");
    }
}

fn verify_fails_beyond_the_tolerance() {
    let (model, golden) = (data("llama-mqa-bias"), data("llama-mqa-bias/golden.safetensors"));
    let lead = ["verify", "-m", &model, "--golden", &golden, "--device", "cpu"];
    let ran = run(&[&lead[..], &["--tolerance", "1e-9"]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("FAILED"), "{ran:?}");
    // The wrong reference, and one of another vocabulary.
    let other = data("gguf/tiny-q4_1.golden.safetensors");
    let ran = run(&["verify", "-m", "fable", "--golden", &other, "--device", "cpu"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("`logits`") && ran.err.contains("expected"), "{ran:?}");
}

fn json(args: &[&str]) -> Value {
    let out = run(args).good();
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// Against itself, under another type, and what is refused.
fn quality() {
    let text = root().join("tests/data/text/quality.txt");
    let text = text.to_str().expect("a path in UTF-8");
    let lead = ["quality", "--device", "cpu", "--text", text];
    let same = json(&[&lead[..], &["--against", "fable", "--json"]].concat());
    assert_eq!(
        (&same["greedy_agreement"], &same["mean_logprob_difference"]),
        (&1.0.into(), &0.0.into())
    );
    assert_eq!(same["reference_perplexity"], same["candidate_perplexity"]);
    let page = run(&[&lead[..], &["--kv-dtype", "q8"]].concat()).good();
    for part in ["perplexity", "greedy agreement", "|dlogprob|", "fable, KV f32", "fable, KV q8"] {
        assert!(page.contains(part), "no `{part}`: {page}");
    }
    let ran = run(&lead);
    assert!(ran.code == Some(1) && ran.err.contains("--against"), "{ran:?}");
    let other = data("llama-mqa-bias");
    let ran = run(&[&lead[..], &["--against", &other]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let ran = run(&["quality", "--kv-dtype", "q4"]);
    assert!(ran.code == Some(2) && ran.err.contains("f32, f16, q8"), "{ran:?}");
    let ran = run(&["quality", "--activations", "int4"]);
    assert!(ran.code == Some(2) && ran.err.contains("f32, int8"), "{ran:?}");
}

fn bench_model_json() {
    let small = ["--prompt", "16", "--generate", "4", "--batch", "1,2", "--runs", "2"];
    let args = [&["bench", "model", "--json", "--device", "cpu"][..], &small].concat();
    let found = json(&args);
    assert_eq!(found["model"], "fable");
    assert_eq!(found["device"]["backend"], "cpu");
    let tests = found["tests"].as_array().expect("tests");
    let names: Vec<_> = tests.iter().map(|t| (t["test"].as_str(), t["batch"].as_u64())).collect();
    let expected = [(Some("pp16"), Some(1)), (Some("tg4"), Some(1)), (Some("tg4"), Some(2))];
    assert_eq!(names, expected);
    for test in tests {
        assert_eq!(test["runs"].as_array().map(Vec::len), Some(2));
        assert!(test["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{test}");
    }
    let table = run(&[&["bench", "model", "--device", "cpu"][..], &small].concat()).good();
    assert!(table.contains("pp16") && table.contains("tokens/s"), "{table}");
    // Which products take bytes is told, and which do not.
    for (quantize, told) in
        [(&[][..], ": f16 f32\n"), (&["--quantize", "q4_0"], "q4_0 int8, q8_0 int8")]
    {
        let ran = run(&[&args[..], &["--activations", "int8"], quantize].concat());
        let found: Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(found["limits"]["activations"], "int8");
        assert!(ran.err.contains("activations int8") && ran.err.contains(told), "{ran:?}");
    }
}

fn bench_step() {
    let small = ["--batch", "1,3", "--depth", "20", "--steps", "3"];
    let args = [&["bench", "step", "--json", "--device", "cpu"][..], &small].concat();
    let found = json(&args);
    assert_eq!((&found["model"], &found["device"]["backend"]), (&"fable".into(), &"cpu".into()));
    assert_eq!(found["limits"]["sequences"], 3);
    let steps = found["steps"].as_array().expect("steps");
    assert_eq!(steps.iter().map(|s| s["batch"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    for step in steps {
        assert_eq!((&step["depth"], &step["steps"]), (&20.into(), &3.into()));
        let number = |of: &Value, name: &str| of[name].as_f64().expect("a number");
        let parts = ["plan", "record", "submit", "device", "readback"];
        let parts: Vec<f64> = parts.iter().map(|p| number(&step["parts"], p)).collect();
        assert!(parts.iter().all(|p| *p >= 0.0) && parts[0] > 0.0 && parts[3] > 0.0, "{step}");
        // Every launch of a step is in the table of kernels.
        let kernels = step["kernels"].as_array().expect("kernels");
        let launches: u64 = kernels.iter().filter_map(|k| k["launches"].as_u64()).sum();
        assert_eq!(Some(launches), step["launches"].as_u64(), "{step}");
        let percent: f64 = kernels.iter().map(|k| number(k, "percent")).sum();
        assert!((percent - 100.0).abs() < 1e-6, "{step}");
    }
    let table = run(&[&["bench", "step", "--device", "cpu"][..], &small].concat()).good();
    assert!(table.contains("readback") && table.contains("mul_mat."), "{table}");
    let few = ["bench", "step", "--device", "cpu", "--kv-memory", "1MiB", "--batch", "64"];
    let ran = run(&[&few[..], &["--depth", "200"]].concat());
    assert!(ran.code == Some(1) && ran.err.contains("too few"), "{ran:?}");
}

fn bench_kernels() {
    let cpu = ["bench", "kernels", "--json", "--device", "cpu"];
    let one = ["--tokens", "1,4", "--rows", "64", "--cols", "288", "--format", "f16,q4_k"];
    let found = json(&[&cpu[..], &one].concat());
    assert!(found["ceilings"]["copy_gb_per_second"].as_f64().is_some_and(|n| n > 0.0), "{found}");
    let cases = found["kernels"].as_array().expect("kernels");
    let seen: Vec<_> = cases.iter().map(|k| (k["format"].as_str(), k["tokens"].as_u64())).collect();
    // 288 values are no whole blocks of q4_k.
    let formats = [Some("f16"), Some("q8_0")];
    let expected = formats.map(|f| [(f, Some(1)), (f, Some(4))]).concat();
    assert_eq!(seen, expected);
    let named = |k: &Value, n: &str| k["variant"].as_str().is_some_and(|v| v.contains(n));
    assert!(named(&cases[1], "mul_mat.f16.m4") && named(&cases[2], "mul_mat.q8_0.m1"), "{found}");
    let all = json(&[&cpu[..], &["--tokens", "2", "--shape", "tiny", "--format", "q4_0"]].concat());
    for kernel in all["kernels"].as_array().expect("kernels") {
        for figure in ["micros", "gop_per_second", "gb_per_second", "bandwidth_percent"] {
            assert!(kernel[figure].as_f64().is_some_and(|n| n > 0.0), "{figure}: {kernel}");
        }
    }
    let text = all.to_string();
    for name in ["mul attn_q", "mul output", "attention decode", "attention prefill", "norm"] {
        assert!(text.contains(&format!("\"{name}\"")), "{name}: {text}");
    }
    for name in ["rope", "gate", "sampling"] {
        assert!(text.contains(&format!("\"{name}\"")), "{name}: {text}");
    }
}

/// Random weights in the shape of a model, in formats that are only read too.
fn bench_shape() {
    let small = ["--shape", "tiny", "--json", "--device", "cpu", "--batch", "2"];
    for format in ["f16", "q8_0", "q4_k"] {
        let shape = ["--shape-format", format, "--steps", "2"];
        let found = json(&[&["bench", "step"][..], &small, &shape].concat());
        assert_eq!(found["model"], format!("tiny ({format}, random)"));
        let kernels = found["steps"][0]["kernels"].to_string();
        assert!(kernels.contains(&format!("mul_mat.{format}.")), "{format}: {kernels}");
    }
    let depth = ["--depth", "0,20", "--prompt", "16", "--generate", "4", "--runs", "1"];
    let found = json(&[&["bench", "model"][..], &small, &depth].concat());
    let tests = found["tests"].as_array().expect("tests").iter().map(|t| t["test"].as_str());
    let expected = ["pp16", "tg4", "pp16 @ d20", "tg4 @ d20"].map(Some);
    assert_eq!(tests.collect::<Vec<_>>(), expected);
    let ran = run(&["bench", "step", "--shape", "huge"]);
    assert!(ran.code == Some(2) && ran.err.contains("llama-3-8b"), "{ran:?}");
}

fn doctor() {
    let found = json(&["doctor", "--json", "--device", "cpu"]);
    let adapters = found["adapters"].as_array().expect("adapters");
    assert_eq!(found["chosen"]["backend"], "cpu");
    let rehearsal = &found["rehearsal"];
    assert_eq!((&rehearsal["ok"], &rehearsal["fault"]), (&true.into(), &Value::Null));
    for name in ["preemptions", "blocks_swapped_in", "prefix_tokens", "shared_tokens"] {
        assert!(rehearsal[name].as_u64().is_some_and(|n| n > 0), "{name}: {rehearsal}");
    }
    let ran = run(&["doctor", "--device", "cpu", "--invariance", "off"]);
    assert!(ran.err.contains("invariance off: answers may depend on company"), "{ran:?}");
    let page = ran.good();
    assert!(page.contains("every invariant of the pool held"), "{page}");
    let list = run(&["--list-adapters"]).good();
    assert!(page.starts_with(&list), "{page}\n{list}");
    for name in adapters.iter().map(|a| a["name"].as_str().expect("a name")) {
        assert!(list.contains(name), "{list}");
    }
    assert!(adapters.is_empty() == list.contains("none"), "{list}");
    assert!(page.contains("chosen: cpu") && page.contains("q4_1      1: mul_mat.q4_1"), "{page}");
    assert!(page.contains("q4_1 int8 1: mul_mat.q4_1.int8.m1"), "{page}");
    assert_eq!(found["chosen"]["invariance"], "on");
    assert!(page.contains("\n  invariance off\n"), "{page}");
    let ran = run(&["doctor", "--invariance", "half"]);
    assert!(ran.code == Some(2) && ran.err.contains("there are on, off"), "{ran:?}");
}

fn inspect() {
    let fable = json(&["inspect", "--json"]);
    assert_eq!(fable["spec"]["layers"], 6);
    assert_eq!(fable["tokenizer"]["vocab"], 1551);
    assert_eq!(fable["formats"]["f16"]["tensors"], 56);
    assert_eq!(fable["tensors"].as_array().map(Vec::len), Some(56));
    assert!(fable["template"]["source"].as_str().is_some_and(|s| s.contains("<|im_start|>")));
    // Without a tokenizer the rest is shown, and why there is none.
    let folder = json(&["inspect", &data("llama3-rope"), "--json"]);
    assert!(folder["tokenizer"]["error"].as_str().is_some_and(|e| e.contains("tokenizer.json")));
    assert!(folder["spec"]["rope_scaling"].as_str().is_some_and(|s| s.contains("Llama3")));
    let page = run(&["inspect", &data("gguf/tiny-q4_1.gguf")]).good();
    for part in
        ["(GGUF)", "q4_1", "take int8 activations", "general.architecture", "token_embd.weight"]
    {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

/// What a load would warn of.
fn inspect_warns() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(root().join("assets/fable")).expect("Fable") {
        let file = file.expect("a file");
        if file.path().is_file() {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
        }
    }
    let written = r#"{"temperature": 99, "eos_token_id": 99999}"#;
    std::fs::write(folder.path().join("generation_config.json"), written).expect("written");
    let path = folder.path().to_str().expect("a path");
    let found = json(&["inspect", path, "--json"]);
    let warnings = found["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 2, "{found}");
    let page = run(&["inspect", path]).good();
    for part in ["temperature: must be a number from 0 to 2", "eos_token_id 99999"] {
        assert!(warnings.iter().any(|w| w.as_str().is_some_and(|w| w.contains(part))), "{found}");
        let line = page.lines().find(|line| line.contains(part)).expect(part);
        assert!(line.starts_with("  warning: "), "{line}");
    }
    assert_eq!(json(&["inspect", "--json"])["warnings"], serde_json::json!([]));
}

/// What cannot be kept is no fault, but said once.
fn no_place_for_pipelines() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    let args = [&["generate", FRANCE, "--cache-dir", path][..], &device(On::Gpu), &QUICK].concat();
    let ran = run(&args);
    let told: Vec<_> = ran.err.lines().filter(|line| line.contains(path)).collect();
    let [line] = told[..] else { panic!("{ran:?}") };
    assert!(line.starts_with("warning: ") && line.contains("os error"), "{line}");
    assert_eq!(ran.good(), PARIS);
}

/// Unless they are asked for.
fn passed_over() {
    let line = [&["generate", FRANCE][..], &QUICK].concat();
    let list = run(&["--list-adapters"]).good();
    let software = list.lines().skip(1).all(|adapter| adapter.contains("(software adapter"));
    let free = run(&line);
    let processor = |err: &str| err.contains("device: cpu, ");
    assert_eq!(processor(&free.err), software, "{free:?}");
    assert_eq!(free.err.contains("passed over"), software, "{free:?}");
    assert_eq!(free.good(), PARIS);
    for wish in [["--device", "gpu"], ["--adapter", "0"]] {
        let asked = run(&[&line[..], &wish].concat());
        assert!(!processor(&asked.err) && !asked.err.contains("passed over"), "{asked:?}");
        assert_eq!(asked.good(), PARIS);
    }
}

/// The rows' program sees no display.
fn no_command_points_to_serve() {
    let ran = run(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.contains("tilewright serve"), "{ran:?}");
}

/// Where the device has timestamps, every step tells what its kernels took; else none does.
fn kernel_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let path = path.to_str().expect("a path");
    run(&["view", "--preset", "four-users", "--kernel-times", "--export", path]).good();
    let events = std::fs::read_to_string(path).expect("a recording");
    let count = |kind: &str| events.lines().filter(|l| l.contains(kind)).count();
    let steps = count("\"StepRan\"");
    let timed = json(&["doctor", "--json"])["chosen"]["timestamps"] == true;
    assert!(steps > 10 && (count("\"KernelTimed\"") > 5 * steps) == timed, "{steps} steps");
    assert!(timed || count("\"KernelTimed\"") == 0);
    // What was exported can be run again: it begins with how the engine was made.
    let said = run(&["replay", path]).good();
    assert!(said.starts_with("the same: 4 requests, "), "{said}");
}
