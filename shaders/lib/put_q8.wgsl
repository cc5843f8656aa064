// Writes eight values of a row of K and of V, those of elements `a` and `b`, as signed bytes.
//   scale = max |x| / 127 of the row, value = round(x / scale), halves to even

// Bits of the largest |x| of K and of V of each row that the workgroup writes: integers, so that
// infinities and NaN count, too.
var<workgroup> largest: array<atomic<u32>, WG>;

fn bits_max(x: mat2x4<f32>) -> u32 {
    let a = bitcast<vec4<u32>>(x[0]) & vec4<u32>(0x7fffffffu);
    let b = bitcast<vec4<u32>>(x[1]) & vec4<u32>(0x7fffffffu);
    let m = max(a, b);
    return max(max(m.x, m.y), max(m.z, m.w));
}

fn bytes(x: vec4<f32>, per_scale: f32) -> u32 {
    let q = clamp(round(x * per_scale), vec4<f32>(-127.0), vec4<f32>(127.0));
    return pack4xI8(vec4<i32>(q));
}

// A row with a value that is no number gets NaN for its scale.
fn scale_bits(top: u32) -> u32 {
    return select(bitcast<u32>(bitcast<f32>(top) * (1.0 / 127.0)), 0x7fc00000u, top >= 0x7f800000u);
}

fn inverse(top: u32) -> f32 {
    let high = bitcast<f32>(select(top, 0u, top >= 0x7f800000u));
    return select(127.0 / max(high, 1e-30), 0.0, high < 1e-30);
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
