// Writes eight values of a row of K and of V, those of elements `a` and `b`.

fn put(live: bool, own: u32, place: Place, k: mat2x4<f32>, v: mat2x4<f32>) {
    if (live) {
        let to = kv_row(place.tile, place.offset, p.block_size, p.head_dim / 4u);
        k_cache[to + place.a] = bitcast<vec4<u32>>(k[0]);
        k_cache[to + place.b] = bitcast<vec4<u32>>(k[1]);
        if (p.values == 1u) {
            v_cache[to + place.a] = bitcast<vec4<u32>>(v[0]);
            v_cache[to + place.b] = bitcast<vec4<u32>>(v[1]);
        }
    }
}
