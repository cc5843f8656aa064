// Writes eight values of a row of K and of V, those of elements `a` and `b`, as signed bytes.
#import bytes

// Bits of the largest |x| of K and of V of each row that the workgroup writes.
var<workgroup> largest: array<atomic<u32>, WG>;

fn bits_max(x: mat2x4<f32>) -> u32 {
    return max(top_bits(x[0]), top_bits(x[1]));
}

fn bytes(x: vec4<f32>, per_scale: f32) -> u32 {
    return pack4xI8(rounded(x, per_scale));
}

// `own`: place of the row among those of the workgroup. In uniform control flow.
fn put(live: bool, own: u32, place: Place, k: mat2x4<f32>, v: mat2x4<f32>) {
    if (place.local < WG) {
        atomicStore(&largest[place.local], 0u);
    }
    workgroupBarrier();
    if (live) {
        atomicMax(&largest[own * 2u], bits_max(k));
        atomicMax(&largest[own * 2u + 1u], bits_max(v));
    }
    workgroupBarrier();
    if (live) {
        let dims = p.head_dim / 4u;
        let k_top = atomicLoad(&largest[own * 2u]);
        let v_top = atomicLoad(&largest[own * 2u + 1u]);
        let to = kv_row(place.tile, place.offset, p.block_size, dims);
        k_cache[to + place.a] = bytes(k[0], inverse(k_top));
        k_cache[to + place.b] = bytes(k[1], inverse(k_top));
        if (p.values == 1u) {
            v_cache[to + place.a] = bytes(v[0], inverse(v_top));
            v_cache[to + place.b] = bytes(v[1], inverse(v_top));
        }
        if (place.a == 0u) {
            let at = kv_scale_at(place.tile, place.offset, p.block_size, dims);
            k_cache[at] = scale_bits(k_top);
            if (p.values == 1u) {
                v_cache[at] = scale_bits(v_top);
            }
        }
    }
}
