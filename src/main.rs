//! The composition root of the native program.

fn main() {}
