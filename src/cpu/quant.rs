//! Decode of the weight streams, one function per format, named as in `shaders/lib`.

use crate::base::Format;
use crate::kernels::layout::stream_shape;
use half::{bf16, f16};

/// Output rows decoded together.
pub const LANES: usize = 16;

/// The values of one k-block of `LANES` rows: `[value][row]`.
pub type Tile = [[f32; LANES]; 32];

/// The stream words of one k-block of `LANES` rows.
struct Words<'a> {
    /// `[word][row]`.
    quants: [[u32; LANES]; 32],
    /// From the first row's first scale word of the unit on.
    scales: &'a [u32],
    rows: usize,
    count: usize,
    /// The k-block's place in its unit.
    part: usize,
}

impl Words<'_> {
    /// Scale word `s` of the unit, by row.
    #[inline(always)]
    fn scale(&self, s: usize) -> [u32; LANES] {
        let mut out = [0; LANES];
        out[..self.count].copy_from_slice(&self.scales[s * self.rows..][..self.count]);
        out
    }
}

/// The streams of a matrix with `rows` rows.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub format: Format,
    pub rows: usize,
    pub quants: &'a [u32],
    pub scales: &'a [u32],
}

impl Streams<'_> {
    /// The words of k-block `kb` of rows `first..first + count`.
    #[inline(always)]
    fn words(&self, kb: usize, first: usize, count: usize) -> Words<'_> {
        let shape = stream_shape(self.format);
        let unit_blocks = shape.k_blocks as usize;
        let (unit, part) = (kb / unit_blocks, kb % unit_blocks);
        let mut quants = [[0; LANES]; 32];
        // Half a vector per k-block where the unit has fewer vectors than k-blocks.
        let words = shape.vectors as usize * 4 / unit_blocks;
        for w in 0..words.div_ceil(4) {
            let v = unit * shape.vectors as usize + (part * words) / 4 + w;
            let from = (v * self.rows + first) * 4;
            for (lane, vector) in self.quants[from..from + count * 4].chunks_exact(4).enumerate() {
                let half = &vector[part * words % 4..];
                for (w4, word) in half.iter().enumerate() {
                    quants[w * 4 + w4][lane] = *word;
                }
            }
        }
        let at = unit * shape.scale_words as usize * self.rows + first;
        let scales = self.scales.get(at..).unwrap_or_default();
        Words { quants, scales, rows: self.rows, count, part }
    }

    /// Decodes k-block `kb` of rows `first..first + count`; the other lanes are left alone.
    #[inline(always)]
    pub fn decode(&self, kb: usize, first: usize, count: usize, out: &mut Tile) {
        let words = self.words(kb, first, count);
        match self.format {
            Format::F32 => quant_f32(&words, out),
            Format::F16 => quant_f16(&words, out),
            Format::BF16 => quant_bf16(&words, out),
            Format::Q4_0 => quant_q4_0(&words, out),
            Format::Q4_1 => quant_q4_1(&words, out),
            Format::Q5_0 => quant_q5_0(&words, out),
            Format::Q5_1 => quant_q5_1(&words, out),
            Format::Q8_0 => quant_q8_0(&words, out),
            Format::Q2_K => quant_q2_k(&words, out),
            Format::Q3_K => quant_q3_k(&words, out),
            Format::Q4_K => quant_q4_k(&words, out),
            Format::Q5_K => quant_q5_k(&words, out),
            Format::Q6_K => quant_q6_k(&words, out),
            Format::IQ4_NL => quant_iq4_nl(&words, out),
            Format::IQ4_XS => quant_iq4_xs(&words, out),
        }
    }
}

/// A k-block of `LANES` rows for sums in whole numbers: value = d * code + m.
pub struct Codes {
    /// `[value][row]`.
    pub codes: [[i32; LANES]; 32],
    pub scales: CodeScales,
}

/// Scales of [`Codes`], by row.
pub enum CodeScales {
    One([f32; LANES]),
    /// And an offset.
    Affine([f32; LANES], [f32; LANES]),
    /// One for each half of the values.
    Halves([[f32; LANES]; 2]),
}

impl Codes {
    #[inline(always)]
    fn of(scales: CodeScales, code: impl Fn(usize, usize) -> i32) -> Self {
        let row = |i| std::array::from_fn(|lane| code(i, lane));
        Self { codes: std::array::from_fn(row), scales }
    }
}

impl Streams<'_> {
    /// K-block `kb` of rows `first..first + count`, of a format that products take so.
    #[inline(always)]
    pub fn codes(&self, kb: usize, first: usize, count: usize) -> Codes {
        let w = &self.words(kb, first, count);
        let d = || CodeScales::One(w.scale(0).map(f16_low));
        let affine = || {
            let (d, m) = pairs(w, 0);
            CodeScales::Affine(d, m)
        };
        let four = |i: usize, lane: usize| nibble(w, i, lane).cast_signed();
        let five = |high: &[u32; LANES], i: usize, lane: usize| {
            four(i, lane) | (bit(high[lane], i) << 4).cast_signed()
        };
        match self.format {
            Format::Q8_0 => Codes::of(d(), |i, lane| byte(w, i, lane)),
            Format::Q4_0 => Codes::of(d(), |i, lane| four(i, lane) - 8),
            Format::Q4_1 => Codes::of(affine(), four),
            Format::Q5_0 => {
                let high = w.scale(1);
                Codes::of(d(), |i, lane| five(&high, i, lane) - 16)
            }
            Format::Q5_1 => {
                let high = w.scale(1);
                Codes::of(affine(), |i, lane| five(&high, i, lane))
            }
            Format::Q4_K => Codes::of(least_scales(w), four),
            Format::Q5_K => {
                let high = w.scale(5 + w.part);
                Codes::of(least_scales(w), |i, lane| five(&high, i, lane))
            }
            Format::Q6_K => {
                let ((d, _), pair) = (pairs(w, 0), byte_pair(w));
                let high = [w.scale(5 + 2 * w.part), w.scale(6 + 2 * w.part)];
                let scale =
                    |half: usize| std::array::from_fn(|lane| d[lane] * signed(pair[lane], half));
                Codes::of(CodeScales::Halves([scale(0), scale(1)]), |i, lane| {
                    let upper = two_bits(high[i / 16][lane], i) << 4;
                    (four(i, lane) | upper.cast_signed()) - 32
                })
            }
            other => unreachable!("{other} has no variant that takes bytes"),
        }
    }
}

/// Scale and least value of this k-block of Q4_K and Q5_K.
#[inline(always)]
fn least_scales(w: &Words) -> CodeScales {
    let ((d, least), pair) = (pairs(w, 0), byte_pair(w));
    let scale = |lane: usize| d[lane] * (pair[lane] & 255) as f32;
    let minimum = |lane: usize| -(least[lane] * (pair[lane] >> 8) as f32);
    CodeScales::Affine(std::array::from_fn(scale), std::array::from_fn(minimum))
}

/// The format whose decoder is the import `quant_X`.
pub fn format_of(import: &str) -> Format {
    let name = import.strip_prefix("quant_").unwrap_or(import);
    Format::ALL.into_iter().find(|f| f.name() == name).expect("a decoder of the variant table")
}

#[inline(always)]
fn f16_low(word: u32) -> f32 {
    f16::from_bits(word as u16).to_f32()
}

#[inline(always)]
fn f16_high(word: u32) -> f32 {
    f16_low(word >> 16)
}

/// Runs `value(i, lane)` for every value and lane.
#[inline(always)]
fn fill(out: &mut Tile, value: impl Fn(usize, usize) -> f32) {
    for (i, row) in out.iter_mut().enumerate() {
        for (lane, v) in row.iter_mut().enumerate() {
            *v = value(i, lane);
        }
    }
}

#[inline(always)]
fn nibble(w: &Words, i: usize, lane: usize) -> u32 {
    (w.quants[i / 8][lane] >> (4 * (i % 8))) & 15
}

/// Value i of signed bytes, which lie as in `kernels::layout`.
#[inline(always)]
fn byte(w: &Words, i: usize, lane: usize) -> i32 {
    let word = w.quants[i / 8 * 2 + i % 2][lane];
    i32::from(word.to_le_bytes()[i % 8 / 2].cast_signed())
}

/// Bit i of a word for value i.
#[inline(always)]
fn bit(word: u32, i: usize) -> u32 {
    (word >> i) & 1
}

#[inline(always)]
fn two_bits(word: u32, i: usize) -> u32 {
    (word >> (2 * (i % 16))) & 3
}

/// Byte `at` of a word as a signed number.
#[inline(always)]
fn signed(word: u32, at: usize) -> f32 {
    f32::from(word.to_le_bytes()[at].cast_signed())
}

/// Word `s` as two half-precision numbers.
#[inline(always)]
fn pairs(w: &Words, s: usize) -> ([f32; LANES], [f32; LANES]) {
    let words = w.scale(s);
    (words.map(f16_low), words.map(f16_high))
}

/// The two bytes of this k-block, of a format with eight k-blocks a unit.
#[inline(always)]
fn byte_pair(w: &Words) -> [u32; LANES] {
    w.scale(1 + w.part / 2).map(|word| word >> (16 * (w.part % 2)) & 0xffff)
}

#[inline(always)]
fn quant_f32(w: &Words, out: &mut Tile) {
    fill(out, |i, lane| f32::from_bits(w.quants[i][lane]));
}

#[inline(always)]
fn quant_f16(w: &Words, out: &mut Tile) {
    fill(out, |i, lane| f16_low(w.quants[i / 2][lane] >> (16 * (i % 2))));
}

#[inline(always)]
fn quant_bf16(w: &Words, out: &mut Tile) {
    let half = |i: usize, lane: usize| (w.quants[i / 2][lane] >> (16 * (i % 2))) as u16;
    fill(out, |i, lane| bf16::from_bits(half(i, lane)).to_f32());
}

#[inline(always)]
fn quant_q8_0(w: &Words, out: &mut Tile) {
    let d = w.scale(0).map(f16_low);
    fill(out, |i, lane| byte(w, i, lane) as f32 * d[lane]);
}

#[inline(always)]
fn quant_q4_0(w: &Words, out: &mut Tile) {
    let d = w.scale(0).map(f16_low);
    fill(out, |i, lane| (nibble(w, i, lane) as f32 - 8.0) * d[lane]);
}

#[inline(always)]
fn quant_q4_1(w: &Words, out: &mut Tile) {
    let (d, m) = pairs(w, 0);
    fill(out, |i, lane| nibble(w, i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q5_0(w: &Words, out: &mut Tile) {
    let (d, high) = (w.scale(0).map(f16_low), w.scale(1));
    let code = |i, lane| nibble(w, i, lane) | bit(high[lane], i) << 4;
    fill(out, |i, lane| (code(i, lane) as f32 - 16.0) * d[lane]);
}

#[inline(always)]
fn quant_q5_1(w: &Words, out: &mut Tile) {
    let ((d, m), high) = (pairs(w, 0), w.scale(1));
    let code = |i, lane| nibble(w, i, lane) | bit(high[lane], i) << 4;
    fill(out, |i, lane| code(i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q2_k(w: &Words, out: &mut Tile) {
    let ((d, least), pair) = (pairs(w, 0), byte_pair(w));
    let scale = |h: usize, lane: usize| d[lane] * (pair[lane] >> (8 * h) & 15) as f32;
    let minimum = |h: usize, lane: usize| least[lane] * (pair[lane] >> (8 * h + 4) & 15) as f32;
    fill(out, |i, lane| {
        let q = two_bits(w.quants[i / 16][lane], i) as f32;
        q * scale(i / 16, lane) - minimum(i / 16, lane)
    });
}

#[inline(always)]
fn quant_q3_k(w: &Words, out: &mut Tile) {
    let ((d, _), pair, high) = (pairs(w, 0), byte_pair(w), w.scale(5 + w.part));
    fill(out, |i, lane| {
        let q = two_bits(w.quants[i / 16][lane], i) | bit(high[lane], i) << 2;
        (q as f32 - 4.0) * (d[lane] * signed(pair[lane], i / 16))
    });
}

#[inline(always)]
fn quant_q4_k(w: &Words, out: &mut Tile) {
    let ((d, least), pair) = (pairs(w, 0), byte_pair(w));
    let scale = |lane: usize| d[lane] * (pair[lane] & 255) as f32;
    let minimum = |lane: usize| least[lane] * (pair[lane] >> 8) as f32;
    fill(out, |i, lane| nibble(w, i, lane) as f32 * scale(lane) - minimum(lane));
}

#[inline(always)]
fn quant_q5_k(w: &Words, out: &mut Tile) {
    let ((d, least), pair, high) = (pairs(w, 0), byte_pair(w), w.scale(5 + w.part));
    let scale = |lane: usize| d[lane] * (pair[lane] & 255) as f32;
    let minimum = |lane: usize| least[lane] * (pair[lane] >> 8) as f32;
    let code = |i, lane| nibble(w, i, lane) | bit(high[lane], i) << 4;
    fill(out, |i, lane| code(i, lane) as f32 * scale(lane) - minimum(lane));
}

#[inline(always)]
fn quant_q6_k(w: &Words, out: &mut Tile) {
    let ((d, _), pair) = (pairs(w, 0), byte_pair(w));
    let high = [w.scale(5 + 2 * w.part), w.scale(6 + 2 * w.part)];
    fill(out, |i, lane| {
        let q = nibble(w, i, lane) | two_bits(high[i / 16][lane], i) << 4;
        (q as f32 - 32.0) * (d[lane] * signed(pair[lane], i / 16))
    });
}

/// The steps that the codes of the IQ4 formats choose from.
const IQ4_STEPS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

#[inline(always)]
fn quant_iq4_nl(w: &Words, out: &mut Tile) {
    let d = w.scale(0).map(f16_low);
    fill(out, |i, lane| IQ4_STEPS[nibble(w, i, lane) as usize] * d[lane]);
}

#[inline(always)]
fn quant_iq4_xs(w: &Words, out: &mut Tile) {
    let (d, scales) = (w.scale(0).map(f16_low), w.scale(1 + w.part / 4));
    let scale = |lane: usize| d[lane] * signed(scales[lane], w.part % 4);
    fill(out, |i, lane| IQ4_STEPS[nibble(w, i, lane) as usize] * scale(lane));
}
