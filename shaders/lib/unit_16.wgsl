// Squares of 16 x 16, as matrix units of that side take them.

alias Inputs = coop_mat16x16<f16, A>;
alias Weights = coop_mat16x16<f16, B>;
alias Sum = coop_mat16x16<f32, C>;
