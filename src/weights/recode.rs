//! Tensors that are read in another format than they are stored in: eight-bit floats with scales,
//! and float weights quantised while loading.

use super::tensor::Other;
use super::{HfMeta, Tensor, Weights, WeightsError, blocks};
use crate::base::Format;
use std::collections::BTreeMap;

/// Values decoded at once.
const CHUNK_VALUES: u64 = 1 << 20;

/// Sides of a block of values that share a scale, where config.json does not say.
const BLOCK_DEFAULT: [u64; 2] = [128, 128];

const FP8: &str = "F8_E4M3";

/// How a tensor lies in its source.
pub(super) enum Stored {
    Plain(Tensor),
    Fp8 { weight: Other, scale: Tensor, per: Per },
}

/// Which values of a matrix share a scale.
#[derive(Clone, Copy)]
pub(super) enum Per {
    Tensor,
    Row,
    Block([u64; 2]),
}

/// Takes the eight-bit floats out of `others`, with their scales out of `tensors`; what is left in
/// `others` has no scale. They are read as BF16.
pub(super) fn take_fp8(
    file: &str,
    meta: &HfMeta,
    tensors: &mut BTreeMap<String, Tensor>,
    others: &mut BTreeMap<String, Other>,
) -> Result<BTreeMap<String, Stored>, WeightsError> {
    let mut out = BTreeMap::new();
    let names: Vec<String> = others
        .iter()
        .filter(|(_, other)| other.dtype == FP8)
        .map(|(name, _)| name.clone())
        .collect();
    for name in names {
        let scale =
            ["_scale_inv", "_scale"].iter().find_map(|tail| tensors.remove(&(name.clone() + tail)));
        let Some(scale) = scale else { continue };
        let Some(weight) = others.remove(&name) else { continue };
        let per = sharing(file, &name, meta, &weight, &scale)?;
        let bytes = Format::BF16.bytes_of(weight.bytes).ok_or_else(|| {
            WeightsError::tensor(file, &name, "shape", "its values in BF16 do not fit 64 bits")
        })?;
        let tensor = Tensor {
            name: name.clone(),
            shape: weight.shape.clone(),
            format: Format::BF16,
            source: weight.source,
            offset: weight.offset,
            bytes,
        };
        tensors.insert(name.clone(), tensor);
        out.insert(name, Stored::Fp8 { weight, scale, per });
    }
    Ok(out)
}

/// Which values share a scale, by the shapes of both.
fn sharing(
    file: &str,
    name: &str,
    meta: &HfMeta,
    weight: &Other,
    scale: &Tensor,
) -> Result<Per, WeightsError> {
    let block = match meta.find_u32s("quantization_config.weight_block_size")?.as_deref() {
        None => BLOCK_DEFAULT,
        Some([rows, cols]) if *rows > 0 && *cols > 0 => [u64::from(*rows), u64::from(*cols)],
        Some(other) => {
            let problem = format!("weight_block_size {other:?} is no pair of positive numbers");
            return Err(WeightsError::tensor(file, name, "scale", problem));
        }
    };
    let [rows, cols] = weight.shape[..] else {
        let problem = format!("{:?} with scales is not supported; a matrix is", weight.shape);
        return Err(WeightsError::tensor(file, name, "shape", problem));
    };
    let blocks = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
    match scale.shape[..] {
        [] | [1] => Ok(Per::Tensor),
        [n] | [n, 1] if n == rows => Ok(Per::Row),
        [a, b] if [a, b] == blocks => Ok(Per::Block(block)),
        [1, 1] => Ok(Per::Tensor),
        _ => {
            let problem = format!(
                "`{}` has shape {:?}; one value, {rows} rows, or blocks {blocks:?} are expected",
                scale.name, scale.shape
            );
            Err(WeightsError::tensor(file, name, "scale", problem))
        }
    }
}

impl Weights {
    /// Reads the float matrices as `format` from now on, quantised block by block as they are
    /// asked for. Norms, biases and expert routers stay as they are, and so do rows that are no
    /// whole blocks; below eight bits, embedding and head get [`Format::Q8_0`].
    ///
    /// # Panics
    /// If `format` is only read ([`blocks::encodes`]).
    pub fn quantise(&mut self, format: Format) {
        assert!(blocks::encodes(format), "{format} is only read");
        for tensor in self.tensors.values_mut() {
            let float = matches!(tensor.format, Format::F32 | Format::F16 | Format::BF16);
            let to = if is_vocabulary(&tensor.name) { Format::Q8_0 } else { format };
            let cols = tensor.shape.last().copied().unwrap_or(1);
            let whole = tensor.shape.len() >= 2 && cols.is_multiple_of(to.block_len() as u64);
            let Some(bytes) = to.bytes_of(tensor.shape.iter().product()) else { continue };
            if !float || !whole || is_router(&tensor.name) {
                continue;
            }
            let stored = Stored::Plain(tensor.clone());
            self.recoded.entry(tensor.name.clone()).or_insert(stored);
            (tensor.format, tensor.bytes) = (to, bytes);
        }
    }

    /// Rows of a tensor in the format it is read in.
    pub(super) fn recode(
        &self,
        tensor: &Tensor,
        stored: &Stored,
        first_row: u64,
        rows: u64,
    ) -> Result<Vec<u8>, WeightsError> {
        let cols = tensor.shape.iter().skip(1).product::<u64>().max(1);
        let step = (CHUNK_VALUES / cols).max(1);
        let mut out = Vec::new();
        let (mut row, end) = (first_row, first_row + rows);
        while row < end {
            let count = step.min(end - row);
            let values = match stored {
                Stored::Plain(from) => {
                    let raw = self.read_stored(from, row, count)?;
                    let mut values = vec![0.0; (count * cols) as usize];
                    blocks::decode(from.format, &raw, &mut values);
                    values
                }
                Stored::Fp8 { weight, scale, per } => {
                    let at = weight.offset + row * cols;
                    let raw = self.read(weight.source, &tensor.name, at, count * cols)?;
                    let scales = self.read_stored(scale, 0, scale.rows())?;
                    scaled(&raw, row, cols, *per, &decoded(scale, &scales))
                }
            };
            blocks::encode(tensor.format, &values, &mut out);
            row += count;
        }
        Ok(out)
    }
}

fn decoded(tensor: &Tensor, raw: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
    blocks::decode(tensor.format, raw, &mut out);
    out
}

/// Eight-bit floats from row `first` on, times their scales.
fn scaled(raw: &[u8], first: u64, cols: u64, per: Per, scales: &[f32]) -> Vec<f32> {
    let scale = |i: u64| {
        let (row, col) = (first + i / cols, i % cols);
        let at = match per {
            Per::Tensor => 0,
            Per::Row => row,
            Per::Block([high, wide]) => row / high * cols.div_ceil(wide) + col / wide,
        };
        scales[at as usize]
    };
    raw.iter().zip(0..).map(|(byte, i)| e4m3(*byte) * scale(i)).collect()
}

/// Four bits of exponent, three of mantissa, no infinity ("FP8 formats for deep learning", 2022).
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if byte >> 7 == 1 { -magnitude } else { magnitude }
}

/// Embedding and head.
fn is_vocabulary(name: &str) -> bool {
    ["embed_tokens.weight", "lm_head.weight", "token_embd.weight"]
        .iter()
        .any(|tail| name.ends_with(tail))
        || name == "output.weight"
}

/// What chooses experts; a rounding there changes which of them run.
fn is_router(name: &str) -> bool {
    ["mlp.gate.weight", "block_sparse_moe.gate.weight", "ffn_gate_inp.weight"]
        .iter()
        .any(|tail| name.ends_with(tail))
}
