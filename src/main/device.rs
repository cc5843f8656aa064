//! Opening the device the user asked for.

use crate::cli::{DeviceArgs, DeviceChoice};
use anyhow::{Result, bail};
use tilewright::cpu::CpuDevice;
use tilewright::record::{Device, DeviceKind, Facts};

/// Opens the device and says on standard error which one it is.
pub fn open(args: &DeviceArgs) -> Result<Box<dyn Device>> {
    let device = choose(args)?;
    crate::log::line(format_args!("device: {}", describe(device.facts())));
    Ok(device)
}

fn choose(args: &DeviceArgs) -> Result<Box<dyn Device>> {
    if args.device == DeviceChoice::Cpu {
        return Ok(Box::new(CpuDevice::default()));
    }
    match gpu(args) {
        Ok(device) => Ok(device),
        Err(error) if args.device == DeviceChoice::Gpu || args.adapter.is_some() => Err(error),
        Err(error) => {
            crate::log::line(format_args!("{error}; running on the processor"));
            Ok(Box::new(CpuDevice::default()))
        }
    }
}

#[cfg(feature = "gpu")]
fn gpu(args: &DeviceArgs) -> Result<Box<dyn Device>> {
    let adapter = args.adapter.as_deref().unwrap_or_default();
    let options = tilewright::gpu::Options {
        adapter: match adapter {
            "" => Default::default(),
            text => text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {}),
        },
        checked: args.checked_shaders,
        timings: args.kernel_times,
        ..Default::default()
    };
    match pollster::block_on(tilewright::gpu::Gpu::open(&options)) {
        Ok(gpu) => Ok(Box::new(gpu)),
        Err(error) => bail!("{error}"),
    }
}

#[cfg(not(feature = "gpu"))]
fn gpu(_args: &DeviceArgs) -> Result<Box<dyn Device>> {
    bail!("this build has no GPU support (feature `gpu`)")
}

/// One line: what runs the kernels.
pub fn describe(facts: &Facts) -> String {
    let kind = match facts.kind {
        DeviceKind::Discrete => "discrete GPU",
        DeviceKind::Integrated => "integrated GPU",
        DeviceKind::Other => "other adapter",
        DeviceKind::Software => "software adapter",
        DeviceKind::Cpu => "processor",
    };
    match facts.driver.as_str() {
        "" => format!("{} ({kind})", facts.name),
        driver => format!("{} ({kind}, {}, {driver})", facts.name, facts.backend),
    }
}
