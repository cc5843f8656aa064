//! Repacking of raw weight blocks into the streams that kernels read.
//!
//! A matrix `[rows, cols]` is cut along `cols` into k-blocks of 32 values. Its streams are laid
//! out `[k-block][row]`, so that neighbouring threads, which own neighbouring output rows, read
//! neighbouring words, and every output sums k in the same order whatever the number of tokens:
//!
//! * quants: `vectors` × `vec4<u32>` per (k-block, row), index `(kb * vectors + v) * rows + row`;
//! * scales: `scale_words` × `u32` per (k-block, row), index `(kb * scale_words + s) * rows + row`.
//!
//! Values 4i..4i+3 of a vector are decoded by `quant_unpack(vector, i)` of `shaders/lib/quant_X`.

use crate::base::Format;

/// Values per k-block of every stream.
pub const K_BLOCK: u32 = 32;

/// Alignment of a storage binding that every device accepts.
pub const BINDING_ALIGN: u64 = 256;

/// Words of a format's streams per k-block and row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamShape {
    /// `vec4<u32>`s of quants.
    pub vectors: u32,
    /// `u32`s of scales.
    pub scale_words: u32,
}

pub fn stream_shape(format: Format) -> StreamShape {
    let (vectors, scale_words) = match format {
        Format::F32 => (8, 0),
        Format::F16 | Format::BF16 => (4, 0),
        Format::Q4_0 | Format::Q4_1 => (1, 1),
        Format::Q5_0 | Format::Q5_1 => (1, 2),
        Format::Q8_0 => (2, 1),
    };
    StreamShape { vectors, scale_words }
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
    let cells = cols.div_ceil(u64::from(K_BLOCK)).checked_mul(rows)?;
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
    let block_bytes = row_bytes_per_k_block(format);
    let mut cell = Cell::default();
    for row in 0..rows {
        let row_raw = &raw[row * row_bytes..(row + 1) * row_bytes];
        for (kb, block) in row_raw.chunks(block_bytes).enumerate() {
            cell.fill(format, block);
            for v in 0..vectors {
                let at = ((kb * vectors + v) * rows + row) * 4;
                quants[at..at + 4].copy_from_slice(&cell.quants[v * 4..v * 4 + 4]);
            }
            for s in 0..words {
                scales[(kb * words + s) * rows + row] = cell.scales[s];
            }
        }
    }
    out
}

/// File bytes that hold the 32 values of one k-block.
fn row_bytes_per_k_block(format: Format) -> usize {
    format.block_bytes() * (K_BLOCK as usize / format.block_len())
}

/// One k-block of one row in stream form.
#[derive(Default)]
struct Cell {
    quants: [u32; 32],
    scales: [u32; 2],
}

impl Cell {
    fn fill(&mut self, format: Format, block: &[u8]) {
        match format {
            Format::F32 | Format::F16 | Format::BF16 => self.plain(block),
            Format::Q4_0 => self.nibbles(half(block, 0), &block[2..]),
            Format::Q4_1 => self.nibbles(word(block, 0), &block[4..]),
            Format::Q5_0 => {
                self.nibbles(half(block, 0), &block[6..]);
                self.scales[1] = word(block, 2);
            }
            Format::Q5_1 => {
                self.nibbles(word(block, 0), &block[8..]);
                self.scales[1] = word(block, 4);
            }
            Format::Q8_0 => {
                self.scales[0] = half(block, 0);
                self.plain(&block[2..]);
            }
        }
    }

    /// Bytes as they are, four to a word; a short last block is padded with zeros.
    fn plain(&mut self, block: &[u8]) {
        self.quants = [0; 32];
        bytemuck::cast_slice_mut::<u32, u8>(&mut self.quants)[..block.len()].copy_from_slice(block);
    }

    /// ggml keeps value b in the low half of byte b and value b + 16 in its high half; here value
    /// i of a block is nibble i % 8 of word i / 8.
    fn nibbles(&mut self, scale: u32, bytes: &[u8]) {
        self.scales[0] = scale;
        for (w, out) in self.quants[..4].iter_mut().enumerate() {
            let shift = if w < 2 { 0 } else { 4 };
            let from = &bytes[(w % 2) * 8..(w % 2) * 8 + 8];
            *out = (0..8).fold(0, |word, i| word | (u32::from(from[i] >> shift) & 15) << (4 * i));
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    half(bytes, at) | half(bytes, at + 2) << 16
}
