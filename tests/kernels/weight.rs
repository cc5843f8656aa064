//! Random weight matrices in every format. Their values come from the reference decoder of
//! `weights`, which shares nothing with the streams and decoders that kernels use.

use super::lab::{Draws, Lab};
use tilewright::base::Format;
use tilewright::kernels::layout::{repack, stream_bytes};
use tilewright::kernels::mul::MatrixPart;
use tilewright::record::Binding;
use tilewright::weights::blocks::{decode, encode};

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
        encode(format, &draws.values(rows * cols), &mut raw);
        let mut values = vec![0.0; rows * cols];
        decode(format, &raw, &mut values);
        Self { format, rows, cols, values, raw }
    }

    /// Rows `first..first + rows` on the device, bound as the loader binds them.
    pub fn part(&self, first: usize, rows: usize, lab: &mut Lab) -> MatrixPart {
        let row_bytes = self.raw.len() / self.rows;
        let raw = &self.raw[first * row_bytes..(first + rows) * row_bytes];
        let all = lab.words(&repack(self.format, rows, self.cols, raw));
        let sizes = stream_bytes(self.format, rows as u64, self.cols as u64).expect("small");
        let scales = match sizes.scales {
            0 => Binding { bytes: 16, ..all },
            bytes => Binding { offset: sizes.scales_at, bytes, ..all },
        };
        let quants = Binding { bytes: sizes.quants, ..all };
        MatrixPart { first: first as u32, rows: rows as u32, quants, scales }
    }
}
