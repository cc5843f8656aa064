//! Opening the device the user asked for.

use crate::cli::{DeviceArgs, DeviceChoice};
use anyhow::{Result, bail};
use tilewright::cpu::CpuDevice;
use tilewright::record::{Device, DeviceKind, Facts, VariantId};

/// Opens the device and says on standard error which one it is.
pub fn open(args: &DeviceArgs) -> Result<Box<dyn Device>> {
    let (device, _) = choose(args, false)?;
    crate::log::line(format_args!("device: {}", describe(device.facts())));
    Ok(device)
}

/// As [`open`], with the shader of multiply-adds that `bench kernels` compares with, where the
/// device runs shaders.
pub fn open_with_fma(args: &DeviceArgs) -> Result<Opened> {
    let opened = choose(args, true)?;
    crate::log::line(format_args!("device: {}", describe(opened.0.facts())));
    Ok(opened)
}

type Opened = (Box<dyn Device>, Option<VariantId>);

fn choose(args: &DeviceArgs, fma: bool) -> Result<Opened> {
    if args.device == DeviceChoice::Cpu {
        return Ok((Box::new(CpuDevice::default()), None));
    }
    match gpu(args, fma) {
        Ok(opened) => Ok(opened),
        Err(error) if args.device == DeviceChoice::Gpu || args.adapter.is_some() => Err(error),
        Err(error) => {
            crate::log::line(format_args!("{error}; running on the processor"));
            Ok((Box::new(CpuDevice::default()), None))
        }
    }
}

#[cfg(feature = "gpu")]
fn gpu(args: &DeviceArgs, fma: bool) -> Result<Opened> {
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
        Ok(mut gpu) => {
            let fma = fma.then(|| tilewright::bench::add_fma_shader(&mut gpu)).transpose()?;
            Ok((Box::new(gpu), fma))
        }
        Err(error) => bail!("{error}"),
    }
}

#[cfg(not(feature = "gpu"))]
fn gpu(_args: &DeviceArgs, _fma: bool) -> Result<Opened> {
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
