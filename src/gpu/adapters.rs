//! Which adapters there are, which one is taken, and what it can do as [`Facts`].

use super::{memory, units};
use crate::base::Invariance;
use crate::kernels::mul::WINDOW;
use crate::record::{DeviceError, DeviceKind, Facts};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::str::FromStr;

/// Which adapter to take.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Choice {
    /// Hardware before software, discrete before integrated.
    #[default]
    Best,
    /// By its place in [`list`].
    Index(usize),
    /// By a part of its name, in any case of letters.
    Name(String),
}

impl FromStr for Choice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Choice, Infallible> {
        Ok(text.parse().map_or_else(|_| Choice::Name(text.to_string()), Choice::Index))
    }
}

/// The adapters of this machine, in the order that [`Choice::Index`] counts.
pub async fn list() -> Vec<Facts> {
    enumerate().await.iter().map(facts).collect()
}

pub async fn choose(choice: &Choice) -> Result<wgpu::Adapter, DeviceError> {
    let mut found = enumerate().await;
    let all: Vec<Facts> = found.iter().map(facts).collect();
    let at = pick(choice, &all).map_err(DeviceError::NoAdapter)?;
    Ok(found.swap_remove(at))
}

/// The place of the chosen adapter among `all`, or why there is none.
pub fn pick(choice: &Choice, all: &[Facts]) -> Result<usize, String> {
    let names = || {
        let rows: Vec<_> =
            all.iter().enumerate().map(|(i, f)| format!("{i}: {}", f.name)).collect();
        rows.join(", ")
    };
    if all.is_empty() {
        return Err("no Vulkan, Metal, DX12 or WebGPU adapter was found; install a GPU driver, \
                    or run on the processor"
            .into());
    }
    match choice {
        Choice::Best => Ok((0..all.len()).min_by_key(|i| all[*i].kind).unwrap_or(0)),
        Choice::Index(index) if *index < all.len() => Ok(*index),
        // Numbers occur in names too: `4090`.
        Choice::Index(index) => pick(&Choice::Name(index.to_string()), all),
        Choice::Name(name) => {
            let wanted = name.to_lowercase();
            let fits = |f: &&Facts| f.name.to_lowercase().contains(&wanted);
            let best = all.iter().filter(fits).map(|f| f.kind).min();
            all.iter()
                .position(|f| fits(&f) && Some(f.kind) == best)
                .ok_or_else(|| format!("no adapter is called `{name}`; there are {}", names()))
        }
    }
}

async fn enumerate() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        // Validation layers only when asked for: WGPU_VALIDATION=1.
        flags: wgpu::InstanceFlags::empty().with_env(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut found = instance.enumerate_adapters(wgpu::Backends::all()).await;
    // A browser shows one adapter only: ask for its fast one.
    if found.iter().any(|a| a.get_info().backend == wgpu::Backend::BrowserWebGpu) {
        let fast = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        if let Ok(adapter) = instance.request_adapter(&fast).await {
            found = vec![adapter];
        }
    }
    found
}

/// Features that are switched on where the adapter has them.
pub fn features(adapter: &wgpu::Adapter) -> wgpu::Features {
    let wanted = wgpu::Features::SUBGROUP
        | wgpu::Features::SHADER_F16
        | wgpu::Features::SHADER_INT64
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::PIPELINE_CACHE;
    adapter.features() & wanted
}

/// Those that matrix units need beside [`features`], and only they.
pub const UNITS: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;

/// Bytes behind the end of each buffer: a window that begins in the last row ends behind it.
pub fn tail(texels: bool) -> u64 {
    if texels { WINDOW } else { 0 }
}

pub fn facts(adapter: &wgpu::Adapter) -> Facts {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), features(adapter));
    let lanes = match (info.subgroup_min_size, info.subgroup_max_size) {
        (least, most) if least == most && features.contains(wgpu::Features::SUBGROUP) => {
            most.max(1)
        }
        _ => 1,
    };
    // Of browsers this is not known.
    let texels =
        info.device_type == wgpu::DeviceType::Cpu && info.backend != wgpu::Backend::BrowserWebGpu;
    Facts {
        name: if info.name.is_empty() { "unnamed adapter".into() } else { info.name },
        backend: match info.backend {
            wgpu::Backend::BrowserWebGpu => "webgpu".into(),
            other => other.to_str().to_string(),
        },
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
            wgpu::DeviceType::Cpu => DeviceKind::Software,
            wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => DeviceKind::Other,
        },
        lanes,
        binding_bytes_max: limits.max_storage_buffer_binding_size,
        buffer_bytes_max: limits.max_buffer_size - tail(texels),
        // Drivers that report more have been seen to fail beyond 65535.
        workgroups_max: limits.max_compute_workgroups_per_dimension.min(65535),
        invocations_max: limits.max_compute_invocations_per_workgroup,
        shared_bytes_max: limits.max_compute_workgroup_storage_size,
        bindings_max: limits.max_storage_buffers_per_shader_stage,
        f16: features.contains(wgpu::Features::SHADER_F16),
        int64: features.contains(wgpu::Features::SHADER_INT64),
        texels,
        matrix_side: match features.contains(wgpu::Features::SHADER_F16) {
            true => units::side(adapter, lanes),
            false => 0,
        },
        invariance: Invariance::On,
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        // What software adapters report is a constant of the driver.
        memory_bytes: match info.device_type {
            wgpu::DeviceType::Cpu => None,
            _ => memory::bytes(adapter),
        },
        tuned: Vec::new(),
    }
}
