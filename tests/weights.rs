//! Rows of `weights`: what opens, what must not, and what the bytes mean.

mod blocks;
pub mod build;
mod damage;
mod files;
mod folder;
mod gguf;
mod keys;
mod recode;
mod safetensors;
mod split;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    blocks::rows(rows);
    damage::rows(rows);
    files::rows(rows);
    folder::rows(rows);
    gguf::rows(rows);
    keys::rows(rows);
    recode::rows(rows);
    safetensors::rows(rows);
    split::rows(rows);
}
