//! Case 09: rotary parameters are read where the file has them, and never ignored.

use super::craft::{Checkpoint, F32, STRING, Stored, append};
use crate::support::Rows;
use crate::weights::build::text;
use serde_json::{Value, json};
use tilewright::base::Format;
use tilewright::model::{Rope, Spec};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    rows.add("models::rope_theta", theta);
    rows.add("models::rope_llama3", llama3);
    rows.add("models::rope_yarn", yarn);
    rows.add("models::rope_unknown", unknown);
    rows.add("models::rope_settings_are_objects_that_agree", settings_agree);
    rows.add("models::rope_numbers_that_rotate_nothing", senseless_numbers);
    rows.add("models::rope_numbers_that_are_none", no_numbers);
}

fn read(change: impl FnOnce(&mut Value)) -> Result<Rope, String> {
    let mut checkpoint = Checkpoint::fable(1);
    let config = checkpoint.config.as_object_mut().expect("a table");
    config.remove("rope_parameters");
    change(&mut checkpoint.config);
    Spec::read(&checkpoint.folder()).map(|s| s.rope).map_err(|e| e.to_string())
}

fn rope(key: &str, value: Value) -> Rope {
    read(|config| config[key] = value).unwrap_or_else(|e| panic!("{e}"))
}

fn theta() {
    let new = rope("rope_parameters", json!({"rope_theta": 100_000, "rope_type": "default"}));
    assert_eq!((new.theta, new.rotary), (100_000.0, 64));
    assert_eq!(rope("rope_theta", json!(5e5)).theta, 5e5);
    let frequencies = new.inverse_frequencies();
    let expected = |i: f64| 100_000f64.powf(-2.0 * i / 64.0) as f32;
    assert!((frequencies[31] / expected(31.0) - 1.0).abs() < 1e-5);
}

/// Divisors of the plain frequencies for factor 32, 1 to 4, 8192 positions, theta 5e5, head 64.
fn check_llama3(rope: &Rope) {
    let plain = Rope { scaling: tilewright::model::Scaling::None, ..rope.clone() };
    let scaled = rope.inverse_frequencies();
    let plain = plain.inverse_frequencies();
    assert_eq!(scaled.len(), 32);
    for (i, (plain, scaled)) in plain.iter().zip(&scaled).enumerate() {
        let expected = match i {
            0..=14 => 1.0,
            15 => 1.651_329,
            16 => 3.292_262,
            17 => 9.666_729,
            _ => 32.0,
        };
        let divisor = plain / scaled;
        assert!((divisor / expected - 1.0f32).abs() < 2e-6, "{i}: {divisor}, not {expected}");
    }
    assert!((scaled[16] / 4.295_568e-4 - 1.0).abs() < 1e-6, "{}", scaled[16]);
}

fn llama3() {
    for kind in ["rope_type", "type"] {
        let scaling = json!({
            kind: "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4,
            "original_max_position_embeddings": 8192,
        });
        let found = read(|config| {
            config["rope_theta"] = json!(500_000);
            config["rope_scaling"] = scaling;
        });
        check_llama3(&found.unwrap_or_else(|e| panic!("{e}")));
    }
    let divisors: Vec<f32> = (0..32)
        .map(|i| match i {
            0..=14 => 1.0,
            15 => 1.651_329,
            16 => 3.292_262,
            17 => 9.666_729,
            _ => 32.0,
        })
        .collect();
    let mut file = Checkpoint::fable(1).gguf(true);
    let base = file.keys.iter_mut().find(|k| k.0 == "llama.rope.freq_base").expect("the base");
    base.2 = 5e5f32.to_le_bytes().to_vec();
    let stored = |values: &[f32]| Stored {
        format: Format::F32,
        shape: vec![values.len() as u64],
        bytes: bytemuck::cast_slice(values).to_vec(),
    };
    let whole = append(file.clone(), "rope_freqs.weight", &stored(&divisors));
    let read = |file: &crate::weights::build::Gguf| {
        Spec::read(&file.open().unwrap_or_else(|e| panic!("{e}"))).map_err(|e| e.to_string())
    };
    check_llama3(&read(&whole).unwrap_or_else(|e| panic!("{e}")).rope);
    let short = append(file, "rope_freqs.weight", &stored(&divisors[..31]));
    let error = read(&short).expect_err("31 divisors for 32 pairs");
    assert!(error.contains("rope_freqs.weight") && error.contains("[32]"), "{error}");
    // Two scalings at once have no meaning here.
    let kind = "llama.rope.scaling.type";
    let both = whole.key(kind, STRING, &text("linear"));
    let both = both.key("llama.rope.scaling.factor", F32, &2f32.to_le_bytes());
    assert!(read(&both).expect_err("two scalings").contains(kind));
}

fn yarn() {
    let yarn = |extra: Value| {
        let mut scaling = json!({
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512,
            "rope_theta": 10000.0,
        });
        if let Some(extra) = extra.as_object() {
            scaling.as_object_mut().expect("a table").extend(extra.clone());
        }
        rope("rope_parameters", scaling)
    };
    // cos 0 = 1: the first value of the table is the attention factor.
    let own = yarn(Value::Null).table(1)[0];
    assert!((own - 1.138_629).abs() < 1e-6, "{own}");
    assert_eq!(yarn(json!({"attention_factor": 1.0})).table(1)[0], 1.0);
    assert_eq!(yarn(json!({"attention_factor": 1.25})).table(1)[0], 1.25);
    let frequencies = yarn(Value::Null).inverse_frequencies();
    let plain = rope("rope_theta", json!(10000.0)).inverse_frequencies();
    assert_eq!(frequencies[0], plain[0], "fast pairs are as they were");
    assert!((plain[31] / frequencies[31] - 4.0).abs() < 1e-5, "slow pairs are divided");
}

fn unknown() {
    for key in ["rope_parameters", "rope_scaling"] {
        for kind in ["rope_type", "type"] {
            let error = read(|config| config[key] = json!({kind: "foo", "factor": 2.0}));
            let error = error.expect_err("an unknown kind");
            assert!(error.contains(key) && error.contains("`foo`"), "{error}");
        }
    }
    let kind = "llama.rope.scaling.type";
    let file = Checkpoint::fable(1).gguf(true).key(kind, STRING, &text("foo"));
    let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
    let error = Spec::read(&weights).expect_err("an unknown kind").to_string();
    assert!(error.contains(kind) && error.contains("`foo`"), "{error}");
}

/// What is no object is not passed over; nor is one of two objects.
fn settings_agree() {
    for key in ["rope_parameters", "rope_scaling"] {
        for value in [json!("bogus"), json!([{"rope_theta": 1e5}]), json!(5)] {
            let error = read(|config| config[key] = value).expect_err("no object");
            assert!(error.contains(key) && error.contains("no object"), "{error}");
        }
        let error = read(|config| config[key] = json!({"factor": 4.0})).expect_err("no kind");
        assert!(error.contains(&format!("{key}.rope_type")), "{error}");
    }
    let both = |parameters: Value, scaling: Value| {
        read(|config| {
            config["rope_parameters"] = parameters;
            config["rope_scaling"] = scaling;
        })
    };
    let newer = json!({"rope_theta": 5e5, "rope_type": "default"});
    let linear = json!({"type": "linear", "factor": 4.0});
    let found = both(newer.clone(), linear.clone()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(found.theta, 5e5);
    assert_eq!(found.scaling, tilewright::model::Scaling::Linear { factor: 4.0 });
    let same = json!({"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0});
    assert_eq!(both(same.clone(), linear.clone()), Ok(found));
    assert_eq!(both(newer.clone(), json!({})).map(|rope| rope.theta), Ok(5e5));
    for (parameters, scaling) in [
        (same.clone(), json!({"type": "linear", "factor": 8.0})),
        (same, json!({"type": "default"})),
        (newer, json!({"type": "linear", "factor": 4.0, "rope_theta": 1e4})),
    ] {
        let error = both(parameters, scaling).expect_err("two answers");
        assert!(error.contains("rope_parameters") && error.contains("rope_scaling"), "{error}");
    }
}

fn senseless_numbers() {
    let llama3 = |low: f64, original: i64| {
        json!({"rope_type": "llama3", "factor": 32, "low_freq_factor": low, "high_freq_factor": 4,
               "original_max_position_embeddings": original})
    };
    let yarn = |key: &str, value: f64| {
        let mut yarn = json!({"rope_type": "yarn", "factor": 4.0});
        yarn[key] = json!(value);
        yarn
    };
    for (key, value) in [
        ("factor", json!({"rope_type": "linear", "factor": 0})),
        ("factor", json!({"rope_type": "linear", "factor": 0.5})),
        ("factor", yarn("factor", -4.0)),
        ("beta_slow", yarn("beta_slow", 0.0)),
        ("attention_factor", yarn("attention_factor", -1.0)),
        ("low_freq_factor", llama3(4.0, 8192)),
        ("low_freq_factor", llama3(-1.0, 8192)),
        ("original_max_position_embeddings", llama3(1.0, 0)),
        ("rope_theta", json!({"rope_theta": 0})),
        ("rope_theta", json!({"rope_theta": -1e4})),
    ] {
        let error = read(|config| config["rope_parameters"] = value).expect_err(key);
        assert!(error.contains(&format!("rope_parameters.{key}")), "{error}");
    }
    assert!(read(|config| config["rope_theta"] = json!(0)).expect_err("0").contains("rope_theta"));
    let eps = read(|config| config["rms_norm_eps"] = json!(0)).expect_err("0");
    assert!(eps.contains("rms_norm_eps"), "{eps}");
    for key in ["llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"] {
        for value in [0f32, -1.0] {
            let mut file = Checkpoint::fable(1).gguf(true);
            let found = file.keys.iter_mut().find(|k| k.0 == key).expect(key);
            found.2 = value.to_le_bytes().to_vec();
            let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
            let error = Spec::read(&weights).expect_err(key).to_string();
            assert!(error.contains(key) && error.contains("above 0"), "{error}");
        }
    }
    let scaling = "llama.rope.scaling";
    let file =
        Checkpoint::fable(1).gguf(true).key(&format!("{scaling}.type"), STRING, &text("linear"));
    let file = file.key(&format!("{scaling}.factor"), F32, &0f32.to_le_bytes());
    let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
    let error = Spec::read(&weights).expect_err("0").to_string();
    assert!(error.contains("llama.rope.scaling.factor"), "{error}");
}

/// NaN and what is too large for a float, under the name of its key.
fn no_numbers() {
    for value in [json!(1e39), json!(-1e300), json!("NaN"), json!([2.0, 4.0])] {
        let linear = json!({"rope_type": "linear", "factor": value});
        let error = read(|config| config["rope_parameters"] = linear).expect_err("no number");
        assert!(error.contains("rope_parameters.factor"), "{error}");
    }
    // Python writes NaN as a word that JSON does not have.
    let folder = tempfile::tempdir().expect("a folder");
    let written = r#"{"rope_scaling": {"rope_type": "linear", "factor": NaN}}"#;
    std::fs::write(folder.path().join("config.json"), written).expect("written");
    let error = Weights::open(folder.path()).map(|_| ()).expect_err("NaN").to_string();
    assert!(error.contains("config.json") && error.contains("line 1"), "{error}");
    let gguf = |key: &str, value: f32| {
        let file = Checkpoint::fable(1).gguf(true);
        let mut file = file.key("llama.rope.scaling.type", STRING, &text("yarn"));
        let numbers = [("factor", 4.0), ("original_context_length", 512.0), ("attn_factor", 1.0)];
        for (name, usual) in numbers {
            let value = if name == key { value } else { usual };
            file = file.key(&format!("llama.rope.scaling.{name}"), F32, &value.to_le_bytes());
        }
        Spec::read(&file.open().unwrap_or_else(|e| panic!("{e}"))).map_err(|e| e.to_string())
    };
    gguf("factor", 8.0).unwrap_or_else(|e| panic!("{e}"));
    for key in ["factor", "original_context_length", "attn_factor"] {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = gguf(key, value).expect_err(key);
            assert!(error.contains(&format!("llama.rope.scaling.{key}")), "{error}");
        }
    }
    for divisor in [f32::NAN, 0.0, -1.0] {
        let mut divisors = [1f32; 32];
        divisors[7] = divisor;
        let bytes = bytemuck::cast_slice(&divisors).to_vec();
        let stored = Stored { format: Format::F32, shape: vec![32], bytes };
        let file = append(Checkpoint::fable(1).gguf(true), "rope_freqs.weight", &stored);
        let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
        let error = Spec::read(&weights).expect_err("a divisor").to_string();
        assert!(error.contains("rope_freqs.weight") && error.contains("above 0"), "{error}");
    }
}
