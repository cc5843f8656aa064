//! Matrix units: which ones kernels can use, and the test that they must pass when a device is
//! opened. Drivers are young here, and wrong products do not look wrong.

use super::Gpu;
use crate::base::Format;
use crate::kernels::mul::{Matrix, MatrixPart, Mul, halves_bytes};
use crate::kernels::streams::Streams;
use crate::record::{Binding, BufferId, Device, DeviceError, Recording};

/// Tokens of the products that are tried: one square, several, several workgroups.
const TOKENS: [u32; 3] = [3, 40, 133];
const ROWS: u32 = 150;
const COLS: u32 = 288;

/// Side of the squares that the adapter's matrix units take, f16 operands and f32 sums, if kernels
/// are written for it; else 0.
pub fn side(adapter: &wgpu::Adapter, lanes: u32) -> u32 {
    use wgpu::wgt::CooperativeScalarType::{F16, F32};
    let found = adapter.cooperative_matrix_properties();
    let takes = |side: u32| {
        found.iter().any(|p| {
            [p.m_size, p.n_size, p.k_size] == [side; 3] && (p.ab_type, p.cr_type) == (F16, F32)
        })
    };
    [(16, 32), (8, 8)]
        .into_iter()
        .find(|(side, wide)| lanes == *wide && takes(*side))
        .map_or(0, |f| f.0)
}

/// Whether products on matrix units are right: of small whole numbers they are exact, whatever the
/// order of the sums.
pub async fn work(gpu: &mut Gpu) -> Result<bool, DeviceError> {
    let mut made = Vec::new();
    let result = products(gpu, &mut made).await;
    made.into_iter().for_each(|id| gpu.free_buffer(id));
    match result {
        Err(DeviceError::Shader { .. } | DeviceError::Validation(_)) => Ok(false),
        other => other,
    }
}

async fn products(gpu: &mut Gpu, made: &mut Vec<BufferId>) -> Result<bool, DeviceError> {
    let weight = |n: u32, k: u32| ((n * 31 + k * 7) % 13) as f32 - 6.0;
    let input = |m: u32, k: u32| ((m * 17 + k * 5) % 11) as f32 - 5.0;
    let values = (0..ROWS).flat_map(|n| (0..COLS).map(move |k| half::f16::from_f32(weight(n, k))));
    let raw: Vec<u8> = values.flat_map(half::f16::to_le_bytes).collect();
    let mut streams =
        Streams::create(gpu, "matrix units", Format::F16, 1, [ROWS, COLS], false, made)?;
    streams.write(gpu, &raw)?;
    let parts =
        vec![MatrixPart { first: 0, rows: ROWS, quants: streams.quants, scales: streams.scales }];
    let w = Matrix { format: Format::F16, rows: ROWS, cols: COLS, parts };
    let most = TOKENS[TOKENS.len() - 1];
    let mut room = |gpu: &mut Gpu, bytes: u64| -> Result<Binding, DeviceError> {
        let buffer = gpu.create_buffer("matrix units", bytes)?;
        made.push(buffer);
        Ok(Binding { buffer, offset: 0, bytes })
    };
    let x = room(gpu, u64::from(most * COLS) * 4)?;
    let y = room(gpu, u64::from(most * ROWS) * 4)?;
    let halves = room(gpu, halves_bytes(most, COLS))?;
    let inputs: Vec<f32> = (0..most).flat_map(|m| (0..COLS).map(move |k| input(m, k))).collect();
    gpu.write_buffer(x.buffer, 0, bytemuck::cast_slice(&inputs))?;
    for tokens in TOKENS {
        let mut recording = Recording::default();
        Mul {
            w: &w,
            tokens,
            x,
            x_stride: COLS,
            packed: None,
            y,
            y_stride: ROWS,
            bias: None,
            accumulate: false,
            scale: 1.0,
            gate: None,
            halves,
        }
        .record(&gpu.facts, &mut recording);
        let bytes = u64::from(tokens * ROWS) * 4;
        recording.download(Binding { bytes, ..y });
        let found = gpu.submit(&recording)?.await?.bytes;
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&found);
        for (at, value) in (0..tokens * ROWS).zip(found) {
            let (m, n) = (at / ROWS, at % ROWS);
            let right: f32 = (0..COLS).map(|k| input(m, k) * weight(n, k)).sum();
            if value != right {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
