//! Weight files: GGUF and safetensors. Opening reads headers and side files only; tensors are
//! read by rows, straight from their source.
//!
//! Invariant: every [`Tensor`] of an opened [`Weights`] lies in its source, is as long as its shape
//! and format need, and has rows of whole blocks. Tensors that are read in another format than
//! they are stored in ([`recode`]) are described as they are read.

pub mod blocks;
mod error;
mod field;
mod gguf;
mod hf;
#[cfg(feature = "hub")]
pub mod hub;
mod recode;
mod source;
mod tensor;

pub use error::WeightsError;
pub use gguf::{
    GGUF_ALIGNMENT, GgufArray, GgufMeta, GgufValue, KeyValue, Kind, TensorHead, gguf_header,
    gguf_type,
};
pub use hf::HfMeta;
pub use source::{BytesSource, FileSource, Source};
pub use tensor::Tensor;

use gguf::Gguf;
use hf::{Folder, Opened};
use recode::Stored;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tensor::Other;

/// What a file says beside its tensors.
pub enum Meta {
    Gguf(GgufMeta),
    Hf(HfMeta),
}

/// An opened model file or folder.
pub struct Weights {
    name: String,
    sources: Vec<Box<dyn Source>>,
    tensors: BTreeMap<String, Tensor>,
    others: BTreeMap<String, Other>,
    recoded: BTreeMap<String, Stored>,
    meta: Meta,
    folder: Option<Folder>,
}

impl Weights {
    /// Opens a GGUF file, a Hugging Face folder, or a .safetensors file.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let name = path.display().to_string();
        if path.is_dir() {
            return Self::from_folder(name, Folder::Disk(path.to_path_buf()));
        }
        let source = FileSource::open(path)?;
        let mut head = [0; 9];
        let n = source.len().min(9) as usize;
        source.read(0, &mut head[..n])?;
        let extension = path.extension().unwrap_or_default();
        if head.starts_with(b"version h") {
            let problem = "is a Git LFS pointer; fetch the file itself with `git lfs pull`";
            return Err(WeightsError::header(&name, "file", problem));
        }
        if head.starts_with(b"GGUF") || extension == "gguf" {
            let (meta, tensors) = gguf::read(&source, 0)?;
            return match gguf::split::count(&meta)? {
                1 => Ok(Self::from_gguf(
                    name,
                    Gguf { sources: vec![Box::new(source)], meta, tensors },
                )),
                _ => Ok(Self::from_gguf(name, gguf::split::open(path, &meta)?)),
            };
        }
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else {
            return Err(WeightsError::header(&name, "path", "has no readable file name"));
        };
        if head[8] != b'{' && extension != "safetensors" {
            let problem = "is neither a GGUF file nor a safetensors file";
            return Err(WeightsError::header(&name, "file", problem));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = Folder::Disk(parent.unwrap_or(Path::new(".")).to_path_buf());
        let opened = hf::open_file(&folder, file)?;
        Self::from_opened(name, opened, folder)
    }

    /// Opens a Hugging Face folder whose files are in memory.
    pub fn from_folder_bytes(
        name: &str,
        files: Vec<(&'static str, Cow<'static, [u8]>)>,
    ) -> Result<Self, WeightsError> {
        let source = |(file, bytes): (&str, _)| -> (String, Arc<dyn Source>) {
            (file.to_string(), Arc::new(BytesSource::new(format!("{name}/{file}"), bytes)))
        };
        Self::from_files(name, files.into_iter().map(source).collect())
    }

    /// Opens a GGUF file, or the files of a Hugging Face folder, behind any sources.
    pub fn from_files(
        name: &str,
        files: Vec<(String, Arc<dyn Source>)>,
    ) -> Result<Self, WeightsError> {
        if let [(file, source)] = &files[..]
            && file.ends_with(".gguf")
        {
            return Self::from_gguf_source(Box::new(source.clone()));
        }
        Self::from_folder(name.to_string(), Folder::Given { name: name.to_string(), files })
    }

    /// Opens a whole GGUF file behind any source.
    pub fn from_gguf_source(source: Box<dyn Source>) -> Result<Self, WeightsError> {
        let (meta, tensors) = gguf::read(source.as_ref(), 0)?;
        let (name, parts) = (source.name().to_string(), gguf::split::count(&meta)?);
        if parts > 1 {
            let problem = format!("this is one of {parts} parts; open it by its path");
            return Err(WeightsError::key(&name, "split.count", problem));
        }
        Ok(Self::from_gguf(name, Gguf { sources: vec![source], meta, tensors }))
    }

    fn from_gguf(name: String, gguf: Gguf) -> Self {
        Self {
            name,
            sources: gguf.sources,
            tensors: gguf.tensors.into_iter().map(|t| (t.name.clone(), t)).collect(),
            others: BTreeMap::new(),
            recoded: BTreeMap::new(),
            meta: Meta::Gguf(gguf.meta),
            folder: None,
        }
    }

    fn from_folder(name: String, folder: Folder) -> Result<Self, WeightsError> {
        let opened = hf::open_folder(&folder)?;
        Self::from_opened(name, opened, folder)
    }

    fn from_opened(name: String, opened: Opened, folder: Folder) -> Result<Self, WeightsError> {
        let Opened { sources, found, meta } = opened;
        let mut tensors = found.tensors.into_iter().map(|t| (t.name.clone(), t)).collect();
        let mut others = found.others.into_iter().collect();
        let recoded = recode::take_fp8(&name, &meta, &mut tensors, &mut others)?;
        Ok(Self {
            name,
            sources,
            tensors,
            others,
            recoded,
            meta: Meta::Hf(meta),
            folder: Some(folder),
        })
    }

    /// What errors call these weights.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensor of this name and shape; the error says what is there instead.
    pub fn expect(&self, name: &str, shape: &[u64]) -> Result<&Tensor, WeightsError> {
        let error = |field, problem| WeightsError::tensor(&self.name, name, field, problem);
        match (self.tensors.get(name), self.others.get(name)) {
            (Some(tensor), _) if tensor.shape == shape => Ok(tensor),
            (Some(tensor), _) => {
                Err(error("shape", format!("expected {shape:?}, found {:?}", tensor.shape)))
            }
            (None, Some(other)) => {
                let problem = format!(
                    "{} is not supported; supported: F32, F16, BF16, and F8_E4M3 with a tensor \
                     `{name}_scale_inv` or `{name}_scale`",
                    other.dtype
                );
                Err(error("dtype", problem))
            }
            (None, None) => {
                let problem = "is missing; the file is incomplete or of another architecture";
                Err(error("name", problem.to_string()))
            }
        }
    }

    /// The raw bytes of rows `first_row .. first_row + rows`, where a row is all axes but the
    /// outermost: one read of the source.
    pub fn read_rows(
        &self,
        tensor: &Tensor,
        first_row: u64,
        rows: u64,
    ) -> Result<Vec<u8>, WeightsError> {
        match self.recoded.get(&tensor.name) {
            Some(stored) if tensor.range(first_row, rows).is_some() => {
                self.recode(tensor, stored, first_row, rows)
            }
            _ => self.read_stored(tensor, first_row, rows),
        }
    }

    fn read_stored(
        &self,
        tensor: &Tensor,
        first_row: u64,
        rows: u64,
    ) -> Result<Vec<u8>, WeightsError> {
        let Some((offset, bytes)) = tensor.range(first_row, rows) else {
            let problem = format!("{rows} from {first_row} on asked of {}", tensor.rows());
            return Err(WeightsError::tensor(&self.name, &tensor.name, "rows", problem));
        };
        self.read(tensor.source, &tensor.name, offset, bytes)
    }

    /// A tensor of I32 or I64: its shape and values. Reference files hold token ids so.
    pub fn read_ints(&self, name: &str) -> Result<(Vec<u64>, Vec<i64>), WeightsError> {
        let error = |field, problem| WeightsError::tensor(&self.name, name, field, problem);
        let Some(other) = self.others.get(name) else {
            return Err(error("name", "is missing, or no tensor of integers".to_string()));
        };
        let bytes = self.read(other.source, name, other.offset, other.bytes)?;
        let (fours, eights) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<8>().0);
        let values = match other.dtype.as_str() {
            "I32" => fours.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
            "I64" => eights.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            dtype => return Err(error("dtype", format!("found {dtype}, expected I32 or I64"))),
        };
        Ok((other.shape.clone(), values))
    }

    /// A file beside the weights (tokenizer.json, chat_template.jinja, …); `None` if it is absent,
    /// and for GGUF, which keeps all of this in its metadata.
    pub fn side_file(&self, name: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        self.folder.as_ref().map_or(Ok(None), |folder| folder.bytes(name))
    }

    fn read(
        &self,
        source: usize,
        tensor: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, WeightsError> {
        let error = |field, problem| WeightsError::tensor(&self.name, tensor, field, problem);
        let Some(source) = self.sources.get(source) else {
            return Err(error("source", format!("{source} is none of these weights'")));
        };
        let mut out = Vec::new();
        match usize::try_from(bytes).ok().map(|n| (n, out.try_reserve_exact(n))) {
            Some((n, Ok(()))) => out.resize(n, 0),
            _ => return Err(error("rows", format!("no memory for {bytes} bytes; ask for fewer"))),
        }
        if !out.is_empty() {
            source.read(offset, &mut out)?;
        }
        Ok(out)
    }
}
