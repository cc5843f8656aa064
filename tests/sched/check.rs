//! `check` finds every fault planted in a sound state.

use super::steps::limits;
use super::world::World;
use crate::support::Rows;
use tilewright::base::BlockId;
use tilewright::sched::Snapshot;

/// A name, a fault, and a word of the complaint it must cause.
type Planted = (&'static str, fn(&mut Snapshot), &'static str);

const FAULTS: &[Planted] = &[
    ("a block is lost", |s| s.free_list.truncate(3), "counted as free"),
    (
        "a block is lost and the count follows",
        |s| {
            s.free_list.pop();
            s.free -= 1;
        },
        "in the free list: false",
    ),
    ("a block is free twice", |s| s.free_list[0] = s.free_list[1], "free twice"),
    ("a free block is none of the pool's", |s| s.free_list[0] = BlockId(999), "not in the pool"),
    (
        "a held block is free as well",
        |s| {
            s.free_list.push(s.running[0].blocks[0]);
            s.free += 1;
        },
        "in the free list: true",
    ),
    ("a count is too high", |s| s.tables[s.running[0].blocks[0].index()] = 2, "counts 2"),
    ("a count is too low", |s| s.tables[s.running[0].blocks[0].index()] = 0, "counts 0"),
    ("two tables hold a block counted once", shared_block, "2 hold it"),
    ("a block expired", expired_block, "1 blocks expired"),
    ("a table names no block", |s| s.running[0].blocks[0] = BlockId(999), "no block"),
    ("the pool shrank", |s| s.tables.truncate(3), "the limits say"),
    ("more computed than known", |s| s.running[0].known = 1, "computed of 1"),
    ("computed beyond the table", |s| s.running[0].computed += 16, "computed"),
    ("more tokens than asked for", |s| s.running[0].known += 1000, "tokens for a prompt"),
    ("a slot is held twice", |s| s.running[1].slot = s.running[0].slot, "held twice"),
    ("no slot", |s| s.running[1].slot = None, "without a slot"),
    ("a waiting one holds a slot", |s| s.waiting[0].slot = Some(9), "waits but holds"),
    ("a waiting one has computed tokens", |s| s.waiting[0].computed = 1, "waits but holds"),
    ("running out of order", |s| s.running.swap(0, 1), "out of order"),
    ("a host block is held by nobody", |s| s.limits.host_blocks = 1, "host blocks are lost"),
    ("over budget", |s| s.planned_tokens = s.budget + 1, "budget"),
    ("nothing runs", |s| s.stuck = true, "nothing runs"),
    ("the index lost a block", |s| s.index_fault = Some("not found".into()), "not found"),
    ("cached with other tokens", |s| s.cached[0].tokens[3] ^= 1, "other tokens"),
    ("published and not cached", |s| drop(s.cached.remove(0)), "published and not cached"),
    ("a cached block is none of the pool's", |s| s.cached[0].block = BlockId(999), "not in the"),
    ("free and in the wrong list", |s| s.cached_free = 1, "wrong list"),
    ("sharing is miscounted", |s| s.shared += 1, "counted as shared"),
    ("a block of two tables is to be written", written_and_shared, "others hold it"),
];

pub fn rows(rows: &mut Rows) {
    rows.add("sched::check_finds_planted_faults", || {
        let mut world = World::new(limits(16, 64, 2));
        for id in 0..3 {
            world.submit(id, 20, 30).expect("fits");
        }
        (0..3).for_each(|_| assert!(world.step()));
        let sound = world.sched.snapshot();
        sound.check().expect("sound");
        for (name, plant, complaint) in FAULTS {
            let mut state = sound.clone();
            plant(&mut state);
            let found = state.check().expect_err(name);
            assert!(found.contains(complaint), "{name}: {found}");
        }
    });
}

fn expired_block(state: &mut Snapshot) {
    let block = std::mem::replace(&mut state.running[0].blocks[0], BlockId::EXPIRED);
    state.tables[block.index()] = 0;
    state.free_list.push(block);
    state.free += 1;
}

/// The second's table ends in the first's last block, in which both would go on.
fn written_and_shared(state: &mut Snapshot) {
    let block = *state.running[0].blocks.last().expect("one");
    let lost = std::mem::replace(state.running[1].blocks.last_mut().expect("one"), block);
    state.tables[lost.index()] = 0;
    state.tables[block.index()] = 2;
    state.shared = 1;
    // Blank blocks come first.
    state.free_list.insert(0, lost);
    state.free += 1;
}

fn shared_block(state: &mut Snapshot) {
    let block = state.running[0].blocks[0];
    let lost = std::mem::replace(&mut state.running[1].blocks[0], block);
    state.tables[lost.index()] = 0;
    state.free_list.push(lost);
    state.free += 1;
}
