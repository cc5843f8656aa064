//! Eight bits a value, 32 values a block. Q8_0: f16 d, 32 signed bytes; value = d·q.

use super::{Codec, half_at, inverse, largest, scale_to_half};

pub(super) const Q8_0: Codec = Codec { decode, encode: Some(encode) };

fn decode(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (to, byte) in out.iter_mut().zip(&block[2..]) {
        *to = d * f32::from(byte.cast_signed());
    }
}

fn encode(values: &[f32], out: &mut Vec<u8>) {
    let d = largest(values).abs() / 127.0;
    let id = inverse(d);
    out.extend(scale_to_half(d));
    out.extend(values.iter().map(|v| ((v * id).round() as i8).cast_unsigned()));
}
