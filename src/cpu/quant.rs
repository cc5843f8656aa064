//! Decode of the weight streams, one function per format, named as in `shaders/lib`.

use crate::base::Format;
use crate::kernels::layout::stream_shape;
use half::{bf16, f16};

/// Output rows decoded together.
pub const LANES: usize = 16;

/// The values of one k-block of `LANES` rows: `[value][row]`.
pub type Tile = [[f32; LANES]; 32];

/// The stream words of one k-block of `LANES` rows: `[word][row]`.
struct Words {
    quants: [[u32; LANES]; 32],
    scales: [[u32; LANES]; 2],
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
    /// Decodes k-block `kb` of rows `first..first + count`; the other lanes are left alone.
    #[inline(always)]
    pub fn decode(&self, kb: usize, first: usize, count: usize, out: &mut Tile) {
        let shape = stream_shape(self.format);
        let (vectors, scale_words) = (shape.vectors as usize, shape.scale_words as usize);
        let mut words = Words { quants: [[0; LANES]; 32], scales: [[0; LANES]; 2] };
        for v in 0..vectors {
            let from = ((kb * vectors + v) * self.rows + first) * 4;
            for (lane, vector) in self.quants[from..from + count * 4].chunks_exact(4).enumerate() {
                for (w, word) in vector.iter().enumerate() {
                    words.quants[v * 4 + w][lane] = *word;
                }
            }
        }
        for s in 0..scale_words {
            let from = (kb * scale_words + s) * self.rows + first;
            words.scales[s][..count].copy_from_slice(&self.scales[from..from + count]);
        }
        match self.format {
            Format::F32 => quant_f32(&words, out),
            Format::F16 => quant_f16(&words, out),
            Format::BF16 => quant_bf16(&words, out),
            Format::Q4_0 => quant_q4_0(&words, out),
            Format::Q4_1 => quant_q4_1(&words, out),
            Format::Q5_0 => quant_q5_0(&words, out),
            Format::Q5_1 => quant_q5_1(&words, out),
            Format::Q8_0 => quant_q8_0(&words, out),
        }
    }
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

#[inline(always)]
fn fifth(w: &Words, i: usize, lane: usize) -> u32 {
    ((w.scales[1][lane] >> i) & 1) << 4
}

#[inline(always)]
fn pairs(w: &Words) -> ([f32; LANES], [f32; LANES]) {
    (w.scales[0].map(f16_low), w.scales[0].map(f16_high))
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
    let d = w.scales[0].map(f16_low);
    let byte = |i: usize, lane: usize| (w.quants[i / 4][lane] >> (8 * (i % 4))) as i8;
    fill(out, |i, lane| f32::from(byte(i, lane)) * d[lane]);
}

#[inline(always)]
fn quant_q4_0(w: &Words, out: &mut Tile) {
    let d = w.scales[0].map(f16_low);
    fill(out, |i, lane| (nibble(w, i, lane) as f32 - 8.0) * d[lane]);
}

#[inline(always)]
fn quant_q4_1(w: &Words, out: &mut Tile) {
    let (d, m) = pairs(w);
    fill(out, |i, lane| nibble(w, i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q5_0(w: &Words, out: &mut Tile) {
    let d = w.scales[0].map(f16_low);
    fill(out, |i, lane| ((nibble(w, i, lane) | fifth(w, i, lane)) as f32 - 16.0) * d[lane]);
}

#[inline(always)]
fn quant_q5_1(w: &Words, out: &mut Tile) {
    let (d, m) = pairs(w);
    fill(out, |i, lane| (nibble(w, i, lane) | fifth(w, i, lane)) as f32 * d[lane] + m[lane]);
}
