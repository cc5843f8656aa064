//! `doctor`: what this machine offers, which kernels would run on it, and whether scheduler, cache
//! and kernels keep their promises on it.

use crate::cli::DoctorArgs;
use crate::device::{self, describe};
use crate::print;
use crate::rehearsal::rehearse;
use anyhow::{Context, Result};
use std::process::ExitCode;
use tilewright::base::{Activations, Format};
use tilewright::kernels::{mul, variants};
use tilewright::record::{Binding, BufferId, Facts};

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let adapters = adapters();
    let device = device::open(&args.device)?;
    let facts = device.facts().clone();
    if !args.json {
        print(&format!("{}{}", rows(&adapters), page(&facts)))?;
    }
    let rehearsal = rehearse(device).context("the rehearsal on the chosen device failed")?;
    if args.json {
        let json = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "adapters": adapters,
            "chosen": facts,
            "matmul": choices(&facts),
            "rehearsal": rehearsal.json(),
        });
        print(&(serde_json::to_string_pretty(&json)? + "\n"))?;
    } else {
        print(&rehearsal.told())?;
    }
    Ok(ExitCode::from(u8::from(rehearsal.fault.is_some())))
}

/// `--list-adapters`.
pub fn list_adapters() -> Result<ExitCode> {
    print(&rows(&adapters()))?;
    Ok(ExitCode::SUCCESS)
}

fn rows(adapters: &[Facts]) -> String {
    let mut out = "adapters (--adapter N):\n".to_string();
    for (number, adapter) in adapters.iter().enumerate() {
        out.push_str(&format!("  {number}: {}\n", describe(adapter)));
    }
    if adapters.is_empty() {
        out.push_str("  none: install a GPU driver, or run on the processor (--device cpu)\n");
    }
    out
}

/// What the chosen device may do, and which kernels it would run.
fn page(facts: &Facts) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let memory = facts.memory_bytes.map_or("unknown".to_string(), mib);
    let mut out = format!(
        "chosen: {}\n  memory {memory}, binding {}, buffer {}\n  \
         workgroups {}, invocations {}, shared {} KiB\n  \
         subgroup lanes {}, f16 {}, matrix units {}, timestamps {}\n  \
         invariance {}\n\
         matrix products, 4096 x 4096 (rows: variant):\n",
        describe(facts),
        mib(facts.binding_bytes_max),
        mib(facts.buffer_bytes_max),
        facts.workgroups_max,
        facts.invocations_max,
        facts.shared_bytes_max >> 10,
        facts.lanes,
        facts.f16,
        match facts.matrix_side {
            0 => "not used".to_string(),
            side => format!("{side} x {side}"),
        },
        facts.timestamps,
        facts.invariance
    );
    for (format, rows) in choices(facts) {
        let rows: Vec<_> = rows.iter().map(|(rows, name)| format!("{rows}: {name}")).collect();
        out.push_str(&format!("  {format:<9} {}\n", rows.join("   ")));
    }
    out
}

#[cfg(feature = "gpu")]
fn adapters() -> Vec<Facts> {
    pollster::block_on(tilewright::gpu::list())
}

#[cfg(not(feature = "gpu"))]
fn adapters() -> Vec<Facts> {
    Vec::new()
}

/// Format → (rows, variant) for a square matrix.
fn choices(facts: &Facts) -> Vec<(String, Vec<(u32, &'static str)>)> {
    let binding = Binding { buffer: BufferId(0), offset: 0, bytes: 0 };
    let part = mul::MatrixPart { first: 0, rows: 4096, quants: binding, scales: binding };
    let choice = |(format, taken): (Format, Activations)| {
        let w = mul::Matrix { format, rows: 4096, cols: 4096, parts: vec![part.clone()] };
        let chosen = |rows| mul::variant(&w, rows, facts, taken).0;
        let name = |rows| variants::get(chosen(rows)).map(|v| v.name.as_str());
        let rows = [1, 8, 512].into_iter().filter_map(|rows| Some((rows, name(rows)?)));
        let lead = match taken {
            Activations::F32 => format.to_string(),
            Activations::Int8 => format!("{format} {taken}"),
        };
        (lead, rows.collect())
    };
    let plain = Format::ALL.map(|format| (format, Activations::F32));
    let bytes = Format::ALL.map(|format| (format, mul::activations(format, Activations::Int8)));
    let bytes = bytes.into_iter().filter(|(_, taken)| *taken == Activations::Int8);
    plain.into_iter().chain(bytes).map(choice).collect()
}
