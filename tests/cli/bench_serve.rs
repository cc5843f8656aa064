//! Rows of `cli`: `bench serve` against a served model: what it counts is right, and the result
//! has the keys of `vllm bench serve`. No time decides a row.

use crate::support::Rows;
use crate::support::program::{QUICK, Serving, run};
use serde_json::Value;
use std::process::Command;
use tilewright::bench::serve::{Goal, Report, Run, Spread, Timed, plot};

pub fn rows(rows: &mut Rows) {
    rows.add("cli::bench_serve_counts_what_was_served", counts);
    rows.add("cli::bench_serve_figures", figures);
    rows.add("cli::bench_serve_faults", faults);
}

/// Keys of a result file that scripts for vLLM read.
const KEYS: [&str; 34] = [
    "date",
    "label",
    "tokenizer_id",
    "max_output_tokens_per_s",
    "endpoint_type",
    "backend",
    "model_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_concurrent_requests",
    "mean_ttft_ms",
    "median_ttft_ms",
    "std_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p99_tpot_ms",
    "mean_itl_ms",
    "p50_itl_ms",
    "mean_e2el_ms",
    "input_lens",
    "ttfts",
    "itls",
    "generated_texts",
];

/// Of six requests, none without one.
fn assert_texts(found: &Value) {
    let texts = found.as_array().expect("a list").iter();
    let written = texts.filter(|text| text.as_str().is_some_and(|text| text.len() > 4)).count();
    assert_eq!(written, 6, "{found}");
}

/// The date by another program.
fn now() -> String {
    let output = Command::new("date").args(["-u", "+%Y%m%d-%H%M%S"]).output().expect("`date`");
    String::from_utf8(output.stdout).expect("digits")
}

fn counts() {
    let serving = Serving::start(&[&["--device", "cpu"][..], &QUICK].concat());
    let url = format!("http://{}", serving.address);
    let folder = tempfile::tempdir().unwrap();
    let (result, picture) = (folder.path().join("r.json"), folder.path().join("r.svg"));
    let (result, picture) = (result.to_str().unwrap(), picture.to_str().unwrap());
    let common = ["--num-prompts", "6", "--input-len", "8", "--output-len", "5", "--ignore-eos"];
    // Any file of arrivals, whatever its name.
    let trace = folder.path().join("arrivals");
    let line = "2024-02-29 23:59:59.5,8,5\n";
    std::fs::write(&trace, line.repeat(7)).unwrap();
    for more in [
        &["--request-rate", "50", "--goodput", "ttft:600000,e2el:600000"][..],
        &["--trace", trace.to_str().unwrap(), "--goodput", "e2el:600000"],
        &["--chat", "--max-concurrency", "2", "--goodput", "tpot:0.000001"],
    ] {
        let args = [
            &["bench", "serve", &url][..],
            &common,
            more,
            &[
                "--result",
                result,
                "--plot",
                picture,
                "--save-detailed",
                "--metric-percentiles",
                "50,99",
            ],
        ];
        let before = now();
        let table = run(&args.concat()).good();
        assert!(table.contains("Serving Benchmark Result"), "{table}");
        let found: Value = serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap();
        for key in KEYS {
            assert!(found.get(key).is_some(), "{key} in {found}");
        }
        assert_eq!((&found["completed"], &found["failed"]), (&Value::from(6), &Value::from(0)));
        assert_eq!(found["total_output_tokens"], 30);
        assert_eq!(found["model_id"], "fable");
        assert_texts(&found["generated_texts"]);
        let written = found["date"].as_str().unwrap();
        let days = [&before[..8], &now()[..8]];
        assert!(written.len() == 15 && days.contains(&&written[..8]), "{written}, not {days:?}");
        let good = found["request_goodput"].as_f64().unwrap();
        let all = found["request_throughput"].as_f64().unwrap();
        match more.contains(&"--chat") {
            true => {
                assert!(good < all, "nothing is that quick");
                assert!(found["max_concurrent_requests"].as_u64().unwrap() <= 2);
            }
            false => assert_eq!(good, all),
        }
        let svg = std::fs::read_to_string(picture).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

/// Hand-computed: two requests that overlap and one that failed.
fn figures() {
    let one = Timed {
        sent: 0.0,
        first: Some(0.1),
        gaps: vec![0.1, 0.2],
        whole: 0.4,
        prompt_tokens: 10,
        output_tokens: 4,
        text: "one".to_string(),
        error: None,
    };
    let two = Timed {
        sent: 0.3,
        first: Some(0.3),
        gaps: vec![0.3],
        whole: 0.6,
        prompt_tokens: 20,
        output_tokens: 2,
        text: "two".to_string(),
        error: None,
    };
    let bad = Timed { sent: 2.0, whole: 0.1, error: Some("500".to_string()), ..Timed::default() };
    let run = Run { model: "m".to_string(), seconds: 2.0, requests: vec![one, two, bad] };
    let goals = [Goal::parse("ttft:150").unwrap(), Goal::parse("e2el:500").unwrap()];
    let report = Report::new(run, &goals, &[50.0, 99.0]);
    assert_eq!((report.completed, report.failed, report.good), (2, 1, Some(1)));
    assert_eq!((report.input_tokens, report.output_tokens, report.concurrent), (30, 6, 2));
    let found = report.json(serde_json::Map::new(), true);
    let near = |key: &str, value: f64| {
        let got = found[key].as_f64().unwrap_or_else(|| panic!("{key}: {found}"));
        assert!((got - value).abs() < 1e-9, "{key}: {got}, not {value}");
    };
    near("request_throughput", 1.0);
    near("request_goodput", 0.5);
    near("output_throughput", 3.0);
    near("total_token_throughput", 18.0);
    near("max_output_tokens_per_s", 5.0);
    near("mean_ttft_ms", 200.0);
    near("std_ttft_ms", 100.0);
    near("p99_ttft_ms", 298.0);
    // (0.4 - 0.1) / 3 and (0.6 - 0.3) / 1.
    near("mean_tpot_ms", 200.0);
    near("median_itl_ms", 200.0);
    near("p50_e2el_ms", 500.0);
    assert_eq!(found["errors"], serde_json::json!(["", "", "500"]));
    assert_eq!(found["generated_texts"], serde_json::json!(["one", "two", ""]));
    assert!(plot(&report).contains("Requests in flight"));
    // 0.5, 1.1 and 1.2 seconds after the sending.
    let late = Timed { sent: 5.0, first: Some(0.5), gaps: vec![0.6, 0.1], ..Timed::default() };
    let run = Run { model: "m".to_string(), seconds: 7.0, requests: vec![late] };
    assert_eq!(Report::new(run, &[], &[]).peak_tokens, 2);
    assert_eq!(Spread::of([]).percentile(99.0), 0.0);
    for bad in ["ttft", "ttft:0", "ttft:x", "slow:3", "e2el:-1"] {
        assert!(Goal::parse(bad).is_err(), "{bad}");
    }
}

fn faults() {
    let ran = run(&["bench", "serve", "http://127.0.0.1:1", "--num-prompts", "2"]);
    assert!(ran.code == Some(1) && ran.err.contains("http://127.0.0.1:1/v1/models"), "{ran:?}");
    let ran = run(&["bench", "serve", "http://127.0.0.1:1", "--model", "m", "--num-prompts", "2"]);
    assert!(ran.code == Some(1) && ran.err.contains("none of 2 requests"), "{ran:?}");
    let ran = run(&["bench", "serve", "http://127.0.0.1:1", "--goodput", "fast:3"]);
    assert!(ran.code == Some(2) && ran.err.contains("ttft:MS"), "{ran:?}");
    let ran = run(&["bench", "serve", "http://127.0.0.1:1", "--model", "m", "--trace", "x.txt"]);
    assert!(ran.code == Some(1) && ran.err.contains("x.txt"), "{ran:?}");
}
