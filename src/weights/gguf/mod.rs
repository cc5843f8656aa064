//! GGUF, versions 2 and 3, little-endian: header, metadata, tensor table.
//!
//! Invariant: a tensor table that is returned has been held against the file's length. All sizes
//! are checked u64 arithmetic; no count or length of the file is allocated before it is compared
//! with the bytes that are left.

mod cursor;
mod meta;
pub(super) mod split;
mod types;
mod value;
mod write;

pub use meta::GgufMeta;
pub use types::gguf_type;
pub use value::{GgufArray, GgufValue, Kind};
pub use write::{GGUF_ALIGNMENT, KeyValue, TensorHead, gguf_header};

use super::error::shown;
use super::tensor::product;
use super::{Source, Tensor, WeightsError};
use cursor::{Cursor, Place};
use std::collections::{BTreeMap, BTreeSet};

const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
const AXES_MAX: u32 = 4;
/// Of a key: its length, one byte of name, its type, one byte of value.
const KEY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Of a tensor: name length, one byte of name, axis count, type, offset.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 4 + 8;

/// An opened model, from one file or several.
pub(super) struct Gguf {
    pub sources: Vec<Box<dyn Source>>,
    pub meta: GgufMeta,
    pub tensors: Vec<Tensor>,
}

/// Reads everything but the tensors' data; they get the source number `number`.
pub(super) fn read(
    source: &dyn Source,
    number: usize,
) -> Result<(GgufMeta, Vec<Tensor>), WeightsError> {
    let mut cursor = Cursor::new(source);
    read_magic(&mut cursor)?;
    let tensors = cursor.u64("tensor count")?;
    let keys = cursor.u64("metadata key count")?;
    cursor.count("tensor count", tensors, TENSOR_BYTES_MIN)?;
    cursor.count("metadata key count", keys, KEY_BYTES_MIN)?;
    let (values, alignment) = read_keys(&mut cursor, keys)?;
    cursor.place = Place::Header;
    let count = cursor.count("tensor count", tensors, TENSOR_BYTES_MIN)?;
    let mut table = Vec::with_capacity(count);
    let mut names = BTreeSet::new();
    for n in 0..tensors {
        let tensor = Tensor { source: number, ..read_tensor(&mut cursor, n)? };
        if !names.insert(tensor.name.clone()) {
            return Err(cursor.error("name", "is given to two tensors"));
        }
        table.push(tensor);
    }
    place_tensors(source, &mut table, cursor.at().next_multiple_of(alignment), alignment)?;
    Ok((GgufMeta::new(source.name(), values), table))
}

fn read_magic(cursor: &mut Cursor) -> Result<(), WeightsError> {
    let magic: [u8; 4] = cursor.array("magic")?;
    if &magic != b"GGUF" {
        let found = magic.escape_ascii();
        return Err(cursor.error("magic", format!("found `{found}`, a GGUF file has `GGUF`")));
    }
    let version = cursor.u32("version")?;
    let swapped = version.swap_bytes();
    let problem = match version {
        2 | 3 => return Ok(()),
        1.. if swapped <= 0xFF => {
            format!("version {swapped} in big-endian order is not supported; convert the file")
        }
        _ => format!("version {version} is not supported; versions 2 and 3 are"),
    };
    Err(cursor.error("version", problem))
}

/// All metadata, and the alignment it asks for.
fn read_keys(
    cursor: &mut Cursor,
    count: u64,
) -> Result<(BTreeMap<String, GgufValue>, u64), WeightsError> {
    let mut values = BTreeMap::new();
    let mut alignment = ALIGNMENT_DEFAULT;
    for n in 0..count {
        cursor.place = Place::KeyName(n);
        let key = cursor.text("name")?;
        if key.is_empty() {
            return Err(cursor.error("name", "is empty"));
        }
        cursor.place = Place::Key(key.clone());
        let kind = Kind::read(cursor, "value type")?;
        let value = GgufValue::read(cursor, kind)?;
        if key == ALIGNMENT_KEY {
            alignment = read_alignment(cursor, kind, &value)?;
        }
        if values.insert(key, value).is_some() {
            return Err(cursor.error("name", "is given twice"));
        }
    }
    Ok((values, alignment))
}

fn read_alignment(cursor: &Cursor, kind: Kind, value: &GgufValue) -> Result<u64, WeightsError> {
    match value {
        GgufValue::Unsigned(value)
            if kind == Kind::U32 && value.is_power_of_two() && *value <= ALIGNMENT_MAX =>
        {
            Ok(*value)
        }
        _ => Err(cursor.error(
            "value",
            format!(
                "found {} of type {kind:?}; a U32 power of two up to {ALIGNMENT_MAX} is expected",
                value.view()
            ),
        )),
    }
}

/// One row of the tensor table; `offset` still counts from the start of the data.
fn read_tensor(cursor: &mut Cursor, n: u64) -> Result<Tensor, WeightsError> {
    cursor.place = Place::TensorName(n);
    let name = cursor.text("name")?;
    if name.is_empty() {
        return Err(cursor.error("name", "is empty"));
    }
    cursor.place = Place::Tensor(name.clone());
    let axes = cursor.u32("n_dims")?;
    if axes > AXES_MAX {
        return Err(cursor.error("n_dims", format!("{axes} axes; at most {AXES_MAX} exist")));
    }
    let mut shape = Vec::with_capacity(axes as usize);
    for _ in 0..axes {
        shape.push(cursor.u64("ne")?);
    }
    let id = cursor.u32("type")?;
    let offset = cursor.u64("offset")?;
    if shape.contains(&0) {
        return Err(cursor.error("ne", format!("{shape:?} has an axis of length 0")));
    }
    let format = types::format_of(id).map_err(|problem| cursor.error("type", problem))?;
    // GGUF counts the innermost axis first.
    let columns = shape.first().copied().unwrap_or(1);
    if !columns.is_multiple_of(format.block_len() as u64) {
        let problem = format!(
            "a row has {columns} values, which is no multiple of {format}'s block of {}",
            format.block_len()
        );
        return Err(cursor.error("ne", problem));
    }
    shape.reverse();
    let values = product(cursor.file(), &name, &shape)?;
    let bytes = format.bytes_of(values).ok_or_else(|| {
        cursor.error("ne", format!("the bytes of {shape:?} in {format} do not fit 64 bits"))
    })?;
    Ok(Tensor { name, shape, format, source: 0, offset, bytes })
}

/// Turns offsets into offsets of the file, and holds every tensor against the file's length,
/// the alignment and its neighbours.
fn place_tensors(
    source: &dyn Source,
    table: &mut [Tensor],
    data: u64,
    alignment: u64,
) -> Result<(), WeightsError> {
    let (file, len) = (source.name(), source.len());
    for tensor in table.iter_mut() {
        let error = |problem| WeightsError::tensor(file, &tensor.name, "offset", problem);
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(error(format!(
                "{} is no multiple of the alignment {alignment}",
                tensor.offset
            )));
        }
        let start = tensor.offset.checked_add(data);
        match start.and_then(|start| start.checked_add(tensor.bytes)) {
            Some(end) if end <= len => tensor.offset += data,
            _ => {
                return Err(error(format!(
                    "{} bytes at {} of the data, which starts at {data}, reach past the file's \
                     end at {len}; the file is cut short or damaged",
                    tensor.bytes, tensor.offset
                )));
            }
        }
    }
    let mut order: Vec<&Tensor> = table.iter().collect();
    order.sort_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].bytes > pair[1].offset {
            let problem = format!("shares bytes with tensor `{}`", shown(&pair[0].name));
            return Err(WeightsError::tensor(file, &pair[1].name, "offset", problem));
        }
    }
    Ok(())
}
