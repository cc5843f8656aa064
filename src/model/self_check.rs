//! The start-up check of the rule that numbers do not depend on company: a product of 1, 2, 7, 8,
//! 33 and 48 rows must give each row the bits it has alone.

use super::rows::stride;
use super::{Model, ModelError};
use crate::base::{Activations, Invariance};
use crate::kernels::mul::{
    Matrix, MatrixPart, Mul, Pack, activations, halves_bytes, packed_stride, segments,
};
use crate::record::{Binding, Device, Recording};
use std::collections::BTreeSet;

const ROWS: [u32; 5] = [2, 7, 8, 33, 48];

/// Checks one matrix of every format the model has, and of every way that k is cut; nothing where
/// numbers may depend on company.
pub async fn self_check(model: &Model, device: &mut dyn Device) -> Result<(), ModelError> {
    if model.facts.invariance == Invariance::Off {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    let layers = model.layers.iter().flat_map(|layer| layer.matrices());
    for matrix in layers.chain([model.head.clone()]) {
        if seen.insert((matrix.format, segments(&matrix, &model.facts))) {
            check(model, &matrix, device).await?;
        }
    }
    Ok(())
}

async fn check(model: &Model, w: &Matrix, device: &mut dyn Device) -> Result<(), ModelError> {
    let most = ROWS[ROWS.len() - 1];
    let part = MatrixPart { first: 0, ..w.parts[0].clone() };
    let part = Matrix { parts: vec![part], ..w.clone() };
    let (x_stride, y_stride) = (stride(w.cols), stride(part.rows));
    let mut buffer = |label: &str, values: u32| -> Result<Binding, ModelError> {
        let bytes = u64::from(values) * 4;
        Ok(Binding { buffer: device.create_buffer(label, bytes)?, offset: 0, bytes })
    };
    let x = buffer("self-check x", most * x_stride)?;
    let y = buffer("self-check y", most * y_stride)?;
    let packed = buffer("self-check packed x", most * packed_stride(w.cols))?;
    let taken = activations(w.format, model.options.activations);
    let packed_x = (taken == Activations::Int8).then_some(packed);
    let halves = buffer("self-check halves", halves_bytes(most, w.cols).div_ceil(4) as u32)?;
    let mut values = vec![0f32; (most * x_stride) as usize];
    for (row, values) in values.chunks_exact_mut(x_stride as usize).enumerate() {
        for (i, value) in values.iter_mut().take(w.cols as usize).enumerate() {
            *value = (((row * 7919 + i * 104_729) % 2003) as f32 - 1001.0) / 517.0;
        }
    }
    let run = async |device: &mut dyn Device, first: u32, tokens: u32| {
        let mut recording = Recording::default();
        let from = (first * x_stride) as usize;
        let rows = &values[from..from + (tokens * x_stride) as usize];
        recording.upload(x.buffer, 0, bytemuck::cast_slice(rows));
        if let Some(y) = packed_x {
            Pack { rows: tokens, cols: w.cols, x, x_stride, y }
                .record(&model.facts, &mut recording);
        }
        Mul {
            w: &part,
            tokens,
            x,
            x_stride,
            packed: packed_x,
            y,
            y_stride,
            bias: None,
            accumulate: false,
            scale: 1.0,
            gate: None,
            halves,
        }
        .record(&model.facts, &mut recording);
        recording.download(Binding { bytes: u64::from(tokens * y_stride) * 4, ..y });
        device.submit(&recording)?.await.map(|f| f.bytes)
    };
    let mut alone = Vec::new();
    for row in 0..most {
        alone.extend(run(device, row, 1).await?);
    }
    let mut differs = None;
    for rows in ROWS {
        let together = run(device, 0, rows).await?;
        if together[..] != alone[..together.len()] {
            differs = Some(rows);
        }
    }
    [x, y, packed, halves].into_iter().for_each(|b| device.free_buffer(b.buffer));
    match differs {
        Some(rows) => Err(ModelError::NotInvariant { rows, format: w.format.to_string() }),
        None => Ok(()),
    }
}
