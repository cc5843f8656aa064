//! Rows of `tune`: what it measured is kept, used by later starts, and left aside when it is not
//! of this device or nobody wants it. No time decides a row.

use crate::support::program::run;
use crate::support::{On, Rows};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn rows(rows: &mut Rows) {
    rows.add_if(On::all()[1].1.clone(), "cli::tune", |()| tune());
    rows.add("cli::tune_without_a_device", without_a_device);
}

const SHAPE: [&str; 4] = ["--shape", "tiny", "--shape-format", "q4_0"];

/// A step of the shape that is tuned: what it says on standard error, and of its device.
fn step(cache: &Path, more: &[&str]) -> (String, Value) {
    let cache = cache.to_str().expect("a path");
    let args = ["bench", "step", "--json", "--batch", "1", "--steps", "1", "--device", "gpu"];
    let ran = run(&[&args[..], &SHAPE, &["--cache-dir", cache], more].concat());
    let err = ran.err.clone();
    let json: Value = serde_json::from_str(&ran.good()).expect("JSON");
    (err, json["device"].clone())
}

fn file(cache: &Path) -> PathBuf {
    let mut all = std::fs::read_dir(cache.join("tuned")).expect("a folder");
    let path = all.next().expect("a file").expect("a file").path();
    assert!(all.next().is_none(), "one file");
    path
}

fn tune() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path();
    let (err, before) = step(cache, &[]);
    assert!(!err.contains("tuned") && before.get("tuned").is_none(), "{err}");
    let text = cache.to_str().expect("a path");
    let args = ["tune", "--json", "--tokens", "4,1", "--device", "gpu", "--cache-dir", text];
    let measured = run(&[&args[..], &SHAPE].concat()).good();
    let measured: Value = serde_json::from_str(&measured).expect("JSON");
    assert_eq!(measured["file"], file(cache).to_str().expect("a path"));
    let ways = measured["ways"].as_array().expect("ways");
    let count = |key: &str| ways.iter().filter(|way| way[key] == true).count();
    // Head, q with k and v, output, gate with up, down: each at two sizes.
    let shapes = count("rule") / 2;
    assert_eq!((count("rule"), count("chosen")), (2 * shapes, 2 * shapes));
    assert!((4..=7).contains(&shapes) && ways.len() > 2 * shapes, "{shapes}: {ways:?}");
    assert!(ways.iter().all(|way| way["micros"].as_f64() > Some(0.0)));
    assert!(ways.iter().all(|way| way["activations"] == "f32"));
    // Rows that are packed have choices of their own, which join the others.
    let measured = run(&[&args[..], &SHAPE, &["--activations", "int8"]].concat()).good();
    let measured: Value = serde_json::from_str(&measured).expect("JSON");
    let packed = measured["ways"].as_array().expect("ways").iter();
    assert!(packed.clone().any(|way| way["variant"].as_str().is_some_and(|v| v.contains("int8"))));
    assert!(packed.clone().all(|way| way["activations"] == "int8"));
    // So do a second model's products.
    let other =
        ["tune", "--tokens", "1", "--device", "gpu", "--cache-dir", text, "--shape", "tiny"];
    assert!(run(&other).good().contains("times as fast"));
    let (err, device) = step(cache, &[]);
    let tuned = device["tuned"].as_array().expect("tuned").len();
    assert!(tuned > 2 * shapes, "{tuned} after {shapes}");
    assert!(err.contains(&format!("tuned: {tuned} shapes of products, ")), "{err}");
    let (err, device) = step(cache, &["--no-tune"]);
    assert!(!err.contains("tuned") && device.get("tuned").is_none(), "{err}");
    let good = std::fs::read_to_string(file(cache)).expect("text");
    for (bad, why) in [
        (good[..good.len() / 2].to_string(), "it is damaged"),
        (good.replace("\"backend\": \"", "\"backend\": \"x"), "of another device, driver or build"),
    ] {
        std::fs::write(file(cache), bad).expect("written");
        let (err, device) = step(cache, &[]);
        assert!(err.contains("not used, it is ") && err.contains(why), "{err}");
        assert!(device.get("tuned").is_none());
    }
}

fn without_a_device() {
    let ran = run(&["tune", "--device", "cpu"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("there is nothing to tune"), "{}", ran.err);
}
