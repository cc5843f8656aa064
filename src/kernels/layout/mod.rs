//! Repacking of raw weight blocks into the streams that kernels read.
//!
//! A matrix `[rows, cols]` is cut along `cols` into k-blocks of 32 values. Its streams are laid
//! out `[k-block][row]`, so that neighbouring threads, which own neighbouring output rows, read
//! neighbouring words, and every output sums k in the same order whatever the number of tokens.
//! A unit is one k-block, or the eight of a block of 256 values, which share scales:
//!
//! * quants: `vectors` × `vec4<u32>` per (unit, row), index `(unit * vectors + v) * rows + row`;
//! * scales: `scale_words` × `u32` per (unit, row), index `(unit * scale_words + s) * rows + row`.
//!
//! Values 4i..4i+3 of a k-block are decoded by `quant_unpack(vector, i)` of `shaders/lib/quant_X`,
//! which also says what the scale words hold.

mod cell;

use crate::base::Format;
use cell::Cell;

/// Values per k-block of every stream.
pub const K_BLOCK: u32 = 32;

/// Alignment of a storage binding that every device accepts.
pub const BINDING_ALIGN: u64 = 256;

/// Words of a format's streams per unit and row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamShape {
    /// k-blocks of a unit.
    pub k_blocks: u32,
    /// `vec4<u32>`s of quants.
    pub vectors: u32,
    /// `u32`s of scales.
    pub scale_words: u32,
}

impl StreamShape {
    /// Rounds in which kernels decode a k-block: its vectors, or one for half a vector.
    pub fn rounds(self) -> u32 {
        (self.vectors / self.k_blocks).max(1)
    }
}

pub fn stream_shape(format: Format) -> StreamShape {
    let (k_blocks, vectors, scale_words) = match format {
        Format::F32 => (1, 8, 0),
        Format::F16 | Format::BF16 => (1, 4, 0),
        Format::Q4_0 | Format::Q4_1 | Format::IQ4_NL => (1, 1, 1),
        Format::Q5_0 | Format::Q5_1 => (1, 1, 2),
        Format::Q8_0 => (1, 2, 1),
        Format::Q2_K => (8, 4, 5),
        Format::Q3_K => (8, 4, 13),
        Format::Q4_K => (8, 8, 5),
        Format::Q5_K => (8, 8, 13),
        Format::Q6_K => (8, 8, 21),
        Format::IQ4_XS => (8, 8, 3),
    };
    StreamShape { k_blocks, vectors, scale_words }
}

/// Where the two streams of a matrix lie in its buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamBytes {
    pub quants: u64,
    /// Offset of the scales, a multiple of [`BINDING_ALIGN`].
    pub scales_at: u64,
    pub scales: u64,
    pub total: u64,
}

/// Sizes of the streams of `rows` × `cols`; `None` on overflow.
pub fn stream_bytes(format: Format, rows: u64, cols: u64) -> Option<StreamBytes> {
    let shape = stream_shape(format);
    let cells = cols.div_ceil(u64::from(K_BLOCK * shape.k_blocks)).checked_mul(rows)?;
    let quants = cells.checked_mul(u64::from(shape.vectors) * 16)?;
    let scales = cells.checked_mul(u64::from(shape.scale_words) * 4)?;
    let scales_at = quants.checked_next_multiple_of(BINDING_ALIGN)?;
    let total = scales_at.checked_add(scales)?.max(16);
    Some(StreamBytes { quants, scales_at, scales, total })
}

/// The most rows whose buffer stays within `limit` bytes; 0 if not even one row does.
pub fn rows_within(format: Format, cols: u64, limit: u64) -> u64 {
    let fits = |rows: u64| stream_bytes(format, rows, cols).is_some_and(|b| b.total <= limit);
    let Some(one) = stream_bytes(format, 1, cols) else { return 0 };
    let mut rows = limit / one.quants.max(1);
    while rows > 0 && !fits(rows) {
        rows -= 1 + rows / 64;
    }
    rows
}

/// Turns raw rows (whole file blocks, `rows` × `cols` values) into the words of one buffer.
///
/// # Panics
/// If `raw` is not as long as the shape says; the caller has checked it against the file.
pub fn repack(format: Format, rows: usize, cols: usize, raw: &[u8]) -> Vec<u32> {
    let sizes = stream_bytes(format, rows as u64, cols as u64).expect("checked by the caller");
    let mut out = vec![0u32; (sizes.total as usize).div_ceil(4)];
    let (quants, scales) = out.split_at_mut(sizes.scales_at as usize / 4);
    let row_bytes = format.bytes_of(cols as u64).expect("whole blocks") as usize;
    assert_eq!(raw.len(), row_bytes * rows, "raw bytes of {rows} x {cols} {format}");
    let shape = stream_shape(format);
    let (vectors, words) = (shape.vectors as usize, shape.scale_words as usize);
    let unit_values = (K_BLOCK * shape.k_blocks) as usize;
    let unit_bytes = format.block_bytes() * (unit_values / format.block_len());
    let mut cell = Cell::default();
    for row in 0..rows {
        let row_raw = &raw[row * row_bytes..(row + 1) * row_bytes];
        for (unit, block) in row_raw.chunks(unit_bytes).enumerate() {
            cell.fill(format, block);
            for v in 0..vectors {
                let at = ((unit * vectors + v) * rows + row) * 4;
                quants[at..at + 4].copy_from_slice(&cell.quants[v * 4..v * 4 + 4]);
            }
            for s in 0..words {
                scales[(unit * words + s) * rows + row] = cell.scales[s];
            }
        }
    }
    out
}
