//! Rotary position embedding on a simulated device.

use meshwright::backend::ops::rope::RopeArgs;
use meshwright::backend::{DType, RopeLayout, RopeShape};

use crate::support::{FLOATS, Side, assert_same, on_both, values};

/// Batch, positions, heads, elements of a head, and rotated elements of a head.
const SIZES: [[usize; 5]; 12] = [
    [0, 4, 2, 8, 8],
    [2, 5, 3, 14, 14],
    [1, 3, 2, 8, 8],
    [2, 9, 4, 64, 64],
    [1, 40, 1, 128, 128],
    [1, 2, 3, 2, 2],
    // The rest of a head is in vectors, too, or not.
    [2, 9, 3, 64, 32],
    [1, 7, 2, 80, 16],
    [2, 5, 3, 14, 6],
    [1, 3, 5, 7, 4],
    [1, 4, 2, 40, 32],
    [1, 4, 2, 36, 32],
];

#[test]
fn rotations_are_those_of_the_host_to_the_bit() {
    for [batch, seq, heads, head_dim, rotary_dim] in SIZES {
        for layout in [RopeLayout::HalfSplit, RopeLayout::Interleaved] {
            check(&RopeShape { batch, seq, heads, head_dim, rotary_dim, layout });
        }
    }
}

fn check(s: &RopeShape) {
    let len = s.batch * s.seq * s.heads * s.head_dim;
    for dtype in FLOATS {
        for inverse in [false, true] {
            let turn = |side: &Side| {
                let x = side.floats(dtype, &values(len, 1));
                let mut y = side.blank(dtype, len);
                let [cos, sin] = [2, 3]
                    .map(|seed| side.floats(DType::F32, &values(s.seq * s.rotary_dim / 2, seed)));
                let (cos, sin) = (cos.view(), sin.view());
                side.backend()
                    .rope(s, RopeArgs { x: x.view(), cos, sin, inverse, y: y.view_mut() });
                y.numbers()
            };
            on_both(turn, |got, expected| {
                assert_same(&format!("{s:?}, {dtype}, inverse {inverse}"), got, expected);
            });
        }
    }
}
