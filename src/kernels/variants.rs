//! The table of kernel variants, read once from `shaders/variants.txt`: a variant is a shader file
//! with its imports and constants chosen. Ids are line order and mean nothing outside one build.

use crate::record::{Facts, VariantId};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Something a shader uses that not every adapter has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Need {
    Subgroups,
    F16,
    Int64,
    Texels,
    /// Matrix units that take squares of 8 x 8, subgroups of 8.
    Units8,
    /// Squares of 16 x 16, subgroups of 32.
    Units16,
}

impl Need {
    pub fn name(self) -> &'static str {
        match self {
            Need::Subgroups => "subgroups",
            Need::F16 => "f16",
            Need::Int64 => "int64",
            Need::Texels => "texels",
            Need::Units8 => "units8",
            Need::Units16 => "units16",
        }
    }

    /// Whether a device with `facts` has it. Spread reads want eight neighbours in a subgroup.
    pub fn met(self, facts: &Facts) -> bool {
        match self {
            Need::Subgroups => facts.lanes >= 8,
            Need::F16 => facts.f16,
            Need::Int64 => facts.int64,
            Need::Texels => facts.texels,
            Need::Units8 => facts.matrix_side == 8,
            Need::Units16 => facts.matrix_side == 16,
        }
    }

    fn parse(text: &str) -> Option<Need> {
        let all =
            [Need::Subgroups, Need::F16, Need::Int64, Need::Texels, Need::Units8, Need::Units16];
        all.into_iter().find(|n| n.name() == text)
    }
}

/// One row of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    pub name: String,
    /// Stem of the file in `shaders/`.
    pub shader: String,
    /// Import alias → stem of the file in `shaders/lib/`.
    pub imports: BTreeMap<String, String>,
    /// Constants put before the shader's text.
    pub consts: BTreeMap<String, u32>,
    pub needs: Vec<Need>,
}

impl Variant {
    /// The constant `key`; 0 if the row has none.
    pub fn constant(&self, key: &str) -> u32 {
        self.consts.get(key).copied().unwrap_or(0)
    }
}

/// A line of the table that cannot be read.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("variants.txt line {line}: {message}")]
pub struct VariantError {
    pub line: usize,
    pub message: String,
}

/// All variants, by id and by name.
#[derive(Default, Debug)]
pub struct Table {
    rows: Vec<Variant>,
    by_name: BTreeMap<String, VariantId>,
}

pub(super) const TABLE_TEXT: &str = include_str!("../../shaders/variants.txt");

static TABLE: LazyLock<Result<Table, VariantError>> = LazyLock::new(|| Table::parse(TABLE_TEXT));

/// The table compiled in.
pub fn table() -> &'static Table {
    // The text is part of the program and the row `shaders::table_is_valid` reads it.
    TABLE.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

/// The id of the variant called `name`.
pub fn variant(name: &str) -> Option<VariantId> {
    table().find(name)
}

/// The variant `id`.
pub fn get(id: VariantId) -> Option<&'static Variant> {
    table().get(id)
}

impl Table {
    pub fn parse(text: &str) -> Result<Table, VariantError> {
        let mut table = Table::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let fault = |message| VariantError { line: index + 1, message };
            for row in expand(line).map_err(fault)? {
                table.push(parse_row(&row).map_err(fault)?).map_err(fault)?;
            }
        }
        Ok(table)
    }

    fn push(&mut self, row: Variant) -> Result<(), String> {
        let id = u16::try_from(self.rows.len()).map_err(|_| "more than 65536 variants")?;
        if self.by_name.insert(row.name.clone(), VariantId(id)).is_some() {
            return Err(format!("the name `{}` is taken by an earlier variant", row.name));
        }
        self.rows.push(row);
        Ok(())
    }

    pub fn find(&self, name: &str) -> Option<VariantId> {
        self.by_name.get(name).copied()
    }

    pub fn get(&self, id: VariantId) -> Option<&Variant> {
        self.rows.get(usize::from(id.0))
    }

    /// Every variant with its id, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (VariantId, &Variant)> {
        (0..=u16::MAX).map(VariantId).zip(&self.rows)
    }
}

/// One line per member of each set; sets with equal text take the same member.
fn expand(line: &str) -> Result<Vec<String>, String> {
    let Some(open) = line.find('{') else {
        return match line.find('}') {
            Some(_) => Err("`}` without `{`".into()),
            None => Ok(vec![line.to_string()]),
        };
    };
    let length = line[open..].find('}').ok_or("`{` without `}`")?;
    let set = &line[open..=open + length];
    let mut out = Vec::new();
    for member in set[1..length].split(',').map(str::trim) {
        if member.is_empty() || member.contains('{') {
            return Err(format!("the set `{set}` has an empty or nested member"));
        }
        out.extend(expand(&line.replace(set, member))?);
    }
    Ok(out)
}

fn parse_row(row: &str) -> Result<Variant, String> {
    let (name, rest) = row.split_once(':').ok_or("expected `NAME : SHADER key=value ...`")?;
    let name = name.trim();
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(|c| lower(c) || c == '.') {
        return Err(format!("`{name}` is not a name of lower-case letters, digits, `_` and `.`"));
    }
    let mut words = rest.split_whitespace();
    let shader = words.next().ok_or_else(|| format!("`{name}` names no shader"))?;
    let mut variant = Variant {
        name: name.to_string(),
        shader: shader.to_string(),
        imports: BTreeMap::new(),
        consts: BTreeMap::new(),
        needs: Vec::new(),
    };
    for word in words {
        let (key, value) = word.split_once('=').ok_or(format!("`{word}` is not key=value"))?;
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let taken = if key == "needs" {
            for need in value.split(',') {
                let known = Need::parse(need);
                variant.needs.push(known.ok_or(format!("`needs={need}` is not a known need"))?);
            }
            false
        } else if !key.is_empty() && key.chars().all(upper) {
            let number = value.parse().map_err(|_| format!("`{word}`: not a 32-bit integer"))?;
            variant.consts.insert(key.to_string(), number).is_some()
        } else if !key.is_empty() && key.chars().all(lower) && value.chars().all(lower) {
            variant.imports.insert(key.to_string(), value.to_string()).is_some()
        } else {
            return Err(format!("`{word}` is neither CONST=integer nor alias=lib"));
        };
        if taken {
            return Err(format!("`{key}` is given twice"));
        }
    }
    Ok(variant)
}
