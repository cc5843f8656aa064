//! Which variant serves what: every choice names a row of the table that its device can run, and
//! every shader has its place on the host and its twin.

use std::collections::{BTreeMap, BTreeSet};
use tilewright::base::{Activations, Format, Invariance, KvType};
use tilewright::cpu::CpuDevice;
use tilewright::kernels::assemble::{Target, assemble};
use tilewright::kernels::attn::{Attn, AttnRow, AttnWork, HEAD_DIMS, Heads};
use tilewright::kernels::block::{ActGlu, Gate, NormQk, NormRms, RopeKv, RopeKvParams, SoftCap};
use tilewright::kernels::experts::{
    ExpertPart, Experts, MoeCombine, MoeRoute, MulExpert, MulHeads, Route, Scoring,
};
use tilewright::kernels::mul::{self, Embed, Matrix, MatrixPart, Mul, Pack};
use tilewright::kernels::sample::Sample;
use tilewright::kernels::sources::SOURCES;
use tilewright::kernels::variants::{self, Variant};
use tilewright::kernels::{KERNELS, kernel};
use tilewright::record::{Binding, BufferId, Command, Device, DeviceKind, Facts, Recording};

fn facts(kind: DeviceKind, lanes: u32) -> Facts {
    let bytes = 128 << 20;
    Facts {
        name: format!("{kind:?} with {lanes} lanes"),
        backend: "vulkan".into(),
        driver: String::new(),
        kind,
        lanes,
        binding_bytes_max: bytes,
        buffer_bytes_max: bytes,
        workgroups_max: 65535,
        // What every WebGPU device gives.
        invocations_max: 256,
        shared_bytes_max: 16384,
        bindings_max: 8,
        f16: false,
        int64: lanes >= 8,
        texels: kind == DeviceKind::Software,
        matrix_side: 0,
        invariance: Invariance::On,
        timestamps: false,
        memory_bytes: None,
        tuned: Vec::new(),
    }
}

fn every_facts() -> Vec<Facts> {
    let mut out = vec![facts(DeviceKind::Cpu, 1)];
    out.extend([1, 4, 8, 16].map(|lanes| facts(DeviceKind::Software, lanes)));
    for (kind, lanes, matrix_side) in [(DeviceKind::Software, 8, 8), (DeviceKind::Discrete, 32, 16)]
    {
        let (texels, shared_bytes_max) = (false, 32_768);
        let plain = facts(kind, lanes);
        for invariance in Invariance::ALL {
            let units = Facts { f16: true, texels, matrix_side, ..plain.clone() };
            out.push(Facts { shared_bytes_max, invariance, ..units });
        }
    }
    for kind in [DeviceKind::Discrete, DeviceKind::Integrated, DeviceKind::Other] {
        out.extend([1, 8, 16, 32, 64].map(|lanes| facts(kind, lanes)));
    }
    out
}

/// A binding; no two are of the same buffer.
fn bindings<const N: usize>() -> [Binding; N] {
    std::array::from_fn(|at| Binding { buffer: BufferId(at as u32), offset: 0, bytes: 1 << 20 })
}

/// What is wrong with launching `variant` on a device with `facts`.
fn unfit(variant: &Variant, facts: &Facts) -> Option<String> {
    let width = match variant.shader.as_str() {
        "mul_vec" | "mul_expert_vec" => variant.constant("LANES") * variant.constant("SEGMENTS"),
        _ => variant.constant("WG"),
    };
    if width == 0 || width > facts.invocations_max {
        return Some(format!("{width} threads"));
    }
    let missing = variant.needs.iter().find(|n| !n.met(facts));
    missing.map(|need| format!("it needs {}", need.name()))
}

/// The launches of `recording` by shader, after a check of each.
fn check(recording: &Recording, facts: &Facts, seen: &mut BTreeSet<String>) {
    assert!(!recording.commands.is_empty(), "nothing is launched on {}", facts.name);
    for command in &recording.commands {
        let Command::Dispatch(dispatch) = command else { continue };
        let variant = variants::get(dispatch.variant).expect("a row of the table");
        if let Some(fault) = unfit(variant, facts) {
            panic!("{} is chosen for {}: {fault}", variant.name, facts.name);
        }
        let bound = kernel(&variant.shader).expect("a kernel").bindings;
        assert_eq!(dispatch.bindings.len(), bound, "{}", variant.name);
        assert!(bound <= facts.bindings_max as usize, "{} binds {bound}", variant.name);
        let most = facts.workgroups_max;
        assert!(dispatch.grid.iter().all(|n| (1..=most).contains(n)), "{}", variant.name);
        seen.insert(variant.name.clone());
    }
}

fn matrix(format: Format, rows: u32, cols: u32) -> Matrix {
    let [quants, scales] = bindings();
    let parts = vec![MatrixPart { first: 0, rows, quants, scales }];
    Matrix { format, rows, cols, parts }
}

fn products(format: Format, taken: Activations, facts: &Facts, seen: &mut BTreeSet<String>) {
    let [meta, x, y, bytes, halves, sampled] = bindings();
    let packed = (taken == Activations::Int8).then_some(bytes);
    for rows in [1, 7, 64, 576, 1536, 4096, 8192, 151_936] {
        for cols in [32, 64, 576, 1024, 2048, 4096, 16384] {
            let w = &matrix(format, rows, cols);
            let (x_stride, y_stride) = (cols, rows);
            let mut cuts = BTreeSet::new();
            for tokens in (1..=9).chain([33, 512, 2048]) {
                let mut recording = Recording::default();
                let (bias, accumulate, scale, gate) = (None, false, 1.0, None);
                Mul {
                    w,
                    tokens,
                    x,
                    x_stride,
                    packed,
                    y,
                    y_stride,
                    bias,
                    accumulate,
                    scale,
                    gate,
                    halves,
                }
                .record(facts, &mut recording);
                check(&recording, facts, seen);
                let halves = variants::variant("to_halves");
                let products = recording.commands.iter().filter_map(|command| match command {
                    Command::Dispatch(d) => (Some(d.variant) != halves).then_some(d),
                    Command::Copy { .. } => None,
                });
                let products: Vec<_> = products.collect();
                let (d, tiles) = (products[0], products.iter().map(|d| d.grid[1]).sum());
                let (variant, _, tile) = mul::variant(w, tokens, facts, taken);
                assert_eq!((d.variant, tiles), (variant, tokens.div_ceil(tile)));
                cuts.insert(recording.params[d.params.start + 2]);
            }
            assert_eq!(cuts.len(), 1, "the cut of {rows} x {cols} depends on the token count");
            let mut recording = Recording::default();
            Embed { w, tokens: 33, meta, tokens_at: 0, sampled, x, x_stride, scale: 1.0 }
                .record(facts, &mut recording);
            check(&recording, facts, seen);
        }
    }
}

fn norms(rows: u32, facts: &Facts, recording: &mut Recording) {
    let [x, w, meta, y, k_weight] = bindings();
    let (eps, offset) = (0.0, 0.0);
    for taken in [Activations::F32, Activations::Int8] {
        NormRms {
            rows,
            dim: 64,
            x,
            x_stride: 64,
            w,
            meta,
            rows_at: None,
            y,
            y_stride: 64,
            taken,
            eps,
            offset,
            accumulate: false,
        }
        .record(facts, recording);
    }
    NormQk {
        tokens: rows,
        x,
        x_stride: 128,
        q_groups: 1,
        q_dim: 64,
        q_weight: w,
        k_at: 64,
        k_groups: 1,
        k_dim: 64,
        k_weight,
        eps,
        offset,
    }
    .record(facts, recording);
}

fn others(facts: &Facts, seen: &mut BTreeSet<String>) {
    let mut recording = Recording::default();
    let [a, b, c, d, e, f] = bindings();
    for (head_dim, kv) in HEAD_DIMS.into_iter().flat_map(|h| KvType::ALL.map(|kv| (h, kv))) {
        for (heads, kv_heads) in [(1, 1), (4, 1), (32, 8), (16, 1)] {
            let heads = Heads { heads, kv_heads, head_dim };
            let mut work = AttnWork::default();
            let row = AttnRow { first: 0, len: 1, start: 600, table_at: 0 };
            work.fill(&[row], heads, None, 1 << 16, facts);
            let on = facts.invariance == Invariance::On;
            assert!(!on || (work.items.len(), work.merges.len()) == (3, 1));
            Attn {
                work: &work,
                items_at: 0,
                merges_at: 0,
                heads,
                kv,
                block_size: 16,
                scale: 1.0,
                window: None,
                cap: None,
                q: a,
                q_stride: 64,
                k_cache: b,
                v_cache: c,
                meta: d,
                partial: e,
                out: f,
                out_stride: 64,
            }
            .record(facts, &mut recording);
        }
        let params =
            RopeKvParams { tokens: 33, heads: 4, head_dim, ..bytemuck::Zeroable::zeroed() };
        RopeKv { params, kv, x: a, table: b, meta: c, k_cache: d, v_cache: e }
            .record(facts, &mut recording);
    }
    for rows in [1, 33, 100_000] {
        norms(rows, facts, &mut recording);
        Pack { rows, cols: 576, x: a, x_stride: 576, y: b }.record(facts, &mut recording);
        SoftCap { cap: 30.0, count: rows, x: a }.record(facts, &mut recording);
        for act in [Gate::Silu, Gate::GeluTanh] {
            let (dim, x_stride, up_at, y_stride) = (1000, 2048, 1024, 1024);
            ActGlu { act, rows, dim, x: a, x_stride, up_at, y: b, y_stride }
                .record(facts, &mut recording);
        }
        Sample {
            row_base: 0,
            count: rows,
            edit_range: 0..rows,
            masked: true,
            vocab: 64,
            stride: 64,
            rows: a,
            edits: b,
            masks: b,
            logits: c,
            weights: d,
            out: e,
        }
        .record(facts, &mut recording);
    }
    check(&recording, facts, seen);
}

/// A mixture's launches, from one token to many.
fn mixtures(format: Format, taken: Activations, facts: &Facts, seen: &mut BTreeSet<String>) {
    let [logits, routing, x, y, quants, scales, bytes] = bindings();
    let packed = (taken == Activations::Int8).then_some(bytes);
    for tokens in [1, 2, 9, 40, 512] {
        let mut recording = Recording::default();
        let route = Route { tokens, experts: 8, used: 2 };
        MoeRoute {
            route,
            logits,
            stride: 32,
            scoring: Scoring::Softmax,
            bias: None,
            normalise: true,
            scale: 1.0,
            out: routing,
        }
        .record(facts, &mut recording);
        for (rows, cols) in [(64, 64), (1024, 512), (1024, 1024), (768, 2048), (14336, 4096)] {
            let parts = vec![ExpertPart { first: 0, experts: 8, quants, scales }];
            let w = &Experts { format, rows, cols, parts };
            let (x_stride, y_stride, x_div) = (cols, rows, 2);
            MulExpert { w, route, routing, x, x_stride, packed, x_div, y, y_stride }
                .record(facts, &mut recording);
        }
        if matches!(format, Format::F32 | Format::F16 | Format::BF16) {
            let parts = vec![ExpertPart { first: 0, experts: 8, quants, scales }];
            let w = &Experts { format, rows: 576, cols: 192, parts };
            let (x_stride, x_head, y_stride, y_head) = (1536, 192, 4608, 576);
            MulHeads { w, tokens, x, x_stride, x_head, y, y_stride, y_head }
                .record(facts, &mut recording);
        }
        let (dim, stride, accumulate, scale) = (64, 64, true, 1.0);
        MoeCombine { route, routing, x, y, dim, stride, accumulate, scale }
            .record(facts, &mut recording);
        check(&recording, facts, seen);
    }
}

pub fn every_choice_has_a_variant() {
    let mut seen = BTreeSet::new();
    for facts in every_facts() {
        for format in Format::ALL {
            for taken in Activations::ALL {
                products(format, taken, &facts, &mut seen);
                mixtures(format, taken, &facts, &mut seen);
            }
        }
        others(&facts, &mut seen);
    }
    let all = variants::table().iter().map(|(_, v)| v.name.clone());
    let idle: Vec<_> = all.filter(|name| !seen.contains(name)).collect();
    assert!(idle.is_empty(), "no device is ever given {idle:?}");
}

/// Matrix units serve every number of tokens of a shape; where numbers may depend on company, the
/// many. All other choices are the same.
pub fn invariance_off_chooses_by_tokens() {
    for facts in every_facts() {
        let stems = |invariance, format, rows| {
            let (facts, w) = (Facts { invariance, ..facts.clone() }, matrix(format, rows, 4096));
            [1, 8, 9, 512].map(|tokens| mul::variant(&w, tokens, &facts, Activations::F32).1.stem)
        };
        for (format, rows) in Format::ALL.into_iter().flat_map(|f| [(f, 4096), (f, 65_536)]) {
            let [on, off] = [Invariance::On, Invariance::Off].map(|i| stems(i, format, rows));
            if facts.matrix_side == 0 || format == Format::F32 {
                assert_eq!(on, off, "{format} on {}", facts.name);
                continue;
            }
            assert_eq!(on, ["mul_unit"; 4], "{format} on {}", facts.name);
            let wide = facts.kind == DeviceKind::Discrete && rows == 4096;
            let few = if wide { "mul_vec" } else { "mul_mat" };
            assert_eq!(off, [few, few, "mul_unit", "mul_unit"], "{format} on {}", facts.name);
        }
    }
}

/// Splits of attention: a constant; where numbers may depend on company, short ones for a sequence
/// by itself and none for many.
pub fn invariance_off_cuts_by_step() {
    let heads = Heads { heads: 32, kv_heads: 8, head_dim: 128 };
    let cut = |kind, invariance, starts: &[u32], slots: u32| {
        let facts = Facts { invariance, ..facts(kind, 32) };
        let row = |(first, &start): (u32, &u32)| AttnRow { first, len: 1, start, table_at: 0 };
        let rows: Vec<_> = (0..).zip(starts).map(row).collect();
        let mut work = AttnWork::default();
        work.fill(&rows, heads, None, slots * heads.heads, &facts);
        assert!(work.partials <= slots * heads.heads);
        let covered: u32 = work.items.iter().map(|item| item[5] - item[4]).sum();
        let wanted: u32 = starts.iter().map(|start| (start + 1).div_ceil(work.split)).sum();
        assert_eq!(covered, wanted, "every split once");
        (work.split, work.items.len(), work.merges.len())
    };
    use DeviceKind::{Discrete, Software};
    for (starts, on, wide, software) in [
        (vec![1023], (256, 4, 1), (64, 16, 1), (512, 2, 1)),
        (vec![8191], (256, 32, 1), (256, 32, 1), (4096, 2, 1)),
        (vec![1023; 128], (256, 512, 128), (1024, 128, 0), (1024, 128, 0)),
        // One that is long among many that are short.
        (
            vec![63; 128].into_iter().chain([4095]).collect(),
            (256, 144, 1),
            (128, 160, 1),
            (4096, 129, 0),
        ),
        (vec![0], (256, 1, 0), (64, 1, 0), (64, 1, 0)),
    ] {
        for kind in [Discrete, Software] {
            assert_eq!(cut(kind, Invariance::On, &starts, 512), on, "{starts:?}");
        }
        assert_eq!(cut(Discrete, Invariance::Off, &starts, 512), wide, "{starts:?}");
        assert_eq!(cut(Software, Invariance::Off, &starts, 512), software, "{starts:?}");
    }
    // No more splits than there are slots for.
    assert_eq!(cut(Discrete, Invariance::Off, &[8191], 8), (1024, 8, 1));
    assert_eq!(cut(Discrete, Invariance::Off, &[8191], 0), (8192, 1, 0));
}

/// Parameter words of `variant`, as its text declares them.
fn param_words(variant: &Variant) -> usize {
    let text = assemble(variant, Target::Naga).unwrap_or_else(|e| panic!("{e}"));
    let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}"));
    let uniform = |v: &naga::GlobalVariable| v.space == naga::AddressSpace::Uniform;
    let (_, params) = module.global_variables.iter().find(|(_, v)| uniform(v)).expect("params");
    match &module.types[params.ty].inner {
        naga::TypeInner::Struct { members, .. } => members.len(),
        other => panic!("{}: the parameters are {other:?}", variant.name),
    }
}

/// Every stem in shaders/ is a kernel with variants, and its twin runs (an empty launch).
pub fn every_stem_has_a_twin() {
    let stems: BTreeSet<_> =
        SOURCES.iter().map(|s| s.0).filter(|path| !path.contains('/')).collect();
    let kernels: BTreeSet<_> = KERNELS.iter().map(|k| k.stem).collect();
    assert_eq!(stems, kernels, "shaders/ against KERNELS");
    let first: BTreeMap<_, _> =
        variants::table().iter().map(|(id, v)| (v.shader.as_str(), id)).collect();
    let mut device = CpuDevice::default();
    for kernel in KERNELS {
        let id = *first.get(kernel.stem).unwrap_or_else(|| panic!("no {} variant", kernel.stem));
        let words = vec![0u32; param_words(variants::get(id).expect("a row of the table"))];
        let mut recording = Recording { params: words.clone(), ..Recording::default() };
        let bindings = (0..kernel.bindings).map(|_| {
            let buffer = device.create_buffer("operand", 4096).expect("a buffer");
            Binding { buffer, offset: 0, bytes: 4096 }
        });
        let bindings: Vec<_> = bindings.collect();
        let dispatch = tilewright::record::Dispatch {
            variant: id,
            bindings: bindings.clone(),
            params: 0..words.len(),
            grid: [1; 3],
        };
        recording.commands.push(Command::Dispatch(dispatch.clone()));
        device.run(&recording).unwrap_or_else(|e| panic!("{}: {e}", kernel.stem));
        let short = tilewright::record::Dispatch { bindings: bindings[1..].to_vec(), ..dispatch };
        recording.commands = vec![Command::Dispatch(short)];
        assert!(device.run(&recording).is_err(), "{} takes too few bindings", kernel.stem);
    }
}
