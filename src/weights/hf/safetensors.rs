//! The safetensors header, held against the file it stands in.
//!
//! The `safetensors` crate parses a whole file in memory; it counts in usize, lets a duplicate
//! key replace the first and does not say which tensor is wrong. So the header is read here, with
//! the crate's `Dtype` for the sizes of all types, and a test holds both readers against each
//! other.

use super::super::error::shown;
use super::super::tensor::{Found, Other, product};
use super::super::{Source, Tensor, WeightsError};
use crate::base::Format;
use safetensors::Dtype;
use serde::de::value::{Error as DtypeError, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, de::IntoDeserializer};
use std::collections::{BTreeMap, BTreeSet};

/// The header's length, which stands before it.
const PREFIX: u64 = 8;
/// The bound that the format itself sets.
const HEADER_BYTES_MAX: u64 = 100_000_000;
const METADATA_KEY: &str = "__metadata__";

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Reads everything but the tensors' data; they get the source number `number`.
pub(in super::super) fn read(source: &dyn Source, number: usize) -> Result<Found, WeightsError> {
    let (file, len) = (source.name(), source.len());
    let header = |field, problem| Err(WeightsError::header(file, field, problem));
    if len < PREFIX {
        return header("file length", format!("{len} bytes; a safetensors file has at least 10"));
    }
    let mut prefix = [0; 8];
    source.read(0, &mut prefix)?;
    let header_len = u64::from_le_bytes(prefix);
    if header_len > HEADER_BYTES_MAX {
        let problem = format!("{header_len} bytes; the format allows {HEADER_BYTES_MAX}");
        return header("header length", problem);
    }
    if header_len > len - PREFIX {
        let problem = format!(
            "{header_len} bytes, but {} follow; the file is cut short or no safetensors file",
            len - PREFIX
        );
        return header("header length", problem);
    }
    // Fits: it is at most HEADER_BYTES_MAX.
    let mut text = vec![0; header_len as usize];
    source.read(PREFIX, &mut text)?;
    if text.first() != Some(&b'{') {
        return header("header", "does not begin with `{`".to_string());
    }
    let entries = parse(file, &text)?;
    if entries.is_empty() {
        return header("header", "names no tensor".to_string());
    }
    let data = PREFIX + header_len;
    let placed = place(file, entries, len - data)?;
    let mut found = Found::default();
    for Placed { name, dtype, shape, begin, bytes } in placed {
        let offset = data + begin;
        match format_of(&dtype) {
            Some(format) => {
                found.tensors.push(Tensor { name, shape, format, source: number, offset, bytes });
            }
            None => {
                found.others.push((name, Other { dtype, shape, source: number, offset, bytes }));
            }
        }
    }
    Ok(found)
}

fn format_of(dtype: &str) -> Option<Format> {
    match dtype {
        "F32" => Some(Format::F32),
        "F16" => Some(Format::F16),
        "BF16" => Some(Format::BF16),
        _ => None,
    }
}

fn parse(file: &str, text: &[u8]) -> Result<Vec<(String, Entry)>, WeightsError> {
    let mut header = Header::default();
    let mut json = serde_json::Deserializer::from_slice(text);
    let parsed = (&mut header).deserialize(&mut json).and_then(|()| json.end());
    match (parsed, header.current) {
        (Ok(()), _) => Ok(header.entries),
        (Err(e), Some(name)) => Err(WeightsError::tensor(file, &name, "header entry", e)),
        (Err(e), None) => Err(WeightsError::header(file, "header", e)),
    }
}

/// The entries read so far, and the tensor whose entry is being read.
#[derive(Default)]
struct Header {
    entries: Vec<(String, Entry)>,
    names: BTreeSet<String>,
    current: Option<String>,
}

impl<'de> DeserializeSeed<'de> for &mut Header {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Header {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a table of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if !self.names.insert(name.clone()) {
                return Err(A::Error::custom(format!("`{}` is given twice", shown(&name))));
            }
            if name == METADATA_KEY {
                map.next_value::<Option<BTreeMap<String, String>>>()?;
                continue;
            }
            self.current = Some(name.clone());
            let entry = map.next_value()?;
            self.current = None;
            self.entries.push((name, entry));
        }
        Ok(())
    }
}

/// An entry whose size has been checked.
struct Placed {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    begin: u64,
    bytes: u64,
}

/// Checks each entry's size, and that the entries tile the `data_len` bytes of data: no gap, no
/// overlap, nothing after the last.
fn place(
    file: &str,
    entries: Vec<(String, Entry)>,
    data_len: u64,
) -> Result<Vec<Placed>, WeightsError> {
    let mut placed = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        placed.push(sized(file, name, entry, data_len)?);
    }
    placed.sort_by_key(|p| (p.begin, p.bytes));
    let mut next = 0;
    for p in &placed {
        if p.begin != next {
            let kind = if p.begin > next { "leaves a gap after" } else { "overlaps" };
            let problem =
                format!("begins at {}, which {kind} the tensor that ends at {next}", p.begin);
            return Err(WeightsError::tensor(file, &p.name, "data_offsets", problem));
        }
        next += p.bytes;
    }
    if next != data_len {
        let problem = format!("{} bytes follow the last tensor", data_len - next);
        return Err(WeightsError::header(file, "data", problem));
    }
    Ok(placed)
}

fn sized(file: &str, name: String, entry: Entry, data_len: u64) -> Result<Placed, WeightsError> {
    let error = |field, problem| Err(WeightsError::tensor(file, &name, field, problem));
    let Entry { dtype, shape, data_offsets: [begin, end] } = entry;
    let Some(bits) = bits_of(&dtype) else {
        return error("dtype", format!("`{}` is unknown", shown(&dtype)));
    };
    if end < begin {
        return error("data_offsets", format!("[{begin}, {end}] ends before it begins"));
    }
    if end > data_len {
        let problem = format!(
            "[{begin}, {end}] reaches past the {data_len} bytes of data; the file is cut short or \
             damaged"
        );
        return error("data_offsets", problem);
    }
    let values = product(file, &name, &shape)?;
    match values.checked_mul(bits) {
        Some(bits) if bits % 8 == 0 && bits / 8 == end - begin => {
            Ok(Placed { name, dtype, shape, begin, bytes: end - begin })
        }
        _ => {
            let problem =
                format!("[{begin}, {end}] holds {} bytes, not {shape:?} of {dtype}", end - begin);
            error("data_offsets", problem)
        }
    }
}

/// Bits of one value of any type that the format knows.
fn bits_of(dtype: &str) -> Option<u64> {
    let text: StrDeserializer<DtypeError> = dtype.into_deserializer();
    Dtype::deserialize(text).ok().map(|dtype| dtype.bitsize() as u64)
}
