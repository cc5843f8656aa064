//! Rows of `sim`: workloads, traces, costs, and the engine over a runner that computes nothing.

use crate::support::{Rows, shared};
use tilewright::base::threefry2x32;
use tilewright::sim::{Arrival, Lengths, Prompt, Workload, azure_csv, mooncake_jsonl, share_gpt};
use tilewright::trace::Histogram;

pub fn rows(rows: &mut Rows) {
    rows.add("sim::histogram_quantiles", histogram);
    rows.add("sim::a_seed_is_a_workload", seeds);
    rows.add("sim::lengths_and_gaps_have_the_mean_and_spread_asked_for", moments);
    rows.add("sim::workload_errors_name_the_field", wrong_workloads);
    rows.add("sim::prompts_share_what_their_pieces_share", pieces);
    rows.add("sim::azure_lines", azure);
    rows.add("sim::mooncake_lines", mooncake);
    rows.add("sim::share_gpt_entries", sharegpt);
    rows.add_if(shared("traces"), "sim::real_traces_read", |path| {
        let text = |name: &str| {
            let gz = std::fs::File::open(path.join(name)).expect("the trace");
            let output = std::process::Command::new("gzip")
                .arg("-dc")
                .stdin(gz)
                .output()
                .expect("gzip runs");
            String::from_utf8(output.stdout).expect("text")
        };
        let conv = azure_csv(&text("azure-llm-2023-conv.csv.gz")).expect("Azure's");
        assert_eq!((conv.len(), conv[0].prompt.tokens(), conv[0].output), (19366, 374, 44));
        // The first two lines lie 4.314579 s apart.
        assert_eq!(conv[1].micros, 4_314_579);
        let chat = mooncake_jsonl(&text("mooncake-conversation.jsonl.gz")).expect("Mooncake's");
        assert_eq!((chat.len(), chat[0].prompt.tokens(), chat[0].output), (12031, 6758, 500));
        // All begin with the same block of 512.
        assert_eq!(chat[0].prompt.ids(0, 1000)[..512], chat[1].prompt.ids(0, 1000)[..512]);
    });
}

/// Against the sorted values.
fn histogram() {
    let mut values: Vec<u64> = (0..10_000u32)
        .map(|n| {
            let [a, b] = threefry2x32([5, 0], [n, 0]);
            (u64::from(a) << 32 | u64::from(b)) >> (b % 64)
        })
        .collect();
    values.extend([0, 1, 127, 128, 129, u64::MAX]);
    let mut histogram = Histogram::default();
    values.iter().for_each(|&v| histogram.record(v));
    values.sort_unstable();
    assert_eq!((histogram.count(), histogram.max()), (values.len() as u64, u64::MAX));
    for permille in [0, 1, 10, 100, 500, 900, 990, 999, 1000] {
        let rank = (values.len() * permille as usize).div_ceil(1000).max(1);
        let (exact, found) = (values[rank - 1], histogram.quantile(permille).expect("values"));
        assert!(found >= exact && found - exact <= exact / 64, "{permille}: {found} for {exact}");
    }
    assert_eq!(Histogram::default().quantile(500), None);
}

fn some() -> Workload {
    let prompt = Lengths { mean: 200.0, cv: 0.8, max: 100_000 };
    Workload { requests: 20_000, rate: 4.0, prompt, tenants: 3, seed: 7, ..Workload::default() }
}

fn all(workload: &Workload) -> Vec<Arrival> {
    workload.generator().expect("a workload").collect()
}

fn seeds() {
    let first = all(&some());
    assert_eq!(first, all(&some()));
    assert_ne!(first, all(&Workload { seed: 8, ..some() }));
    assert!(first.windows(2).all(|w| w[0].micros <= w[1].micros));
    // The first of a longer workload are those of a shorter.
    assert_eq!(all(&Workload { requests: 10, ..some() }), first[..10]);
}

fn moments() {
    let spread = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt() / mean)
    };
    for burstiness in [0.0, 0.5, 1.0, 3.0] {
        let arrivals = all(&Workload { burstiness, ..some() });
        let gaps: Vec<f64> =
            arrivals.windows(2).map(|w| (w[1].micros - w[0].micros) as f64 / 1e6).collect();
        let (mean, cv) = spread(&gaps);
        assert!((mean - 0.25).abs() < 0.02, "{burstiness}: {mean}");
        assert!((cv - burstiness).abs() < 0.05 * burstiness.max(0.2), "{burstiness}: {cv}");
    }
    let arrivals = all(&some());
    let lengths: Vec<f64> = arrivals.iter().map(|a| f64::from(a.prompt.tokens())).collect();
    let (mean, cv) = spread(&lengths);
    assert!((mean - 200.0).abs() < 4.0 && (cv - 0.8).abs() < 0.05, "{mean} {cv}");
    for tenant in 0..3 {
        let share = arrivals.iter().filter(|a| a.tenant == tenant).count();
        assert!((6300..7034).contains(&share), "{tenant}: {share}");
    }
}

fn wrong_workloads() {
    let told = |workload: Workload| workload.generator().expect_err("wrong").to_string();
    let with = |mean: f64| Lengths { mean, ..some().prompt };
    assert_eq!(told(Workload { rate: 0.0, ..some() }), "rate: 0 is not a number above 0");
    assert!(told(Workload { rate: f64::NAN, ..some() }).starts_with("rate: NaN"));
    assert!(told(Workload { burstiness: -1.0, ..some() }).starts_with("burstiness: -1"));
    assert!(told(Workload { prompt: with(0.0), ..some() }).starts_with("prompt.mean: 0"));
    assert!(told(Workload { tenants: 0, ..some() }).starts_with("tenants: 0"));
}

fn pieces() {
    let workload = Workload { prefixes: 2, prefix_tokens: 33, requests: 50, ..some() };
    let arrivals = all(&workload);
    let prompts: Vec<_> = arrivals.iter().map(|a| a.prompt.ids(10, 1000)).collect();
    let mut heads: Vec<_> = prompts.iter().map(|p| p[..33].to_vec()).collect();
    heads.sort();
    heads.dedup();
    assert_eq!(heads.len(), 2);
    let mut tails: Vec<_> = prompts.iter().filter(|p| p.len() > 60).map(|p| &p[33..60]).collect();
    let count = tails.len();
    tails.sort();
    tails.dedup();
    assert_eq!(tails.len(), count, "nothing else is shared");
    assert!(prompts.iter().zip(&arrivals).all(|(p, a)| p.len() == a.prompt.tokens() as usize));
    assert!(prompts.iter().flatten().all(|id| (10..1000).contains(id)));
    assert_eq!(Prompt::unique(3, 5).ids(7, 7), [7; 5], "a vocabulary of nothing else");
}

fn azure() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2024-02-29 23:59:59.5000000,10,3\n2024-03-01 00:00:00.2500000,7,1\n\n\
        2024-03-01 00:00:00.2600000,7,0\n";
    let arrivals = azure_csv(text).expect("two requests");
    let found: Vec<_> = arrivals.iter().map(|a| (a.micros, a.prompt.tokens(), a.output)).collect();
    assert_eq!(found, [(0, 10, 3), (750_000, 7, 1)]);
    for (text, message) in [
        ("", "no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2", "line 2: expected TIMESTAMP"),
        ("yesterday,2,3", "line 1: the timestamp"),
        ("2024-13-01 00:00:00.0,2,3", "line 1: the timestamp"),
        ("2024-01-01 00:00:00.0,x,3", "line 1: ContextTokens is no count: x"),
        ("2024-01-01 00:00:00.0,1,-3", "line 1: GeneratedTokens is no count: -3"),
    ] {
        let error = azure_csv(text).expect_err(text).to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn mooncake() {
    let text = r#"{"timestamp": 30, "input_length": 600, "output_length": 2, "hash_ids": [4, 9]}
        {"timestamp": 10, "input_length": 1000, "output_length": 5, "hash_ids": [4]}
"#;
    let arrivals = mooncake_jsonl(text).expect("two requests");
    let found: Vec<_> = arrivals.iter().map(|a| (a.micros, a.prompt.tokens(), a.output)).collect();
    assert_eq!(found, [(0, 1000, 5), (20_000, 600, 2)]);
    let [first, second] = [0, 1].map(|n: usize| arrivals[n].prompt.ids(0, 5000));
    assert_eq!(first[..512], second[..512]);
    assert_ne!(first[512..600], second[512..600]);
    for (text, message) in [
        ("", "no requests"),
        ("{", "line 1: EOF"),
        ("{\"timestamp\": 1}", "line 1: missing field `input_length`"),
        (
            "{\"timestamp\": 18446744073709551615, \"input_length\": 1, \"output_length\": 1}",
            "large",
        ),
    ] {
        let error = mooncake_jsonl(text).expect_err(text).to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn sharegpt() {
    let text = r#"[
        {"conversations": [{"from": "human", "value": "a b c"}, {"from": "gpt", "value": "d e"}]},
        {"conversations": [{"from": "gpt", "value": "x"}]}
    ]"#;
    let words = |text: &str| text.split(' ').count() as u32;
    let arrivals = share_gpt(text, &words).expect("one request");
    assert_eq!(arrivals.len(), 1);
    assert_eq!((arrivals[0].prompt.tokens(), arrivals[0].output), (3, 2));
    let error = share_gpt(r#"[{"conversations": 3}]"#, &words).expect_err("wrong").to_string();
    assert!(error.starts_with("entry 0: "), "{error}");
    assert!(share_gpt("{}", &words).expect_err("wrong").to_string().contains("not JSON"));
}
