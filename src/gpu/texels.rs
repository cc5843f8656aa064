//! Buffers that shaders read as textures: a row has as many texels as `shaders/lib/streams_texel`
//! says.

use crate::record::{DeviceError, Texel};

/// Texels of a row.
const WIDTH: u32 = 2048;

pub fn format(texel: Texel) -> wgpu::TextureFormat {
    match texel {
        Texel::Word => wgpu::TextureFormat::R32Uint,
        Texel::Quad => wgpu::TextureFormat::Rgba32Uint,
    }
}

pub struct Texels {
    pub bytes: u64,
    pub view: wgpu::TextureView,
    texture: wgpu::Texture,
    texel: Texel,
}

impl Texels {
    /// Room for `bytes`; the caller holds an error scope.
    pub fn create(
        device: &wgpu::Device,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<Self, DeviceError> {
        let row = u64::from(WIDTH) * texel.bytes();
        let most = u64::from(device.limits().max_texture_dimension_2d);
        let rows = bytes.div_ceil(row).max(1);
        if rows > most {
            return Err(DeviceError::TooLarge { label: label.into(), bytes, limit: most * row });
        }
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some(label),
            size: wgpu::Extent3d { width: WIDTH, height: rows as u32, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: format(texel),
            usage: wgpu::TextureUsages::STORAGE_BINDING | wgpu::TextureUsages::COPY_DST,
            view_formats: &[],
        });
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        Ok(Self { bytes: rows * row, view, texture, texel })
    }

    /// Writes whole texels; `None` if `offset` or `data` are not that, or go beyond the end.
    pub fn write(&self, queue: &wgpu::Queue, offset: u64, data: &[u8]) -> Option<()> {
        let texel = self.texel.bytes();
        let inside = offset.checked_add(data.len() as u64).is_some_and(|end| end <= self.bytes);
        if !inside || !offset.is_multiple_of(texel) || !(data.len() as u64).is_multiple_of(texel) {
            return None;
        }
        let mut at = offset / texel;
        let mut rest = data;
        while !rest.is_empty() {
            let (x, y) = ((at % u64::from(WIDTH)) as u32, (at / u64::from(WIDTH)) as u32);
            let left = (rest.len() as u64 / texel) as u32;
            // To the end of this row, or all whole rows.
            let (width, height) = match left / WIDTH {
                rows if x == 0 && rows > 0 => (WIDTH, rows),
                _ => (left.min(WIDTH - x), 1),
            };
            let count = u64::from(width) * u64::from(height);
            let (part, after) = rest.split_at((count * texel) as usize);
            queue.write_texture(
                wgpu::TexelCopyTextureInfo {
                    origin: wgpu::Origin3d { x, y, z: 0 },
                    ..self.texture.as_image_copy()
                },
                part,
                wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(width * texel as u32),
                    rows_per_image: None,
                },
                wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            );
            (at, rest) = (at + count, after);
        }
        Some(())
    }
}
