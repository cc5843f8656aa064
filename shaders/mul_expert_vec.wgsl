// y[i][n] = sum_k x[token(i)][k] * w[expert(i)][n][k] for few (token, rank) pairs i. Bindings:
// lib/expert_io; sums: lib/mul_lanes, or lib/mul_dots_lanes where x is signed bytes.
#import expert_io
#import body
