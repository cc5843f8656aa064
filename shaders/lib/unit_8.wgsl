// Squares of 8 x 8, as matrix units of that side take them.

alias Inputs = coop_mat8x8<f16, A>;
alias Weights = coop_mat8x8<f16, B>;
alias Sum = coop_mat8x8<f32, C>;
