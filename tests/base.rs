//! Rows of `base`: formats and random numbers.

use crate::support::Rows;
use tilewright::base::{Format, threefry2x32, unit_from_seed};

pub fn rows(rows: &mut Rows) {
    rows.add("base::threefry_known_answers", threefry_known_answers);
    rows.add("base::unit_is_uniform_and_repeats", unit_is_uniform_and_repeats);
    rows.add("base::format_bytes_are_checked", format_bytes_are_checked);
}

/// Known answers published with the reference implementation (Random123 `kat_vectors`).
fn threefry_known_answers() {
    assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
    assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
    let pi = threefry2x32([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]);
    assert_eq!(pi, [0xc492_3a9c, 0x483d_f7a0]);
}

fn unit_is_uniform_and_repeats() {
    let mut bins = [0u32; 16];
    for position in 0..16_000 {
        let unit = unit_from_seed(7, position);
        assert!((0.0..1.0).contains(&unit));
        assert_eq!(unit, unit_from_seed(7, position));
        bins[(unit * 16.0) as usize] += 1;
    }
    let chi: f64 = bins.iter().map(|&b| (f64::from(b) - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi < 37.7, "chi-square of 15 degrees at 0.001 is 37.7, got {chi}");
}

fn format_bytes_are_checked() {
    assert_eq!(Format::Q4_1.bytes_of(64), Some(40));
    assert_eq!(Format::Q4_1.bytes_of(33), None);
    assert_eq!(Format::F32.bytes_of(u64::MAX), None);
}
