// y[i][n] = sum_k x[token(i)][k] * w[expert(i)][n][k] for (token, rank) pairs i. Bindings:
// lib/expert_io; sums: lib/mul_tile, or lib/mul_dots where x is signed bytes, so that a pair's bits
// are those of mul_mat with its expert.
#import expert_io
#import body
