//! Rows of `tuned`: a model on a device whose kernels were chosen by measurement, well or badly,
//! says what it says anyway, to the bit.

use crate::support::{Decoder, On, Rows, root};
use tilewright::base::Activations;
use tilewright::model::Model;
use tilewright::record::{Device, Tuned, TunedChoice};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let row = format!("tuned::change_no_bit.{}", on.name());
        rows.add_if(present, row, move |()| change_no_bit(on));
    }
}

/// A device on which `tuned` was measured.
fn device(on: On, tuned: Vec<Tuned>) -> Box<dyn Device> {
    on.with(|facts| facts.tuned = tuned)
}

/// Another tile for nearly every number of tokens, so that company would show.
fn change_no_bit(on: On) {
    let folder = root().join("tests/data/llama-mqa-bias");
    let weights = Weights::open(&folder).expect("a fixture");
    let shapes = Model::products(&weights, device(on, Vec::new()).as_mut()).expect("shapes");
    let tiles = [(1, 2), (2, 1), (3, 4), (4, 1), (5, 8), (6, 2), (9, 1), (12, 4), (30, 2)];
    let planted = shapes.iter().map(|&(format, [rows, cols])| {
        let choice = |(from, tile)| TunedChoice { from, kernel: "mul_mat".into(), tile };
        let choices = tiles.map(choice).to_vec();
        Tuned { format, activations: Activations::F32, rows, cols, choices }
    });
    let open = |tuned| Decoder::on(&weights, device(on, tuned), 128).expect("loads");
    let (mut plain, mut tuned) = (open(Vec::new()), open(planted.collect()));
    assert_ne!(plain.model.variants(), tuned.model.variants());
    let tokens: Vec<u32> = (0..70).map(|n| 3 + n * 7 % 90).collect();
    let table: Vec<u32> = (0..8).collect();
    let wanted = plain.logits(&tokens, 70, &table);
    for chunk in [1, 2, 3, 5, 8, 11, 33, 70] {
        assert!(tuned.logits(&tokens, chunk, &table) == wanted, "in pieces of {chunk}");
    }
}
