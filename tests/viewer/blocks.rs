//! The map of KV blocks: cells hit by arithmetic, what lies in host memory, and details of a block.

use super::drive::{Driven, driven};
use super::scene::{Stream, viewer};
use crate::support::Rows;
use egui::vec2;
use egui_kittest::kittest::Queryable;
use std::rc::Rc;
use tilewright::base::{BlockHash, RequestId, SequenceId};
use tilewright::trace::{Event, HashList};
use tilewright::viewer::Grid;

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::swapped_blocks_lie_below_the_pool", swapped_blocks_lie_below_the_pool);
    rows.add("viewer::details_of_a_block_tell_hash_and_text", details_tell_hash_and_text);
    rows.add("viewer::cells_are_hit_by_arithmetic", cells_are_hit_by_arithmetic);
}

/// Pins what is found by a label.
fn click(harness: &mut Driven, label: &str) {
    let centre = harness.get_by_label(label).rect().center();
    harness.hover_at(centre);
    harness.run();
    harness.drag_at(centre);
    harness.drop_at(centre);
    harness.run();
}

/// What lies in host memory has no block in the pool, and is seen, lit and told all the same.
fn swapped_blocks_lie_below_the_pool() {
    let mut stream = Stream::swapped();
    let out = stream.events.len();
    let mut harness = driven(viewer(&stream.events));
    let held: Vec<_> = harness.state().history().live().host_blocks().collect();
    assert_eq!(held, [0, 1, 2].map(|index| (SequenceId(2), index)));
    for (index, filled) in [(0, 16), (1, 16), (2, 8)] {
        let label = format!("in host memory: sequence 2, its block {index}, {filled} of 16");
        assert!(harness.query_by_label(&label).is_some(), "{label}");
    }
    assert_eq!(harness.query_all_by_label_contains("in host memory: ").count(), 3);
    for block in 8..12 {
        assert!(harness.query_by_label(&format!("block {block}, free")).is_some());
    }
    let lost = "queue, sequence 2: preempted, in host memory, queued again";
    assert!(harness.query_all_by_label_contains(lost).count() == 1, "{:?}", harness.root());
    click(&mut harness, "in host memory: sequence 2, its block 2, 8 of 16");
    assert!(harness.query_by_label("Sequence 2, block 2").is_some(), "details");
    assert!(harness.query_by_label("32 to 47").is_some(), "its positions");
    click(&mut harness, "Sequence 2");
    assert!(harness.query_by_label("40 positions in 3 blocks").is_some());
    stream.swap_in();
    stream.step(3, 41, 1);
    stream.events[out..].iter().for_each(|event| harness.state_mut().push(event));
    harness.run();
    assert_eq!(harness.query_all_by_label_contains("in host memory: ").count(), 0);
    assert!(harness.query_by_label("block 8, sequence 2, 16 of 16").is_some());
}

fn details_tell_hash_and_text() {
    let mut stream = Stream::of(1, 4);
    let (sequence, tokens) = (SequenceId(0), (0..8).collect());
    stream.push(Event::PromptGiven { request: RequestId(0), tokens });
    (0..2).for_each(|at| stream.step(1, 8 * at, 8));
    let mut hashes = HashList::default();
    assert!(hashes.push(BlockHash(0xab)));
    stream.push(Event::BlocksCached { sequence, from: 0, count: 1 });
    stream.push(Event::BlocksHashed { sequence, from: 0, hashes });
    let mut viewer = viewer(&stream.events);
    viewer.set_words(Rc::new(|token| Some(format!("<{token}>"))));
    let mut harness = driven(viewer);
    click(&mut harness, "block 0, sequence 0, 16 of 16");
    for told in ["00000000000000ab", "1 (0)", "<0><1><2><3><4><5><6><7>", "<300>"] {
        assert!(harness.query_by_label(told).is_some(), "{told}: {:?}", harness.root());
    }
    click(&mut harness, "block 1, sequence 0, 0 of 16");
    assert!(harness.query_by_label("none until it is full").is_some());
}

fn cells_are_hit_by_arithmetic() {
    for (cells, size) in
        [(24, vec2(400.0, 300.0)), (10_000, vec2(500.0, 260.0)), (1, vec2(9.0, 9.0))]
    {
        let grid = Grid::fit(cells, size);
        for cell in 0..cells {
            let rect = grid.rect(cell);
            assert_eq!(grid.cell_at(rect.center().to_vec2()), Some(cell));
            assert_eq!(grid.cell_at(rect.min.to_vec2()), Some(cell));
        }
        let last = grid.rect(cells - 1);
        assert_eq!(grid.cell_at(vec2(last.min.x, last.min.y + grid.pitch)), None);
        assert_eq!(grid.cell_at(vec2(-1.0, 0.0)), None);
        assert_eq!(grid.cell_at(vec2(grid.columns as f32 * grid.pitch + 0.5, 0.0)), None);
        assert!(grid.columns as f32 * grid.pitch <= size.x.max(grid.pitch));
    }
}
