//! Which files of a repository make the model that was asked for.

use super::HubError;
use super::name::{HubName, Wanted};

/// Quantisations in the order in which they are taken where none is asked for.
const QUANTS: [&str; 9] =
    ["Q4_K_M", "Q4_0", "Q4_K_S", "Q5_K_M", "Q5_0", "Q8_0", "Q6_K", "F16", "BF16"];

/// Files beside the weights that loading reads.
const SIDE_FILES: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "model.safetensors.index.json",
];

/// A file of a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    pub path: String,
    pub bytes: u64,
    /// SHA-256 of what is stored apart, SHA-1 as git has it of the rest, in hexadecimal digits.
    pub hash: String,
}

/// The files of one model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    pub files: Vec<Listed>,
    /// The .gguf file to open; `None`: the folder.
    pub main: Option<String>,
}

pub(super) fn choose(name: &HubName, all: &[Listed]) -> Result<Chosen, HubError> {
    let gguf: Vec<&Listed> = all.iter().filter(|file| is_model(&file.path)).collect();
    let folder = folder(all);
    let by_folder = match (&name.wanted, &folder) {
        (Wanted::Any, Some(_)) => gguf.is_empty() || !name.repo.to_lowercase().contains("gguf"),
        _ => false,
    };
    if by_folder && let Some(files) = folder {
        return Ok(Chosen { files, main: None });
    }
    let main = match &name.wanted {
        Wanted::File(path) => gguf.iter().find(|file| file.path == *path).copied(),
        Wanted::Quant(quant) => of_quant(&gguf, quant),
        Wanted::Any => QUANTS
            .iter()
            .find_map(|quant| of_quant(&gguf, quant))
            .or_else(|| gguf.iter().find(|file| is_first(&file.path)).copied()),
    };
    match main {
        Some(main) => Ok(Chosen { files: parts(name, main, all)?, main: Some(main.path.clone()) }),
        None => Err(missing(name, &gguf)),
    }
}

fn missing(name: &HubName, gguf: &[&Listed]) -> HubError {
    let there: Vec<&str> = gguf.iter().map(|file| file.path.as_str()).collect();
    let problem = match (&name.wanted, there.is_empty()) {
        (_, true) => "holds no weights that can be loaded (.gguf, or config.json with \
                      .safetensors)"
            .to_string(),
        (Wanted::Quant(quant), _) => format!("has no .gguf file of quantisation {quant}"),
        (Wanted::File(path), _) => format!("has no file {path}"),
        (Wanted::Any, _) => "has no .gguf file to begin with".to_string(),
    };
    let there = if there.is_empty() { "none".to_string() } else { there.join(", ") };
    HubError::NoFile { repo: name.repo.clone(), problem, there }
}

/// Weights of a language model, not of an eye, and no statistics.
fn is_model(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    file.ends_with(".gguf") && !file.contains("mmproj") && !file.contains("imatrix")
}

/// The number of a part and of parts: `NAME-00002-of-00003.gguf`.
fn part(path: &str) -> Option<(u32, u32)> {
    let stem = path.strip_suffix(".gguf")?;
    let (head, count) = stem.rsplit_once("-of-")?;
    let number = head.rsplit_once('-')?.1;
    (number.len() == 5 && count.len() == 5).then_some(())?;
    Some((number.parse().ok()?, count.parse().ok()?))
}

fn is_first(path: &str) -> bool {
    part(path).is_none_or(|(number, _)| number == 1)
}

/// The file whose name ends in `quant` as a word, or holds it as one.
fn of_quant<'a>(gguf: &[&'a Listed], quant: &str) -> Option<&'a Listed> {
    let quant = quant.to_lowercase();
    let stem = |path: &str| {
        let stem = path.strip_suffix(".gguf").unwrap_or(path).to_lowercase();
        let cut = part(path).map_or(0, |_| "-00001-of-00001".len());
        stem[..stem.len() - cut].to_string()
    };
    let firsts = || gguf.iter().copied().filter(|file| is_first(&file.path));
    let word = |text: &str, at: usize| {
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        edge(text[..at].chars().next_back()) && edge(text[at + quant.len()..].chars().next())
    };
    let ends = |file: &&Listed| {
        let stem = stem(&file.path);
        stem.ends_with(&quant) && word(&stem, stem.len() - quant.len())
    };
    let holds = |file: &&Listed| {
        let path = file.path.to_lowercase();
        path.match_indices(&quant).any(|(at, _)| word(&path, at))
    };
    firsts().find(ends).or_else(|| firsts().find(holds))
}

/// All parts of the model that begins with `main`.
fn parts(name: &HubName, main: &Listed, all: &[Listed]) -> Result<Vec<Listed>, HubError> {
    let Some((_, count)) = part(&main.path) else { return Ok(vec![main.clone()]) };
    let head = &main.path[..main.path.len() - "00001-of-00001.gguf".len()];
    let mut parts = Vec::new();
    for number in 1..=count {
        let path = format!("{head}{number:05}-of-{count:05}.gguf");
        let Some(file) = all.iter().find(|file| file.path == path) else {
            let problem = format!("lacks {path}, a part of {}", main.path);
            return Err(HubError::Listing { repo: name.repo.clone(), problem });
        };
        parts.push(file.clone());
    }
    Ok(parts)
}

/// The files of a folder with .safetensors weights.
fn folder(all: &[Listed]) -> Option<Vec<Listed>> {
    let weights = |path: &str| {
        let apart = ["consolidated", "adapter"].iter().any(|word| path.starts_with(word));
        path.ends_with(".safetensors") && !path.contains('/') && !apart
    };
    let has = |test: &dyn Fn(&str) -> bool| all.iter().any(|file| test(&file.path));
    if !(has(&weights) && has(&|path| path == "config.json")) {
        return None;
    }
    let part = |file: &&Listed| weights(&file.path) || SIDE_FILES.contains(&file.path.as_str());
    Some(all.iter().filter(part).cloned().collect())
}
