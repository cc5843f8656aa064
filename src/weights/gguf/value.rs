//! Metadata values. Numeric arrays stay the bytes they were, so that a value needs no more
//! memory than it took in the file.

use super::super::WeightsError;
use super::super::field::View;
use super::cursor::Cursor;

/// How deep arrays may lie in arrays. Files in use have none.
const NESTING_MAX: u32 = 4;

/// GGUF's value types, by id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::U8,
        Kind::I8,
        Kind::U16,
        Kind::I16,
        Kind::U32,
        Kind::I32,
        Kind::F32,
        Kind::Bool,
        Kind::Text,
        Kind::Array,
        Kind::U64,
        Kind::I64,
        Kind::F64,
    ];

    pub(super) fn read(cursor: &mut Cursor, field: &'static str) -> Result<Self, WeightsError> {
        let id = cursor.u32(field)?;
        let found = usize::try_from(id).ok().and_then(|id| Self::ALL.get(id));
        found.copied().ok_or_else(|| cursor.error(field, format!("unknown id {id}; 0 to 12 exist")))
    }

    /// The fewest bytes one value takes in a file.
    fn bytes_min(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Text => 8,
            Kind::Array => 12,
        }
    }
}

/// One metadata value. Integer widths are kept for display only; getters accept any.
#[derive(Clone, PartialEq, Debug)]
pub enum GgufValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(GgufArray),
}

/// An array of values of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct GgufArray {
    kind: Kind,
    items: Items,
}

#[derive(Clone, PartialEq, Debug)]
enum Items {
    /// Little-endian numbers or bools, `kind.bytes_min()` bytes each.
    Numbers(Vec<u8>),
    Texts(Vec<String>),
    Arrays(Vec<GgufArray>),
}

impl GgufArray {
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn len(&self) -> usize {
        match &self.items {
            Items::Numbers(bytes) => bytes.len() / self.kind.bytes_min(),
            Items::Texts(texts) => texts.len(),
            Items::Arrays(arrays) => arrays.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The strings of an array of strings.
    pub fn texts(&self) -> Option<&[String]> {
        match &self.items {
            Items::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    pub(super) fn views(&self) -> Vec<View<'_>> {
        match &self.items {
            Items::Numbers(bytes) => {
                bytes.chunks_exact(self.kind.bytes_min()).map(|b| number(self.kind, b)).collect()
            }
            Items::Texts(texts) => texts.iter().map(|t| View::Text(t)).collect(),
            Items::Arrays(arrays) => arrays.iter().map(|a| View::List(a.views())).collect(),
        }
    }
}

/// A stored number. `bytes` has the kind's length; a wrong length reads as 0.
fn number(kind: Kind, bytes: &[u8]) -> View<'static> {
    fn le<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap_or([0; N])
    }
    match kind {
        Kind::U8 => View::Unsigned(u8::from_le_bytes(le(bytes)).into()),
        Kind::U16 => View::Unsigned(u16::from_le_bytes(le(bytes)).into()),
        Kind::U32 => View::Unsigned(u32::from_le_bytes(le(bytes)).into()),
        Kind::U64 => View::Unsigned(u64::from_le_bytes(le(bytes))),
        Kind::I8 => View::Signed(i8::from_le_bytes(le(bytes)).into()),
        Kind::I16 => View::Signed(i16::from_le_bytes(le(bytes)).into()),
        Kind::I32 => View::Signed(i32::from_le_bytes(le(bytes)).into()),
        Kind::I64 => View::Signed(i64::from_le_bytes(le(bytes))),
        Kind::F32 => View::Float(f32::from_le_bytes(le(bytes)).into()),
        Kind::F64 => View::Float(f64::from_le_bytes(le(bytes))),
        Kind::Bool | Kind::Text | Kind::Array => View::Bool(le::<1>(bytes) != [0]),
    }
}

impl GgufValue {
    pub(super) fn read(cursor: &mut Cursor, kind: Kind) -> Result<Self, WeightsError> {
        Ok(match kind {
            Kind::Text => Self::Text(cursor.text("value")?),
            Kind::Array => Self::Array(read_array(cursor, 1)?),
            kind => {
                let bytes = cursor.bytes("value", kind.bytes_min() as u64)?;
                bools_are_bools(cursor, kind, &bytes)?;
                match number(kind, &bytes) {
                    View::Unsigned(value) => Self::Unsigned(value),
                    View::Signed(value) => Self::Signed(value),
                    View::Float(value) => Self::Float(value),
                    _ => Self::Bool(bytes != [0]),
                }
            }
        })
    }

    pub(super) fn view(&self) -> View<'_> {
        match self {
            Self::Unsigned(value) => View::Unsigned(*value),
            Self::Signed(value) => View::Signed(*value),
            Self::Float(value) => View::Float(*value),
            Self::Bool(value) => View::Bool(*value),
            Self::Text(value) => View::Text(value),
            Self::Array(array) => View::List(array.views()),
        }
    }
}

fn read_array(cursor: &mut Cursor, depth: u32) -> Result<GgufArray, WeightsError> {
    if depth > NESTING_MAX {
        return Err(cursor.error("value", format!("arrays lie more than {NESTING_MAX} deep")));
    }
    let kind = Kind::read(cursor, "array item type")?;
    let stated = cursor.u64("array length")?;
    let count = cursor.count("array length", stated, kind.bytes_min() as u64)?;
    let items = match kind {
        Kind::Text => {
            let mut texts = Vec::with_capacity(count);
            for _ in 0..count {
                texts.push(cursor.text("array item")?);
            }
            Items::Texts(texts)
        }
        Kind::Array => {
            let mut arrays = Vec::with_capacity(count);
            for _ in 0..count {
                arrays.push(read_array(cursor, depth + 1)?);
            }
            Items::Arrays(arrays)
        }
        kind => {
            // Cannot overflow: `count` items of this size lie in the file.
            let bytes = cursor.bytes("array item", stated * kind.bytes_min() as u64)?;
            bools_are_bools(cursor, kind, &bytes)?;
            Items::Numbers(bytes)
        }
    };
    Ok(GgufArray { kind, items })
}

fn bools_are_bools(cursor: &Cursor, kind: Kind, bytes: &[u8]) -> Result<(), WeightsError> {
    match bytes.iter().find(|&&b| b > 1) {
        Some(b) if kind == Kind::Bool => {
            Err(cursor.error("value", format!("a bool is 0 or 1, found {b}")))
        }
        _ => Ok(()),
    }
}
