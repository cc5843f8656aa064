//! Rows of single kernels: every variant that the device can run, on odd shapes, against sums
//! kept in f64; and the rule that bits do not depend on company.

pub mod lab;

mod attn;
mod block;
mod choices;
mod embed;
mod experts;
mod kv;
mod mul;
mod packed;
mod rope;
mod tuned;
mod weight;

use crate::support::{On, Rows};
use tilewright::base::{Activations, Format};
use tilewright::kernels::mul::activations;

pub fn rows(rows: &mut Rows) {
    rows.add("kernels::comparers_see_faults", lab::comparers_see_faults);
    rows.add("kernels::every_choice_has_a_variant", choices::every_choice_has_a_variant);
    rows.add("kernels::invariance_chooses_by_tokens", choices::invariance_off_chooses_by_tokens);
    rows.add("kernels::invariance_cuts_by_step", choices::invariance_off_cuts_by_step);
    rows.add("kernels::every_stem_has_a_kernel_and_a_twin", choices::every_stem_has_a_twin);
    rows.add("kernels::halves.cpu", embed::halves);
    rows.add("kernels::mul_faults_are_seen", mul::faults_are_seen);
    rows.add("kernels::attn_faults_are_seen", attn::faults_are_seen);
    rows.add("kernels::tuned.files", tuned::files);
    rows.add("kernels::tuned.choices", tuned::choices);
    for (on, present) in On::all() {
        let name = on.name();
        products(rows, on, &present);
        for head_dim in tilewright::kernels::attn::HEAD_DIMS {
            let row = format!("kernels::attn.hd{head_dim}.{name}");
            rows.add_if(present.clone(), row, move |()| attn::check(on, head_dim));
            let row = format!("kernels::attn_packed.hd{head_dim}.{name}");
            rows.add_if(present.clone(), row, move |()| attn::packed(on, head_dim));
            let row = format!("kernels::attn_window.hd{head_dim}.{name}");
            rows.add_if(present.clone(), row, move |()| attn::windows(on, head_dim));
        }
        for head_dim in [64, 80] {
            let row = format!("kernels::attn_splits.hd{head_dim}.{name}");
            rows.add_if(present.clone(), row, move |()| attn::splits(on, head_dim));
        }
        for (kernel, body) in [
            ("norm_rms", block::norm_rms as fn(On)),
            ("norm_rms.int8", block::norm_bytes),
            ("mul_pack", packed::check),
            ("norm_qk", block::norm_qk),
            ("rope_kv", rope::rope_kv),
            ("rope_kv_keys_alone", rope::keys_alone),
            ("rope_kv_f16", rope::f16),
            ("rope_kv_q8", rope::q8),
            ("act_glu", block::act_glu),
            ("soft_cap", block::soft_cap),
            ("moe_route", experts::routing),
            ("moe_combine", experts::combining),
        ] {
            rows.add_if(present.clone(), format!("kernels::{kernel}.{name}"), move |()| body(on));
        }
    }
}

/// Every kernel that multiplies by a matrix, in every format that it has.
fn products(rows: &mut Rows, on: On, present: &Result<(), String>) {
    let name = on.name();
    for (format, taken) in [
        (Format::F16, Activations::F32),
        (Format::Q4_1, Activations::F32),
        (Format::Q6_K, Activations::F32),
        (Format::Q4_1, Activations::Int8),
    ] {
        let row = format!("kernels::tuned.ways.{format}_{taken}.{name}");
        rows.add_if(present.clone(), row, move |()| tuned::ways(on, format, taken));
    }
    for format in Format::ALL {
        let row = format!("kernels::mul.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| {
            mul::check(on, format, Activations::F32);
        });
        if activations(format, Activations::Int8) == Activations::Int8 {
            let row = format!("kernels::mul_int8.{format}.{name}");
            rows.add_if(present.clone(), row, move |()| {
                mul::check(on, format, Activations::Int8);
            });
            let row = format!("kernels::mul_gemm_int8.{format}.{name}");
            rows.add_if(present.clone(), row, move |()| {
                mul::gemm(on, format, Activations::Int8);
            });
            let row = format!("kernels::mul_expert_int8.{format}.{name}");
            rows.add_if(present.clone(), row, move |()| {
                experts::products(on, format, Activations::Int8);
            });
        }
        let row = format!("kernels::mul_gemm.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| {
            mul::gemm(on, format, Activations::F32);
        });
        // Adapters whose units are served are rare: where one is, this asks for it.
        let asked = on == On::Cpu || std::env::var_os("TILEWRIGHT_MATRIX_UNITS").is_some();
        if asked && format != Format::F32 {
            let row = format!("kernels::mul_unit.{format}.{name}");
            rows.add_if(present.clone(), row, move |()| mul::units(on, format));
        }
        let row = format!("kernels::mul_gates.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| mul::gates(on, format));
        let row = format!("kernels::mul_expert.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| {
            experts::products(on, format, Activations::F32);
        });
        let row = format!("kernels::embed.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| embed::check(on, format));
    }
    for format in [Format::F32, Format::F16, Format::BF16] {
        let row = format!("kernels::mul_heads.{format}.{name}");
        rows.add_if(present.clone(), row, move |()| experts::heads(on, format));
    }
}
