//! Opening the device the user asked for.

use crate::cli::{DeviceArgs, DeviceChoice};
use anyhow::{Result, bail};
use tilewright::base::Invariance;
use tilewright::cpu::CpuDevice;
use tilewright::record::{Device, DeviceKind, Facts, VariantId};

/// Opens the device and says on standard error which one it is.
pub fn open(args: &DeviceArgs) -> Result<Box<dyn Device>> {
    let (device, _) = told(choose(args, false)?);
    Ok(device)
}

/// As [`open`], with the shader of multiply-adds that `bench kernels` compares with, where the
/// device runs shaders.
pub fn open_with_fma(args: &DeviceArgs) -> Result<Opened> {
    Ok(told(choose(args, true)?))
}

fn told(opened: Opened) -> Opened {
    let facts = opened.0.facts();
    crate::log::line(format_args!("device: {}", describe(facts)));
    if facts.invariance == Invariance::Off {
        crate::log::line(format_args!("invariance off: answers may depend on company"));
    }
    opened
}

type Opened = (Box<dyn Device>, Option<VariantId>);

fn choose(args: &DeviceArgs, fma: bool) -> Result<Opened> {
    let processor = || -> Box<dyn Device> {
        let mut device = CpuDevice::default();
        device.set_invariance(args.invariance);
        Box::new(device)
    };
    if args.device == DeviceChoice::Cpu {
        return Ok((processor(), None));
    }
    let named = args.adapter.as_deref().is_some_and(|adapter| !adapter.is_empty());
    let free = args.device == DeviceChoice::Auto && !named;
    match gpu(args, fma) {
        // Threads that imitate a GPU take longer than the same threads by themselves, to start most
        // of all: they compile first.
        Ok((device, _)) if free && device.facts().kind == DeviceKind::Software => {
            crate::log::line(format_args!(
                "{}: passed over, it is slower than the processor that it runs on (--device gpu \
                 takes it)",
                describe(device.facts())
            ));
            Ok((processor(), None))
        }
        Ok(opened) => Ok(opened),
        Err(error) if !free => Err(error),
        Err(error) => {
            crate::log::line(format_args!("{error}; running on the processor"));
            Ok((processor(), None))
        }
    }
}

#[cfg(feature = "gpu")]
fn gpu(args: &DeviceArgs, fma: bool) -> Result<Opened> {
    use tilewright::gpu::CacheFile;
    let adapter = args.adapter.as_deref().unwrap_or_default();
    let options = tilewright::gpu::Options {
        adapter: match adapter {
            "" => Default::default(),
            text => text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {}),
        },
        checked: args.checked_shaders,
        matrix_units: args.matrix_units,
        timings: args.kernel_times,
        cache: crate::folders::own(args.cache_dir.as_deref(), "pipelines"),
        ..Default::default()
    };
    match pollster::block_on(tilewright::gpu::Gpu::open(&options)) {
        Ok(mut gpu) => {
            match gpu.found() {
                CacheFile::Ignored(file, why) => {
                    crate::log::line(format_args!("{}: not used, {why}", file.display()));
                }
                CacheFile::Unusable(folder, why) => crate::log::line(format_args!(
                    "warning: {}: compiled pipelines cannot be kept there ({why}); every start \
                     compiles them (--cache-dir chooses another folder)",
                    folder.display()
                )),
                CacheFile::Off | CacheFile::New | CacheFile::Read(_) => {}
            }
            if args.matrix_units && gpu.facts().matrix_side == 0 {
                crate::log::line(format_args!(
                    "matrix units are not used: {} has none of a kind that is served, or they \
                     failed their test",
                    gpu.facts().name
                ));
            }
            gpu.set_invariance(args.invariance);
            gpu.set_tuned(crate::tune::found(args, gpu.facts()));
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
