// y[i][n] = sum_k x[token(i)][k] * w[expert(i)][n][k] for few (token, rank) pairs i. Bindings:
// lib/expert_io; sums: lib/mul_lanes.
#import expert_io
#import mul_lanes
