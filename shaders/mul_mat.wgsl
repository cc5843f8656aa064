// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale. Bindings: lib/mul_io; sums: lib/mul_tile.
#import mul_io
#import mul_tile
