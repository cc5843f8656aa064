//! `doctor`: what this machine offers, and which kernels would run on it.

use crate::cli::DoctorArgs;
use crate::device::{self, describe};
use anyhow::Result;
use std::process::ExitCode;
use tilewright::base::Format;
use tilewright::kernels::{mul, variants};
use tilewright::record::{Binding, BufferId, Facts};

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let adapters = adapters();
    let device = device::open(&args.device)?;
    let facts = device.facts();
    if args.json {
        let json = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "adapters": adapters,
            "chosen": facts,
            "matmul": choices(facts),
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("adapters (--adapter N):");
    for (number, adapter) in adapters.iter().enumerate() {
        println!("  {number}: {}", describe(adapter));
    }
    if adapters.is_empty() {
        println!("  none");
    }
    println!("chosen: {}", describe(facts));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "  binding {} MiB, buffer {} MiB",
        mib(facts.binding_bytes_max),
        mib(facts.buffer_bytes_max)
    );
    println!(
        "  workgroups {}, invocations {}, shared {} KiB",
        facts.workgroups_max,
        facts.invocations_max,
        facts.shared_bytes_max >> 10
    );
    println!(
        "  subgroup lanes {}, f16 {}, matrix units {}, timestamps {}",
        facts.lanes, facts.f16, facts.matrix_units, facts.timestamps
    );
    if let Some(memory) = facts.memory_bytes {
        println!("  memory {} MiB", mib(memory));
    }
    println!("matrix products, 4096 x 4096 (rows: variant):");
    for (format, rows) in choices(facts) {
        let rows: Vec<_> = rows.iter().map(|(rows, name)| format!("{rows}: {name}")).collect();
        println!("  {format:<5} {}", rows.join("   "));
    }
    Ok(ExitCode::SUCCESS)
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
fn choices(facts: &Facts) -> Vec<(&'static str, Vec<(u32, &'static str)>)> {
    let binding = Binding { buffer: BufferId(0), offset: 0, bytes: 0 };
    let part = mul::MatrixPart { first: 0, rows: 4096, quants: binding, scales: binding };
    let choice = |format: Format| {
        let w = mul::Matrix { format, rows: 4096, cols: 4096, parts: vec![part.clone()] };
        let name = |rows| variants::get(mul::variant(&w, rows, facts).0).map(|v| v.name.as_str());
        let rows = [1, 8, 512].into_iter().filter_map(|rows| Some((rows, name(rows)?)));
        (format.name(), rows.collect())
    };
    Format::ALL.into_iter().map(choice).collect()
}
