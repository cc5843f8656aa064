// V vectors of quants per k-block.

fn quant_load(kb: u32, v: u32, row: u32, rows: u32) -> vec4<u32> {
    return quant_at((kb * V + v) * rows + row);
}
