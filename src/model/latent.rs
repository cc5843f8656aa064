//! What a model with multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024) has in place of
//! keys and values per head.

/// Keys and values that are made from one latent row per token (DeepSeek V2). The latent and the
/// rotated part of the key are what is cached; the products that make keys and values of it are
/// folded into q and into the output, so that all heads attend to that one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latent {
    /// Values of the narrow row that q is made from; `None` where q is made directly.
    pub q_rank: Option<u32>,
    /// Values of the latent.
    pub rank: u32,
    /// Rotated dimensions of a key, shared by all heads.
    pub rope: u32,
    /// Dimensions of a head's key that come from the latent.
    pub nope: u32,
    /// Dimensions of a head's value.
    pub value: u32,
}

impl Latent {
    /// Dimensions of a head's q as the model made it.
    pub fn q_head(self) -> u32 {
        self.nope + self.rope
    }

    /// What makes a head's keys and values, out of all heads': keys and values in one list by head,
    /// or in two.
    pub(super) fn head(self, all: &[Vec<f32>], head: usize) -> (&[f32], &[f32]) {
        let [keys, values] = [self.nope, self.value].map(|dims| (dims * self.rank) as usize);
        match all {
            [own_keys, own_values] => {
                (&own_keys[head * keys..][..keys], &own_values[head * values..][..values])
            }
            _ => all[0][head * (keys + values)..][..keys + values].split_at(keys),
        }
    }

    /// `[rank + rope][nope + rope]`: what turns a head's q into one that meets cached rows. `key`
    /// is `[nope][rank]`, or turned already; the rotated part stays as it is.
    pub(super) fn fold(self, key: &[f32], turned: bool) -> Vec<f32> {
        let [rank, rope, nope] = [self.rank, self.rope, self.nope].map(|n| n as usize);
        let mut out = vec![0f32; (rank + rope) * (nope + rope)];
        for (i, row) in out.chunks_exact_mut(nope + rope).enumerate() {
            match i.checked_sub(rank) {
                Some(i) => row[nope + i] = 1.0,
                None if turned => row[..nope].copy_from_slice(&key[i * nope..][..nope]),
                None => (0..nope).for_each(|n| row[n] = key[n * rank + i]),
            }
        }
        out
    }
}
