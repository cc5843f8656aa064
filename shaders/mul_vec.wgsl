// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale for few tokens. Bindings: lib/mul_io;
// sums: lib/mul_lanes, or lib/mul_dots_lanes where x is signed bytes.
#import mul_io
#import body
