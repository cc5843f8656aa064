//! Writing GGUF version 3: the header of metadata and tensor table, padded to where data starts.

use super::Kind;
use super::types::gguf_type;
use crate::base::Format;

/// Where each tensor's data starts is a multiple of this.
pub const GGUF_ALIGNMENT: u64 = super::ALIGNMENT_DEFAULT;

/// A metadata value to be written.
#[derive(Clone, PartialEq, Debug)]
pub enum KeyValue {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

/// A tensor to be written.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorHead {
    pub name: String,
    /// Outermost axis first.
    pub shape: Vec<u64>,
    pub format: Format,
    pub bytes: u64,
}

/// The header; the tensors' data follows in the same order, each padded to [`GGUF_ALIGNMENT`].
pub fn gguf_header(keys: &[(String, KeyValue)], tensors: &[TensorHead]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(key, &mut out);
        write(value, &mut out);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        text(&tensor.name, &mut out);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        for axis in tensor.shape.iter().rev() {
            out.extend(axis.to_le_bytes());
        }
        out.extend(gguf_type(tensor.format).to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += tensor.bytes.next_multiple_of(GGUF_ALIGNMENT);
    }
    out.resize((out.len() as u64).next_multiple_of(GGUF_ALIGNMENT) as usize, 0);
    out
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write(value: &KeyValue, out: &mut Vec<u8>) {
    let kind = |kind: Kind, out: &mut Vec<u8>| out.extend((kind as u32).to_le_bytes());
    let array = |item: Kind, count: usize, out: &mut Vec<u8>| {
        kind(Kind::Array, out);
        kind(item, out);
        out.extend((count as u64).to_le_bytes());
    };
    match value {
        KeyValue::U32(value) => {
            kind(Kind::U32, out);
            out.extend(value.to_le_bytes());
        }
        KeyValue::F32(value) => {
            kind(Kind::F32, out);
            out.extend(value.to_le_bytes());
        }
        KeyValue::Bool(value) => {
            kind(Kind::Bool, out);
            out.push(u8::from(*value));
        }
        KeyValue::Text(value) => {
            kind(Kind::Text, out);
            text(value, out);
        }
        KeyValue::Texts(values) => {
            array(Kind::Text, values.len(), out);
            values.iter().for_each(|value| text(value, out));
        }
        KeyValue::I32s(values) => {
            array(Kind::I32, values.len(), out);
            values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        }
        KeyValue::F32s(values) => {
            array(Kind::F32, values.len(), out);
            values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        }
    }
}
