//! Writers of small weight files, right and wrong, and what the rows ask of errors.

use crate::support::peak_bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tilewright::weights::{BytesSource, Source, Weights, WeightsError};

/// A GGUF file as its parts, each of which a row may spoil.
#[derive(Clone)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    /// Stated counts, if they are to lie.
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    /// Key, value type, value.
    pub keys: Vec<(String, u32, Vec<u8>)>,
    pub tensors: Vec<Row>,
    pub alignment: u64,
    /// Bytes of data after the (aligned) header.
    pub data: Vec<u8>,
}

#[derive(Clone)]
pub struct Row {
    pub name: String,
    pub axes: Option<u32>,
    pub ne: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
}

pub fn row(name: &str, ne: &[u64], kind: u32, offset: u64) -> Row {
    Row { name: name.to_string(), axes: None, ne: ne.to_vec(), kind, offset }
}

/// A length and the bytes.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Item type, length, items.
pub fn array(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), items].concat()
}

impl Gguf {
    pub fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }

    pub fn key(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.push((key.to_string(), kind, value.to_vec()));
        self
    }

    pub fn tensor(mut self, row: Row) -> Self {
        self.tensors.push(row);
        self
    }

    pub fn data(mut self, bytes: usize) -> Self {
        self.data = (0..bytes).map(|i| (i % 251) as u8).collect();
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.keys {
            out.extend(text(key));
            out.extend(kind.to_le_bytes());
            out.extend(value);
        }
        for row in &self.tensors {
            out.extend(text(&row.name));
            out.extend(row.axes.unwrap_or(row.ne.len() as u32).to_le_bytes());
            row.ne.iter().for_each(|ne| out.extend(ne.to_le_bytes()));
            out.extend(row.kind.to_le_bytes());
            out.extend(row.offset.to_le_bytes());
        }
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&self.data);
        }
        out
    }

    pub fn open(&self) -> Result<Weights, WeightsError> {
        open_gguf(self.bytes())
    }
}

/// Two tensors, keys of every kind: a file that opens.
pub fn good_gguf() -> Gguf {
    Gguf::new()
        .key("general.architecture", 8, &text("llama"))
        .key("u8", 0, &[200])
        .key("i8", 1, &[0xFF])
        .key("u16", 2, &60000u16.to_le_bytes())
        .key("i16", 3, &(-5i16).to_le_bytes())
        .key("llama.attention.head_count", 4, &9u32.to_le_bytes())
        .key("i32", 5, &9i32.to_le_bytes())
        .key("f32", 6, &1e-5f32.to_le_bytes())
        .key("bool", 7, &[1])
        .key("u64", 10, &u64::MAX.to_le_bytes())
        .key("i64", 11, &(-1i64).to_le_bytes())
        .key("f64", 12, &0.5f64.to_le_bytes())
        .key("tokens", 9, &array(8, 2, &[text("a"), text("Ġ")].concat()))
        .key("types", 9, &array(5, 3, &[1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]))
        .key("scores", 9, &array(6, 2, &[0; 8]))
        .key("nested", 9, &array(9, 1, &array(0, 2, &[7, 8])))
        .key("none", 9, &array(4, 0, &[]))
        .tensor(row("t", &[4, 3], 0, 0))
        .tensor(row("q", &[32, 2], 3, 64))
        .data(64 + 40)
}

/// Opens it, right or hostile, within a few bytes of memory for each of the file's.
pub fn open_gguf(bytes: Vec<u8>) -> Result<Weights, WeightsError> {
    let len = bytes.len();
    let source = Box::new(BytesSource::new("t.gguf", bytes));
    frugal(len, || Weights::from_gguf_source(source))
}

/// Case 02: whatever a file claims to hold, memory goes by what it has.
fn frugal<T>(len: usize, open: impl FnOnce() -> T) -> T {
    let (out, peak) = peak_bytes(open);
    assert!(peak <= (256 << 10) + 32 * len as u64, "{peak} bytes held for a file of {len}");
    out
}

/// A safetensors file of this header and so many bytes of data.
pub fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend((0..data).map(|i| (i % 251) as u8));
    out
}

/// Opens it as the weights of a folder with an empty config.json.
pub fn open_safetensors(bytes: Vec<u8>) -> Result<Weights, WeightsError> {
    let len = bytes.len();
    let files = vec![("model.safetensors", bytes.into()), ("config.json", b"{}".as_slice().into())];
    frugal(len, || Weights::from_folder_bytes("f", files))
}

/// The error's text, which must hold all of `needles`.
#[track_caller]
pub fn fails<T>(result: Result<T, WeightsError>, needles: &[&str]) -> String {
    let Err(error) = result else { panic!("opened, but {needles:?} is wrong with it") };
    let text = error.to_string();
    for needle in needles {
        assert!(text.contains(needle), "`{text}` does not say `{needle}`");
    }
    text
}

#[track_caller]
pub fn opens(result: Result<Weights, WeightsError>) -> Weights {
    match result {
        Ok(weights) => weights,
        Err(error) => panic!("{error}"),
    }
}

/// A source that counts what is read; past `head` it is zeros up to `len`.
pub struct Counted {
    pub head: Vec<u8>,
    pub len: u64,
    pub reads: Arc<AtomicU64>,
    pub bytes: Arc<AtomicU64>,
}

impl Counted {
    pub fn new(head: Vec<u8>, len: u64) -> Self {
        Self { head, len, reads: Arc::default(), bytes: Arc::default() }
    }
}

impl Source for Counted {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        assert!(offset + into.len() as u64 <= self.len, "a read past the end");
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = self.head.get(offset as usize + i).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn name(&self) -> &str {
        "counted"
    }
}
