//! What was measured on a device: the file that keeps it, and that a choice changes the kernel that
//! runs and nothing else.

use super::lab::{Draws, Lab, same_bits};
use super::weight::Weight;
use crate::support::On;
use std::collections::BTreeSet;
use tilewright::base::{Activations, Format, Invariance};
use tilewright::cpu::CpuDevice;
use tilewright::kernels::mul::{self, Matrix, Mul, Pack, Way};
use tilewright::kernels::tuned::TunedFile;
use tilewright::kernels::variants;
use tilewright::record::{Command, Device, DeviceKind, Facts, Recording, Tuned, TunedChoice};

const SEED: u64 = 0x7475_6e65;

fn choice(from: u32, kernel: &str, tile: u32) -> TunedChoice {
    TunedChoice { from, kernel: kernel.into(), tile }
}

fn tuned(
    (format, activations): (Format, Activations),
    [rows, cols]: [u32; 2],
    choices: Vec<TunedChoice>,
) -> Tuned {
    Tuned { format, activations, rows, cols, choices }
}

fn matrix(format: Format, [rows, cols]: [u32; 2]) -> Matrix {
    Matrix { format, rows, cols, parts: Vec::new() }
}

pub fn files() {
    let facts = CpuDevice::default().facts().clone();
    let (mut file, f32) = (TunedFile::of(&facts), Activations::F32);
    let shapes =
        [(Format::Q4_1, [576, 1536]), (Format::Q4_1, [1536, 576]), (Format::Q8_0, [8, 32])];
    for (format, shape) in shapes {
        let choices = vec![choice(1, "mul_vec", 2), choice(5, "mul_gemm", 64)];
        file.put(tuned((format, f32), shape, choices));
    }
    // What was known of a shape is replaced.
    let (format, shape) = shapes[1];
    file.put(tuned((format, f32), shape, vec![choice(1, "mul_mat", 4)]));
    // Of rows that were packed, other things are known.
    file.put(tuned((format, Activations::Int8), shape, vec![choice(1, "mul_mat", 2)]));
    assert_eq!(file.products.len(), 4);
    let text = serde_json::to_vec_pretty(&file).expect("JSON");
    let read = TunedFile::read(&text, &facts).expect("its own");
    assert_eq!(read, file.products);
    let facts_of = Facts { tuned: read, ..facts.clone() };
    let of = |tokens| facts_of.tuned((format, f32), shape, tokens).map(|choice| choice.tile);
    assert_eq!((of(1), of(900)), (Some(4), Some(4)));
    let of = |tokens| facts_of.tuned((format, f32), shapes[0].1, tokens).map(|choice| choice.tile);
    assert_eq!([0, 1, 4, 5, 900].map(of), [None, Some(2), Some(2), Some(64), Some(64)]);
    assert_eq!(facts_of.tuned((Format::Q4_0, f32), shape, 1), None);
    let int8 = facts_of.tuned((format, Activations::Int8), shape, 1);
    assert_eq!(int8.map(|choice| choice.tile), Some(2));
    assert_eq!(facts_of.tuned((format, Activations::Int8), shapes[0].1, 1), None);
    // Damaged.
    for end in [0, 1, text.len() / 2, text.len() - 2] {
        let fault = TunedFile::read(&text[..end], &facts).expect_err("cut off");
        assert!(fault.starts_with("it is damaged"), "{fault}");
    }
    // Foreign.
    type Change = fn(&mut TunedFile);
    let changes: [Change; 5] = [
        |f| f.name.push('x'),
        |f| f.backend = "metal".into(),
        |f| f.driver.push_str(" 22.3.7"),
        |f| f.tilewright = "0.0.9".into(),
        |f| f.shaders = format!("{:016x}", 7),
    ];
    for change in changes {
        let mut other = file.clone();
        change(&mut other);
        let text = serde_json::to_vec(&other).expect("JSON");
        let fault = TunedFile::read(&text, &facts).expect_err("foreign");
        assert!(fault.contains("of another device, driver or build"), "{fault}");
    }
}

/// The name of what serves `tokens` rows of `w`, where `planted` was measured.
fn served(w: &Matrix, tokens: u32, facts: &Facts, planted: &[TunedChoice]) -> &'static str {
    let shape = [w.rows, w.cols];
    let planted = tuned((w.format, Activations::F32), shape, planted.to_vec());
    let facts = Facts { tuned: vec![planted], ..facts.clone() };
    let (variant, kernel, tile) = mul::variant(w, tokens, &facts, Activations::F32);
    let variant = variants::get(variant).expect("a row of the table");
    assert_eq!((&variant.shader[..], variant.constant("TM")), (kernel.stem, tile));
    &variant.name
}

/// Those that can be are taken; others are as if nothing had been measured.
pub fn choices() {
    let cpu = CpuDevice::default().facts().clone();
    let gpu =
        Facts { kind: DeviceKind::Discrete, lanes: 32, shared_bytes_max: 16_384, ..cpu.clone() };
    let w = matrix(Format::Q4_1, [576, 1536]);
    let planted = [choice(1, "mul_mat", 2), choice(4, "mul_vec", 1), choice(9, "mul_gemm", 64)];
    let on_gpu = |tokens| served(&w, tokens, &gpu, &planted);
    assert_eq!(on_gpu(1), "mul_mat.q4_1.m2");
    assert_eq!(on_gpu(3), "mul_mat.q4_1.m2");
    assert_eq!(on_gpu(4), "mul_vec.q4_1.m1.s8");
    assert_eq!(on_gpu(9), "mul_gemm.q4_1");
    assert_eq!(on_gpu(2000), "mul_gemm.q4_1");
    // The processor cuts nothing and has no tiles in workgroup memory.
    for tokens in [1, 4, 9] {
        let rule = mul::variant(&w, tokens, &cpu, Activations::F32).0;
        let rule = &variants::get(rule).expect("a row of the table").name;
        for planted in [("mul_vec", 4), ("mul_gemm", 64), ("mul_mat", 3), ("norm_rms", 1), ("", 0)]
        {
            let planted = [choice(1, planted.0, planted.1)];
            assert_eq!(served(&w, tokens, &cpu, &planted), rule);
        }
    }
    assert_eq!(served(&w, 9, &cpu, &planted[..1]), "mul_mat.q4_1.m2");
    // Matrix units serve all, or where numbers may depend on company all but a few.
    let units = Facts { matrix_side: 16, shared_bytes_max: 32_768, ..gpu.clone() };
    let off = |facts: &Facts| Facts { invariance: Invariance::Off, ..facts.clone() };
    let mixed = [choice(1, "mul_unit", 16), choice(2, "mul_vec", 2), choice(9, "mul_unit", 64)];
    for (facts, wanted) in [
        (units.clone(), ["mul_unit.q4_1.m16.side16"; 3]),
        (off(&units), ["mul_vec.q4_1.m1.s8", "mul_vec.q4_1.m2.s8", "mul_unit.q4_1.m16.side16"]),
        (off(&gpu), ["mul_vec.q4_1.m1.s8", "mul_vec.q4_1.m2.s8", "mul_mat.q4_1.m8"]),
    ] {
        assert_eq!([1, 2, 9].map(|tokens| served(&w, tokens, &facts, &mixed)), wanted);
    }
    // Another shape is none of its business.
    let other = matrix(Format::Q4_1, [1536, 576]);
    let f32 = Activations::F32;
    let of_w = tuned((w.format, f32), [576, 1536], planted.to_vec());
    let facts = Facts { tuned: vec![of_w], ..gpu.clone() };
    assert_eq!(mul::variant(&other, 9, &facts, f32), mul::variant(&other, 9, &gpu, f32));
}

/// Every way that is worth a try has the bits of the rule, and is what is launched.
pub fn ways(on: On, format: Format, taken: Activations) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let (rows, cols, most) = (72, Weight::cols(format, 544), 33);
    let weight = Weight::random(format, rows, cols, &mut draws);
    let wide = Facts { kind: DeviceKind::Discrete, texels: false, ..lab.facts.clone() };
    let mut seen = BTreeSet::new();
    for facts in [lab.facts.clone(), wide] {
        let plain = mul::variant(&weight.matrix(Vec::new()), 1, &facts, taken).0;
        let plain = variants::get(plain).expect("a row of the table");
        let w = &weight.matrix(vec![weight.part(0, rows, plain, &mut lab)]);
        let x = lab.floats(&draws.values(most * cols));
        let packed = (taken == Activations::Int8).then(|| {
            let (rows, cols) = (most as u32, cols as u32);
            let y = lab.words(&vec![0; (rows * mul::packed_stride(cols)) as usize]);
            let mut recording = Recording::default();
            Pack { rows, cols, x, x_stride: cols, y }.record(&facts, &mut recording);
            lab.run(recording, &[]);
            y
        });
        for tokens in [1, 2, 3, 5, 8, 9, 33] {
            let mut product = |way: Option<Way>| {
                let planted = way.map(|way| choice(1, way.kernel.stem, way.tile));
                let shape = [w.rows, w.cols];
                let list = planted.map(|one| tuned((format, taken), shape, vec![one]));
                let facts = Facts { tuned: list.into_iter().collect(), ..facts.clone() };
                let y = lab.floats(&vec![7.5; tokens as usize * rows]);
                let (x_stride, y_stride) = (cols as u32, rows as u32);
                let (bias, accumulate, scale, gate) = (None, false, 1.0, None);
                let mut recording = Recording::default();
                let halves = x;
                Mul {
                    w,
                    tokens,
                    x,
                    x_stride,
                    packed,
                    y,
                    y_stride,
                    bias,
                    accumulate,
                    scale,
                    gate,
                    halves,
                }
                .record(&facts, &mut recording);
                let Command::Dispatch(launch) = &recording.commands[0] else { unreachable!() };
                let name = &variants::get(launch.variant).expect("a row of the table").name;
                (name, lab.run(recording, &[y]).remove(0))
            };
            let (rule, wanted) = product(None);
            let ways = mul::ways(w, tokens, &facts, taken);
            for (n, way) in ways.iter().enumerate() {
                let (name, got) = product(Some(*way));
                assert_eq!(n == 0, name == rule, "{way:?} launches {name}");
                assert!(name.starts_with(way.kernel.stem), "{way:?} launches {name}");
                same_bits(&got, &wanted).unwrap_or_else(|e| panic!("{name} of {tokens}: {e}"));
                seen.insert(way.kernel.stem);
            }
        }
        lab.clear();
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["mul_gemm", "mul_mat", "mul_vec"]);
}
