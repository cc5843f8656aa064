// Half a vector of quants per k-block, moved to the vector's front.

fn quant_load(kb: u32, v: u32, row: u32, rows: u32) -> vec4<u32> {
    let w = quant_at((kb >> 1u) * rows + row);
    return select(w, w.zwzw, (kb & 1u) == 1u);
}
