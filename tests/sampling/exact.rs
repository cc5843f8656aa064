//! What sampling means, in f64: the kept tokens with their probabilities, the token a draw picks,
//! and how near the draw or a cut came to deciding otherwise.

use tilewright::kernels::sample::SampleRow;

/// The exact distribution of one row.
pub struct Exact {
    /// (token, probability), by token.
    pub kept: Vec<(u32, f64)>,
    /// Distance of the nearest cut from keeping other tokens, as a part of the mass.
    pub margin: f64,
}

/// The distribution that `row` asks for over edited `logits`.
pub fn exact(logits: &[f32], row: &SampleRow) -> Exact {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if row.temperature == 0.0 {
        return Exact { kept: vec![(order[0] as u32, 1.0)], margin: 1.0 };
    }
    let high = f64::from(logits[order[0]]);
    let weight = |i: usize| ((f64::from(logits[i]) - high) / f64::from(row.temperature)).exp();
    let mut margin = 1.0_f64;
    let keep = row.top_k as usize;
    if (1..order.len()).contains(&keep) {
        let [last, next] = [keep - 1, keep].map(|at| order[at]);
        if logits[last] != logits[next] {
            margin = margin.min((weight(last) - weight(next)) / weight(last));
        }
        order.truncate(keep);
    }
    let mass: f64 = order.iter().map(|&i| weight(i)).sum();
    if row.top_p < 1.0 {
        let goal = f64::from(row.top_p.max(1e-9));
        let mut sum = 0.0;
        let mut kept = 0;
        for &i in &order {
            let before = sum;
            sum += weight(i) / mass;
            kept += 1;
            if sum >= goal {
                let above = if kept == 1 { 1.0 } else { goal - before };
                margin = margin.min(above.min(sum - goal));
                break;
            }
        }
        order.truncate(kept);
    }
    let least = f64::from(row.min_p);
    for &i in order.iter().filter(|_| least > 0.0) {
        if weight(i) != 1.0 {
            margin = margin.min((weight(i) - least).abs() / least);
        }
    }
    order.retain(|&i| weight(i) >= least);
    order.sort_unstable();
    let mass: f64 = order.iter().map(|&i| weight(i)).sum();
    let kept = order.iter().map(|&i| (i as u32, weight(i) / mass)).collect();
    Exact { kept, margin }
}

impl Exact {
    /// The token that `unit` picks, and how near another decision was.
    pub fn pick(&self, unit: f32) -> (u32, f64) {
        let (unit, mut sum) = (f64::from(unit), 0.0);
        for (at, (token, p)) in self.kept.iter().enumerate() {
            let before = if at == 0 { 1.0 } else { unit - sum };
            sum += p;
            let last = at + 1 == self.kept.len();
            if sum > unit || last {
                let after = if last { 1.0 } else { sum - unit };
                return (*token, self.margin.min(before.min(after)));
            }
        }
        unreachable!("something is kept")
    }
}

/// How far `counts` of tokens lie from `exact`: the chi-square statistic brought to a standard
/// normal (Wilson and Hilferty), tokens expected fewer than five times taken together. A token
/// that is not kept but was drawn is an error.
pub fn surprise(counts: &[u32], exact: &Exact) -> Result<f64, String> {
    let draws: u32 = counts.iter().sum();
    let mut rest: Vec<u32> = counts.to_vec();
    let (mut statistic, mut bins) = (0.0, 0);
    let mut add = |seen: f64, expected: f64| {
        statistic += (seen - expected).powi(2) / expected;
        bins += 1;
    };
    let (mut rare_seen, mut rare) = (0.0, 0.0);
    for (token, p) in &exact.kept {
        let seen = f64::from(std::mem::take(&mut rest[*token as usize]));
        let expected = p * f64::from(draws);
        if expected >= 5.0 {
            add(seen, expected);
        } else {
            (rare_seen, rare) = (rare_seen + seen, rare + expected);
        }
    }
    if let Some(token) = rest.iter().position(|n| *n > 0) {
        return Err(format!("token {token} was cut, and drawn {} times", rest[token]));
    }
    if rare >= 5.0 {
        add(rare_seen, rare);
    }
    if bins < 2 {
        return Ok(0.0);
    }
    let freedom = f64::from(bins - 1);
    let spread = 2.0 / (9.0 * freedom);
    Ok(((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt())
}
