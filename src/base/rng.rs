//! Counter-based random numbers: a draw is a pure function of (seed, position), so that it does
//! not depend on what else is in the batch, on chunking, or on preemption.

/// Threefry-2x32, 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], 0x1BD1_1BDA ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for group in 0..5u32 {
        for rotation in ROTATIONS[group as usize % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotation) ^ x[0];
        }
        let next = group as usize + 1;
        x[0] = x[0].wrapping_add(keys[next % 3]);
        x[1] = x[1].wrapping_add(keys[(next + 1) % 3]).wrapping_add(group + 1);
    }
    x
}

/// A uniform draw in [0, 1) with 24 random bits for the token at `position` of a request.
pub fn unit_from_seed(seed: u64, position: u32) -> f32 {
    let bits = threefry2x32([seed as u32, (seed >> 32) as u32], [position, 0])[0];
    (bits >> 8) as f32 / (1u32 << 24) as f32
}
