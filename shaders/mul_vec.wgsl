// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale for few tokens. Bindings: lib/mul_io;
// sums: lib/mul_lanes.
#import mul_io
#import mul_lanes
