//! A table as text for a terminal, where the columns line up.

use serde::Serialize;
use std::fmt;

/// Rows of cells under a head. The first column is words, the others are figures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn widths(&self) -> Vec<usize> {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let wide = |at: usize| lines().filter_map(move |l| l.get(at)).map(|c| c.chars().count());
        (0..self.head.len()).map(|at| wide(at).max().unwrap_or(0)).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for line in std::iter::once(&self.head).chain(&self.rows) {
            let mut text = String::new();
            for (at, (cell, &wide)) in line.iter().zip(&widths).enumerate() {
                if at > 0 {
                    text += "  ";
                }
                text += &match at {
                    0 => format!("{cell:<wide$}"),
                    _ => format!("{cell:>wide$}"),
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}
