//! Decode of the weight streams, one function per format, named as in `shaders/lib`.

use crate::base::Format;
use crate::kernels::layout::stream_shape;

/// Output rows decoded together.
pub const LANES: usize = 16;

/// The values of one k-block of `LANES` rows: `[value][row]`.
pub type Tile = [[f32; LANES]; 32];

/// Words of one k-block of `LANES` rows: `[word][row]`. Kept from block to block by whoever
/// decodes, for clearing it takes longer than filling it.
pub type Quants = [[u32; LANES]; 32];

/// The stream words of one k-block of `LANES` rows.
struct Words<'a> {
    quants: &'a Quants,
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
        let from = &self.scales[s * self.rows..];
        if let (LANES, Some(all)) = (self.count, from.first_chunk()) {
            return *all;
        }
        let mut out = [0; LANES];
        out[..self.count].copy_from_slice(&from[..self.count]);
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
    /// The words of k-block `kb` of rows `first..first + count`; in other lanes is what was there.
    #[inline(always)]
    fn words<'w>(
        &'w self,
        kb: usize,
        first: usize,
        count: usize,
        quants: &'w mut Quants,
    ) -> Words<'w> {
        let shape = stream_shape(self.format);
        let unit_blocks = shape.k_blocks as usize;
        let (unit, part) = (kb / unit_blocks, kb % unit_blocks);
        // Half a vector per k-block where the unit has fewer vectors than k-blocks.
        let words = shape.vectors as usize * 4 / unit_blocks;
        let skip = part * words % 4;
        for (w, to) in quants.chunks_exact_mut(4).take(words.div_ceil(4)).enumerate() {
            let v = unit * shape.vectors as usize + (part * words) / 4 + w;
            let from = (v * self.rows + first) * 4;
            spread(&self.quants[from..from + count * 4], skip, to);
        }
        let at = unit * shape.scale_words as usize * self.rows + first;
        let scales = self.scales.get(at..).unwrap_or_default();
        Words { quants, scales, rows: self.rows, count, part }
    }

    /// Decodes k-block `kb` of rows `first..first + count`; other lanes mean nothing.
    #[inline(always)]
    pub fn decode(
        &self,
        kb: usize,
        first: usize,
        count: usize,
        (quants, out): (&mut Quants, &mut Tile),
    ) {
        let words = self.words(kb, first, count, quants);
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
    /// And an offset for each half.
    AffineHalves([[f32; LANES]; 2], [[f32; LANES]; 2]),
}

impl Codes {
    #[inline(always)]
    fn of(scales: CodeScales, code: impl Fn(usize, usize) -> i32) -> Self {
        let mut codes = [[0; LANES]; 32];
        for (i, row) in codes.iter_mut().enumerate() {
            *row = by_lane(|lane| code(i, lane));
        }
        Self { codes, scales }
    }
}

impl Streams<'_> {
    /// K-block `kb` of rows `first..first + count`, of a format that products take so.
    #[inline(always)]
    pub fn codes(&self, kb: usize, first: usize, count: usize, quants: &mut Quants) -> Codes {
        let w = &self.words(kb, first, count, quants);
        let d = || CodeScales::One(low_halves(w.scale(0)));
        let affine = |(d, m)| CodeScales::Affine(d, m);
        let two = |i: usize, lane: usize| two_bits(w.quants[i / 16][lane], i);
        let four = |i: usize, lane: usize| nibble(w, i, lane).cast_signed();
        let five = |high: &[u32; LANES], i: usize, lane: usize| {
            four(i, lane) | (bit(high[lane], i) << 4).cast_signed()
        };
        match self.format {
            Format::Q8_0 => Codes::of(d(), |i, lane| byte(w, i, lane)),
            Format::Q4_0 => Codes::of(d(), |i, lane| four(i, lane) - 8),
            Format::Q4_1 => Codes::of(affine(pairs(w, 0)), four),
            Format::Q5_0 => {
                let high = w.scale(1);
                Codes::of(d(), |i, lane| five(&high, i, lane) - 16)
            }
            Format::Q5_1 => {
                let high = w.scale(1);
                Codes::of(affine(pairs(w, 0)), |i, lane| five(&high, i, lane))
            }
            Format::Q4_K => Codes::of(affine(least_scales(w)), four),
            Format::Q5_K => {
                let high = w.scale(5 + w.part);
                Codes::of(affine(least_scales(w)), |i, lane| five(&high, i, lane))
            }
            Format::Q6_K => {
                let high = [w.scale(5 + 2 * w.part), w.scale(6 + 2 * w.part)];
                Codes::of(CodeScales::Halves(signed_scales(w)), |i, lane| {
                    let upper = two_bits(high[i / 16][lane], i) << 4;
                    (four(i, lane) | upper.cast_signed()) - 32
                })
            }
            Format::Q2_K => {
                let (d, least) = q2_k_scales(w);
                let m = least.map(|half| by_lane(|lane| -half[lane]));
                Codes::of(CodeScales::AffineHalves(d, m), |i, lane| two(i, lane).cast_signed())
            }
            Format::Q3_K => {
                let high = w.scale(5 + w.part);
                Codes::of(CodeScales::Halves(signed_scales(w)), |i, lane| {
                    (two(i, lane) | bit(high[lane], i) << 2).cast_signed() - 4
                })
            }
            Format::IQ4_NL => Codes::of(d(), |i, lane| iq4_step(w, i, lane)),
            Format::IQ4_XS => {
                Codes::of(CodeScales::One(iq4_xs_scale(w)), |i, lane| iq4_step(w, i, lane))
            }
            other => unreachable!("{other} has no variant that takes bytes"),
        }
    }
}

/// Scales and least values of this k-block of Q4_K and Q5_K.
#[inline(always)]
fn least_scales(w: &Words) -> ([f32; LANES], [f32; LANES]) {
    let ((d, least), pair) = (pairs(w, 0), byte_pair(w));
    let scale = by_lane(|lane| d[lane] * (pair[lane] & 255) as f32);
    let minimum = by_lane(|lane| -(least[lane] * (pair[lane] >> 8) as f32));
    (scale, minimum)
}

/// A value per lane. What std has for this is not always inlined, and then lacks the vector unit.
#[inline(always)]
fn by_lane<T: Copy + Default>(value: impl Fn(usize) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = value(lane);
    }
    out
}

#[inline(always)]
fn low_halves(words: [u32; LANES]) -> [f32; LANES] {
    by_lane(|lane| f16_low(words[lane]))
}

/// Scales of the two halves of this k-block of Q2_K, and what is taken off.
#[inline(always)]
fn q2_k_scales(w: &Words) -> ([[f32; LANES]; 2], [[f32; LANES]; 2]) {
    let ((d, least), pair) = (pairs(w, 0), byte_pair(w));
    let of = |from: &[f32; LANES], shift: usize| {
        by_lane(|lane| from[lane] * (pair[lane] >> shift & 15) as f32)
    };
    ([of(&d, 0), of(&d, 8)], [of(&least, 4), of(&least, 12)])
}

/// Scales of the two halves of this k-block of Q3_K and Q6_K.
#[inline(always)]
fn signed_scales(w: &Words) -> [[f32; LANES]; 2] {
    let ((d, _), pair) = (pairs(w, 0), byte_pair(w));
    [0, 1].map(|half| by_lane(|lane| d[lane] * signed(pair[lane], half)))
}

/// The format whose decoder is the import `quant_X`.
pub fn format_of(import: &str) -> Format {
    let name = import.strip_prefix("quant_").unwrap_or(import);
    Format::ALL.into_iter().find(|f| f.name() == name).expect("a decoder of the variant table")
}

/// Words `skip..4` of each vector, by word.
#[inline(always)]
fn spread(vectors: &[u32], skip: usize, to: &mut [[u32; LANES]]) {
    if let (Ok(all), 0) = (<&[u32; 4 * LANES]>::try_from(vectors), skip) {
        for (w, to) in to.iter_mut().enumerate() {
            for (lane, to) in to.iter_mut().enumerate() {
                *to = all[4 * lane + w];
            }
        }
        return;
    }
    for (lane, vector) in vectors.chunks_exact(4).enumerate() {
        for (to, word) in to.iter_mut().zip(&vector[skip..]) {
            to[lane] = *word;
        }
    }
}

/// The lower half of a word as a number. Without branches, so that all lanes are taken at once.
#[inline(always)]
fn f16_low(word: u32) -> f32 {
    const EXPONENT: u32 = 31 << 23;
    let sign = (word & 0x8000) << 16;
    let rest = (word & 0x7fff) << 13;
    let exponent = rest & EXPONENT;
    let normal = rest + ((127 - 15) << 23);
    let least = f32::from_bits(113 << 23);
    let subnormal = (f32::from_bits(rest + (113 << 23)) - least).to_bits();
    let infinite = normal + ((128 - 16) << 23);
    let value = if exponent == EXPONENT { infinite } else { normal };
    f32::from_bits(sign | if exponent == 0 { subnormal } else { value })
}

#[inline(always)]
fn f16_high(word: u32) -> f32 {
    f16_low(word >> 16)
}

/// Runs `value(i, lane)` for every value and lane.
#[inline(always)]
fn fill(out: &mut Tile, value: impl Fn(usize, usize) -> f32) {
    for (i, row) in out.iter_mut().enumerate() {
        *row = by_lane(|lane| value(i, lane));
    }
}

#[inline(always)]
fn nibble(w: &Words, i: usize, lane: usize) -> u32 {
    (w.quants[i / 8][lane] >> (4 * (i % 8))) & 15
}

/// Value i of signed bytes, which lie as in `kernels::layout`.
#[inline(always)]
fn byte(w: &Words, i: usize, lane: usize) -> i32 {
    signed_byte(w.quants[i / 8 * 2 + i % 2][lane], i % 8 / 2)
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

/// Byte `at` of a word, signed.
#[inline(always)]
pub fn signed_byte(word: u32, at: usize) -> i32 {
    (word << (24 - 8 * at)).cast_signed() >> 24
}

#[inline(always)]
fn signed(word: u32, at: usize) -> f32 {
    signed_byte(word, at) as f32
}

/// Word `s` as two half-precision numbers.
#[inline(always)]
fn pairs(w: &Words, s: usize) -> ([f32; LANES], [f32; LANES]) {
    let words = w.scale(s);
    (low_halves(words), by_lane(|lane| f16_high(words[lane])))
}

/// The two bytes of this k-block, of a format with eight k-blocks a unit.
#[inline(always)]
fn byte_pair(w: &Words) -> [u32; LANES] {
    let words = w.scale(1 + w.part / 2);
    by_lane(|lane| words[lane] >> (16 * (w.part % 2)) & 0xffff)
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
    fill(out, |i, lane| f32::from_bits(w.quants[i / 2][lane] >> (16 * (i % 2)) << 16));
}

#[inline(always)]
fn quant_q8_0(w: &Words, out: &mut Tile) {
    let d = low_halves(w.scale(0));
    fill(out, |i, lane| byte(w, i, lane) as f32 * d[lane]);
}

#[inline(always)]
fn quant_q4_0(w: &Words, out: &mut Tile) {
    let d = low_halves(w.scale(0));
    fill(out, |i, lane| (nibble(w, i, lane) as f32 - 8.0) * d[lane]);
}

#[inline(always)]
fn quant_q4_1(w: &Words, out: &mut Tile) {
    let (d, m) = pairs(w, 0);
    fill(out, |i, lane| nibble(w, i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q5_0(w: &Words, out: &mut Tile) {
    let (d, high) = (low_halves(w.scale(0)), w.scale(1));
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
    let (d, least) = q2_k_scales(w);
    fill(out, |i, lane| {
        let q = two_bits(w.quants[i / 16][lane], i) as f32;
        q * d[i / 16][lane] - least[i / 16][lane]
    });
}

#[inline(always)]
fn quant_q3_k(w: &Words, out: &mut Tile) {
    let (d, high) = (signed_scales(w), w.scale(5 + w.part));
    fill(out, |i, lane| {
        let q = two_bits(w.quants[i / 16][lane], i) | bit(high[lane], i) << 2;
        (q as f32 - 4.0) * d[i / 16][lane]
    });
}

#[inline(always)]
fn quant_q4_k(w: &Words, out: &mut Tile) {
    let (d, m) = least_scales(w);
    fill(out, |i, lane| nibble(w, i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q5_k(w: &Words, out: &mut Tile) {
    let ((d, m), high) = (least_scales(w), w.scale(5 + w.part));
    let code = |i, lane| nibble(w, i, lane) | bit(high[lane], i) << 4;
    fill(out, |i, lane| code(i, lane) as f32 * d[lane] + m[lane]);
}

#[inline(always)]
fn quant_q6_k(w: &Words, out: &mut Tile) {
    let d = signed_scales(w);
    let high = [w.scale(5 + 2 * w.part), w.scale(6 + 2 * w.part)];
    fill(out, |i, lane| {
        let q = nibble(w, i, lane) | two_bits(high[i / 16][lane], i) << 4;
        (q as f32 - 32.0) * d[i / 16][lane]
    });
}

/// The steps that the codes of the IQ4 formats choose from.
const IQ4_STEPS: [i32; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[inline(always)]
fn iq4_step(w: &Words, i: usize, lane: usize) -> i32 {
    IQ4_STEPS[nibble(w, i, lane) as usize]
}

#[inline(always)]
fn quant_iq4_nl(w: &Words, out: &mut Tile) {
    let d = low_halves(w.scale(0));
    fill(out, |i, lane| iq4_step(w, i, lane) as f32 * d[lane]);
}

#[inline(always)]
fn iq4_xs_scale(w: &Words) -> [f32; LANES] {
    let (d, scales) = (low_halves(w.scale(0)), w.scale(1 + w.part / 4));
    by_lane(|lane| d[lane] * signed(scales[lane], w.part % 4))
}

#[inline(always)]
fn quant_iq4_xs(w: &Words, out: &mut Tile) {
    let d = iq4_xs_scale(w);
    fill(out, |i, lane| iq4_step(w, i, lane) as f32 * d[lane]);
}
