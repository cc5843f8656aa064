//! Tensors read in another format than they are stored in: eight-bit floats, and quantising.

use super::build::*;
use crate::support::{Rows, root};
use std::borrow::Cow;
use tilewright::base::Format;
use tilewright::weights::{Weights, WeightsError, blocks};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::fp8_values", fp8_values);
    rows.add("weights::fp8_scales", fp8_scales);
    rows.add("weights::fp8_without_a_scale_that_fits", fp8_misfits);
    rows.add("weights::quantised_on_load", quantised_on_load);
}

fn open(config: &str, header: &str, data: Vec<u8>) -> Result<Weights, WeightsError> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    Weights::from_folder_bytes(
        "f",
        vec![
            ("model.safetensors", Cow::from(file)),
            ("config.json", Cow::from(config.as_bytes().to_vec())),
        ],
    )
}

/// A weight of `codes` `[rows, cols]` and its scales.
fn fp8(
    config: &str,
    shape: [usize; 2],
    codes: &[u8],
    tail: &str,
    scale_shape: &[usize],
    scales: &[f32],
) -> Result<Weights, WeightsError> {
    let (n, s) = (codes.len(), scales.len() * 4);
    let header = format!(
        r#"{{"w.weight":{{"dtype":"F8_E4M3","shape":{shape:?},"data_offsets":[0,{n}]}},
        "w.weight{tail}":{{"dtype":"F32","shape":{scale_shape:?},"data_offsets":[{n},{}]}}}}"#,
        n + s
    );
    let scales = scales.iter().flat_map(|s| s.to_le_bytes());
    open(config, &header, codes.iter().copied().chain(scales).collect())
}

fn values(weights: &Weights, first: u64, rows: u64) -> Vec<f32> {
    let tensor = weights.tensor("w.weight").expect("w");
    assert_eq!(tensor.format, Format::BF16);
    let raw = weights.read_rows(tensor, first, rows).expect("rows");
    let mut out = vec![0.0; raw.len() / 2];
    blocks::decode(Format::BF16, &raw, &mut out);
    out
}

/// By hand from the format's definition: subnormals in steps of 2^-9, 448 at most, no infinity.
fn fp8_values() {
    let codes: Vec<u8> = (0..=255).collect();
    let weights = opens(fp8("{}", [16, 16], &codes, "_scale", &[], &[1.0]));
    let all = values(&weights, 0, 16);
    for (code, value) in [
        (0x00, 0.0),
        (0x01, 1.0 / 512.0),
        (0x07, 7.0 / 512.0),
        (0x08, 1.0 / 64.0),
        (0x38, 1.0),
        (0x3C, 1.5),
        (0x45, 3.25),
        (0x7E, 448.0),
        (0xB8, -1.0),
        (0xFE, -448.0),
    ] {
        assert_eq!(all[code], value, "{code:#x}");
    }
    assert!(all[0x7F].is_nan() && all[0xFF].is_nan());
    assert!(all[..0x7F].windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(values(&weights, 3, 1)[8], 1.0, "rows from 3 on");
}

fn fp8_scales() {
    let ones = [0x38; 5 * 6];
    let config = r#"{"quantization_config":{"weight_block_size":[2,4]}}"#;
    let scales: Vec<f32> = (1..=6).map(|i| i as f32).collect();
    let by_block = opens(fp8(config, [5, 6], &ones, "_scale_inv", &[3, 2], &scales));
    assert_eq!(values(&by_block, 0, 1), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(values(&by_block, 4, 1), [5.0, 5.0, 5.0, 5.0, 6.0, 6.0]);
    assert_eq!(values(&by_block, 1, 2)[5..7], [2.0, 3.0]);
    for shape in [&[5, 1][..], &[5]] {
        let by_row = opens(fp8("{}", [5, 6], &ones, "_scale", shape, &scales[..5]));
        assert_eq!(values(&by_row, 3, 1), [4.0; 6]);
        assert!(by_row.tensor("w.weight_scale").is_none(), "a scale is no weight");
    }
    for shape in [&[][..], &[1], &[1, 1]] {
        let one = opens(fp8("{}", [5, 6], &ones, "_scale_inv", shape, &[0.5]));
        assert_eq!(values(&one, 0, 5), [0.5; 30]);
    }
}

fn fp8_misfits() {
    let ones = [0x38; 30];
    let wrong = fp8("{}", [5, 6], &ones, "_scale", &[4, 1], &[1.0; 4]);
    fails(wrong, &["`w.weight`", "scale", "[4, 1]", "5 rows"]);
    let config = r#"{"quantization_config":{"weight_block_size":[2,0]}}"#;
    let wrong = fp8(config, [5, 6], &ones, "_scale_inv", &[3, 2], &[1.0; 6]);
    fails(wrong, &["`w.weight`", "weight_block_size"]);
    let without = opens(fp8("{}", [5, 6], &ones, "_other", &[], &[1.0]));
    fails(without.expect("w.weight", &[5, 6]), &["`w.weight`", "F8_E4M3", "w.weight_scale_inv"]);
}

/// What is read is what the reference quantiser makes of the stored values, in rows of any cut.
fn quantised_on_load() {
    let path = root().join("tests/data/llama3-rope");
    let plain = opens(Weights::open(&path));
    for format in [Format::Q8_0, Format::Q4_0] {
        let mut weights = opens(Weights::open(&path));
        weights.quantise(format);
        for (name, tensor) in weights.tensors() {
            let from = plain.tensor(name).expect(name);
            assert_eq!(tensor.shape, from.shape);
            let vocabulary = name.contains("embed_tokens") || name.contains("lm_head");
            let wanted = match from.shape.len() {
                1 => from.format,
                _ if vocabulary => Format::Q8_0,
                _ => format,
            };
            assert_eq!(tensor.format, wanted, "{name}");
            let raw = plain.read_rows(from, 0, from.rows()).expect("rows");
            let mut values = vec![0.0; from.shape.iter().product::<u64>() as usize];
            blocks::decode(from.format, &raw, &mut values);
            let mut expected = Vec::new();
            blocks::encode(wanted, &values, &mut expected);
            assert_eq!(tensor.bytes, expected.len() as u64);
            let (half, rows) = (tensor.rows() / 2, tensor.rows());
            let [a, b] = [(0, half), (half, rows - half)]
                .map(|(first, rows)| weights.read_rows(tensor, first, rows).expect("rows"));
            assert!([a, b].concat() == expected, "{name}");
            assert!(weights.read_rows(tensor, half, rows).is_err(), "past the end of {name}");
        }
        // What is quantised already stays.
        let path = root().join("tests/data/gguf/tiny-q4_1.gguf");
        let mut stored = opens(Weights::open(&path));
        stored.quantise(format);
        assert_eq!(stored.tensors(), opens(Weights::open(&path)).tensors());
    }
}
