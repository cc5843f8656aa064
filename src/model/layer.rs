//! One layer of the forward pass: norms, attention, and a dense or mixed feed-forward.

use super::family::{Activation, QkNorm};
use super::forward::Meta;
use super::load::{Attention, Cache, FeedForward, Gated, Layer, Linear, Mixture};
use super::rows::{QkvRow, gate_up, stride};
use super::{Model, Rotation};
use crate::base::{Activations, Format};
use crate::kernels::attn::Attn;
use crate::kernels::block::{ActGlu, Gate, NormQk, NormRms, RopeKv, RopeKvParams};
use crate::kernels::experts::{Experts, MoeCombine, MoeRoute, MulExpert, MulHeads, Route};
use crate::kernels::mul::{Matrix, Mul, Pack, activations, packed_stride};
use crate::record::{Binding, Recording};

/// Where a product goes, values between its rows, whether it adds to what is there, its factor, and
/// what its gates do, if they are part of it.
#[derive(Clone, Copy)]
pub(super) struct BlockEnd {
    pub y: Binding,
    pub stride: u32,
    pub accumulate: bool,
    pub scale: f32,
    pub gate: Option<Gate>,
}

impl BlockEnd {
    pub fn plain(y: Binding, stride: u32) -> Self {
        Self { y, stride, accumulate: false, scale: 1.0, gate: None }
    }
}

/// Rows that products read, with the values between them; as bytes, too, if any of the products
/// takes them so.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    x: Binding,
    stride: u32,
    packed: Option<Binding>,
}

/// `x` from value `at` of its rows on.
fn column(x: Binding, at: u32) -> Binding {
    let skipped = u64::from(at) * 4;
    Binding { offset: x.offset + skipped, bytes: x.bytes - skipped, ..x }
}

impl Model {
    /// Writes layer `l` for `tokens` rows of the residual.
    pub(super) fn layer(&self, l: usize, tokens: u32, meta: &Meta, out: &mut Recording) {
        let layer = &self.layers[l];
        self.attention(l, layer, tokens, meta, out);
        let to = self.block_end(layer.ffn_post_norm);
        match &layer.ffn {
            FeedForward::Dense(gated) => {
                let h = self.normed_for(&gated.gate_up, layer.ffn_norm, tokens, out);
                self.gated(gated, tokens, h, to, out);
            }
            FeedForward::Mixture(mixture) => {
                let h = self.normed(layer.ffn_norm, tokens, out);
                self.mixture(mixture, tokens, h, to, out);
            }
        }
        self.post_norm(layer.ffn_post_norm, tokens, out);
    }

    /// The norm `w` of the residual, or the residual itself where the family has no norm here.
    fn normed(&self, w: Option<Binding>, tokens: u32, out: &mut Recording) -> Binding {
        let s = &self.scratch;
        let Some(w) = w else { return s.x };
        self.norm(tokens, (s.x, w, s.h), false, out);
        s.h
    }

    /// The same for the products of `linear`.
    fn normed_for(
        &self,
        linear: &Linear,
        w: Option<Binding>,
        tokens: u32,
        out: &mut Recording,
    ) -> Operand {
        let (s, row) = (&self.scratch, stride(self.spec.hidden));
        let Some(w) = w else { return self.operand_of(linear, tokens, (s.x, row), out) };
        let formats = linear.w.iter().map(|w| w.format);
        self.normed_operand(self.norm_of(tokens, (s.x, w, s.h)), formats, out)
    }

    /// Rows of `norm` that matrices of these formats are about to read: where all take bytes, the
    /// norm packs its rows itself. What is packed is good until the next rows are.
    pub(super) fn normed_operand(
        &self,
        norm: NormRms,
        formats: impl IntoIterator<Item = Format> + Clone,
        out: &mut Recording,
    ) -> Operand {
        let (rows, x, stride, cols) = (norm.rows, norm.y, norm.y_stride, norm.dim);
        if !formats.clone().into_iter().all(|format| self.takes_bytes(format)) {
            norm.record(&self.facts, out);
            return self.operand(formats, rows, (x, stride), cols, out);
        }
        let y = self.scratch.packed;
        NormRms { y, y_stride: packed_stride(cols), taken: Activations::Int8, ..norm }
            .record(&self.facts, out);
        // No product reads them as they are.
        Operand { x, stride, packed: Some(y) }
    }

    /// Where a block's last product goes: to the residual, or to its post-norm.
    fn block_end(&self, post_norm: Option<Binding>) -> BlockEnd {
        let (s, scale) = (&self.scratch, self.spec.residual_scale);
        let (y, accumulate) = match post_norm {
            Some(_) => (s.h, false),
            None => (s.x, true),
        };
        BlockEnd { accumulate, scale, ..BlockEnd::plain(y, stride(self.spec.hidden)) }
    }

    /// Adds the norm of what [`Self::block_end`] kept back to the residual.
    fn post_norm(&self, w: Option<Binding>, tokens: u32, out: &mut Recording) {
        let s = &self.scratch;
        if let Some(w) = w {
            self.norm(tokens, (s.h, w, s.x), true, out);
        }
    }

    fn norm(
        &self,
        rows: u32,
        (x, w, y): (Binding, Binding, Binding),
        accumulate: bool,
        out: &mut Recording,
    ) {
        NormRms { accumulate, ..self.norm_of(rows, (x, w, y)) }.record(&self.facts, out);
    }

    /// The norm `w` of `rows` rows as wide as the residual.
    pub(super) fn norm_of(&self, rows: u32, (x, w, y): (Binding, Binding, Binding)) -> NormRms {
        NormRms {
            rows,
            dim: self.spec.hidden,
            x,
            x_stride: stride(self.spec.hidden),
            w,
            meta: self.scratch.meta,
            rows_at: None,
            y,
            y_stride: stride(self.spec.hidden),
            taken: Activations::F32,
            eps: self.spec.norm_eps,
            offset: self.spec.norm_offset,
            accumulate: false,
        }
    }

    pub(super) fn takes_bytes(&self, format: Format) -> bool {
        activations(format, self.options.activations) == Activations::Int8
    }

    /// Rows that matrices of these formats are about to read, `cols` values at `stride`. What is
    /// packed is good until the next rows are.
    pub(super) fn operand(
        &self,
        formats: impl IntoIterator<Item = Format>,
        rows: u32,
        (x, x_stride): (Binding, u32),
        cols: u32,
        out: &mut Recording,
    ) -> Operand {
        let y = self.scratch.packed;
        let bytes = formats.into_iter().any(|format| self.takes_bytes(format));
        if bytes {
            Pack { rows, cols, x, x_stride, y }.record(&self.facts, out);
        }
        Operand { x, stride: x_stride, packed: bytes.then_some(y) }
    }

    /// The same for the products of `linear`.
    fn operand_of(
        &self,
        linear: &Linear,
        rows: u32,
        x: (Binding, u32),
        out: &mut Recording,
    ) -> Operand {
        let cols = linear.w.first().map_or(0, |w| w.cols);
        self.operand(linear.w.iter().map(|w| w.format), rows, x, cols, out)
    }

    fn mul(&self, linear: &Linear, tokens: u32, x: Operand, to: BlockEnd, out: &mut Recording) {
        for w in &linear.w {
            self.product(w, linear.bias, tokens, x, to, out);
        }
    }

    pub(super) fn product(
        &self,
        w: &Matrix,
        bias: Option<Binding>,
        tokens: u32,
        Operand { x, stride: x_stride, packed }: Operand,
        to: BlockEnd,
        out: &mut Recording,
    ) {
        let BlockEnd { y, stride: y_stride, accumulate, scale, gate } = to;
        let halves = self.scratch.halves;
        Mul { w, tokens, x, x_stride, packed, y, y_stride, bias, accumulate, scale, gate, halves }
            .record(&self.facts, out);
    }

    fn attention(&self, l: usize, layer: &Layer, tokens: u32, meta: &Meta, out: &mut Recording) {
        let (s, spec, cache) = (&self.scratch, &self.spec, &self.caches[l]);
        let row = QkvRow::of(spec);
        match &layer.attention {
            Attention::Heads { qkv, norms } => {
                let h = self.normed_for(qkv, layer.attention_norm, tokens, out);
                self.mul(qkv, tokens, h, BlockEnd::plain(s.qkv, row.stride), out);
                if let Some(norms) = norms {
                    self.norm_qk(*norms, tokens, out);
                }
            }
            latent => {
                let h = self.normed(layer.attention_norm, tokens, out);
                self.latent_qk(latent, tokens, (h, stride(spec.hidden)), out);
            }
        }
        self.rope_kv(l, cache, tokens, meta, out);
        Attn {
            work: &meta.work,
            items_at: meta.items,
            merges_at: meta.merges,
            heads: self.heads(),
            kv: self.options.kv,
            block_size: self.options.block_size,
            scale: spec.attention_scale,
            window: spec.windows[l],
            cap: spec.attention_cap,
            q: column(s.qkv, row.q),
            q_stride: row.stride,
            k_cache: cache.k,
            v_cache: cache.v,
            meta: s.meta,
            partial: s.partial,
            out: s.attention,
            out_stride: stride(spec.q_dim()),
        }
        .record(&self.facts, out);
        let attended = match &layer.attention {
            Attention::Heads { .. } => s.attention,
            Attention::Latent { value_up, .. } => self.latent_values(value_up, tokens, out),
        };
        let to = self.block_end(layer.attention_post_norm);
        let attended = (attended, stride(spec.out_dim()));
        let attended = self.operand_of(&layer.out, tokens, attended, out);
        self.mul(&layer.out, tokens, attended, to, out);
        self.post_norm(layer.attention_post_norm, tokens, out);
    }

    /// q, with the making of keys folded in, and the row that stands for keys and values.
    fn latent_qk(
        &self,
        attention: &Attention,
        tokens: u32,
        h: (Binding, u32),
        out: &mut Recording,
    ) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (Attention::Latent { down, q_norm, q, norm, key_up, .. }, Some(latent)) =
            (attention, spec.latent)
        else {
            unreachable!("a latent was loaded")
        };
        let row = QkvRow::of(spec);
        let x = self.operand_of(down, tokens, h, out);
        self.mul(down, tokens, x, BlockEnd::plain(s.qkv, row.stride), out);
        NormQk {
            tokens,
            x: s.qkv,
            x_stride: row.stride,
            q_groups: u32::from(q_norm.is_some()),
            q_dim: latent.q_rank.unwrap_or(0),
            q_weight: q_norm.unwrap_or(*norm),
            k_at: row.k,
            k_groups: 1,
            k_dim: latent.rank,
            k_weight: *norm,
            eps: spec.norm_eps,
            offset: spec.norm_offset,
        }
        .record(&self.facts, out);
        let own = stride(spec.own_q_dim());
        let from = if q_norm.is_some() { (s.qkv, row.stride) } else { h };
        let from = self.operand_of(q, tokens, from, out);
        self.mul(q, tokens, from, BlockEnd::plain(s.unfolded, own), out);
        MulHeads {
            w: key_up,
            tokens,
            x: s.unfolded,
            x_stride: own,
            x_head: latent.q_head(),
            y: column(s.qkv, row.q),
            y_stride: row.stride,
            y_head: spec.head_dim,
        }
        .record(&self.facts, out);
    }

    /// Values of all heads from what they attended to.
    fn latent_values(&self, value_up: &Experts, tokens: u32, out: &mut Recording) -> Binding {
        let (s, spec) = (&self.scratch, &self.spec);
        MulHeads {
            w: value_up,
            tokens,
            x: s.attention,
            x_stride: stride(spec.q_dim()),
            x_head: spec.head_dim,
            y: s.unfolded,
            y_stride: stride(spec.out_dim()),
            y_head: value_up.rows,
        }
        .record(&self.facts, out);
        s.unfolded
    }

    fn norm_qk(&self, [q_weight, k_weight]: [Binding; 2], tokens: u32, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (q_groups, k_groups) = match spec.family.qk_norm {
            QkNorm::Row => (1, 1),
            _ => (spec.heads, spec.kv_heads),
        };
        let row = QkvRow::of(spec);
        NormQk {
            tokens,
            x: s.qkv,
            x_stride: row.stride,
            q_groups,
            q_dim: spec.q_dim() / q_groups,
            q_weight,
            k_at: row.k,
            k_groups,
            k_dim: spec.kv_dim() / k_groups,
            k_weight,
            eps: spec.norm_eps,
            offset: spec.norm_offset,
        }
        .record(&self.facts, out);
    }

    fn rope_kv(&self, l: usize, cache: &Cache, tokens: u32, meta: &Meta, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (rotary, table) = match spec.rotations[l] {
            Rotation::None => (0, self.ropes[0]),
            Rotation::Global => (spec.rope.rotary, self.ropes[0]),
            Rotation::Local => (spec.rope_of(l as u32).map_or(0, |r| r.rotary), self.ropes[1]),
        };
        let row = QkvRow::of(spec);
        let params = RopeKvParams {
            tokens,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            first: spec.rope_first(),
            rotary,
            values: u32::from(spec.latent.is_none()),
            x_stride: row.stride,
            q_at: row.q,
            k_at: row.k,
            v_at: row.v,
            block_size: self.options.block_size,
            positions_at: meta.positions,
            slots_at: meta.slots,
            grid_x: 0,
        };
        RopeKv {
            params,
            kv: self.options.kv,
            x: s.qkv,
            table,
            meta: s.meta,
            k_cache: cache.k,
            // Latents have no values of their own; the kernel writes none.
            v_cache: if spec.latent.is_some() { s.expert_out } else { cache.v },
        }
        .record(&self.facts, out);
    }

    fn gated(&self, f: &Gated, tokens: u32, h: Operand, to: BlockEnd, out: &mut Recording) {
        let s = &self.scratch;
        if f.gate_up.in_turns {
            let gated = BlockEnd::plain(s.gated, stride(f.dim));
            self.mul(&f.gate_up, tokens, h, BlockEnd { gate: Some(self.act()), ..gated }, out);
        } else {
            self.mul(&f.gate_up, tokens, h, BlockEnd::plain(s.gate_up, gate_up(f.dim).1), out);
            self.gate(tokens, f.dim, out);
        }
        let gated = self.operand_of(&f.down, tokens, (s.gated, stride(f.dim)), out);
        self.mul(&f.down, tokens, gated, to, out);
    }

    fn act(&self) -> Gate {
        match self.spec.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        }
    }

    /// `rows` rows of `dim` gates.
    fn gate(&self, rows: u32, dim: u32, out: &mut Recording) {
        let (s, act) = (&self.scratch, self.act());
        let (up_at, x_stride) = gate_up(dim);
        let (x, y, y_stride) = (s.gate_up, s.gated, stride(dim));
        ActGlu { act, rows, dim, x, x_stride, up_at, y, y_stride }.record(&self.facts, out);
    }

    fn mixture(&self, m: &Mixture, tokens: u32, h: Binding, to: BlockEnd, out: &mut Recording) {
        let s = &self.scratch;
        let Some(moe) = &self.spec.moe else { unreachable!("a mixture was loaded") };
        let (experts, used, hidden) = (moe.experts, moe.used, self.spec.hidden);
        let route = Route { tokens, experts, used };
        let to_router = BlockEnd::plain(s.router, stride(experts));
        let readers = [m.router.format, m.gate.format, m.up.format];
        let h_rows = self.operand(readers, tokens, (h, stride(hidden)), hidden, out);
        self.product(&m.router, None, tokens, h_rows, to_router, out);
        MoeRoute {
            route,
            logits: s.router,
            stride: stride(experts),
            scoring: moe.scoring,
            bias: m.router_bias,
            normalise: moe.normalise,
            scale: moe.scale,
            out: s.routing,
        }
        .record(&self.facts, out);
        let mul = |w: &Experts, rows: Operand, x_div: u32, (y, y_stride), out: &mut Recording| {
            let Operand { x, stride: x_stride, packed } = rows;
            let routing = s.routing;
            MulExpert { w, route, routing, x, x_stride, packed, x_div, y, y_stride }
                .record(&self.facts, out);
        };
        let (up_at, gated) = gate_up(moe.ffn);
        mul(&m.gate, h_rows, used, (s.gate_up, gated), out);
        mul(&m.up, h_rows, used, (column(s.gate_up, up_at), gated), out);
        self.gate(route.pairs(), moe.ffn, out);
        let x = (s.gated, stride(moe.ffn));
        let gated = self.operand([m.down.format], route.pairs(), x, moe.ffn, out);
        mul(&m.down, gated, 1, (s.expert_out, stride(hidden)), out);
        MoeCombine {
            route,
            routing: s.routing,
            x: s.expert_out,
            y: to.y,
            dim: hidden,
            stride: stride(hidden),
            accumulate: to.accumulate,
            scale: to.scale,
        }
        .record(&self.facts, out);
        if let Some(shared) = &m.shared {
            let h = self.operand_of(&shared.gate_up, tokens, (h, stride(hidden)), out);
            self.gated(shared, tokens, h, BlockEnd { accumulate: true, ..to }, out);
        }
    }
}
