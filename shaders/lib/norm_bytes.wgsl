// Normed rows as mul_pack would leave them; zeros from dim to the end of its k-block.
#import pack_block

@group(0) @binding(4) var<storage, read_write> y: array<vec4<u32>>;

fn normed(base: u32, i: u32, scale: f32) -> vec4<f32> {
    let last = p.dim / 4u - 1u;
    let at = min(i, last);
    let out = (x[base + at] * scale) * (w[at] + p.offset);
    return select(vec4<f32>(), out, i <= last);
}

fn write_row(to: u32, base: u32, scale: f32, thread: u32) {
    for (var kb = thread; kb < (p.dim + 31u) / 32u; kb += WG) {
        pack_block(
            to + kb * 3u,
#for g in 0..8
            normed(base, kb * 8u + $g, scale),
#end
        );
    }
}
