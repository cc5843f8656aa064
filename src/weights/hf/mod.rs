//! Hugging Face checkpoints: config.json and its neighbours, and the weights in
//! model.safetensors or in the shards that model.safetensors.index.json names.

mod folder;
mod meta;
mod safetensors;

pub use meta::HfMeta;

pub(super) use folder::Folder;

use super::tensor::Found;
use super::{Source, WeightsError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The sources of a checkpoint and what they hold.
pub(super) struct Opened {
    pub sources: Vec<Box<dyn Source>>,
    pub found: Found,
    pub meta: HfMeta,
}

/// Opens a folder; config.json must be there.
pub(super) fn open_folder(folder: &Folder) -> Result<Opened, WeightsError> {
    let meta = read_meta(folder)?;
    if meta.config.is_null() {
        let problem =
            "is missing; a checkpoint's folder has one (to use a GGUF file, name the file)";
        return Err(WeightsError::header(&folder.name_of("config.json"), "file", problem));
    }
    if let Some(source) = folder.source(WEIGHTS)? {
        let found = safetensors::read(source.as_ref(), 0)?;
        return Ok(Opened { sources: vec![source], found, meta });
    }
    let Some(map) = read_index(folder)? else {
        let problem = format!("is missing, and so is {INDEX}; other kinds of weights are not read");
        return Err(WeightsError::header(&folder.name_of(WEIGHTS), "file", problem));
    };
    let (sources, found) = read_shards(folder, &map)?;
    Ok(Opened { sources, found, meta })
}

/// Opens one .safetensors file of a folder; config.json may be absent.
pub(super) fn open_file(folder: &Folder, file: &str) -> Result<Opened, WeightsError> {
    let Some(source) = folder.source(file)? else {
        return Err(WeightsError::header(&folder.name_of(file), "file", "is missing"));
    };
    let found = safetensors::read(source.as_ref(), 0)?;
    if let Some(map) = read_index(folder)?
        && map.values().any(|shard| shard == file)
    {
        let problem = "is one shard of several; name its folder to open all";
        return Err(WeightsError::header(source.name(), "file", problem));
    }
    Ok(Opened { sources: vec![source], found, meta: read_meta(folder)? })
}

fn read_meta(folder: &Folder) -> Result<HfMeta, WeightsError> {
    let name = folder.name_of("config.json");
    let table = |file| match folder.json(file)? {
        Some(json) if !json.is_object() => {
            Err(WeightsError::header(&folder.name_of(file), "JSON", "is no object"))
        }
        json => Ok(json),
    };
    let config = table("config.json")?;
    let [generation, tokenizer] = ["generation_config.json", "tokenizer_config.json"].map(table);
    Ok(HfMeta::new(name, config.unwrap_or(Value::Null), generation?, tokenizer?))
}

/// Tensor name → shard, if there is an index.
fn read_index(folder: &Folder) -> Result<Option<BTreeMap<String, String>>, WeightsError> {
    let Some(index) = folder.json(INDEX)? else { return Ok(None) };
    let error = |field: &str, problem| WeightsError::header(&folder.name_of(INDEX), field, problem);
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(error("weight_map", "is missing or no object"));
    };
    let mut out = BTreeMap::new();
    for (tensor, shard) in map {
        let Some(shard) = shard.as_str() else {
            return Err(WeightsError::tensor(
                &folder.name_of(INDEX),
                tensor,
                "weight_map",
                "is no file name",
            ));
        };
        out.insert(tensor.clone(), shard.to_string());
    }
    if out.is_empty() {
        return Err(error("weight_map", "names no tensor"));
    }
    Ok(Some(out))
}

fn read_shards(
    folder: &Folder,
    map: &BTreeMap<String, String>,
) -> Result<(Vec<Box<dyn Source>>, Found), WeightsError> {
    let shards: BTreeSet<&str> = map.values().map(String::as_str).collect();
    let mut sources = Vec::new();
    let mut all = Found::default();
    let mut holder: BTreeMap<String, &str> = BTreeMap::new();
    for shard in shards {
        let Some(source) = folder.source(shard)? else {
            let problem = format!("is missing; {INDEX} names it");
            return Err(WeightsError::header(&folder.name_of(shard), "file", problem));
        };
        let found = safetensors::read(source.as_ref(), sources.len())?;
        let names = found.tensors.iter().map(|t| &t.name);
        for name in names.chain(found.others.iter().map(|(name, _)| name)) {
            if let Some(first) = holder.insert(name.clone(), shard) {
                let problem = format!("is in {first} too");
                return Err(WeightsError::tensor(source.name(), name, "name", problem));
            }
        }
        all.tensors.extend(found.tensors);
        all.others.extend(found.others);
        sources.push(source);
    }
    for (tensor, shard) in map {
        if holder.get(tensor) != Some(&shard.as_str()) {
            let problem = format!("{INDEX} says it is here, but it is not");
            return Err(WeightsError::tensor(&folder.name_of(shard), tensor, "name", problem));
        }
    }
    Ok((sources, all))
}
