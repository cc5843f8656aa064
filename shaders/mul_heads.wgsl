// y[t][h][n] = sum_k x[t][h][k] * w[h][n][k]. Bindings: lib/head_io; sums: lib/mul_tile.
#import head_io
#import mul_tile
