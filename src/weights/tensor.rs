//! One stored tensor: where its bytes lie and what they are.

use super::WeightsError;
use crate::base::Format;

/// A tensor as stored. Whoever makes one has checked that `offset + bytes` lies in the source
/// and that `bytes` is what `shape` and `format` need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    pub name: String,
    /// Outermost axis first, `[rows, cols]`, for both kinds of file. Empty for a single value.
    pub shape: Vec<u64>,
    pub format: Format,
    /// Which of the weights' sources holds it.
    pub source: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl Tensor {
    /// Length of the outermost axis; 1 for a single value.
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Where rows lie in the source, and their bytes; `None` if the tensor lacks some of them, or
    /// if a row ends inside a block (a tensor of one axis in a block format has a single row's
    /// blocks, and is read as a whole).
    pub(super) fn range(&self, first_row: u64, rows: u64) -> Option<(u64, u64)> {
        let all = self.rows();
        if first_row.checked_add(rows)? > all {
            return None;
        }
        if rows == all {
            return Some((self.offset, self.bytes));
        }
        if !self.bytes.is_multiple_of(all) {
            return None;
        }
        let row = self.bytes / all;
        Some((self.offset.checked_add(first_row.checked_mul(row)?)?, rows.checked_mul(row)?))
    }
}

/// A tensor of a type that weights do not come in (ids, masks); kept for `read_ints`.
pub(super) struct Other {
    pub dtype: String,
    pub shape: Vec<u64>,
    pub source: usize,
    pub offset: u64,
    pub bytes: u64,
}

/// What a source holds, in its own order.
#[derive(Default)]
pub(super) struct Found {
    pub tensors: Vec<Tensor>,
    pub others: Vec<(String, Other)>,
}

/// The product of the axes, or the reason why there is none.
pub(super) fn product(file: &str, tensor: &str, shape: &[u64]) -> Result<u64, WeightsError> {
    shape.iter().try_fold(1u64, |n, &axis| n.checked_mul(axis)).ok_or_else(|| {
        WeightsError::tensor(
            file,
            tensor,
            "shape",
            format!("the product of {shape:?} does not fit 64 bits"),
        )
    })
}
