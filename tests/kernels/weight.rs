//! Random weight matrices in every format. Their values come from the reference decoder of
//! `weights`, which shares nothing with the streams and decoders that kernels use.

use super::lab::{Draws, Lab};
use tilewright::base::Format;
use tilewright::kernels::mul::{Matrix, MatrixPart};
use tilewright::kernels::variants::Variant;
use tilewright::weights::blocks::{decode, encode, encodes};

pub struct Weight {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    /// Decoded, `[row][col]`.
    pub values: Vec<f32>,
    raw: Vec<u8>,
}

impl Weight {
    pub fn random(format: Format, rows: usize, cols: usize, draws: &mut Draws) -> Self {
        let mut raw = Vec::new();
        if encodes(format) {
            encode(format, &draws.values(rows * cols), &mut raw);
        } else {
            for _ in 0..rows * cols / format.block_len() {
                raw.extend(random_block(format, draws));
            }
        }
        Self::of(format, rows, cols, raw)
    }

    pub fn of(format: Format, rows: usize, cols: usize, raw: Vec<u8>) -> Self {
        let mut values = vec![0.0; rows * cols];
        decode(format, &raw, &mut values);
        Self { format, rows, cols, values, raw }
    }

    /// Columns that `format` can have, in place of those wished for: whole blocks.
    pub fn cols(format: Format, wish: usize) -> usize {
        wish.next_multiple_of(format.block_len())
    }

    /// The blocks of all rows.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// All of it as a matrix that lies in `parts`.
    pub fn matrix(&self, parts: Vec<MatrixPart>) -> Matrix {
        Matrix { format: self.format, rows: self.rows as u32, cols: self.cols as u32, parts }
    }

    /// Rows `first..first + rows` on the device, as `variant` reads them.
    pub fn part(&self, first: usize, rows: usize, variant: &Variant, lab: &mut Lab) -> MatrixPart {
        let row_bytes = self.raw.len() / self.rows;
        let raw = &self.raw[first * row_bytes..(first + rows) * row_bytes];
        let (quants, scales) = lab.streams(self.format, [rows, self.cols], &[raw], variant);
        MatrixPart { first: first as u32, rows: rows as u32, quants, scales }
    }
}

/// A block of any bits, but for its half floats: their places are those of ggml's structs.
fn random_block(format: Format, draws: &mut Draws) -> Vec<u8> {
    let mut block: Vec<u8> = (0..format.block_bytes()).map(|_| draws.below(256) as u8).collect();
    let halves: &[usize] = match format {
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
        Format::IQ4_NL | Format::IQ4_XS => &[0],
        other => panic!("{other} has an encoder"),
    };
    for at in halves {
        let value = half::f16::from_f32((draws.unit() - 0.5) * 0.02);
        block[*at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    block
}
