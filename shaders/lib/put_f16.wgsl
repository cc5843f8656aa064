// Writes eight values of a row of K and of V, those of elements `a` and `b`, as f16.

// Round to nearest even, written out: what pack2x16float rounds to is the driver's. What f16
// cannot hold, infinities and NaN become NaN, so that it shows in every result made from it.
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    let normal = (size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    // Below 2^-14 the unit is 2^-24, which is what 0.5 has.
    let small = bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u;
    let finite = select(normal, small, size < 0x38800000u);
    return sign | select(finite, 0x7e00u, size >= 0x477ff000u);
}

fn halves(x: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(
        half_bits(x.x) | (half_bits(x.y) << 16u),
        half_bits(x.z) | (half_bits(x.w) << 16u),
    );
}

fn put(live: bool, own: u32, place: Place, k: mat2x4<f32>, v: mat2x4<f32>) {
    if (live) {
        let to = kv_row(place.tile, place.offset, p.block_size, p.head_dim / 4u);
        k_cache[to + place.a] = halves(k[0]);
        k_cache[to + place.b] = halves(k[1]);
        if (p.values == 1u) {
            v_cache[to + place.a] = halves(v[0]);
            v_cache[to + place.b] = halves(v[1]);
        }
    }
}
