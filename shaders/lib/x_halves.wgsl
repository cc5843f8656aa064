// x as to_halves leaves it.

@group(0) @binding(3) var<storage, read> x: array<vec4<f16>>;
