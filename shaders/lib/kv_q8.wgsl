// Keys and values as signed bytes in words, with an f32 scale per row. An element is a word.
//   cache: [block][kv_head] of ([block_size][dims] words of four values, then [block_size] scales),
//   dims = head / 4, tile = block * kv_heads + kv head

alias KvWord = u32;

// Element of the first four values of a row.
fn kv_row(tile: u32, offset: u32, block_size: u32, dims: u32) -> u32 {
    return tile * block_size * (dims + 1u) + offset * dims;
}

fn kv_scale_at(tile: u32, offset: u32, block_size: u32, dims: u32) -> u32 {
    return tile * block_size * (dims + 1u) + block_size * dims + offset;
}

fn kv_floats(word: KvWord) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}

// Factor of a row's values.
fn k_scale(tile: u32, offset: u32, block_size: u32, dims: u32) -> f32 {
    return bitcast<f32>(k_cache[kv_scale_at(tile, offset, block_size, dims)]);
}

fn v_scale(tile: u32, offset: u32, block_size: u32, dims: u32) -> f32 {
    return bitcast<f32>(v_cache[kv_scale_at(tile, offset, block_size, dims)]);
}
