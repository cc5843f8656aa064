//! The script of `tests/bench`, with tiny shapes on the processor.

use crate::support::{Rows, python, root};
use serde_json::Value;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    rows.add_if(python("json"), "cli::bench_script", |()| script());
}

fn script() {
    let folder = tempfile::tempdir().unwrap();
    let (out, page) = (folder.path().join("out"), folder.path().join("page.md"));
    let marks = "before\n<!-- figures: begin -->\nNone yet.\n<!-- figures: end -->\nafter\n";
    std::fs::write(&page, marks).unwrap();
    let ran = Command::new("bash")
        .arg(root().join("tests/bench/h200"))
        .args([env!("CARGO_BIN_EXE_tilewright").as_ref(), out.as_os_str()])
        .args(["--small".as_ref(), "--record".as_ref(), page.as_os_str()])
        .env("TILEWRIGHT_DEVICE", "cpu")
        .env("TILEWRIGHT_BENCH_SECONDS", "600")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{told}{}", String::from_utf8_lossy(&ran.stderr));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
    let results: Value = serde_json::from_str(&read("results.json")).expect("JSON");
    for format in ["q8_0", "f16", "q4_k"] {
        let found = &results[format!("step-{format}")];
        assert!(found["weight_bytes_per_step"].as_u64().is_some_and(|n| n > 0), "{told}");
        for invariance in ["on", "off"] {
            let found = &results[format!("step-{format}-units-{invariance}")];
            assert_eq!(found["device"]["invariance"], invariance, "{told}");
        }
        let found = &results[format!("kernels-{format}")];
        assert_eq!(found["kernels"].as_array().map(Vec::len), Some(3), "{told}");
    }
    // Torch may be missing, nothing else may.
    let left_out = read("left-out.txt");
    assert!(left_out.lines().all(|line| line.starts_with("torch: ")), "{left_out}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("before\n<!-- ") && page.ends_with("end -->\nafter\n"), "{page}");
    let decode = ["| tiny (f16, random) | on | 1 | 0 |", "| tiny (q8_0, random) | off | 2 | 300 |"];
    for part in ["| adapter |", "| 256x256 q4_k |", "| prefill |"].into_iter().chain(decode) {
        assert!(page.contains(part), "{part}: {page}");
    }
}
