//! One unit of one row in stream form. Raw layouts are those of `weights::blocks`.

use crate::base::Format;

/// k-blocks in a block of 256 values.
const K_BLOCKS: usize = 8;

#[derive(Default)]
pub(super) struct Cell {
    pub quants: [u32; 32],
    pub scales: [u32; 21],
}

impl Cell {
    /// `block` holds the unit's values; a short last block is padded with zeros.
    pub fn fill(&mut self, format: Format, block: &[u8]) {
        match format {
            Format::F32 | Format::F16 | Format::BF16 => self.plain(block),
            Format::Q4_0 | Format::IQ4_NL => {
                self.scales[0] = half(block, 0);
                self.halves(0, &block[2..]);
            }
            Format::Q4_1 => {
                self.scales[0] = word(block, 0);
                self.halves(0, &block[4..]);
            }
            Format::Q5_0 => {
                (self.scales[0], self.scales[1]) = (half(block, 0), word(block, 2));
                self.halves(0, &block[6..]);
            }
            Format::Q5_1 => {
                (self.scales[0], self.scales[1]) = (word(block, 0), word(block, 4));
                self.halves(0, &block[8..]);
            }
            Format::Q8_0 => {
                self.scales[0] = half(block, 0);
                self.even_and_odd(&block[2..]);
            }
            Format::Q2_K => self.q2_k(block),
            Format::Q3_K => self.q3_k(block),
            Format::Q4_K => self.q4_k(block, &block[16..]),
            Format::Q5_K => {
                self.q4_k(block, &block[48..]);
                self.run_bits(&block[16..48], 5);
            }
            Format::Q6_K => self.q6_k(block),
            Format::IQ4_XS => self.iq4_xs(block),
        }
    }

    /// Bytes as they are, four to a word; a short last block is padded with zeros.
    fn plain(&mut self, block: &[u8]) {
        self.quants = [0; 32];
        bytemuck::cast_slice_mut::<u32, u8>(&mut self.quants)[..block.len()].copy_from_slice(block);
    }

    /// Bytes of 32 values: of each eight the even ones to a word, the odd ones to the next, which
    /// is how nibbles come apart, and how products with bytes want both.
    fn even_and_odd(&mut self, bytes: &[u8]) {
        let eights = self.quants.chunks_exact_mut(2).zip(bytes.chunks_exact(8));
        for (words, b) in eights {
            words[0] = u32::from_le_bytes([b[0], b[2], b[4], b[6]]);
            words[1] = u32::from_le_bytes([b[1], b[3], b[5], b[7]]);
        }
    }

    /// ggml keeps value b of 32 in the low half of byte b and value b + 16 in its high half.
    fn halves(&mut self, kb: usize, bytes: &[u8]) {
        self.nibbles(kb, |i| bytes[i % 16] >> (4 * (i / 16)) & 15);
    }

    /// Value i of k-block `kb` is nibble i % 8 of its word i / 8.
    fn nibbles(&mut self, kb: usize, code: impl Fn(usize) -> u8) {
        for (w, out) in self.quants[kb * 4..kb * 4 + 4].iter_mut().enumerate() {
            *out = (0..8).fold(0, |word, i| word | u32::from(code(w * 8 + i)) << (4 * i));
        }
    }

    /// Two bits a value, four runs of 32 values to 32 bytes: value i of k-block `kb` is bits
    /// 2 (i % 16) of its word i / 16.
    fn two_bits(out: &mut [u32], bytes: &[u8]) {
        for kb in 0..K_BLOCKS {
            let (from, shift) = (&bytes[kb / 4 * 32..][..32], 2 * (kb % 4));
            for (w, out) in out[kb * 2..kb * 2 + 2].iter_mut().enumerate() {
                let code = |i: usize| u32::from(from[w * 16 + i] >> shift & 3);
                *out = (0..16).fold(0, |word, i| word | code(i) << (2 * i));
            }
        }
    }

    /// Bit `kb` of byte i belongs to value i of k-block `kb`: a word per k-block, from word `at`.
    fn run_bits(&mut self, bytes: &[u8], at: usize) {
        for kb in 0..K_BLOCKS {
            let bit = |i: usize| u32::from(bytes[i] >> kb & 1) << i;
            self.scales[at + kb] = (0..32).fold(0, |word, i| word | bit(i));
        }
    }

    /// Two bytes a k-block, from word 1.
    fn byte_pairs(&mut self, bytes: impl Fn(usize) -> [u8; 2]) {
        for w in 0..K_BLOCKS / 2 {
            let [[a, b], [c, d]] = [bytes(2 * w), bytes(2 * w + 1)];
            self.scales[1 + w] = u32::from_le_bytes([a, b, c, d]);
        }
    }

    fn q2_k(&mut self, block: &[u8]) {
        self.scales[0] = word(block, 80);
        self.byte_pairs(|kb| [block[2 * kb], block[2 * kb + 1]]);
        Self::two_bits(&mut self.quants, &block[16..80]);
    }

    fn q3_k(&mut self, block: &[u8]) {
        self.scales[0] = half(block, 108);
        let scales = &block[96..108];
        let scale = |g: usize| {
            let low = scales[g % 8] >> (4 * (g / 8)) & 15;
            let high = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
            (low | high << 4).wrapping_sub(32)
        };
        self.byte_pairs(|kb| [scale(2 * kb), scale(2 * kb + 1)]);
        self.run_bits(&block[..32], 5);
        Self::two_bits(&mut self.quants, &block[32..96]);
    }

    /// Scales and nibbles of Q4_K and Q5_K; 64 values to 32 bytes of nibbles.
    fn q4_k(&mut self, block: &[u8], codes: &[u8]) {
        self.scales[0] = word(block, 0);
        let bytes = &block[4..16];
        self.byte_pairs(|g| match g {
            0..4 => [bytes[g] & 63, bytes[g + 4] & 63],
            _ => {
                let (scale, minimum) = (bytes[g - 4] >> 6, bytes[g] >> 6);
                [bytes[g + 4] & 15 | scale << 4, bytes[g + 4] >> 4 | minimum << 4]
            }
        });
        for kb in 0..K_BLOCKS {
            self.nibbles(kb, |i| codes[kb / 2 * 32 + i] >> (4 * (kb % 2)) & 15);
        }
    }

    fn q6_k(&mut self, block: &[u8]) {
        self.scales[0] = half(block, 208);
        self.byte_pairs(|kb| [block[192 + 2 * kb], block[193 + 2 * kb]]);
        Self::two_bits(&mut self.scales[5..], &block[128..192]);
        for kb in 0..K_BLOCKS {
            let (from, shift) = (&block[kb / 4 * 64 + kb % 2 * 32..][..32], 4 * (kb % 4 / 2));
            self.nibbles(kb, |i| from[i] >> shift & 15);
        }
    }

    fn iq4_xs(&mut self, block: &[u8]) {
        let scale = |g: usize| {
            let low = block[4 + g / 2] >> (4 * (g % 2)) & 15;
            let high = block[2 + g / 4] >> (2 * (g % 4)) & 3;
            (low | high << 4).wrapping_sub(32)
        };
        for kb in 0..K_BLOCKS {
            self.halves(kb, &block[8 + kb * 16..][..16]);
        }
        self.scales[0] = half(block, 0);
        self.scales[1] = u32::from_le_bytes([scale(0), scale(1), scale(2), scale(3)]);
        self.scales[2] = u32::from_le_bytes([scale(4), scale(5), scale(6), scale(7)]);
    }
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    half(bytes, at) | half(bytes, at + 2) << 16
}
