// What a gate does before it is multiplied, by number: 1 silu, 2 gelu by its tanh approximation.
//   silu(g) = g / (1 + exp(-g))
//   gelu(g) = 0.5 g (1 + tanh(u)), u = sqrt(2/pi) (g + 0.044715 g^3), which is g / (1 + exp(-2u)):
//   no tanh, whose precision and overflow are the driver's

fn act(kind: u32, g: f32) -> f32 {
    let u = 0.7978845608 * fma(0.044715 * g * g, g, g);
    return g / (1.0 + exp(select(-2.0 * u, -g, kind == 1u)));
}
