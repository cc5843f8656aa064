//! The two streams of matrices on a device: as storage buffers, or as texels where the device
//! reads those faster.

use super::layout::{self, StreamBytes};
use crate::base::Format;
use crate::record::{Binding, BufferId, Device, DeviceError, Texel};

/// Streams that are being written, matrix by matrix of one shape.
pub struct Streams {
    format: Format,
    shape: [u32; 2],
    one: StreamBytes,
    pub quants: Binding,
    pub scales: Binding,
    /// Matrices written so far.
    written: u64,
}

impl Streams {
    /// Room for `count` matrices `[rows, cols]`, as texels if asked for (see
    /// [`super::texels`]); the ids of the buffers go to `made`.
    pub fn create(
        device: &mut dyn Device,
        label: &str,
        format: Format,
        count: u32,
        shape: [u32; 2],
        textures: bool,
        made: &mut Vec<BufferId>,
    ) -> Result<Self, DeviceError> {
        let limit = device.facts().binding_bytes_max;
        let [rows, cols] = shape;
        let one = layout::stream_bytes(format, u64::from(rows), u64::from(cols));
        let whole = one.and_then(|one| {
            let count = u64::from(count);
            let quants = one.quants.checked_mul(count)?;
            let scales = one.scales.checked_mul(count)?;
            let at = quants.checked_next_multiple_of(layout::BINDING_ALIGN)?;
            Some((one, quants, scales, at, at.checked_add(scales)?))
        });
        let Some((one, quants, scales, at, total)) = whole.filter(|w| w.4 <= limit) else {
            let bytes = whole.map_or(u64::MAX, |whole| whole.4);
            return Err(DeviceError::TooLarge { label: label.into(), bytes, limit });
        };
        let mut create = |texel: Option<Texel>, bytes: u64| {
            let id = match texel {
                Some(texel) => device.create_texels(label, bytes, texel)?,
                None => device.create_buffer(label, bytes)?,
            };
            made.push(id);
            Ok(id)
        };
        // Formats without scales bind something all the same.
        let bytes = scales.max(16);
        let (quants, scales) = if textures {
            let quad = create(Some(Texel::Quad), quants)?;
            let word = create(Some(Texel::Word), bytes)?;
            (bind(quad, 0, quants), bind(word, 0, bytes))
        } else {
            let id = create(None, total.max(at + 16))?;
            (bind(id, 0, quants), bind(id, if scales > 0 { at } else { 0 }, bytes))
        };
        Ok(Self { format, shape, one, quants, scales, written: 0 })
    }

    /// Writes the next matrix from its raw rows (whole file blocks).
    pub fn write(&mut self, device: &mut dyn Device, raw: &[u8]) -> Result<(), DeviceError> {
        let [rows, cols] = self.shape.map(|n| n as usize);
        let words = layout::repack(self.format, rows, cols, raw);
        let words: &[u8] = bytemuck::cast_slice(&words);
        let StreamBytes { quants, scales_at, scales, .. } = self.one;
        let to = self.quants.offset + self.written * quants;
        device.write_buffer(self.quants.buffer, to, &words[..quants as usize])?;
        if scales > 0 {
            let to = self.scales.offset + self.written * scales;
            let from = &words[scales_at as usize..][..scales as usize];
            device.write_buffer(self.scales.buffer, to, from)?;
        }
        self.written += 1;
        Ok(())
    }
}

fn bind(buffer: BufferId, offset: u64, bytes: u64) -> Binding {
    Binding { buffer, offset, bytes }
}
