//! Rows of pipelines: kept on disk from one start to the next, and built before a step needs them.

use crate::models::craft::Checkpoint;
use crate::support::{Decoder, Rows, SharedGpu, gpu, gpu_options, shared};
use std::fs;
use std::path::{Path, PathBuf};
use tilewright::gpu::{CacheFile, Gpu, Options};
use tilewright::kernels::variants::{Variant, table, variant};
use tilewright::model::{Model, SampleRow};
use tilewright::record::{Device, Recording, VariantId};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (name, body) in [
        ("are_written_and_read_again", written_and_read as fn(SharedGpu)),
        ("useless_files_are_passed_over", useless_files),
        ("no_folder_no_harm", no_folder),
        ("two_devices_share_a_file", two_devices),
        ("many_at_once_are_those_one_by_one", many_at_once),
        ("no_step_waits_for_one.fable", |_| no_step_waits(&Checkpoint::fable(2).folder())),
    ] {
        rows.add_if(gpu(), format!("pipelines::{name}"), body);
    }
    for name in ["gemma3", "qwen3-moe", "deepseek-moe"] {
        let path = gpu().and_then(|_| shared(&format!("fixtures/{name}")));
        rows.add_if(path, format!("pipelines::no_step_waits_for_one.{name}"), |path| {
            no_step_waits(&Weights::open(&path).expect("a fixture"));
        });
    }
}

fn open(cache: &Path) -> Gpu {
    let options = Options { cache: Some(cache.into()), ..gpu_options() };
    pollster::block_on(Gpu::open(&options)).expect("a device")
}

fn few() -> Vec<VariantId> {
    ["act_glu", "soft_cap", "sample_edit", "moe_combine"].map(|n| variant(n).expect(n)).to_vec()
}

/// The one file in `folder`.
fn file(folder: &Path) -> PathBuf {
    let all: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|e| e.expect("e").path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn written_and_read(_: SharedGpu) {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("a/b");
    let mut gpu = open(&cache);
    assert_eq!(gpu.found(), &CacheFile::New);
    gpu.begin(&few());
    drop(gpu);
    let written = fs::metadata(file(&cache)).expect("a file").modified().expect("a time");
    let mut gpu = open(&cache);
    assert!(matches!(gpu.found(), CacheFile::Read(bytes) if *bytes > 0), "{:?}", gpu.found());
    gpu.prepare(&few()).expect("built");
    drop(gpu);
    let again = fs::metadata(file(&cache)).expect("a file").modified().expect("a time");
    assert_eq!(again, written, "nothing new was written");
    let gpu = pollster::block_on(Gpu::open(&gpu_options())).expect("a device");
    assert_eq!(gpu.found(), &CacheFile::Off);
}

fn useless_files(_: SharedGpu) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut gpu = open(folder.path());
    gpu.prepare(&few()).expect("built");
    drop(gpu);
    let path = file(folder.path());
    let good = fs::read(&path).expect("a file");
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (bytes, reason) in [
        (Vec::new(), "no file of pipelines"),
        (b"something else that is longer than the head".to_vec(), "no file of pipelines"),
        (good[..20].to_vec(), "no file of pipelines"),
        (changed(8), "another driver or build"),
        (good[..good.len() - 1].to_vec(), "damaged"),
        ([&good[..], &[0]].concat(), "damaged"),
        (changed(good.len() - 1), "damaged"),
        (changed(24), "damaged"),
    ] {
        fs::write(&path, &bytes).expect("written");
        let mut gpu = open(folder.path());
        match gpu.found() {
            CacheFile::Ignored(file, why) => {
                assert!(file == &path && why.contains(reason), "{why}")
            }
            other => panic!("{other:?} instead of: {reason}"),
        }
        gpu.prepare(&few()).expect("built all the same");
        drop(gpu);
        assert!(matches!(open(folder.path()).found(), CacheFile::Read(_)), "written anew");
    }
}

/// What stands where the folder should be is a file.
fn no_folder(_: SharedGpu) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "kept").expect("written");
    for place in [path.clone(), path.join("below")] {
        let mut gpu = open(&place);
        match gpu.found() {
            CacheFile::Unusable(folder, why) => assert!(folder == &place && !why.is_empty()),
            other => panic!("{other:?} at {}", place.display()),
        }
        gpu.prepare(&few()).expect("built");
    }
    assert_eq!(fs::read(&path).expect("a file"), b"kept");
    assert_eq!(file(folder.path()), path);
}

fn two_devices(_: SharedGpu) {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for id in few() {
            let cache = folder.path();
            scope.spawn(move || open(cache).prepare(&[id]).expect("built"));
        }
    });
    assert!(matches!(open(folder.path()).found(), CacheFile::Read(_)));
    file(folder.path());
}

/// Good and bad ones, more than there are threads: each ends as it does alone, and the first fault
/// of the list is the one that is told.
fn many_at_once(_: SharedGpu) {
    let mut gpu = pollster::block_on(Gpu::open(&gpu_options())).expect("a device");
    let known = |v: &Variant| v.needs.iter().all(|need| need.met(gpu.facts()));
    let good: Vec<_> = table().iter().filter(|(_, v)| known(v)).map(|v| v.0).step_by(19).collect();
    assert!(good.len() > 16, "{}", good.len());
    gpu.prepare(&good).expect("built");
    assert_eq!(gpu.late_pipelines(), 0);
    gpu.prepare(&good).expect("there");
    let bad = [VariantId(40_000), VariantId(40_001)];
    let mixed = [&bad[..], &few()].concat();
    for _ in 0..2 {
        let error = gpu.prepare(&mixed).expect_err("no such variant").to_string();
        assert!(error.contains("variant 40000"), "{error}");
    }
    gpu.prepare(&few()).expect("the others were built");
    assert_eq!(gpu.late_pipelines(), 0);
}

/// Whatever a step asks for was foreseen when the model was loaded.
fn no_step_waits(weights: &Weights) {
    let mut gpu = pollster::block_on(Gpu::open(&gpu_options())).expect("a device");
    let context = 600;
    let options = Decoder::options(context);
    let model = Model::load(weights, &mut gpu, options, &mut |_, _| {}).expect("loads");
    pollster::block_on(tilewright::model::self_check(&model, &mut gpu)).expect("invariant");
    let table: Vec<u32> = (0..context.div_ceil(16)).collect();
    let mut recording = Recording::default();
    let mut batch = tilewright::model::Batch::default();
    for (tokens, start, sampled) in
        [(1, 0, 1), (2, 1, 2), (3, 3, 1), (5, 6, 5), (17, 11, 9), (40, 0, 40), (1, 599, 1)]
    {
        batch.clear();
        batch.push_row(&vec![0; tokens], start, &table);
        for at in tokens - sampled..tokens {
            batch.samples.push((at as u32, SampleRow { top: 3, ..SampleRow::default() }));
        }
        batch.hold(0, &vec![u32::MAX; model.spec.vocab.div_ceil(32) as usize]);
        batch.edits.push(Default::default());
        batch.samples[0].1.edits = 1;
        batch.hidden.push(0);
        model.record(&batch, &mut recording);
        gpu.run(&recording).expect("runs");
        assert_eq!(gpu.late_pipelines(), 0, "{tokens} tokens");
    }
}
