//! A device on which single kernels are tried: buffers by content, launches by variant name,
//! reproducible operands, and the comparison of results with a reference.

use crate::support::On;
#[cfg(feature = "gpu")]
use std::sync::MutexGuard;
use tilewright::base::{Format, unit_from_seed};
use tilewright::cpu::CpuDevice;
use tilewright::kernels::streams::Streams;
use tilewright::kernels::variants::{self, Need, Variant};
use tilewright::record::{Binding, BufferId, Device, Facts, Recording};

enum Held {
    Cpu(CpuDevice),
    #[cfg(feature = "gpu")]
    Gpu(MutexGuard<'static, tilewright::gpu::Gpu>),
}

/// A device and the buffers made on it, which go when the lab goes.
pub struct Lab {
    held: Held,
    buffers: Vec<BufferId>,
    pub facts: Facts,
    pub on: On,
}

impl Lab {
    pub fn open(on: On) -> Self {
        let mut held = match on {
            On::Cpu => Held::Cpu(CpuDevice::default()),
            // The shared device: pipelines that one row built serve the others.
            #[cfg(feature = "gpu")]
            On::Gpu => Held::Gpu(crate::support::gpu().expect("the row needs it").lock()),
            #[cfg(not(feature = "gpu"))]
            On::Gpu => unreachable!("built without gpu"),
        };
        let facts = held.device().facts().clone();
        Self { held, buffers: Vec::new(), facts, on }
    }

    /// The variants of `shader` that this device can run, in the order of the table.
    pub fn variants(&self, shader: &str) -> Vec<&'static Variant> {
        let all = variants::table().iter().map(|(_, v)| v);
        all.filter(|v| v.shader == shader && self.can(v)).collect()
    }

    pub fn can(&self, variant: &Variant) -> bool {
        self.on == On::Cpu || variant.needs.iter().all(|n| n.met(&self.facts))
    }

    /// A buffer that holds `words` (at least one).
    pub fn words(&mut self, words: &[u32]) -> Binding {
        let bytes = (words.len() as u64 * 4).max(16);
        let device = self.held.device();
        let buffer = device.create_buffer("operand", bytes).unwrap_or_else(|e| panic!("{e}"));
        device.write_buffer(buffer, 0, bytemuck::cast_slice(words)).expect("written");
        self.buffers.push(buffer);
        Binding { buffer, offset: 0, bytes }
    }

    /// The streams of equally large matrices, held as `variant` reads them.
    pub fn streams(
        &mut self,
        format: Format,
        shape: [usize; 2],
        raw: &[&[u8]],
        variant: &Variant,
    ) -> (Binding, Binding) {
        let texels = variant.needs.contains(&Need::Texels) && self.facts.texels;
        let (count, shape) = (raw.len() as u32, shape.map(|n| n as u32));
        let device = self.held.device();
        let made = &mut self.buffers;
        let mut streams = Streams::create(device, "w", format, count, shape, texels, made)
            .unwrap_or_else(|e| panic!("{e}"));
        for raw in raw {
            streams.write(device, raw).expect("written");
        }
        (streams.quants, streams.scales)
    }

    pub fn floats(&mut self, values: &[f32]) -> Binding {
        self.words(bytemuck::cast_slice(values))
    }

    /// Runs `recording`, with a download of the whole of each of `wanted`.
    pub fn run(&mut self, mut recording: Recording, wanted: &[Binding]) -> Vec<Vec<f32>> {
        let mut needed = Vec::new();
        for command in &recording.commands {
            if let tilewright::record::Command::Dispatch(dispatch) = command {
                needed.push(dispatch.variant);
            }
        }
        wanted.iter().for_each(|w| recording.download(*w));
        let device = self.held.device();
        device.prepare(&needed).unwrap_or_else(|e| panic!("{e}"));
        let bytes = device.run(&recording).unwrap_or_else(|e| panic!("{e}")).bytes;
        let mut rest = &bytes[..];
        let mut take = |w: &Binding| {
            let (head, tail) = rest.split_at(w.bytes as usize);
            rest = tail;
            bytemuck::pod_collect_to_vec(head)
        };
        wanted.iter().map(&mut take).collect()
    }

    /// Frees all buffers made so far.
    pub fn clear(&mut self) {
        for buffer in std::mem::take(&mut self.buffers) {
            self.held.device().free_buffer(buffer);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Held {
    fn device(&mut self) -> &mut dyn Device {
        match self {
            Held::Cpu(device) => device,
            #[cfg(feature = "gpu")]
            Held::Gpu(device) => &mut **device,
        }
    }
}

/// Reproducible draws; the seed is part of every message.
pub struct Draws {
    pub seed: u64,
    next: u32,
}

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f32 {
        self.next += 1;
        unit_from_seed(self.seed, self.next)
    }

    /// In 0..n.
    pub fn below(&mut self, n: u32) -> u32 {
        (f64::from(self.unit()) * f64::from(n)) as u32
    }

    /// `n` values in [-1, 1).
    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit() * 2.0 - 1.0).collect()
    }

    /// 0..n in some order.
    pub fn order(&mut self, n: u32) -> Vec<u32> {
        let mut out: Vec<u32> = (0..n).collect();
        for i in (1..n).rev() {
            out.swap(i as usize, self.below(i + 1) as usize);
        }
        out
    }
}

/// A value and how far a result may lie from it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub value: f64,
    pub within: f64,
}

/// Rows of several lists, each with its stride, one after the other.
pub fn side_by_side<T: Copy, const N: usize>(lists: [(&Vec<T>, usize); N]) -> Vec<T> {
    let count = lists[0].0.len() / lists[0].1;
    let row = |r: usize| lists.map(|(list, stride)| list[r * stride..][..stride].to_vec()).concat();
    (0..count).flat_map(row).collect()
}

/// The first of `got` that lies too far from `wanted`, or is no number.
pub fn compare(got: &[f32], wanted: &[Wanted]) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{} results, {} wanted", got.len(), wanted.len()));
    }
    let far = |(got, w): &(&f32, &Wanted)| {
        let off = (f64::from(**got) - w.value).abs();
        off.is_nan() || off > w.within
    };
    match got.iter().zip(wanted).enumerate().find(|(_, pair)| far(pair)) {
        None => Ok(()),
        Some((at, (got, w))) => {
            Err(format!("result {at} is {got}, wanted {} within {:e}", w.value, w.within))
        }
    }
}

/// The first place where the bits differ.
pub fn same_bits(a: &[f32], b: &[f32]) -> Result<(), String> {
    if a.len() != b.len() {
        return Err(format!("{} results against {}", a.len(), b.len()));
    }
    match a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits()) {
        None => Ok(()),
        Some(at) => Err(format!("result {at}: {:?} against {:?}", a[at], b[at])),
    }
}

/// A comparison that nobody saw fail counts for nothing.
pub fn comparers_see_faults() {
    let w = |value| Wanted { value, within: 1e-3 };
    assert_eq!(compare(&[1.0, 2.0], &[w(1.0), w(2.0005)]), Ok(()));
    assert!(compare(&[1.0, 2.0], &[w(1.0), w(2.0011)]).is_err(), "too far");
    assert!(compare(&[1.0, f32::NAN], &[w(1.0), w(2.0)]).is_err(), "not a number");
    assert!(compare(&[1.0, f32::INFINITY], &[w(1.0), w(2.0)]).is_err(), "infinite");
    assert!(compare(&[1.0], &[w(1.0), w(2.0)]).is_err(), "too few");
    assert_eq!(same_bits(&[0.0, f32::NAN], &[0.0, f32::NAN]), Ok(()));
    assert!(same_bits(&[0.0], &[-0.0]).is_err(), "the sign of zero");
    assert!(same_bits(&[1.0], &[f32::from_bits(0x3f80_0001)]).is_err(), "one unit");
    assert!(same_bits(&[1.0], &[]).is_err(), "too few");
}
