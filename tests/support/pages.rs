//! The pages for people, taken apart into their fenced blocks: README, the package's, assets/docs.

use super::root;

/// A fenced block, and the prose between it and the one before.
pub struct Block {
    /// From the repository's root.
    pub file: String,
    pub prose: String,
    pub language: String,
    pub body: String,
}

impl Block {
    /// Of the page of a client.
    pub fn client(&self) -> bool {
        self.file.starts_with("assets/docs/clients/")
    }
}

/// Every fenced block.
pub fn blocks() -> Vec<Block> {
    let mut files = vec!["README.md".to_string(), "web/README.md".to_string()];
    for folder in ["assets/docs", "assets/docs/clients"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            files.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    files.sort();
    files.iter().flat_map(|file| of_page(file)).collect()
}

fn of_page(file: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    assert_eq!(text.matches("```").count() % 2, 0, "{file}: a fence is open");
    let indented = text.lines().find(|line| line.starts_with("    tilewright "));
    assert_eq!(indented, None, "{file}: a command without a fence");
    let parts: Vec<&str> = text.split("```").collect();
    let block = |pair: &[&str]| {
        let (language, body) = pair[1].split_once('\n').unwrap_or((pair[1], ""));
        assert!(!language.trim().is_empty(), "{file}: a block names no language:\n{body}");
        let [file, prose] = [file.to_string(), pair[0].to_string()];
        Block { file, prose, language: language.trim().to_string(), body: body.to_string() }
    };
    parts.chunks_exact(2).map(block).collect()
}

/// The block of a language that a page has one of.
pub fn only(file: &str, language: &str) -> String {
    let mut found = blocks();
    found.retain(|block| block.file == file && block.language == language);
    assert_eq!(found.len(), 1, "{file}: blocks of {language}");
    found.remove(0).body
}

pub fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What a row needs that starts `program`.
pub fn needs(program: &str) -> Result<(), String> {
    is_here(program).then_some(()).ok_or_else(|| format!("there is no program {program}"))
}
