//! GGUF headers, right and hostile.

use super::build::*;
use crate::support::Rows;
use std::sync::atomic::Ordering;
use tilewright::base::Format;
use tilewright::weights::{Meta, Weights};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::gguf_reads_tensors", gguf_reads_tensors);
    rows.add("weights::gguf_sizes_that_wrap", gguf_sizes_that_wrap);
    rows.add("weights::gguf_axes", gguf_axes);
    rows.add("weights::gguf_alignment", gguf_alignment);
    rows.add("weights::gguf_counts_and_lengths", gguf_counts_and_lengths);
    rows.add("weights::gguf_nesting", gguf_nesting);
    rows.add("weights::gguf_magic_version_kinds", gguf_magic_version_kinds);
    rows.add("weights::gguf_names", gguf_names);
    rows.add("weights::gguf_offsets", gguf_offsets);
    rows.add("weights::gguf_types", gguf_types);
    rows.add("weights::gguf_header_is_bounded", gguf_header_is_bounded);
    rows.add("weights::one_read_per_call", one_read_per_call);
}

fn gguf_reads_tensors() {
    for version in [2, 3] {
        let weights = opens(Gguf { version, ..good_gguf() }.open());
        assert_eq!(weights.tensors().len(), 2);
        let t = weights.tensor("t").expect("t");
        // Outermost axis first: GGUF's [4, 3] is 3 rows of 4.
        assert_eq!((t.shape.as_slice(), t.format, t.bytes), (&[3, 4][..], Format::F32, 48));
        let q = weights.tensor("q").expect("q");
        assert_eq!((q.shape.as_slice(), q.format, q.bytes), (&[2, 32][..], Format::Q4_1, 40));
        let data = good_gguf().data;
        assert_eq!(weights.read_rows(t, 0, 3).expect("all"), data[..48]);
        assert_eq!(weights.read_rows(t, 1, 1).expect("one"), data[16..32]);
        assert_eq!(weights.read_rows(q, 1, 1).expect("last"), data[84..104]);
        assert!(weights.read_rows(q, 2, 0).expect("none").is_empty());
        fails(weights.read_rows(t, 1, 3), &["t.gguf", "`t`", "rows", "3 from 1"]);
        fails(weights.read_rows(t, u64::MAX, 2), &["`t`", "rows"]);
        assert!(weights.side_file("tokenizer.json").expect("no error").is_none());
    }
}

/// Case 01 (i) and (iv).
fn gguf_sizes_that_wrap() {
    let wraps = Gguf::new().tensor(row("t", &[(1 << 62) + 8], 0, 0));
    let hex = "4747554603000000010000000000000000000000000000000100000000000000\
               74010000000800000000000040000000000000000000000000";
    let given: Vec<u8> = (0..hex.len())
        .step_by(2)
        .filter_map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok())
        .collect();
    assert_eq!(wraps.bytes(), given);
    assert_eq!(given.len(), 57);
    fails(wraps.open(), &["t.gguf", "`t`", "ne", "64 bits"]);
    let square = Gguf::new().tensor(row("t", &[1 << 32, 1 << 32], 1, 0));
    fails(square.open(), &["`t`", "shape", "64 bits"]);
    // The product fits, the bytes do, and so does the end, but not in the file.
    let long = Gguf::new().tensor(row("t", &[1 << 40], 0, 0)).data(64);
    fails(long.open(), &["`t`", "offset", "past the file's end"]);
    // bytes + offset + start of the data wraps.
    let end = Gguf::new().tensor(row("t", &[8], 0, u64::MAX - 31)).data(64);
    fails(end.open(), &["`t`", "offset"]);
}

/// Case 01 (ii) and (iii).
fn gguf_axes() {
    let zero = Gguf::new().tensor(row("t", &[1, 0], 0, 0));
    assert_eq!(zero.bytes().len(), 65);
    fails(zero.open(), &["`t`", "ne", "length 0"]);
    fails(Gguf::new().tensor(row("t", &[0, 1], 0, 0)).open(), &["`t`", "length 0"]);
    let zero_and_wrap = [1 << 40, 1 << 40, 0];
    fails(Gguf::new().tensor(row("t", &zero_and_wrap, 0, 0)).open(), &["`t`", "length 0"]);
    fails(Gguf::new().tensor(row("t", &[1; 5], 0, 0)).data(4).open(), &["`t`", "n_dims", "5"]);
    let mut many = Gguf::new().tensor(row("t", &[], 0, 0));
    many.tensors[0].axes = Some(u32::MAX);
    fails(many.open(), &["`t`", "n_dims", "4294967295"]);
    let four = opens(Gguf::new().tensor(row("t", &[2, 1, 3, 1], 0, 0)).data(24).open());
    assert_eq!(four.tensor("t").expect("t").shape, [1, 3, 1, 2]);
    let scalar = opens(Gguf::new().tensor(row("t", &[], 0, 0)).data(4).open());
    let t = scalar.tensor("t").expect("t");
    assert_eq!((t.rows(), scalar.read_rows(t, 0, 1).expect("value").len()), (1, 4));
}

/// Case 02 (i).
fn gguf_alignment() {
    const KEY: &str = "general.alignment";
    let with = |kind: u32, value: &[u8]| Gguf::new().key(KEY, kind, value);
    assert_eq!(with(4, &[0; 4]).bytes().len(), 57);
    for wrong in [0u32, 3, 33, 0x8000_0000, u32::MAX, 1 << 21] {
        fails(with(4, &wrong.to_le_bytes()).open(), &["t.gguf", KEY, &format!("found {wrong} of")]);
    }
    fails(with(8, &text("32")).open(), &[KEY, "found the text `32`"]);
    fails(with(10, &32u64.to_le_bytes()).open(), &[KEY, "U64"]);
    for alignment in [1u32, 8, 64, 4096] {
        let mut file = with(4, &alignment.to_le_bytes()).tensor(row("t", &[4], 0, 0));
        file = file.tensor(row("u", &[4], 0, u64::from(alignment.max(16))));
        file.alignment = u64::from(alignment);
        let file = file.data(alignment.max(16) as usize + 16);
        let weights = opens(file.open());
        let u = weights.read_rows(weights.tensor("u").expect("u"), 0, 4).expect("u");
        assert_eq!(u, file.data[alignment.max(16) as usize..]);
    }
}

/// Case 02 (ii) to (iv).
fn gguf_counts_and_lengths() {
    for count in [1 << 63, 1 << 40, u64::MAX, 2] {
        let keys = Gguf { key_count: Some(count), ..Gguf::new() };
        assert_eq!(keys.bytes().len(), 24);
        fails(keys.open(), &["t.gguf", "metadata key count", &count.to_string()]);
        let tensors = Gguf { tensor_count: Some(count), ..Gguf::new() };
        fails(tensors.open(), &["tensor count", &count.to_string()]);
    }
    for count in [1 << 63, u64::MAX, 1 << 61, 1 << 62, 1] {
        for kind in [0, 4, 6, 8, 9, 10, 12] {
            let file = Gguf::new().key("k", 9, &array(kind, count, &[]));
            assert_eq!(file.bytes().len(), 49);
            fails(file.open(), &["key `k`", "array length", &count.to_string()]);
        }
    }
    for length in [1 << 62, u64::MAX, 1] {
        let value = Gguf::new().key("k", 8, &length.to_le_bytes());
        fails(value.open(), &["key `k`", "value", &length.to_string()]);
        let mut name = Gguf::new().key("", 4, &[0; 4]).bytes();
        name[24..32].copy_from_slice(&length.saturating_add(16).to_le_bytes());
        fails(open_gguf(name), &["metadata key 0"]);
        let item = Gguf::new().key("k", 9, &array(8, 1, &length.to_le_bytes()));
        fails(item.open(), &["key `k`", "array item", &length.to_string()]);
    }
}

/// Case 02 (v).
fn gguf_nesting() {
    let mut value = array(0, 1, &[7]);
    for depth in 2..=1000 {
        value = array(9, 1, &value);
        let file = Gguf::new().key("k", 9, &value);
        if depth <= 4 {
            opens(file.open());
        } else if depth % 100 == 0 || depth == 5 {
            fails(file.open(), &["key `k`", "deep"]);
        }
    }
    assert!(value.len() > 11_000);
}

/// Case 02 (vi).
fn gguf_magic_version_kinds() {
    for kind in [13, 255, u32::MAX] {
        fails(Gguf::new().key("k", kind, &[0; 8]).open(), &["key `k`", "type", &kind.to_string()]);
        let array = array(kind, 1, &[0; 8]);
        fails(Gguf::new().key("k", 9, &array).open(), &["key `k`", "type", &kind.to_string()]);
    }
    fails(Gguf { magic: *b"GGML", ..good_gguf() }.open(), &["t.gguf", "magic", "GGML", "GGUF"]);
    fails(Gguf { magic: *b"\0\xFFUF", ..good_gguf() }.open(), &["magic"]);
    for version in [0, 1, 4, 99] {
        let text = format!("version {version} is not supported");
        fails(Gguf { version, ..good_gguf() }.open(), &["version", &text]);
    }
    let big = Gguf { version: 3u32.swap_bytes(), ..good_gguf() };
    assert_eq!(big.bytes()[4..8], [0, 0, 0, 3]);
    fails(big.open(), &["version 3 in big-endian"]);
    fails(Gguf::new().key("k", 7, &[2]).open(), &["key `k`", "bool"]);
    fails(Gguf::new().key("k", 9, &array(7, 2, &[0, 9])).open(), &["key `k`", "bool"]);
    fails(Gguf::new().key("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xC0]).open(), &["`k`", "UTF-8"]);
    let parts = Gguf::new().key("split.count", 2, &3u16.to_le_bytes());
    fails(parts.open(), &["split.count", "3 parts", "by its path"]);
    opens(Gguf::new().key("split.count", 2, &1u16.to_le_bytes()).open());
}

fn gguf_names() {
    fails(Gguf::new().key("", 4, &[0; 4]).open(), &["metadata key 0", "empty"]);
    let twice = Gguf::new().key("k", 0, &[0]).key("k", 0, &[0]);
    fails(twice.open(), &["key `k`", "twice"]);
    fails(Gguf::new().tensor(row("", &[8], 0, 0)).data(32).open(), &["tensor 0", "empty"]);
    let two = Gguf::new().tensor(row("t", &[8], 0, 0)).tensor(row("t", &[8], 0, 32)).data(64);
    fails(two.open(), &["`t`", "two tensors"]);
    // Names come from the file: errors escape and cut them.
    let name = format!("\u{1b}[31m{}", "x".repeat(5000));
    let long = fails(Gguf::new().tensor(row(&name, &[0], 0, 0)).open(), &["length 0"]);
    assert!(long.len() < 400 && !long.contains('\u{1b}'), "{long}");
}

/// The last part of case 03, and bytes that two tensors share.
fn gguf_offsets() {
    let two = |first: u64, second: u64| {
        Gguf::new().tensor(row("a", &[16], 0, first)).tensor(row("b", &[16], 0, second)).data(128)
    };
    opens(two(0, 64).open());
    opens(two(64, 0).open());
    let len = two(0, 64).bytes().len() as u64;
    fails(two(0, len.next_multiple_of(32)).open(), &["`b`", "offset", "past the file's end"]);
    fails(two(0, 96).open(), &["`b`", "offset", "past the file's end"]);
    fails(two(0, u64::MAX - 31).open(), &["`b`", "offset"]);
    fails(two(0, 65).open(), &["`b`", "offset", "alignment 32"]);
    fails(two(0, 80).open(), &["`b`", "offset", "alignment 32"]);
    fails(two(0, 0).open(), &["offset", "shares bytes"]);
    fails(two(0, 32).open(), &["`b`", "shares bytes with tensor `a`"]);
    fails(two(32, 0).open(), &["`a`", "shares bytes with tensor `b`"]);
}

/// Case 11: a tensor's own type decides, rows are whole blocks, other types are named.
fn gguf_types() {
    let ids = [
        (0, Format::F32),
        (1, Format::F16),
        (2, Format::Q4_0),
        (3, Format::Q4_1),
        (6, Format::Q5_0),
        (7, Format::Q5_1),
        (8, Format::Q8_0),
        (10, Format::Q2_K),
        (11, Format::Q3_K),
        (12, Format::Q4_K),
        (13, Format::Q5_K),
        (14, Format::Q6_K),
        (20, Format::IQ4_NL),
        (23, Format::IQ4_XS),
        (30, Format::BF16),
    ];
    assert_eq!(ids.len(), Format::ALL.len());
    for (id, format) in ids {
        // The label says Q4_1; it is only a hint.
        let file = Gguf::new().key("general.file_type", 4, &3u32.to_le_bytes());
        let weights = opens(file.tensor(row("t", &[256, 3], id, 0)).data(256 * 3 * 4).open());
        let t = weights.tensor("t").expect("t");
        assert_eq!((t.format, Some(t.bytes)), (format, format.bytes_of(768)));
        let blocks = Gguf::new().tensor(row("t", &[33, 32], id, 0)).data(33 * 32 * 4);
        if format.block_len() > 1 {
            let block = format!("block of {}", format.block_len());
            fails(blocks.open(), &["`t`", "ne", "33 values", format.name(), &block]);
        } else {
            opens(blocks.open());
        }
    }
    let named =
        [(9, "Q8_1"), (22, "IQ2_S"), (34, "TQ1_0"), (4, "Q4_2"), (27, "I64"), (31, "Q4_0_4_4")];
    for (id, name) in named {
        let file = Gguf::new().tensor(row("t", &[256, 2], id, 0)).data(2048);
        fails(file.open(), &["t.gguf", "`t`", "type", name, &format!("id {id}"), "supported: F32"]);
    }
    for id in [42, 255, u32::MAX] {
        let file = Gguf::new().tensor(row("t", &[256, 2], id, 0)).data(2048);
        fails(file.open(), &["`t`", "type", "unknown", &id.to_string()]);
    }
}

/// A header may state lengths that the file has, and still not be read to its end.
fn gguf_header_is_bounded() {
    let len = 1u64 << 40;
    let cases = [
        Gguf::new().key("k", 8, &(3u64 << 30).to_le_bytes()),
        Gguf::new().key("k", 9, &array(4, 1 << 30, &[])),
        Gguf::new().key("k", 9, &array(8, 1 << 33, &[])),
        Gguf { key_count: Some(1 << 30), ..Gguf::new() },
        Gguf { tensor_count: Some(1 << 30), ..Gguf::new() },
    ];
    for file in cases {
        let source = Counted::new(file.bytes(), len);
        let bytes = source.bytes.clone();
        fails(Weights::from_gguf_source(Box::new(source)), &["counted", "bytes are left"]);
        assert!(bytes.load(Ordering::Relaxed) < 1 << 20, "{bytes:?} bytes read");
    }
}

fn one_read_per_call() {
    let bytes = good_gguf().bytes();
    let source = Counted::new(bytes.clone(), bytes.len() as u64);
    let (reads, read) = (source.reads.clone(), source.bytes.clone());
    let weights = opens(Weights::from_gguf_source(Box::new(source)));
    assert!(matches!(weights.meta(), Meta::Gguf(_)));
    let (reads_before, before) = (reads.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
    assert_eq!(reads_before, 1, "a small header is one read");
    weights.read_rows(weights.tensor("t").expect("t"), 1, 2).expect("rows");
    assert_eq!(reads.load(Ordering::Relaxed), reads_before + 1);
    assert_eq!(read.load(Ordering::Relaxed), before + 32);
}
