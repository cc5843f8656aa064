// The one function that joins attention partials, in ascending order of key position:
//   m' = max(m1, m2)   l' = l1 e^(m1-m') + l2 e^(m2-m')   o' likewise.
// NEG stands for "no key yet"; it is finite, so that no inf - inf arises.

const NEG: f32 = -1e30;

fn fold_weight(m: f32, top: f32) -> f32 {
    return select(exp(m - top), 1.0, m == top);
}
