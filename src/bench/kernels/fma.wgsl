// What the device can multiply and add at most: eight independent chains of four lanes a thread,
// and nothing else.
//
// out: [thread], so that nothing is left out.

struct Params {
    rounds: u32,
    factor: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = vec4<f32>(p.factor);
    let start = vec4<f32>(f32(id.x), 1.0, 2.0, 3.0);
    var a = start;
    var b = start + 1.0;
    var c = start + 2.0;
    var d = start + 3.0;
    var e = start + 4.0;
    var f = start + 5.0;
    var g = start + 6.0;
    var h = start + 7.0;
    for (var i = 0u; i < p.rounds; i++) {
        a = fma(a, x, x);
        b = fma(b, x, x);
        c = fma(c, x, x);
        d = fma(d, x, x);
        e = fma(e, x, x);
        f = fma(f, x, x);
        g = fma(g, x, x);
        h = fma(h, x, x);
    }
    out[id.x] = dot(a + b + c + d + e + f + g + h, vec4<f32>(1.0));
}
