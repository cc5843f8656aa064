//! One layer of the forward pass: norms, attention, and a dense or mixed feed-forward.

use super::family::{Activation, QkNorm};
use super::forward::Meta;
use super::load::{Attention, Cache, FeedForward, Gated, Layer, Linear, Mixture, stride};
use super::{Model, Rotation};
use crate::kernels::attn::Attn;
use crate::kernels::block::{ActGlu, Gate, NormQk, NormRms, RopeKv, RopeKvParams};
use crate::kernels::experts::{Experts, MoeCombine, MoeRoute, MulExpert, MulHeads, Route};
use crate::kernels::mul::{Matrix, Mul};
use crate::record::{Binding, Recording};

/// Where a product goes, whether it adds to what is there, and its factor.
#[derive(Clone, Copy)]
pub(super) struct BlockEnd {
    pub y: Binding,
    pub accumulate: bool,
    pub scale: f32,
}

impl BlockEnd {
    fn plain(y: Binding) -> Self {
        Self { y, accumulate: false, scale: 1.0 }
    }
}

impl Model {
    /// Writes layer `l` for `tokens` rows of the residual.
    pub(super) fn layer(&self, l: usize, tokens: u32, meta: &Meta, out: &mut Recording) {
        let layer = &self.layers[l];
        self.attention(l, layer, tokens, meta, out);
        let h = self.normed(layer.ffn_norm, tokens, out);
        let to = self.block_end(layer.ffn_post_norm);
        match &layer.ffn {
            FeedForward::Dense(gated) => self.gated(gated, tokens, h, to, out),
            FeedForward::Mixture(mixture) => self.mixture(mixture, tokens, h, to, out),
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

    /// Where a block's last product goes: to the residual, or to its post-norm.
    fn block_end(&self, post_norm: Option<Binding>) -> BlockEnd {
        let (s, scale) = (&self.scratch, self.spec.residual_scale);
        match post_norm {
            Some(_) => BlockEnd { y: s.h, accumulate: false, scale },
            None => BlockEnd { y: s.x, accumulate: true, scale },
        }
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
        let row = stride(self.spec.hidden);
        NormRms {
            rows,
            dim: self.spec.hidden,
            x,
            x_stride: row,
            w,
            meta: self.scratch.meta,
            rows_at: None,
            y,
            y_stride: row,
            eps: self.spec.norm_eps,
            offset: self.spec.norm_offset,
            accumulate,
        }
        .record(&self.facts, out);
    }

    fn mul(&self, linear: &Linear, tokens: u32, x: Binding, to: BlockEnd, out: &mut Recording) {
        self.product(&linear.w, linear.bias, tokens, x, to, out);
    }

    pub(super) fn product(
        &self,
        w: &Matrix,
        bias: Option<Binding>,
        tokens: u32,
        x: Binding,
        to: BlockEnd,
        out: &mut Recording,
    ) {
        let (x_stride, y_stride) = (stride(w.cols), stride(w.rows));
        let BlockEnd { y, accumulate, scale } = to;
        Mul { w, tokens, x, x_stride, y, y_stride, bias, accumulate, scale }
            .record(&self.facts, out);
    }

    fn attention(&self, l: usize, layer: &Layer, tokens: u32, meta: &Meta, out: &mut Recording) {
        let (s, spec, cache) = (&self.scratch, &self.spec, &self.caches[l]);
        let h = self.normed(layer.attention_norm, tokens, out);
        match &layer.attention {
            Attention::Heads { q, k, v, norms } => {
                self.mul(q, tokens, h, BlockEnd::plain(s.q), out);
                self.mul(k, tokens, h, BlockEnd::plain(s.k), out);
                self.mul(v, tokens, h, BlockEnd::plain(s.v), out);
                if let Some(norms) = norms {
                    self.norm_qk(*norms, tokens, out);
                }
            }
            latent => self.latent_qk(latent, tokens, h, out),
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
            q: s.q,
            q_stride: stride(spec.q_dim()),
            k_cache: cache.k,
            v_cache: cache.v,
            meta: s.meta,
            partial: s.partial,
            out: s.attention,
        }
        .record(&self.facts, out);
        let attended = match &layer.attention {
            Attention::Heads { .. } => s.attention,
            Attention::Latent { value_up, .. } => self.latent_values(value_up, tokens, out),
        };
        let to = self.block_end(layer.attention_post_norm);
        self.mul(&layer.out, tokens, attended, to, out);
        self.post_norm(layer.attention_post_norm, tokens, out);
    }

    /// q, with the making of keys folded in, and the row that stands for keys and values.
    fn latent_qk(&self, attention: &Attention, tokens: u32, h: Binding, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (Attention::Latent { q_down, q, down, norm, key_up, .. }, Some(latent)) =
            (attention, spec.latent)
        else {
            unreachable!("a latent was loaded")
        };
        self.mul(down, tokens, h, BlockEnd::plain(s.k), out);
        let narrow = latent.q_rank.unwrap_or(0);
        if let Some((q_down, _)) = q_down {
            self.mul(q_down, tokens, h, BlockEnd::plain(s.narrow_q), out);
        }
        NormQk {
            tokens,
            q: s.narrow_q,
            q_stride: stride(narrow),
            q_groups: u32::from(q_down.is_some()),
            q_dim: narrow,
            q_weight: q_down.as_ref().map_or(*norm, |(_, norm)| *norm),
            k: s.k,
            k_stride: stride(spec.head_dim),
            k_groups: 1,
            k_dim: latent.rank,
            k_weight: *norm,
            eps: spec.norm_eps,
            offset: spec.norm_offset,
        }
        .record(&self.facts, out);
        let from = if q_down.is_some() { s.narrow_q } else { h };
        self.mul(q, tokens, from, BlockEnd::plain(s.v), out);
        MulHeads {
            w: key_up,
            tokens,
            x: s.v,
            x_stride: stride(spec.own_q_dim()),
            x_head: latent.q_head(),
            y: s.q,
            y_stride: stride(spec.q_dim()),
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
            y: s.v,
            y_stride: stride(spec.out_dim()),
            y_head: value_up.rows,
        }
        .record(&self.facts, out);
        s.v
    }

    fn norm_qk(&self, [q_weight, k_weight]: [Binding; 2], tokens: u32, out: &mut Recording) {
        let (s, spec) = (&self.scratch, &self.spec);
        let (q_groups, k_groups) = match spec.family.qk_norm {
            QkNorm::Row => (1, 1),
            _ => (spec.heads, spec.kv_heads),
        };
        NormQk {
            tokens,
            q: s.q,
            q_stride: stride(spec.q_dim()),
            q_groups,
            q_dim: spec.q_dim() / q_groups,
            q_weight,
            k: s.k,
            k_stride: stride(spec.kv_dim()),
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
        let params = RopeKvParams {
            tokens,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            first: spec.rope_first(),
            rotary,
            values: u32::from(spec.latent.is_none()),
            q_stride: stride(spec.q_dim()),
            kv_stride: stride(spec.kv_dim()),
            block_size: self.options.block_size,
            positions_at: meta.positions,
            slots_at: meta.slots,
            grid_x: 0,
        };
        RopeKv {
            params,
            kv: self.options.kv,
            q: s.q,
            k: s.k,
            v: if spec.latent.is_some() { s.k } else { s.v },
            table,
            meta: s.meta,
            k_cache: cache.k,
            // Latents have no values of their own; the kernel writes none.
            v_cache: if spec.latent.is_some() { s.expert_out } else { cache.v },
        }
        .record(&self.facts, out);
    }

    fn gated(&self, f: &Gated, tokens: u32, h: Binding, to: BlockEnd, out: &mut Recording) {
        let s = &self.scratch;
        self.mul(&f.gate, tokens, h, BlockEnd::plain(s.gate), out);
        self.mul(&f.up, tokens, h, BlockEnd::plain(s.up), out);
        self.gate(tokens, f.gate.w.rows, out);
        self.mul(&f.down, tokens, s.gate, to, out);
    }

    /// `rows` rows of `dim` gates.
    fn gate(&self, rows: u32, dim: u32, out: &mut Recording) {
        let s = &self.scratch;
        let act = match self.spec.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        ActGlu { act, rows, dim, stride: stride(dim), gate: s.gate, up: s.up }
            .record(&self.facts, out);
    }

    fn mixture(&self, m: &Mixture, tokens: u32, h: Binding, to: BlockEnd, out: &mut Recording) {
        let s = &self.scratch;
        let Some(moe) = &self.spec.moe else { unreachable!("a mixture was loaded") };
        let (experts, used, hidden) = (moe.experts, moe.used, self.spec.hidden);
        let route = Route { tokens, experts, used };
        self.product(&m.router, None, tokens, h, BlockEnd::plain(s.router), out);
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
        let mul = |w: &Experts, x: Binding, x_div: u32, y: Binding, out: &mut Recording| {
            let (x_stride, y_stride) = (stride(w.cols), stride(w.rows));
            MulExpert { w, route, routing: s.routing, x, x_stride, x_div, y, y_stride }
                .record(&self.facts, out);
        };
        mul(&m.gate, h, used, s.gate, out);
        mul(&m.up, h, used, s.up, out);
        self.gate(route.pairs(), moe.ffn, out);
        mul(&m.down, s.gate, 1, s.expert_out, out);
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
            self.gated(shared, tokens, h, BlockEnd { accumulate: true, ..to }, out);
        }
    }
}
