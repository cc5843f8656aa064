//! Words for numbers.

/// "1 block", "2 blocks".
pub fn counted(count: impl Into<u64>, word: &str) -> String {
    let count = count.into();
    format!("{count} {word}{}", form(count, "", "s"))
}

/// The word that goes with a count: `one` of two forms, or `more`.
pub fn form(count: impl Into<u64>, one: &'static str, more: &'static str) -> &'static str {
    if count.into() == 1 { one } else { more }
}

/// A time for people: three digits and a unit.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..9_950 => format!("{:.1} ms", micros as f64 / 1e3),
        9_950..999_500 => format!("{} ms", (micros + 500) / 1_000),
        999_500..59_950_000 => format!("{:.1} s", micros as f64 / 1e6),
        _ => {
            let seconds = micros.saturating_add(500_000) / 1_000_000;
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}
