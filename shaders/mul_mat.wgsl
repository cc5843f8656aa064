// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale. Bindings: lib/mul_io; sums:
// lib/mul_tile, or lib/mul_dots where x is signed bytes.
#import mul_io
#import body
