//! Counter-based random numbers on a simulated device.

use meshwright::backend::BlockIndex;

use crate::support::{FLOATS, assert_same, on_both};

#[test]
fn deviates_are_those_of_the_host() {
    let mut blocks = vec![BlockIndex::whole(&[]), BlockIndex::whole(&[0, 4])];
    blocks.push(BlockIndex::whole(&[100, 73]));
    let global = vec![12, 30, 26];
    for dim in 0..3 {
        let mut index = BlockIndex::whole(&global);
        index.local[dim] /= 2;
        index.offset[dim] = index.local[dim] - 1;
        blocks.push(index);
    }
    blocks.push(BlockIndex::one_range(vec![3, 7, 5], global, vec![9, 11, 20]));
    // Indices beyond 32 bits.
    let global = vec![1 << 20, 1 << 18];
    blocks.push(BlockIndex::one_range(vec![5, 90], global, vec![(1 << 20) - 5, 1 << 17]));
    for dtype in FLOATS {
        for index in &blocks {
            for key in [0, 5, 0xdead_beef_0123_4567] {
                on_both(
                    |side| {
                        let mut out = side.blank(dtype, index.len());
                        side.backend().fill_normal(key, 0.02, index, out.view_mut());
                        out.numbers()
                    },
                    |got, expected| assert_same(&format!("{dtype} {index:?}"), got, expected),
                );
            }
        }
    }
}
