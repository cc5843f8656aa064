//! Cases 42, 44 and 47: small bindings, too little memory, a device that breaks the rule.

use super::craft::{Checkpoint, EMBEDDING};
use super::{prompt, table};
use crate::support::{Decoder, On, Rows, Wrapped};
use std::sync::atomic::Ordering;
use tilewright::base::{Format, Invariance, KvType, MonotonicClock};
use tilewright::cpu::CpuDevice;
use tilewright::engine::{LoadError, LoadOptions, Sizes, load};
use tilewright::model::{Model, ModelError, Options, Spec, self_check};
use tilewright::record::{Device, DeviceError};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        rows.add_if(present.clone(), format!("models::split_by_rows.{device}"), move |()| {
            split_by_rows(on);
        });
        rows.add_if(present, format!("models::split_between_heads.{device}"), move |()| {
            split_between_heads(on);
        });
    }
    rows.add("models::too_large", too_large);
    rows.add("models::does_not_fit", does_not_fit);
    rows.add("models::kv_pool_is_bounded", kv_pool_is_bounded);
    rows.add("models::kv_pool_of_so_many_blocks", kv_pool_of_so_many_blocks);
    rows.add("models::context_beyond_the_model_is_told", context_beyond);
    rows.add("models::kv_is_halved.cpu", kv_is_halved);
    rows.add("models::self_check_finds_a_fault", self_check_finds_a_fault);
    #[cfg(feature = "gpu")]
    rows.add_if(crate::support::gpu(), "models::kv_is_halved.gpu", kv_is_halved_on_gpu);
    #[cfg(feature = "gpu")]
    rows.add_if(crate::support::gpu(), "models::out_of_memory_at_load.gpu", out_of_memory);
}

/// A device that binds `bytes` at most; steps that bind more fail.
pub fn limited(on: On, bytes: u64) -> Box<dyn Device> {
    fn limit<D: Device + 'static>(device: D, bytes: u64) -> Box<dyn Device> {
        let mut device = Wrapped::new(device);
        device.facts.binding_bytes_max = bytes;
        Box::new(device)
    }
    match on {
        On::Cpu => limit(CpuDevice::default(), bytes),
        #[cfg(feature = "gpu")]
        On::Gpu => limit(crate::support::open_gpu(), bytes),
        #[cfg(not(feature = "gpu"))]
        On::Gpu => unreachable!("built without gpu"),
    }
}

/// A binding holds the scratch of a step but neither embedding nor head: parts, same bits.
fn split_by_rows(on: On) {
    const LIMIT: u64 = 420 << 10;
    let ids = prompt(12);
    let run = |weights: &Weights, device| {
        let sizes = Options { step_tokens_max: 96, ..Decoder::options(128) };
        let mut decoder = Decoder::sized(weights, device, sizes).unwrap_or_else(|e| panic!("{e}"));
        let logits = decoder.logits(&ids, ids.len(), &table(8));
        // More sampled rows than logits fit into the limited device at once.
        decoder.batch.clear();
        for n in 0..40 {
            let at = decoder.batch.push_row(&ids[..1 + n % 3], 0, &[n as u32]);
            decoder.batch.samples.push((at + n as u32 % 3, Default::default()));
        }
        let bytes = decoder.run();
        let sampled = decoder.model.results(&decoder.batch, &bytes);
        (logits, sampled.iter().map(|s| s.token).collect::<Vec<_>>())
    };
    for (format, times) in [(Format::F32, 1), (Format::Q8_0, 4), (Format::Q4_1, 4)] {
        let checkpoint = Checkpoint::fable(1).repeated_vocabulary(times).in_formats(|_| format);
        let embedding = &checkpoint.tensors[EMBEDDING];
        assert!(embedding.bytes.len() as u64 > LIMIT, "{format} must need parts");
        let file = checkpoint.untied().gguf(true);
        let weights = file.open().unwrap_or_else(|e| panic!("{e}"));
        assert!(
            run(&weights, limited(on, LIMIT)) == run(&weights, on.device()),
            "{format} in parts"
        );
    }
}

/// q of a GGUF file, whose rows are reordered head by head, is split between heads.
fn split_between_heads(on: On) {
    const LIMIT: u64 = 600 << 10;
    let (hidden, ffn, vocab) = (2048, 32, 64);
    let mut checkpoint = Checkpoint::fable(1);
    for (key, value) in [
        ("hidden_size", hidden),
        ("intermediate_size", ffn),
        ("num_attention_heads", 2),
        ("vocab_size", vocab),
    ] {
        checkpoint.config[key] = value.into();
    }
    for (n, (name, stored)) in checkpoint.tensors.iter_mut().enumerate() {
        stored.shape = match name.rsplit('.').nth(1).expect("a part") {
            "embed_tokens" => vec![vocab, hidden],
            "q_proj" => vec![128, hidden],
            "k_proj" | "v_proj" => vec![64, hidden],
            "o_proj" => vec![hidden, 128],
            "gate_proj" | "up_proj" => vec![ffn, hidden],
            "down_proj" => vec![hidden, ffn],
            _ => vec![hidden],
        };
        let count = stored.shape.iter().product::<u64>() as usize;
        let value = |i: usize| ((i * 7919 + n * 104_729) % 2003) as f32 / 20_000.0 - 0.05;
        let values: Vec<f32> = (0..count).map(value).collect();
        (stored.format, stored.bytes) = (Format::F32, bytemuck::cast_slice(&values).to_vec());
    }
    let weights = checkpoint.gguf(true).open().unwrap_or_else(|e| panic!("{e}"));
    assert!(weights.tensor("blk.0.attn_q.weight").expect("q").bytes > LIMIT);
    let ids: Vec<u32> = (0..16).map(|i| i * 3 + 1).collect();
    let run = |device| {
        let small = Options { step_tokens_max: 16, sequences_max: 16, ..Decoder::options(128) };
        let decoder = Decoder::sized(&weights, device, small);
        let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
        decoder.logits(&ids, ids.len(), &table(8))
    };
    let whole = run(on.device());
    assert_ne!(whole[3], whole[15]);
    assert!(run(limited(on, LIMIT)) == whole);
}

fn too_large() {
    let checkpoint = Checkpoint::fable(1).in_formats(|_| Format::F32);
    let load = |limit| {
        let weights = checkpoint.folder();
        match Decoder::on(&weights, limited(On::Cpu, limit), 128) {
            Err(ModelError::Device(DeviceError::TooLarge { label, bytes, limit })) => {
                (label, bytes, limit)
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("loaded with {limit} bytes a binding"),
        }
    };
    // Not even one row of the embedding; then a scratch buffer of the step.
    assert_eq!(load(512), (EMBEDDING.to_string(), 768, 512));
    let (label, bytes, limit) = load(200 << 10);
    assert!(bytes > limit && limit == 200 << 10, "{label}: {bytes}");
    let text = DeviceError::TooLarge { label: label.clone(), bytes, limit }.to_string();
    assert!(text.contains(&label) && text.contains(&bytes.to_string()), "{text}");
}

fn does_not_fit() {
    let weights = Checkpoint::fable(2).folder();
    let options = Decoder::options(128);
    let facts = CpuDevice::default().facts().clone();
    let spec = tilewright::model::Spec::read(&weights).expect("a spec");
    let budget = Model::budget(&spec, &weights, &options, &facts).expect("a budget");
    let load = |memory: u64| {
        let options = Options { memory_bytes: Some(memory), ..options };
        let mut device = Wrapped::new(CpuDevice::default());
        let created = device.created.clone();
        let model = Model::load(&weights, &mut device, options, &mut |_, _| {});
        (model.map(|_| ()), created.load(std::sync::atomic::Ordering::Relaxed))
    };
    assert!(load(budget.total()).0.is_ok());
    let (refused, created) = load(budget.total() - 1);
    let text = refused.expect_err("one byte short").to_string();
    for figure in [budget.weights, budget.kv, budget.scratch, budget.total(), budget.total() - 1] {
        assert!(text.contains(&figure.to_string()), "{text}");
    }
    assert!(text.contains("--kv-memory") && created == 0, "{text}");
}

/// A pool of 1 TiB by option is cut to what a binding holds, or refused where memory is known.
fn kv_pool_is_bounded() {
    let weights = Checkpoint::fable(2).folder();
    let mut facts = CpuDevice::default().facts().clone();
    facts.binding_bytes_max = 1 << 27;
    let mut wanted = LoadOptions { kv_memory: Some(1 << 40), ..LoadOptions::default() };
    let sizes = Sizes::choose(&weights, &facts, &wanted).unwrap_or_else(|e| panic!("{e}"));
    // K of one layer: 64 values of four bytes a token; one block is scratch.
    assert_eq!(sizes.options.blocks, (1 << 27) / (64 * 4 * 16) - 1);
    wanted.memory = Some(100 << 20);
    let sizes = Sizes::choose(&weights, &facts, &wanted).unwrap_or_else(|e| panic!("{e}"));
    let device = &mut CpuDevice::default();
    let error = Model::load(&weights, device, sizes.options, &mut |_, _| {}).map(|_| ());
    let error = error.expect_err("512 MiB of KV in 100 MiB").to_string();
    assert!(error.contains("does not fit") && error.contains(&(100 << 20).to_string()), "{error}");
    wanted.kv_memory = Some(1000);
    match Sizes::choose(&weights, &facts, &wanted) {
        Err(LoadError::NoBlocks { bytes: 16384, allowed: 1000, block_size: 16 }) => {}
        other => panic!("{:?}", other.map(|s| s.options)),
    }
}

/// As many blocks as are asked for, whatever pool the sizes were first chosen with.
fn kv_pool_of_so_many_blocks() {
    let weights = Checkpoint::fable(2).folder();
    let facts = CpuDevice::default().facts().clone();
    let chosen = |kv_memory| {
        let wanted = LoadOptions { kv_memory: Some(kv_memory), ..LoadOptions::default() };
        Sizes::choose(&weights, &facts, &wanted).unwrap_or_else(|e| panic!("{e}"))
    };
    let four = chosen(4 * 16384);
    assert_eq!(four.options.blocks, 4);
    for blocks in [1, 4, 5, 64, 100] {
        assert_eq!(chosen(four.kv_bytes(blocks)).options.blocks, blocks);
    }
}

/// Loads a layer of Fable with a pool of 64 blocks of f16; the blocks it got, and the warnings.
fn halved<D: Device + 'static>(device: Wrapped<D>) -> Result<(u32, u32, Vec<String>), LoadError> {
    let weights = Checkpoint::fable(2).folder();
    let wanted = LoadOptions {
        kv: Some(KvType::F16),
        context: Some(512),
        sequences: Some(2),
        step_tokens: Some(16),
        ..LoadOptions::default()
    };
    let sizes = Sizes::choose(&weights, device.facts(), &wanted)?;
    assert_eq!(sizes.options.blocks, 64);
    let clock = MonotonicClock::default();
    let loaded = load(&weights, Box::new(device), &sizes, &wanted, &clock, &mut |_, _| {})?;
    Ok((loaded.limits.blocks, loaded.limits.context_max, loaded.warnings))
}

/// Both numbers, and what a sequence may have.
fn context_beyond() {
    let warned = |context: u32, kv_memory: u64| {
        let weights = Checkpoint::fable(1).folder();
        let wanted = LoadOptions {
            kv: Some(KvType::F16),
            kv_memory: Some(kv_memory),
            context: Some(context),
            step_tokens: Some(16),
            ..LoadOptions::default()
        };
        let device = CpuDevice::default();
        let sizes = Sizes::choose(&weights, device.facts(), &wanted).expect("sizes");
        let clock = MonotonicClock::default();
        let loaded = load(&weights, Box::new(device), &sizes, &wanted, &clock, &mut |_, _| {});
        let loaded = loaded.unwrap_or_else(|e| panic!("{e}"));
        (loaded.limits.context_max, loaded.warnings.join(" "))
    };
    let own = Spec::read(&Checkpoint::fable(1).folder()).expect("a spec").context;
    // A token of this layer takes 256 bytes.
    let (large, small) = (u64::from(own) * 256, 128 * 256);
    assert_eq!(warned(own, large), (own, String::new()));
    let (most, warning) = warned(own + 1, large);
    let asked = format!("--ctx-size asks for {} tokens, more than the {own} that", own + 1);
    assert!(most == own && warning.contains(&asked), "{most}: {warning}");
    let (most, warning) = warned(own, small);
    assert!(
        most == 128 && warning.contains("--kv-memory") && warning.ends_with("have 128"),
        "{warning}"
    );
    assert_eq!(warned(128, small), (128, String::new()));
}

/// Where memory ends with the KV cache, it is halved, with a warning, until it fits; weights stay.
fn kv_is_halved() {
    let limited = |memory: u64| {
        let mut device = Wrapped::new(CpuDevice::default());
        device.allocate = Box::new(move |_, label, bytes| match label.contains(" cache of ") {
            true if bytes > memory => {
                let (label, hint) = (label.to_string(), String::new());
                Err(DeviceError::OutOfMemory { label, bytes, hint })
            }
            _ => Ok(()),
        });
        let made = device.created.clone();
        (halved(device), made.load(Ordering::Relaxed))
    };
    // K of a layer: 64 values of two bytes a token; one block more is scratch.
    let block = 64 * 2 * 16;
    let (plain, made) = limited(65 * block);
    let (blocks, context, warnings) = plain.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((blocks, context, warnings), (64, 512, vec![]));
    let (half, made_twice) = limited(65 * block - 1);
    let (blocks, context, warnings) = half.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((blocks, context), (32, 512));
    assert!(warnings.len() == 1 && warnings[0].contains("KV cache"), "{warnings:?}");
    assert_eq!(made_twice, made + 1, "nothing but the cache is made again");
    let (blocks, context, _) = limited(20 * block).0.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((blocks, context), (16, 256));
    assert!(limited(2 * block - 1).0.is_err(), "not even one block");
}

/// The same through the device's own error scopes: twice, in the midst of the caches.
#[cfg(feature = "gpu")]
fn kv_is_halved_on_gpu(_: crate::support::SharedGpu) {
    let mut device = Wrapped::new(crate::support::open_gpu());
    let mut faults = 2;
    device.allocate = Box::new(move |gpu, label, _| {
        if faults > 0 && label == "V cache of layer 1" {
            faults -= 1;
            gpu.fail_next_allocation();
        }
        Ok(())
    });
    let (blocks, context, warnings) = halved(device).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((blocks, context, warnings.len()), (16, 256, 1));
}

/// A device whose answers change with the number of rows is found at the start.
fn self_check_finds_a_fault() {
    let weights = Checkpoint::fable(1).in_formats(|name| match name.contains("down_proj") {
        true => Format::Q4_0,
        false => Format::F32,
    });
    let weights = weights.gguf(true).open().unwrap_or_else(|e| panic!("{e}"));
    let check = |invariance, after: fn(&mut Vec<u8>)| {
        let mut device = Wrapped::new(CpuDevice::default());
        (device.facts.invariance, device.after) = (invariance, after);
        let options = Decoder::options(128);
        let model = Model::load(&weights, &mut device, options, &mut |_, _| {}).expect("loads");
        pollster::block_on(self_check(&model, &mut device))
    };
    check(Invariance::On, |_| {}).unwrap_or_else(|e| panic!("{e}"));
    // The last bit of one value of the second row of eight or more; q has 192 values a row.
    let fault: fn(&mut Vec<u8>) = |bytes| {
        if bytes.len() == 8 * 192 * 4 {
            bytes[192 * 4] ^= 1;
        }
    };
    // Where numbers may depend on company, it is none.
    check(Invariance::Off, fault).unwrap_or_else(|e| panic!("{e}"));
    match check(Invariance::On, fault) {
        Err(ModelError::NotInvariant { rows: 8, format }) => {
            assert!(format == "F32" || format == "Q4_0" || format == "f32" || format == "q4_0");
        }
        other => panic!("{other:?}"),
    }
}

/// An allocation that fails is a clean error, and the device can load the model afterwards.
#[cfg(feature = "gpu")]
fn out_of_memory(_: crate::support::SharedGpu) {
    let weights = Checkpoint::fable(1).folder();
    let mut gpu = crate::support::open_gpu();
    gpu.fail_next_allocation();
    let load = |gpu: &mut tilewright::gpu::Gpu| {
        Model::load(&weights, gpu, Decoder::options(128), &mut |_, _| {}).map(|_| ())
    };
    match load(&mut gpu) {
        Err(ModelError::Device(DeviceError::OutOfMemory { label, bytes, hint })) => {
            assert!(label == EMBEDDING && bytes > 0 && !hint.is_empty(), "{label} {bytes} {hint}");
        }
        other => panic!("{other:?}"),
    }
    load(&mut gpu).unwrap_or_else(|e| panic!("{e}"));
}
