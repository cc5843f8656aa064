//! Rows of the wgpu device: what it computes, what it refuses, and how it fails. Rows that break
//! a device open one of their own.

use crate::support::{Rows, SharedGpu, gpu, gpu_options};
use tilewright::base::Invariance;
use tilewright::gpu::{Choice, Gpu, Options, list, pick, reflect};
use tilewright::kernels::variants::table;
use tilewright::record::{
    Binding, BufferId, Command, Device, DeviceError, DeviceKind, Facts, Finished, Recording, Texel,
    VariantId,
};

pub fn rows(rows: &mut Rows) {
    rows.add("gpu::choice_prefers_hardware", choice_prefers_hardware);
    for (name, body) in [
        ("adapters_are_listed", adapters_are_listed as fn(SharedGpu)),
        ("buffers_start_as_zeros", buffers_start_as_zeros),
        ("odd_sizes", odd_sizes),
        ("parameters_of_many_launches", parameters_of_many_launches),
        ("dependent_launches_keep_order", dependent_launches_keep_order),
        ("copies_between_launches", copies_between_launches),
        ("uploads_packed_and_direct", uploads_packed_and_direct),
        ("downloads_of_several_ranges", downloads_of_several_ranges),
        ("steps_in_flight", steps_in_flight),
        ("dropped_steps_do_no_harm", dropped_steps_do_no_harm),
        ("large_writes_arrive", large_writes_arrive),
        ("every_variant_builds", every_variant_builds),
        ("faulty_shaders_are_named", faulty_shaders_are_named),
        ("too_large_buffers_are_refused", too_large_buffers_are_refused),
        ("texels_are_written_whole_and_only_read", texels_are_written_whole_and_only_read),
        ("faulty_recordings_are_refused", faulty_recordings_are_refused),
        ("launches_are_timed", launches_are_timed),
        ("checked_shaders_agree", checked_shaders_agree),
        ("out_of_memory_is_an_error", out_of_memory_is_an_error),
        ("zeros_are_not_a_result", zeros_are_not_a_result),
        ("lost_device_fails_every_call", lost_device_fails_every_call),
        ("lost_device_with_a_step_in_flight", lost_device_with_a_step_in_flight),
    ] {
        rows.add_if(gpu(), format!("gpu::{name}"), body);
    }
}

fn open(options: &Options) -> Gpu {
    pollster::block_on(Gpu::open(options)).expect("a device")
}

/// A kernel with results that are plain to see; added anew by every row.
fn copy_words(gpu: &mut Gpu) -> VariantId {
    gpu.add_shader("copy_words", include_str!("data/copy_words.wgsl")).expect("a kernel")
}

fn whole(buffer: BufferId, bytes: u64) -> Binding {
    Binding { buffer, offset: 0, bytes }
}

/// A buffer that holds `words`, freed by the caller.
fn buffer_of(gpu: &mut Gpu, words: &[u32]) -> BufferId {
    let id = gpu.create_buffer("words", words.len() as u64 * 4).expect("a buffer");
    gpu.write_buffer(id, 0, bytemuck::cast_slice(words)).expect("written");
    id
}

fn free(gpu: &mut Gpu, ids: &[BufferId]) {
    ids.iter().for_each(|id| gpu.free_buffer(*id));
}

/// Launches `to[at + i] = from[first + i]` over whole buffers of the given words.
fn copy(
    recording: &mut Recording,
    kernel: VariantId,
    (from, from_words): (BufferId, u32),
    (to, to_words): (BufferId, u32),
    (first, at, count): (u32, u32, u32),
) {
    let bytes = |words: u32| u64::from(words) * 4;
    let bindings = vec![whole(from, bytes(from_words)), whole(to, bytes(to_words))];
    let grid = [count.div_ceil(64), 1, 1];
    recording.dispatch(kernel, &[first, at, count, 0], bindings, grid);
}

fn words_of(finished: &Finished) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&finished.bytes)
}

fn facts(name: &str, kind: DeviceKind) -> Facts {
    Facts {
        name: name.into(),
        backend: "vulkan".into(),
        driver: String::new(),
        kind,
        lanes: 1,
        binding_bytes_max: 1,
        buffer_bytes_max: 1,
        workgroups_max: 1,
        invocations_max: 1,
        shared_bytes_max: 1,
        bindings_max: 1,
        f16: false,
        texels: false,
        int64: false,
        matrix_side: 0,
        invariance: Invariance::On,
        timestamps: false,
        memory_bytes: None,
        tuned: Vec::new(),
    }
}

fn choice_prefers_hardware() {
    let all = [
        facts("llvmpipe", DeviceKind::Software),
        facts("Radeon iGPU", DeviceKind::Integrated),
        facts("GeForce A", DeviceKind::Discrete),
        facts("GeForce B 4090", DeviceKind::Discrete),
    ];
    let choice = |text: &str| pick(&text.parse().expect("any text"), &all);
    assert_eq!(pick(&Choice::Best, &all), Ok(2));
    assert_eq!(pick(&Choice::Best, &all[..2]), Ok(1));
    assert_eq!(pick(&Choice::Best, &all[..1]), Ok(0));
    assert_eq!(choice("0"), Ok(0));
    assert_eq!(choice("geforce b"), Ok(3));
    assert_eq!(choice("4090"), Ok(3), "a number that is no index");
    assert_eq!(choice("e"), Ok(2), "the best of those that fit");
    assert!(choice("7").expect_err("seven").contains("called `7`; there are 0: llvmpipe"));
    assert!(choice("Arc").expect_err("Arc").contains("no adapter is called `Arc`"));
    assert!(pick(&Choice::Best, &[]).expect_err("none").contains("install a GPU driver"));
}

fn adapters_are_listed(gpu: SharedGpu) {
    let all = pollster::block_on(list());
    let gpu = gpu.lock();
    assert!(all.contains(gpu.facts()), "{all:?}");
    let facts = gpu.facts();
    assert!(facts.binding_bytes_max >= 128 << 20 && facts.lanes >= 1, "{facts:?}");
    let missing = Options { adapter: Choice::Name("no such adapter".into()), ..gpu_options() };
    let error = pollster::block_on(Gpu::open(&missing)).err().expect("an error");
    assert!(matches!(&error, DeviceError::NoAdapter(m) if m.contains(&facts.name)), "{error}");
}

fn buffers_start_as_zeros(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let id = gpu.create_buffer("zeros", 4099).expect("a buffer");
    let mut recording = Recording::default();
    recording.download(whole(id, 4100));
    assert_eq!(gpu.run(&recording).expect("run").bytes, vec![0; 4100], "rounded up to words");
    gpu.free_buffer(id);
}

fn odd_sizes(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    for count in [1_u32, 3, 63, 64, 65, 1000, 4097] {
        let words: Vec<u32> = (0..count).map(|i| i * 7 + 1).collect();
        let (from, to) = (buffer_of(&mut gpu, &words), buffer_of(&mut gpu, &vec![0; words.len()]));
        let mut recording = Recording::default();
        copy(&mut recording, kernel, (from, count), (to, count), (0, 0, count));
        recording.download(whole(to, u64::from(count) * 4));
        let finished = gpu.run(&recording).expect("run");
        assert_eq!(words_of(&finished), words, "{count} words");
        free(&mut gpu, &[from, to]);
    }
}

/// Every launch reads its own parameters, far beyond the first size of the parameter buffer, and
/// again with fewer in the next step.
fn parameters_of_many_launches(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    for count in [1500_u32, 7] {
        let words: Vec<u32> = (0..count).map(|i| i ^ 0x5555).collect();
        let (from, to) = (buffer_of(&mut gpu, &words), buffer_of(&mut gpu, &vec![0; words.len()]));
        let mut recording = Recording::default();
        for i in 0..count {
            copy(&mut recording, kernel, (from, count), (to, count), (i, count - 1 - i, 1));
        }
        recording.download(whole(to, u64::from(count) * 4));
        let expected: Vec<u32> = words.iter().rev().copied().collect();
        assert_eq!(words_of(&gpu.run(&recording).expect("run")), expected);
        free(&mut gpu, &[from, to]);
    }
}

/// A ring of three buffers: each launch shifts what the one before wrote by one place.
fn dependent_launches_keep_order(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    const ROUNDS: u32 = 100;
    let size = 1000 + ROUNDS;
    let mut words = vec![0; size as usize];
    words[..1000].iter_mut().zip(1..).for_each(|(w, i)| *w = i);
    let ring = [&words, &vec![0; words.len()], &vec![0; words.len()]];
    let ring = ring.map(|w| buffer_of(&mut gpu, w));
    let mut recording = Recording::default();
    for round in 0..ROUNDS {
        let [from, to] = [0, 1].map(|i| ring[(round as usize + i) % 3]);
        copy(&mut recording, kernel, (from, size), (to, size), (round, round + 1, 1000));
    }
    let last = ring[ROUNDS as usize % 3];
    recording.download(Binding { buffer: last, offset: u64::from(ROUNDS) * 4, bytes: 4000 });
    assert_eq!(words_of(&gpu.run(&recording).expect("run")), (1..=1000).collect::<Vec<_>>());
    free(&mut gpu, &ring);
}

fn copies_between_launches(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    let [a, b, c] = [[1, 2, 3, 4], [0; 4], [0; 4]].map(|w| buffer_of(&mut gpu, &w));
    let mut recording = Recording::default();
    copy(&mut recording, kernel, (a, 4), (b, 4), (0, 0, 4));
    let (from_offset, to_offset, bytes) = (4, 0, 8);
    let command = Command::Copy { from: b, from_offset, to: c, to_offset, bytes };
    recording.commands.push(command);
    copy(&mut recording, kernel, (c, 4), (a, 4), (0, 2, 2));
    recording.download(whole(a, 16));
    recording.download(whole(c, 16));
    assert_eq!(words_of(&gpu.run(&recording).expect("run")), [1, 2, 2, 3, 2, 3, 0, 0]);
    free(&mut gpu, &[a, b, c]);
}

/// One upload, neighbours that merge, and many scattered ones, all before the first command.
fn uploads_packed_and_direct(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    let (a, b) = (buffer_of(&mut gpu, &[9; 64]), buffer_of(&mut gpu, &[9; 64]));
    for stride in [1_usize, 2, 64] {
        let mut recording = Recording::default();
        let mut expected = vec![9_u32; 64];
        recording.upload(a, 0, bytemuck::cast_slice(&expected));
        for (value, place) in (100_u32..).zip((0..64).step_by(stride)) {
            recording.upload(a, place as u64 * 4, &value.to_le_bytes());
            expected[place] = value;
        }
        copy(&mut recording, kernel, (a, 64), (b, 64), (0, 0, 64));
        recording.download(whole(b, 256));
        assert_eq!(words_of(&gpu.run(&recording).expect("run")), expected, "stride {stride}");
    }
    free(&mut gpu, &[a, b]);
}

fn downloads_of_several_ranges(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let words: Vec<u32> = (0..256).collect();
    let (a, b) = (buffer_of(&mut gpu, &words), buffer_of(&mut gpu, &[7; 3]));
    let mut recording = Recording::default();
    for (buffer, offset, bytes) in [(a, 40, 8), (b, 0, 12), (a, 0, 0), (a, 1020, 4), (a, 40, 4)] {
        recording.download(Binding { buffer, offset, bytes });
    }
    assert_eq!(words_of(&gpu.run(&recording).expect("run")), [10, 11, 7, 7, 7, 255, 10]);
    assert_eq!(gpu.run(&Recording::default()).expect("an empty step"), Finished::default());
    free(&mut gpu, &[a, b]);
}

/// Steps may be submitted before earlier ones are read, and read in any order.
fn steps_in_flight(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    let (a, b) = (buffer_of(&mut gpu, &[0]), buffer_of(&mut gpu, &[0]));
    let mut steps = Vec::new();
    for value in 1_u32..=6 {
        let mut recording = Recording::default();
        recording.upload(a, 0, &value.to_le_bytes());
        copy(&mut recording, kernel, (a, 1), (b, 1), (0, 0, 1));
        recording.download(whole(b, 4));
        steps.push((value, gpu.submit(&recording).expect("submitted")));
    }
    for (value, step) in steps.into_iter().rev() {
        assert_eq!(words_of(&pollster::block_on(step).expect("a result")), [value]);
    }
    free(&mut gpu, &[a, b]);
}

fn dropped_steps_do_no_harm(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let a = buffer_of(&mut gpu, &[5; 1000]);
    let mut recording = Recording::default();
    recording.download(whole(a, 4000));
    for _ in 0..20 {
        drop(gpu.submit(&recording).expect("submitted"));
    }
    assert_eq!(words_of(&gpu.run(&recording).expect("run")), [5; 1000]);
    gpu.free_buffer(a);
}

/// More than the queue is allowed to hold back, in uneven parts.
fn large_writes_arrive(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let bytes = 80_u64 << 20;
    let id = gpu.create_buffer("large", bytes).expect("a buffer");
    let words: Vec<u32> = (0..(bytes / 4) as u32).collect();
    let data: &[u8] = bytemuck::cast_slice(&words);
    let (head, tail) = data.split_at(12_345_676);
    gpu.write_buffer(id, 0, head).expect("head");
    gpu.write_buffer(id, head.len() as u64, tail).expect("tail");
    let mut recording = Recording::default();
    for offset in [0, 12_345_672, 16 << 20, (64 << 20) - 4, bytes - 8] {
        recording.download(Binding { buffer: id, offset, bytes: 8 });
    }
    let read = words_of(&gpu.run(&recording).expect("run"));
    let wrong: Vec<_> = read.chunks(2).filter(|pair| pair[0] + 1 != pair[1]).collect();
    assert!(wrong.is_empty() && read[1] == 1 && read[9] == words[words.len() - 1], "{read:?}");
    gpu.free_buffer(id);
}

fn every_variant_builds(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    for (id, variant) in table().iter() {
        let known = variant.needs.iter().all(|need| match need.name() {
            "f16" | "units8" | "units16" => need.met(gpu.facts()),
            _ => gpu.facts().lanes > 1,
        });
        match gpu.prepare(&[id]) {
            Ok(()) => {}
            Err(DeviceError::Shader { message, .. }) if !known => {
                assert!(message.contains("which this adapter lacks"), "{message}");
            }
            Err(e) => panic!("{e}"),
        }
    }
    let error = gpu.prepare(&[VariantId(u16::MAX / 2)]).expect_err("no such variant");
    assert!(matches!(error, DeviceError::Validation(_)), "{error}");
}

fn faulty_shaders_are_named(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let lead = "struct P { n: u32 }\n@group(0) @binding(0) var<uniform> p: P;\n";
    let entry = "@compute @workgroup_size(1)\nfn main() ";
    let source = |body: &str| format!("{lead}{entry}{body}");
    for (text, part) in [
        (source("{ let a = ; }"), "kernel.a:4:21"),
        (source("{ let a: f32 = 1u; }"), "4"),
        (source("{ var a = array<f32, 2>(); let b = p.n; a[5] = 0.0; }"), "4"),
        (format!("{entry}{{ }}"), "no parameter block at binding 0"),
        (lead.to_string(), "0 entry points"),
        (source("{ }\n@group(1) @binding(0) var<storage> s: array<u32>;"), "binding in group 1"),
        (source("{ }\n@group(0) @binding(2) var<storage> s: array<u32>;"), "numbered 1, 2, 3"),
        (format!("@compute @workgroup_size(1 << 20) fn main() {{ }}\n{lead}"), "kernel.a"),
    ] {
        match gpu.add_shader("kernel.a", &text) {
            Err(error @ DeviceError::Shader { .. }) => {
                let message = error.to_string();
                assert!(message.contains("kernel.a") && message.contains(part), "{message}");
            }
            other => panic!("{text}\n{other:?}"),
        }
    }
    let good = source("{ let a = p.n; }");
    gpu.add_shader("kernel.b", &good).expect("a good shader");
    let good = reflect("kernel.b", &good).expect("an interface");
    assert_eq!((good.params, good.workgroup, good.bound.len()), (4, [1, 1, 1], 0));
}

fn too_large_buffers_are_refused(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    for bytes in [1 << 40, u64::MAX, gpu.facts().buffer_bytes_max + 1] {
        let limit = gpu.facts().buffer_bytes_max;
        let error = gpu.create_buffer("kv", bytes).expect_err("too large");
        assert_eq!(error, DeviceError::TooLarge { label: "kv".into(), bytes, limit });
    }
    let id = gpu.create_buffer("small", 4).expect("the device still works");
    gpu.free_buffer(id);
}

/// Texels hold what was written, over the ends of their rows; anything else is refused by name.
fn texels_are_written_whole_and_only_read(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let text = "struct Params { a: u32, b: u32, count: u32, d: u32 }\n\
        @group(0) @binding(0) var<uniform> p: Params;\n\
        @group(0) @binding(1) var texels: texture_storage_2d<rgba32uint, read>;\n\
        @group(0) @binding(2) var<storage, read_write> to: array<vec4<u32>>;\n\
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n\
        if (id.x >= p.count) { return; }\n\
        to[id.x] = textureLoad(texels, vec2<u32>(id.x & 2047u, id.x >> 11u));\n\
        }";
    let kernel = gpu.add_shader("copy_texels", text).expect("a good shader");
    let count = 3 * 2048 + 5;
    let words: Vec<u32> = (0..count * 4).collect();
    let bytes = u64::from(count) * 16;
    let from = gpu.create_texels("quads", bytes, Texel::Quad).expect("room");
    let to = buffer_of(&mut gpu, &vec![0; words.len()]);
    // In three pieces: within a row, to the end of another, and whole rows with a rest.
    for part in [0..100, 100..2500, 2500..count as usize] {
        let data = bytemuck::cast_slice(&words[part.start * 4..part.end * 4]);
        gpu.write_buffer(from, part.start as u64 * 16, data).expect("written");
    }
    let launch = |bindings| {
        let mut recording = Recording::default();
        recording.dispatch(kernel, &[0, 0, count, 0], bindings, [count.div_ceil(64), 1, 1]);
        recording
    };
    let mut recording = launch(vec![whole(from, bytes), whole(to, bytes)]);
    recording.download(whole(to, bytes));
    assert_eq!(words_of(&gpu.run(&recording).expect("run")), words);
    let error = gpu.write_buffer(from, 8, &[0; 16]).expect_err("half texels").to_string();
    assert!(error.contains("`quads`") && error.contains("not texels"), "{error}");
    let past = (bytes / 16).next_multiple_of(2048) * 16;
    assert!(gpu.write_buffer(from, past, &[0; 16]).is_err(), "behind the end");
    let mut download = Recording::default();
    download.download(whole(from, 16));
    let mut upload = Recording::default();
    upload.upload(from, 0, &[0; 16]);
    for (recording, part) in [
        (launch(vec![whole(to, bytes), whole(from, bytes)]), "`words` is no texels"),
        (launch(vec![whole(from, bytes), whole(from, bytes)]), "bound a second time"),
        (download, "`quads` is read as texels only"),
        (upload, "`quads` is read as texels only"),
    ] {
        let error = gpu.run(&recording).expect_err(part).to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = gpu.create_texels("quads", 1 << 40, Texel::Quad).expect_err("too large");
    assert!(matches!(error, DeviceError::TooLarge { .. }), "{error}");
    free(&mut gpu, &[from, to]);
}

/// Whatever a recording names wrongly is refused by name, and the device lives on.
fn faulty_recordings_are_refused(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let kernel = copy_words(&mut gpu);
    let (a, b) = (buffer_of(&mut gpu, &[1; 256]), buffer_of(&mut gpu, &[0; 256]));
    let freed = buffer_of(&mut gpu, &[0]);
    gpu.free_buffer(freed);
    let ok = || vec![whole(a, 1024), whole(b, 1024)];
    let at = |buffer, offset, bytes| Binding { buffer, offset, bytes };
    let launch = |bindings: Vec<Binding>, grid: [u32; 3]| {
        let mut recording = Recording::default();
        recording.dispatch(kernel, &[0_u32, 0, 1, 0], bindings, grid);
        recording
    };
    let mut short = Recording::default();
    short.dispatch(kernel, &[0_u32, 0, 1], ok(), [1; 3]);
    let mut outside = Recording::default();
    outside.download(at(a, 1020, 8));
    let mut upload = Recording::default();
    upload.upload(a, 1024, &[0; 4]);
    let mut moved = Recording::default();
    let (from_offset, to_offset, bytes) = (0, 0, u64::MAX - 3);
    moved.commands.push(Command::Copy { from: a, from_offset, to: b, to_offset, bytes });
    let most = gpu.facts().workgroups_max;
    for (recording, part) in [
        (launch(ok(), [most + 1, 1, 1]), "fold it"),
        (launch(ok(), [1, 1, most + 1]), "fold it"),
        (launch(vec![whole(a, 1024)], [1; 3]), "1 bindings given, 2 bound"),
        (launch(vec![whole(a, 1024), whole(a, 1024)], [1; 3]), "bound a second time"),
        (launch(vec![at(a, 4, 1020), whole(b, 1024)], [1; 3]), "cannot bind 1020 bytes at 4"),
        (launch(vec![at(a, 256, 1024), whole(b, 1024)], [1; 3]), "`words` has 1024 bytes"),
        (launch(vec![at(a, 0, 0), whole(b, 1024)], [1; 3]), "has 0 bytes, needs 4"),
        (launch(vec![whole(freed, 4), whole(b, 1024)], [1; 3]), "does not exist"),
        (short, "12 bytes of parameters, it reads 16"),
        (outside, "`words` has 1024 bytes"),
        (upload, "`words` has 1024 bytes"),
        (moved, "`words` has 1024 bytes"),
    ] {
        let error = gpu.run(&recording).expect_err(part).to_string();
        assert!(error.contains("copy_words") || error.contains("words"), "{part}: {error}");
        assert!(error.contains(part), "{part}: {error}");
    }
    let mut recording = launch(ok(), [1; 3]);
    recording.download(whole(b, 4));
    assert_eq!(words_of(&gpu.run(&recording).expect("the device still works")), [1]);
    assert!(gpu.write_buffer(a, 2, &[0; 4]).is_err() && gpu.write_buffer(a, 0, &[0; 3]).is_err());
    free(&mut gpu, &[a, b]);
}

fn launches_are_timed(gpu: SharedGpu) {
    if !gpu.lock().facts().timestamps {
        return;
    }
    let mut gpu = open(&Options { timings: true, ..gpu_options() });
    let kernel = copy_words(&mut gpu);
    let (a, b) = (buffer_of(&mut gpu, &[3; 64]), buffer_of(&mut gpu, &[0; 64]));
    for launches in [2100, 3] {
        let mut recording = Recording::default();
        for _ in 0..launches {
            copy(&mut recording, kernel, (a, 64), (b, 64), (0, 0, 64));
        }
        recording.download(whole(b, 256));
        let finished = gpu.run(&recording).expect("run");
        assert_eq!(words_of(&finished), [3; 64]);
        assert_eq!(finished.timings.len(), launches);
        assert!(finished.timings.iter().all(|t| t.variant == kernel));
        assert!(finished.timings.iter().any(|t| t.nanos > 0), "some launch takes time");
    }
}

fn checked_shaders_agree(gpu: SharedGpu) {
    let name = gpu.lock().facts().name.clone();
    for checked in [false, true] {
        let adapter = Choice::Name(name.clone());
        let mut gpu = open(&Options { checked, adapter, ..gpu_options() });
        let kernel = copy_words(&mut gpu);
        let (a, b) = (buffer_of(&mut gpu, &[4, 5, 6]), buffer_of(&mut gpu, &[0; 3]));
        let mut recording = Recording::default();
        copy(&mut recording, kernel, (a, 3), (b, 3), (1, 0, 2));
        recording.download(whole(b, 12));
        assert_eq!(words_of(&gpu.run(&recording).expect("run")), [5, 6, 0]);
    }
}

fn out_of_memory_is_an_error(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    gpu.fail_next_allocation();
    match gpu.create_buffer("layer 3", 1024) {
        Err(DeviceError::OutOfMemory { label, bytes, hint }) => {
            assert_eq!((label.as_str(), bytes), ("layer 3", 1024));
            assert!(hint.contains("smaller context"), "{hint}");
        }
        other => panic!("{other:?}"),
    }
    let id = gpu.create_buffer("layer 3", 1024).expect("the next one works");
    gpu.free_buffer(id);
}

/// Commands that vanish leave zeros, or the results of an earlier step, in the staging buffer.
fn zeros_are_not_a_result(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    let a = buffer_of(&mut gpu, &[6; 5000]);
    let mut recording = Recording::default();
    recording.download(whole(a, 20000));
    for _ in 0..3 {
        gpu.fail_next_submission();
        let error = gpu.run(&recording).expect_err("nothing ran").to_string();
        assert!(error.contains("its stamp did not come back"), "{error}");
        assert_eq!(words_of(&gpu.run(&recording).expect("run")), [6; 5000]);
    }
    free(&mut gpu, &[a]);
}

fn is_lost<T>(result: Result<T, DeviceError>, call: &str) {
    match result {
        Err(DeviceError::Lost(_)) => {}
        Err(e) => panic!("{call}: {e}"),
        Ok(_) => panic!("{call} went on without a device"),
    }
}

fn lost_device_fails_every_call(_: SharedGpu) {
    let mut gpu = open(&gpu_options());
    let kernel = copy_words(&mut gpu);
    let a = buffer_of(&mut gpu, &[1; 64]);
    let mut recording = Recording::default();
    recording.download(whole(a, 256));
    assert_eq!(words_of(&gpu.run(&recording).expect("alive")), [1; 64]);
    gpu.destroy();
    for _ in 0..2 {
        is_lost(gpu.create_buffer("b", 4), "create_buffer");
        is_lost(gpu.write_buffer(a, 0, &[0; 4]), "write_buffer");
        is_lost(gpu.prepare(&[kernel]), "prepare");
        is_lost(gpu.add_shader("x", ""), "try_shader");
        is_lost(gpu.submit(&recording), "submit");
        is_lost(gpu.run(&recording), "run");
        is_lost(pollster::block_on(gpu.settle()), "settle");
        gpu.destroy();
    }
    gpu.free_buffer(a);
}

fn lost_device_with_a_step_in_flight(_: SharedGpu) {
    let mut gpu = open(&gpu_options());
    let kernel = copy_words(&mut gpu);
    let (a, b) = (buffer_of(&mut gpu, &[1; 4096]), buffer_of(&mut gpu, &[0; 4096]));
    let mut recording = Recording::default();
    for _ in 0..200 {
        copy(&mut recording, kernel, (a, 4096), (b, 4096), (0, 0, 4096));
    }
    recording.download(whole(b, 16384));
    let read = gpu.submit(&recording).expect("submitted");
    let dropped = gpu.submit(&recording).expect("submitted");
    let outlives = gpu.submit(&recording).expect("submitted");
    gpu.destroy();
    is_lost(pollster::block_on(read), "a step in flight");
    drop(dropped);
    is_lost(gpu.submit(&recording), "submit");
    drop(gpu);
    is_lost(pollster::block_on(outlives), "a step that outlives its device");
}
