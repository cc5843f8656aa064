//! The block pool alone.

use super::world::Dice;
use crate::support::Rows;
use tilewright::base::BlockId;
use tilewright::sched::BlockPool;

pub fn rows(rows: &mut Rows) {
    rows.add("sched::pool_takes_longest_free_first", takes_longest_free_first);
    rows.add("sched::pool_counts_tables", counts_tables);
    rows.add("sched::pool_agrees_with_a_plain_list", agrees_with_a_plain_list);
    rows.add("sched::pool_refuses_a_double_release", || {
        let mut pool = BlockPool::new(2, 16);
        let block = take(&mut pool).expect("free");
        pool.release(block, 0);
        let twice = std::panic::catch_unwind(move || pool.release(block, 0));
        assert!(twice.is_err());
    });
}

fn take(pool: &mut BlockPool) -> Option<BlockId> {
    pool.take(0).map(|t| t.block)
}

fn takes_longest_free_first() {
    let mut pool = BlockPool::new(3, 16);
    let taken: Vec<_> = std::iter::from_fn(|| take(&mut pool)).collect();
    assert_eq!(taken, [BlockId(0), BlockId(1), BlockId(2)]);
    assert_eq!((pool.free(), take(&mut pool)), (0, None));
    for block in [1, 2, 0] {
        pool.release(BlockId(block), 0);
    }
    assert_eq!(pool.free_list(), [BlockId(1), BlockId(2), BlockId(0)]);
    assert_eq!(take(&mut pool), Some(BlockId(1)));
}

fn counts_tables() {
    let mut pool = BlockPool::new(3, 16);
    let block = take(&mut pool).expect("free");
    pool.share(block);
    pool.release(block, 0);
    assert_eq!((pool.tables(block), pool.free()), (1, 2));
    pool.release(block, 0);
    assert_eq!((pool.tables(block), pool.free()), (0, 3));
    // A free block is taken out of the middle of the list.
    pool.share(BlockId(2));
    assert_eq!(pool.free_list(), [BlockId(1), BlockId(0)]);
}

/// Random operations, side by side with lists that are obviously right.
fn agrees_with_a_plain_list() {
    let mut dice = Dice::new(3);
    let mut pool = BlockPool::new(17, 16);
    let mut free: Vec<BlockId> = (0..17).map(BlockId).collect();
    let mut held: Vec<BlockId> = Vec::new();
    for _ in 0..20_000 {
        match dice.below(3) {
            0 => {
                let expected = (!free.is_empty()).then(|| free.remove(0));
                assert_eq!(take(&mut pool), expected);
                held.extend(expected);
            }
            1 => {
                let block = BlockId(dice.below(17));
                pool.share(block);
                free.retain(|&b| b != block);
                held.push(block);
            }
            _ if held.is_empty() => {}
            _ => {
                let block = held.swap_remove(dice.below(held.len() as u32) as usize);
                pool.release(block, 0);
                if !held.contains(&block) {
                    free.push(block);
                }
            }
        }
        assert_eq!(pool.free_list(), free);
        assert_eq!(pool.free() as usize, free.len());
    }
}
