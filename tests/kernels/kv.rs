//! Test-side encoding of the KV cache: what a row of keys or values looks like in each type, and
//! what can be read from it.

use half::f16;
use tilewright::base::KvType;

/// Where and how rows are stored; `tile` is block * kv heads + kv head.
#[derive(Clone, Copy)]
pub struct Form {
    pub kv: KvType,
    pub block_size: u32,
    pub head_dim: u32,
}

impl Form {
    /// Words of `tiles` tiles.
    pub fn words(self, tiles: u32) -> usize {
        (tiles * self.block_size) as usize * self.kv.row_bytes(self.head_dim) as usize / 4
    }

    /// A word that is no number wherever it lies.
    pub fn poison(self) -> u32 {
        match self.kv {
            KvType::F32 | KvType::Q8 => f32::NAN.to_bits(),
            KvType::F16 => 0x7e00_7e00,
        }
    }

    /// First word and number of words of a row, and the word of its scale.
    pub fn place(self, tile: u32, offset: u32) -> (usize, usize, Option<usize>) {
        let (tile, offset) = (tile as usize, offset as usize);
        let (dim, size) = (self.head_dim as usize, self.block_size as usize);
        match self.kv {
            KvType::F32 => ((tile * size + offset) * dim, dim, None),
            KvType::F16 => ((tile * size + offset) * dim / 2, dim / 2, None),
            KvType::Q8 => {
                let start = tile * size * (dim / 4 + 1);
                let scale = start + size * dim / 4 + offset;
                (start + offset * dim / 4, dim / 4, Some(scale))
            }
        }
    }

    pub fn write(self, cache: &mut [u32], tile: u32, offset: u32, row: &[f32]) {
        let (at, words, scale_at) = self.place(tile, offset);
        let to = &mut cache[at..at + words];
        match self.kv {
            KvType::F32 => to.copy_from_slice(bytemuck::cast_slice(row)),
            KvType::F16 => {
                for (to, pair) in to.iter_mut().zip(row.chunks_exact(2)) {
                    let [low, high] = [0, 1].map(|n| u32::from(f16::from_f32(pair[n]).to_bits()));
                    *to = low | high << 16;
                }
            }
            KvType::Q8 => {
                let scale = row.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0;
                for (to, four) in to.iter_mut().zip(row.chunks_exact(4)) {
                    let byte = |n: usize| (four[n] / scale).round() as i8 as u8;
                    *to = u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
                }
                cache[scale_at.expect("q8 has one")] = scale.to_bits();
            }
        }
    }

    pub fn read(self, cache: &[u32], tile: u32, offset: u32) -> Vec<f32> {
        let (at, words, scale_at) = self.place(tile, offset);
        let from = &cache[at..at + words];
        match self.kv {
            KvType::F32 => bytemuck::cast_slice(from).to_vec(),
            KvType::F16 => {
                let halves = from.iter().flat_map(|w| [*w as u16, (*w >> 16) as u16]);
                halves.map(|bits| f16::from_bits(bits).to_f32()).collect()
            }
            KvType::Q8 => {
                let scale = f32::from_bits(cache[scale_at.expect("q8 has one")]);
                let bytes = from.iter().flat_map(|w| w.to_le_bytes());
                bytes.map(|byte| f32::from(byte as i8) * scale).collect()
            }
        }
    }

    /// What is left of `row` once it is stored.
    pub fn stored(self, row: &[f32]) -> Vec<f32> {
        let one = Form { block_size: 1, ..self };
        let mut cache = vec![0; one.words(1)];
        one.write(&mut cache, 0, 0, row);
        one.read(&cache, 0, 0)
    }
}
