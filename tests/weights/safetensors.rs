//! Safetensors headers, right and lying.

use super::build::*;
use crate::support::Rows;
use tilewright::base::Format;

pub fn rows(rows: &mut Rows) {
    rows.add("weights::safetensors_reads_tensors", reads_tensors);
    rows.add("weights::safetensors_lengths", lengths);
    rows.add("weights::safetensors_headers", headers);
    rows.add("weights::safetensors_sizes", sizes);
    rows.add("weights::safetensors_layout", layout);
    rows.add("weights::safetensors_types", types);
    rows.add("weights::safetensors_legal_oddities", legal_oddities);
    rows.add("weights::safetensors_ints", ints);
}

const ONE: &str = r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

/// Entries `(name, dtype, shape, begin, end)` as a header.
fn header(entries: &[(&str, &str, &str, u64, u64)]) -> String {
    let all: Vec<String> = entries
        .iter()
        .map(|(name, dtype, shape, begin, end)| {
            format!(
                r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#
            )
        })
        .collect();
    format!("{{{}}}", all.join(","))
}

fn reads_tensors() {
    // The order of the header is not the order of the data.
    let header = header(&[
        ("b", "BF16", "[2,3]", 8, 20),
        ("a", "F32", "[2]", 0, 8),
        ("c", "F16", "[]", 20, 22),
    ]);
    let bytes = safetensors(&header, 22);
    let data = bytes[bytes.len() - 22..].to_vec();
    let weights = opens(open_safetensors(bytes));
    let b = weights.tensor("b").expect("b");
    assert_eq!((b.shape.as_slice(), b.format, b.bytes), (&[2, 3][..], Format::BF16, 12));
    assert_eq!(weights.read_rows(b, 1, 1).expect("row"), data[14..20]);
    let a = weights.tensor("a").expect("a");
    assert_eq!(weights.read_rows(a, 0, 2).expect("all"), data[..8]);
    let c = weights.tensor("c").expect("c");
    assert_eq!((c.rows(), c.format), (1, Format::F16));
    assert_eq!(weights.read_rows(c, 0, 1).expect("value"), data[20..]);
}

/// Case 05 (i).
fn lengths() {
    let with = |length: u64| {
        let mut bytes = safetensors(ONE, 8);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        open_safetensors(bytes)
    };
    let len = safetensors(ONE, 8).len() as u64;
    for length in [u64::MAX, 100_000_001, len - 7, len, 1 << 63] {
        fails(with(length), &["f/model.safetensors", "header length", &length.to_string()]);
    }
    for short in [0, 7] {
        fails(open_safetensors(vec![b' '; short]), &["file length", &format!("{short} bytes")]);
    }
    fails(open_safetensors(vec![0; 8]), &["f/model.safetensors", "header"]);
    fails(open_safetensors(vec![0xFF; 8]), &["header length"]);
    fails(with(0), &["header"]);
    fails(with(1), &["header"]);
}

/// Case 05 (ii).
fn headers() {
    let open = |header: &str| open_safetensors(safetensors(header, 8));
    fails(open("[]"), &["f/model.safetensors", "header", "begin with `{`"]);
    fails(open("{}"), &["header", "no tensor"]);
    fails(open(r#"{"__metadata__":{"a":"b"}}"#), &["header", "no tensor"]);
    fails(open(&format!(" {ONE}")), &["header", "begin with `{`"]);
    fails(open(&format!("{ONE}x")), &["header"]);
    fails(open(&ONE[..ONE.len() - 1]), &["header"]);
    fails(open(r#"{"__metadata__":{"a":1}}"#), &["header"]);
    let mut bytes = safetensors(ONE, 8);
    bytes[10] = 0xFF;
    fails(open_safetensors(bytes), &["header"]);
    let deep = |open: &str, close: &str| {
        format!(r#"{{"t":{}1{}}}"#, open.repeat(5000), close.repeat(5000))
    };
    fails(open(&deep(r#"{"a":"#, "}")), &["`t`", "header entry"]);
    fails(open(&deep("[", "]")), &["`t`", "header entry"]);
    let extra = format!(r#"{{"t":{{"x":{}1{}}}}}"#, "[".repeat(5000), "]".repeat(5000));
    fails(open(&extra), &["`t`", "header entry"]);
    let deep_metadata = format!(r#"{{"__metadata__":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    fails(open(&deep_metadata), &["header"]);
    let twice = format!("{},{}", &ONE[..ONE.len() - 1], &ONE[1..]);
    fails(open(&twice), &["`t` is given twice"]);
    fails(open(r#"{"t":{"dtype":"F32","shape":[2]}}"#), &["`t`", "data_offsets"]);
    fails(open(r#"{"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#), &["`t`", "-2"]);
    fails(open(r#"{"t":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}"#), &["`t`"]);
    fails(open(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}}"#), &["`t`"]);
    fails(open(r#"{"t":{"dtype":7,"shape":[2],"data_offsets":[0,8]}}"#), &["`t`"]);
}

/// Case 05 (iii), and shapes whose product or bytes wrap.
fn sizes() {
    let open = |shape: &str, begin, end, data| {
        open_safetensors(safetensors(&header(&[("t", "F32", shape, begin, end)]), data))
    };
    fails(open("[1000,1000]", 0, 4, 4), &["`t`", "data_offsets", "4 bytes", "[1000, 1000]"]);
    fails(open("[2]", 0, 4, 4), &["`t`", "data_offsets"]);
    fails(open("[1]", 0, 8, 8), &["`t`", "data_offsets"]);
    fails(open("[4294967296,4294967296]", 0, 8, 8), &["`t`", "shape", "64 bits"]);
    fails(open("[4611686018427387906]", 0, 8, 8), &["`t`"]);
    fails(open("[18446744073709551616]", 0, 8, 8), &["`t`"]);
    fails(open("[2]", 0, 8, 7), &["`t`", "data_offsets", "past"]);
}

/// Case 05 (iv).
fn layout() {
    let open = |entries: &[_], data| open_safetensors(safetensors(&header(entries), data));
    fails(open(&[("t", "F32", "[1]", 8, 4)], 8), &["`t`", "data_offsets", "before"]);
    let both = [("a", "F32", "[2]", 0, 8), ("b", "F32", "[2]", 0, 8)];
    fails(open(&both, 8), &["data_offsets", "overlaps"]);
    let partly = [("a", "F32", "[2]", 0, 8), ("b", "F32", "[2]", 4, 12)];
    fails(open(&partly, 12), &["`b`", "data_offsets", "overlaps"]);
    let hole = [("a", "F32", "[2]", 0, 8), ("b", "F32", "[2]", 24, 32)];
    fails(open(&hole, 32), &["`b`", "data_offsets", "gap"]);
    fails(open(&[("a", "F32", "[2]", 16, 24)], 24), &["`a`", "gap"]);
    fails(open(&[("a", "F32", "[2]", 0, 8)], 9), &["data", "1 bytes follow"]);
}

/// Case 05 (v).
fn types() {
    let open = |dtype: &str, begin, end, data| {
        open_safetensors(safetensors(&header(&[("t", dtype, "[8]", begin, end)]), data))
    };
    fails(open("F13", 0, 8, 8), &["`t`", "dtype", "`F13` is unknown"]);
    fails(open("f32", 0, 32, 32), &["`t`", "dtype", "unknown"]);
    fails(open("F8_E4M3", u64::MAX - 7, 8, 8), &["`t`", "data_offsets"]);
    fails(open("F8_E4M3", 0, 9, 9), &["`t`", "data_offsets"]);
    fails(open("F4", 0, 8, 8), &["`t`", "data_offsets"]);
    for (dtype, bytes) in [("F8_E4M3", 8), ("F4", 4), ("F64", 64), ("BOOL", 8), ("U8", 8)] {
        opens(open(dtype, 0, bytes, bytes as usize));
    }
    let seven = safetensors(&header(&[("t", "F4", "[7]", 0, 4)]), 4);
    fails(open_safetensors(seven), &["`t`", "data_offsets"]);
}

/// Case 05 (vi), and what else the format allows.
fn legal_oddities() {
    let empty = header(&[
        ("e", "F32", "[0]", 8, 8),
        ("a", "F32", "[2]", 0, 8),
        ("z", "F16", "[0,3]", 0, 0),
    ]);
    let weights = opens(open_safetensors(safetensors(&empty, 8)));
    assert_eq!(weights.tensors().len(), 3);
    for name in ["e", "z"] {
        let tensor = weights.tensor(name).expect(name);
        assert!(weights.read_rows(tensor, 0, 0).expect("nothing").is_empty());
        fails(weights.read_rows(tensor, 0, 1), &[name, "rows"]);
    }
    let mid = header(&[("e", "F32", "[0]", 4, 4), ("a", "F32", "[2]", 0, 8)]);
    fails(open_safetensors(safetensors(&mid, 8)), &["`e`", "data_offsets"]);
    opens(open_safetensors(safetensors(&format!("{ONE}   "), 8)));
    opens(open_safetensors(safetensors(&ONE.replace(":[", ": ["), 8)));
    let metadata = format!(r#"{{"__metadata__":{{"format":"pt"}},{}"#, &ONE[1..]);
    assert_eq!(opens(open_safetensors(safetensors(&metadata, 8))).tensors().len(), 1);
}

fn ints() {
    let header = header(&[
        ("ids", "I32", "[2]", 0, 8),
        ("longs", "I64", "[1,1]", 8, 16),
        ("mask", "BOOL", "[2]", 16, 18),
    ]);
    let mut bytes = safetensors(&header, 0);
    bytes.extend([-1i32, 7].iter().flat_map(|v| v.to_le_bytes()));
    bytes.extend((1i64 << 40).to_le_bytes());
    bytes.extend([1, 0]);
    let weights = opens(open_safetensors(bytes));
    assert_eq!(weights.read_ints("ids").ok(), Some((vec![2], vec![-1, 7])));
    assert_eq!(weights.read_ints("longs").ok(), Some((vec![1, 1], vec![1 << 40])));
    fails(weights.read_ints("mask"), &["`mask`", "BOOL"]);
    fails(weights.read_ints("absent"), &["`absent`", "missing"]);
}
