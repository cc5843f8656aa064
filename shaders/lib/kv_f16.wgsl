// Keys and values as f16, packed in words. A cache element holds four values.
//   cache: [block][kv_head][block_size][dims] vec2, dims = head / 4, tile = block * kv_heads + kv head
#import words

alias KvWord = HalfWords;

// Element of the first four values of a row.
fn kv_row(tile: u32, offset: u32, block_size: u32, dims: u32) -> u32 {
    return (tile * block_size + offset) * dims;
}

fn kv_floats(word: KvWord) -> vec4<f32> {
    let w = half_words(word);
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}

// Factor of a row's values.
fn k_scale(tile: u32, offset: u32, block_size: u32, dims: u32) -> f32 {
    return 1.0;
}

fn v_scale(tile: u32, offset: u32, block_size: u32, dims: u32) -> f32 {
    return 1.0;
}
