// Normed rows as they are, or added to what is there.
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

fn write_row(to: u32, base: u32, scale: f32, thread: u32) {
    for (var i = thread; i < p.dim / 4u; i += WG) {
        var out = (x[base + i] * scale) * (w[i] + p.offset);
        if (p.accumulate == 1u) {
            out += y[to + i];
        }
        y[to + i] = out;
    }
}
