// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale for many tokens. Bindings: lib/mul_io;
// sums: lib/mul_shared, or lib/mul_dots_shared where x is signed bytes.
#import mul_io
#import body
