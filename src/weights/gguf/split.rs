//! Models cut into several files, `NAME-00001-of-00003.gguf` and so on: the first holds the
//! metadata, each some of the tensors.

use super::super::{FileSource, Source, WeightsError};
use super::{Gguf, GgufMeta, Tensor, read};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const COUNT_KEY: &str = "split.count";
const NUMBER_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";

/// Parts the model is cut into; 1 for a whole file.
pub(in super::super) fn count(meta: &GgufMeta) -> Result<u64, WeightsError> {
    Ok(meta.find_u64(COUNT_KEY)?.unwrap_or(1).max(1))
}

/// Opens all parts of the model that the file at `path`, whose header is `one`, is one part of.
pub(in super::super) fn open(path: &Path, one: &GgufMeta) -> Result<Gguf, WeightsError> {
    let count = count(one)?;
    let file = path.display().to_string();
    let Some(names) = names(path, count) else {
        let problem = format!(
            "this is one of {count} parts, but the file's name does not end in \
             `-00001-of-{count:05}.gguf`, so the others cannot be found; rename them so"
        );
        return Err(WeightsError::key(&file, COUNT_KEY, problem));
    };
    let (mut sources, mut tensors, mut meta) = (Vec::new(), Vec::new(), None);
    for (number, name) in names.iter().enumerate() {
        let source: Box<dyn Source> = Box::new(FileSource::open(name)?);
        let (part, found) = read(source.as_ref(), number)?;
        check_part(source.name(), &part, number as u64, count)?;
        sources.push(source);
        tensors.extend(found);
        meta.get_or_insert(part);
    }
    let Some(meta) = meta else {
        return Err(WeightsError::key(&file, COUNT_KEY, "is 0"));
    };
    check_tensors(&file, &meta, &tensors)?;
    Ok(Gguf { sources, meta, tensors })
}

/// The names of all parts, from that of any.
fn names(path: &Path, count: u64) -> Option<Vec<PathBuf>> {
    let stem = path.file_name()?.to_str()?.strip_suffix(&format!("-of-{count:05}.gguf"))?;
    let (lead, number) = stem.rsplit_once('-')?;
    if number.len() != 5 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let name = |n| path.with_file_name(format!("{lead}-{n:05}-of-{count:05}.gguf"));
    Some((1..=count).map(name).collect())
}

fn check_part(file: &str, meta: &GgufMeta, number: u64, count: u64) -> Result<(), WeightsError> {
    for (key, expected) in [(NUMBER_KEY, number), (COUNT_KEY, count)] {
        let found = meta.u64(key)?;
        if found != expected {
            let problem = format!("found {found}, but by its name it is {expected}");
            return Err(WeightsError::key(file, key, problem));
        }
    }
    Ok(())
}

fn check_tensors(file: &str, meta: &GgufMeta, tensors: &[Tensor]) -> Result<(), WeightsError> {
    let mut names = BTreeSet::new();
    if let Some(tensor) = tensors.iter().find(|t| !names.insert(&t.name)) {
        return Err(WeightsError::tensor(file, &tensor.name, "name", "is in two parts"));
    }
    match meta.find_u64(TENSORS_KEY)? {
        Some(stated) if stated != tensors.len() as u64 => {
            let problem = format!("{stated}, but the parts hold {}", tensors.len());
            Err(WeightsError::key(file, TENSORS_KEY, problem))
        }
        _ => Ok(()),
    }
}
