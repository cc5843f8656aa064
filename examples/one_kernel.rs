//! One kernel by itself: a quantised matrix product, checked against an f64 reference and timed,
//! in WGSL on the best adapter and as plain Rust on the processor.
//!
//! `cargo run --release --example one_kernel`

use std::error::Error;
use std::time::Instant;
use tilewright::base::{Activations, Format};
use tilewright::cpu::CpuDevice;
use tilewright::gpu::{Gpu, Options};
use tilewright::kernels::streams::Streams;
use tilewright::kernels::{mul, texels, variants};
use tilewright::record::{Binding, Device, DeviceError, Recording};
use tilewright::weights::blocks;

const FORMAT: Format = Format::Q4_0;
const ROWS: usize = 1024;
const COLS: usize = 576;
const TOKENS: usize = 8;
const RUNS: u32 = 20;
/// Largest difference from the reference: 576 products of values below 1, summed in f32.
const TOLERANCE: f64 = 1e-3;

/// Values in -1..1 from a linear congruence: the same on every machine.
fn values(mut seed: u32, count: usize) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn buffer(device: &mut dyn Device, name: &str, data: &[u8]) -> Result<Binding, DeviceError> {
    let bytes = data.len() as u64;
    let buffer = device.create_buffer(name, bytes)?;
    device.write_buffer(buffer, 0, data)?;
    Ok(Binding { buffer, offset: 0, bytes })
}

/// Runs the product on `device`; the outputs and the seconds of one run.
fn product(device: &mut dyn Device, raw: &[u8], x: &[f32]) -> Result<(Vec<f32>, f64), DeviceError> {
    let (shape, texels) = ([ROWS as u32, COLS as u32], texels(COLS as u32, device.facts()));
    let mut streams = Streams::create(device, "w", FORMAT, 1, shape, texels, &mut Vec::new())?;
    streams.write(device, raw)?;
    let Streams { quants, scales, .. } = streams;
    let part = mul::MatrixPart { first: 0, rows: ROWS as u32, quants, scales };
    let w = mul::Matrix { format: FORMAT, rows: ROWS as u32, cols: COLS as u32, parts: vec![part] };
    let x = buffer(device, "x", bytemuck::cast_slice(x))?;
    let y = buffer(device, "y", &vec![0; ROWS * TOKENS * 4])?;
    let facts = device.facts().clone();
    let (variant, _, _) = mul::variant(&w, TOKENS as u32, &facts, Activations::F32);
    println!("{}: {}", facts.name, variants::get(variant).map_or("?", |v| &v.name));
    let mut recording = Recording::default();
    let (x_stride, y_stride) = (COLS as u32, ROWS as u32);
    let (tokens, packed, bias, accumulate, gate) = (TOKENS as u32, None, None, false, None);
    // Only matrix units would read halves, and no device is asked for them here.
    let (w, scale, halves) = (&w, 1.0, x);
    mul::Mul { w, tokens, x, x_stride, packed, y, y_stride, bias, accumulate, scale, gate, halves }
        .record(&facts, &mut recording);
    recording.download(y);
    let finished = device.run(&recording)?;
    let start = Instant::now();
    for _ in 0..RUNS {
        device.run(&recording)?;
    }
    let seconds = start.elapsed().as_secs_f64() / f64::from(RUNS);
    Ok((bytemuck::pod_collect_to_vec(&finished.bytes), seconds))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut raw, mut w) = (Vec::new(), vec![0f32; ROWS * COLS]);
    blocks::encode(FORMAT, &values(1, ROWS * COLS), &mut raw);
    blocks::decode(FORMAT, &raw, &mut w);
    let x = values(2, TOKENS * COLS);
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(CpuDevice::default())];
    match pollster::block_on(Gpu::open(&Options::default())) {
        Ok(gpu) => devices.push(Box::new(gpu)),
        Err(why) => println!("{why}"),
    }
    for device in &mut devices {
        let (y, seconds) = product(device.as_mut(), &raw, &x)?;
        let mut worst = 0f64;
        for (token, x) in x.chunks_exact(COLS).enumerate() {
            for (row, w) in w.chunks_exact(COLS).enumerate() {
                let exact: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                worst = worst.max((exact - f64::from(y[token * ROWS + row])).abs());
            }
        }
        let flops = (2 * ROWS * COLS * TOKENS) as f64 / seconds;
        println!("  largest difference {worst:.1e}, {:.2} GFLOP/s with transfers", flops / 1e9);
        if worst.is_nan() || worst > TOLERANCE {
            return Err(format!("the difference is above {TOLERANCE:.1e}").into());
        }
    }
    Ok(())
}
