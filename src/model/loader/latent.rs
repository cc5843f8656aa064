//! The loader's part for models with latent attention: what makes q, and what is folded into it.

use super::{Loader, not_yet};
use crate::base::Format;
use crate::kernels::experts::Experts;
use crate::model::family::Bias;
use crate::model::load::Attention;
use crate::model::names::Part;
use crate::model::{Latent, ModelError};
use crate::weights::blocks;

impl Loader<'_> {
    pub(super) fn latent(&mut self, l: u32, latent: Latent) -> Result<Attention, ModelError> {
        let (spec, q_dim) = (self.spec, self.spec.own_q_dim());
        let bias = spec.attention_bias != Bias::None;
        let row = (Part::LatentDown, spec.head_dim);
        let (down, q_norm, q) = match latent.q_rank {
            Some(rank) => (
                self.linear(&[(Part::QDown, rank), row], l, spec.hidden, bias, false)?,
                Some(self.vector(Part::QDownNorm, l, ".weight", rank)?),
                self.linear(&[(Part::QUp, q_dim)], l, rank, false, false)?,
            ),
            None => (
                self.linear(&[row], l, spec.hidden, bias, false)?,
                None,
                self.linear(&[(Part::Q, q_dim)], l, spec.hidden, false, false)?,
            ),
        };
        let norm = self.vector(Part::LatentNorm, l, ".weight", latent.rank)?;
        let [key_up, value_up] = self.latent_up(l, latent)?;
        Ok(Attention::Latent { down, q_norm, q, norm, key_up, value_up })
    }

    /// What makes keys and values from a latent, per head, turned so that it can be folded: q of a
    /// head by `[rank + rope][nope + rope]` (the transposed keys, and the rotated part as it is),
    /// and the output by `[value][rank]`.
    fn latent_up(&mut self, l: u32, latent: Latent) -> Result<[Experts; 2], ModelError> {
        let Latent { rank, rope, nope, value, .. } = latent;
        let heads = self.spec.heads;
        let whole = self.spec.stored(Part::LatentUp, l, 0).stem + ".weight";
        // Newer GGUF files have keys, turned already, and values apart.
        let apart = [Part::LatentKeys, Part::LatentValues]
            .map(|part| self.spec.dialect.stem(self.spec.family, part, l) + ".weight");
        let split = self.weights.tensor(&apart[0]).is_some();
        let tensors = match split {
            true => {
                let [keys, values] = apart;
                let shape = |rows: u32, cols: u32| [heads, rows, cols].map(u64::from);
                vec![(keys, shape(rank, nope).to_vec()), (values, shape(value, rank).to_vec())]
            }
            false => vec![(whole, [heads * (nope + value), rank].map(u64::from).to_vec())],
        };
        let label = tensors[0].0.clone();
        let mut formats = Vec::new();
        for (name, shape) in &tensors {
            formats.push(self.weights.expect(name, shape)?.format);
        }
        // Transposing breaks blocks up; halves stay what they are.
        let kept = |format: Format| match format {
            half @ (Format::F16 | Format::BF16) => half,
            _ => Format::F32,
        };
        let formats = [formats[0], formats[formats.len() - 1]].map(kept);
        let shapes = [[rank + rope, nope + rope], [value, rank]];
        for (format, shape) in formats.into_iter().zip(shapes) {
            self.stack_at_once(&label, format, heads, shape)?;
        }
        let mut decoded = Vec::new();
        for (name, shape) in tensors {
            let tensor = self.weights.expect(&name, &shape)?;
            if self.upload {
                let raw = self.rows(tensor, 0, tensor.rows() as u32, None)?;
                let mut values = vec![0f32; shape.iter().product::<u64>() as usize];
                blocks::decode(tensor.format, &raw, &mut values);
                decoded.push(values);
            }
            self.used.insert(name);
        }
        if !self.upload {
            return Ok([0, 1].map(|n| not_yet(formats[n], heads, shapes[n])));
        }
        let encoded = |format: Format, values: &[f32]| {
            let mut out = Vec::new();
            blocks::encode(format, values, &mut out);
            out
        };
        let mut stacks = [Vec::new(), Vec::new()];
        for head in 0..heads as usize {
            let (key, value) = latent.head(&decoded, head);
            stacks[0].push(encoded(formats[0], &latent.fold(key, split)));
            stacks[1].push(encoded(formats[1], value));
        }
        Ok([
            self.stack(&label, formats[0], shapes[0], &stacks[0])?,
            self.stack(&label, formats[1], shapes[1], &stacks[1])?,
        ])
    }

    /// Matrices of one shape in parts that fit a binding each.
    fn stack(
        &mut self,
        label: &str,
        format: Format,
        shape: [u32; 2],
        raw: &[Vec<u8>],
    ) -> Result<Experts, ModelError> {
        let at_once = self.stack_at_once(label, format, raw.len() as u32, shape)?;
        let mut parts = Vec::new();
        for (n, raw) in raw.chunks(at_once as usize).enumerate() {
            parts.push(self.expert_part(label, format, n as u32 * at_once, shape, raw)?);
        }
        Ok(Experts { format, rows: shape[0], cols: shape[1], parts })
    }
}
