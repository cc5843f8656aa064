//! Rows of the shader texts: the variant table, assembly, and every variant through naga's
//! validator and its SPIR-V, MSL and HLSL writers. No adapter is needed.

use crate::support::{Rows, root};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, StorageAccess};
use std::collections::{BTreeMap, BTreeSet};
use tilewright::kernels;
use tilewright::kernels::assemble::{Target, assemble, assemble_from};
use tilewright::kernels::sources::SOURCES;
use tilewright::kernels::variants::{self, Need, Table, Variant};

pub fn rows(rows: &mut Rows) {
    rows.add("shaders::sources_match_folder", sources_match_folder);
    rows.add("shaders::table_is_valid", table_is_valid);
    rows.add("shaders::table_expands_sets", table_expands_sets);
    rows.add("shaders::table_refuses_faults", table_refuses_faults);
    rows.add("shaders::assembly_imports_once", assembly_imports_once);
    rows.add("shaders::assembly_unrolls", assembly_unrolls);
    rows.add("shaders::assembly_names_file_and_line", assembly_names_file_and_line);
    rows.add("shaders::assembly_enables_per_target", assembly_enables_per_target);
    rows.add("shaders::writers", writers);
    rows.add("shaders::bindings_match_kernels", bindings_match_kernels);
    rows.add("shaders::validation_sees_faults", validation_sees_faults);
}

fn sources_match_folder() {
    let mut found = BTreeMap::new();
    for (folder, lead) in [("shaders", ""), ("shaders/lib", "lib/")] {
        let Ok(entries) = std::fs::read_dir(root().join(folder)) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "wgsl") {
                let stem = path.file_stem().expect("a stem").to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).expect("a text");
                found.insert(format!("{lead}{stem}"), text);
            }
        }
    }
    let listed: BTreeMap<_, _> =
        SOURCES.iter().map(|(p, t)| (p.to_string(), t.to_string())).collect();
    let names = |m: &BTreeMap<String, String>| m.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&listed), names(&found), "src/kernels/sources.rs against shaders/");
    assert_eq!(listed.len(), SOURCES.len(), "a source is listed twice");
    assert!(listed == found, "the build is older than shaders/");
}

fn table_is_valid() {
    let text = std::fs::read_to_string(root().join("shaders/variants.txt")).expect("the table");
    let table = Table::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    assert!(table.iter().count() > 0);
    for (id, variant) in variants::table().iter() {
        assert_eq!(variants::variant(&variant.name), Some(id));
        for target in [Target::Naga, Target::Browser] {
            assemble(variant, target).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
        }
    }
}

fn table_expands_sets() {
    let line = "mul.{q4_1,q8_0}.m{1,2} : mul quant=quant_{q4_1,q8_0} TM={1,2} needs=f16 # comment";
    let table = Table::parse(&format!("\n# header\n{line}\n")).expect("a table");
    let names: Vec<_> = table.iter().map(|(_, v)| v.name.as_str()).collect();
    assert_eq!(names, ["mul.q4_1.m1", "mul.q4_1.m2", "mul.q8_0.m1", "mul.q8_0.m2"]);
    let id = table.find("mul.q8_0.m2").expect("the last");
    assert_eq!(id.0, 3);
    let variant = table.get(id).expect("the last");
    assert_eq!(variant.shader, "mul");
    assert_eq!(variant.imports["quant"], "quant_q8_0");
    assert_eq!(variant.consts["TM"], 2);
    assert_eq!(variant.needs, [Need::F16]);
    assert_eq!(table.find("mul"), None);
}

fn table_refuses_faults() {
    for (text, part) in [
        ("a : x\na : y", "line 2: the name `a` is taken"),
        ("a : x N={1,2}", "line 1: the name `a` is taken"),
        ("a x", "NAME : SHADER"),
        ("A : x", "not a name"),
        ("a :", "names no shader"),
        ("a : x N=-1", "not a 32-bit integer"),
        ("a : x N=4294967296", "not a 32-bit integer"),
        ("a : x N", "not key=value"),
        ("a : x N=1 N=2", "given twice"),
        ("a : x n=Lib", "neither"),
        ("a : x needs=f64", "not a known need"),
        ("a{1,2 : x", "`{` without `}`"),
        ("a : x N=1}", "`}` without `{`"),
        ("a{1,,2} : x", "empty or nested"),
    ] {
        let error = Table::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

fn sample(imports: &[(&str, &str)], consts: &[(&str, u32)], needs: &[Need]) -> Variant {
    Variant {
        name: "sample".into(),
        shader: "main".into(),
        imports: imports.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect(),
        consts: consts.iter().map(|(a, b)| (a.to_string(), *b)).collect(),
        needs: needs.to_vec(),
    }
}

fn run(variant: &Variant, files: &[(&str, &str)]) -> Result<String, String> {
    let owned: BTreeMap<String, &str> = files.iter().map(|(p, t)| (p.to_string(), *t)).collect();
    let find = |path: &str| owned.get(path).copied();
    assemble_from(variant, Target::Naga, &find).map_err(|e| e.to_string())
}

fn assembly_imports_once() {
    let files = [
        ("main", "#import quant\n#import reduce\nmain"),
        ("lib/quant_q8", "#import reduce\nquant"),
        ("lib/reduce", "#import quant\nreduce"),
    ];
    let text = run(&sample(&[("quant", "quant_q8")], &[("K", 3)], &[]), &files).expect("a text");
    assert_eq!(text, "const K: u32 = 3u;\nreduce\nquant\nmain\n");
    let error = run(&sample(&[("quant", "quant_q8"), ("other", "reduce")], &[], &[]), &files);
    assert!(error.expect_err("unused").contains("`other`, which no text imports"));
}

fn assembly_unrolls() {
    let files = [(
        "main",
        "#for i in 0..N\n#for j in i..N + i\na[${i * N + j % 2}] = b$j;\n#end\n#end\n\
         // $ stays in comments\n@workgroup_size(${(N + 2) * 8 / 2 - 1})",
    )];
    let text = run(&sample(&[], &[("N", 2)], &[]), &files).expect("a text");
    let lines = ["const N: u32 = 2u;", "a[0] = b0;", "a[1] = b1;", "a[3] = b1;", "a[2] = b2;"];
    let rest = ["// $ stays in comments", "@workgroup_size(15)", ""];
    assert_eq!(text, [&lines[..], &rest[..]].concat().join("\n"));
}

fn assembly_names_file_and_line() {
    let library = |text| [("main", "\n#import lib"), ("lib/lib", text)];
    for (text, part) in [
        ("a\n$x", "lib/lib.wgsl line 2: `x` is no number"),
        ("#for i in 0..4\nb", "lib/lib.wgsl line 1: `#for` without `#end`"),
        ("b\n#end", "lib/lib.wgsl line 2: `#end` is not a directive"),
        ("#if x", "line 1: `#if x` is not a directive"),
        ("#for i = 1\n#end", "expected `#for NAME in FROM..TO`"),
        ("#for i in 0..1\n#for i in 0..1\n#end\n#end", "line 2: `i` already has a value"),
        ("#for i in 0..9999\n#end", "more than 4096"),
        ("${1 / 0}", "divides by zero"),
        ("${1 + }", "no number"),
        ("${(1}", "`(` without `)`"),
        ("${1 2}", "left over"),
        ("${1", "`${` without `}`"),
        ("#import nowhere", "line 1: there is no shaders/lib/nowhere.wgsl"),
    ] {
        let error = run(&sample(&[], &[], &[]), &library(text)).expect_err(text);
        assert!(error.contains(part), "{text:?}: {error}");
    }
    let error = run(&sample(&[], &[], &[]), &[]).expect_err("no main");
    assert!(error.contains("there is no shaders/main.wgsl"), "{error}");
}

fn assembly_enables_per_target() {
    let variant = sample(&[], &[("K", 1)], &[Need::Subgroups, Need::F16]);
    let text = |target| assemble_from(&variant, target, &|_| Some("x")).expect("a text");
    assert_eq!(text(Target::Naga), "enable f16;\nconst K: u32 = 1u;\nx\n");
    assert!(text(Target::Browser).starts_with("enable subgroups;\nenable f16;\nconst"));
}

fn validate(text: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let uses = Capabilities::SUBGROUP
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::COOPERATIVE_MATRIX;
    let mut validator = Validator::new(ValidationFlags::all(), uses);
    validator.subgroup_stages(naga::valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(text))?;
    Ok((module, info))
}

fn write(module: &naga::Module, info: &ModuleInfo, units: bool) -> Result<(), String> {
    use naga::back::{hlsl, msl, spv};
    let spirv = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    spv::write_vec(module, info, &spirv, None).map_err(|e| format!("SPIR-V: {e}"))?;
    let metal = msl::Options { lang_version: (2, 4), ..msl::Options::default() };
    msl::write_string(module, info, &metal, &msl::PipelineOptions::default())
        .map_err(|e| format!("MSL: {e}"))?;
    if units {
        // HLSL has no matrix units that naga knows.
        return Ok(());
    }
    let options =
        hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..hlsl::Options::default() };
    let (mut text, pipeline) = (String::new(), hlsl::PipelineOptions::default());
    let mut writer = hlsl::Writer::new(&mut text, &options, &pipeline);
    writer.write(module, info, None).map_err(|e| format!("HLSL: {e}"))?;
    Ok(())
}

/// Every variant is one compute entry with a parameter block at binding 0 and storage after it.
fn writers() {
    let mut faults = Vec::new();
    for (_, variant) in variants::table().iter() {
        let result = (|| {
            let text = assemble(variant, Target::Naga).map_err(|e| e.to_string())?;
            let (module, info) = validate(&text)?;
            let units = |n: &Need| matches!(n, Need::Units8 | Need::Units16);
            write(&module, &info, variant.needs.iter().any(units))?;
            let bound = module.global_variables.iter().filter_map(|(_, v)| v.binding);
            let places: BTreeSet<_> = bound.map(|b| (b.group, b.binding)).collect();
            let wanted: BTreeSet<_> = (0..).take(places.len()).map(|b| (0, b)).collect();
            if places != wanted || module.entry_points.len() != 1 {
                return Err(format!("bindings {places:?}"));
            }
            Ok(())
        })();
        faults.extend(result.err().map(|e| format!("{}: {e}", variant.name)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What a shader binds and writes is what the host side says of it.
fn bindings_match_kernels() {
    let mut faults = Vec::new();
    for (_, variant) in variants::table().iter() {
        let text = assemble(variant, Target::Naga).unwrap_or_else(|e| panic!("{e}"));
        let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut found = BTreeMap::new();
        for (_, variable) in module.global_variables.iter() {
            let written = match variable.space {
                AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                _ => false,
            };
            let place = variable.binding.as_ref().map(|place| place.binding as usize);
            // The first is the parameter block.
            if let Some(place) = place.filter(|place| *place > 0) {
                found.insert(place, written);
            }
        }
        let kernel = kernels::kernel(&variant.shader);
        let expected = kernel.map(|k| (0..k.bindings).map(|b| (b + 1, k.writes.contains(&b))));
        if expected.map(BTreeMap::from_iter) != Some(found.clone()) {
            faults.push(format!("{}: shader binds {found:?}, host {kernel:?}", variant.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn validation_sees_faults() {
    let shader = |body: &str| format!("@compute @workgroup_size(1) fn main() {{ {body} }}");
    assert!(validate(&shader("let a = 1u;")).is_ok());
    assert!(validate(&shader("let a: f32 = 1u;")).is_err());
    assert!(validate(&shader("let a = array<u32, 2>(1u, 2u)[5];")).is_err());
}
