//! Rotary position embedding on a simulated device.

use meshwright::backend::{DType, RopeArgs, RopeShape};

use crate::support::{FLOATS, Side, assert_same, on_both, values};

#[test]
fn rotations_are_those_of_the_host_to_the_bit() {
    let sizes =
        [[0, 4, 2, 8], [2, 5, 3, 14], [1, 3, 2, 8], [2, 9, 4, 64], [1, 40, 1, 128], [1, 2, 3, 2]];
    for [batch, seq, heads, head_dim] in sizes {
        let s = RopeShape { batch, seq, heads, head_dim };
        for dtype in FLOATS {
            for inverse in [false, true] {
                let turn = |side: &Side| {
                    let x = side.floats(dtype, &values(batch * seq * heads * head_dim, 1));
                    let mut y = side.blank(dtype, batch * seq * heads * head_dim);
                    let [cos, sin] = [2, 3]
                        .map(|seed| side.floats(DType::F32, &values(seq * head_dim / 2, seed)));
                    let (cos, sin) = (cos.view(), sin.view());
                    side.backend()
                        .rope(&s, RopeArgs { x: x.view(), cos, sin, inverse, y: y.view_mut() });
                    y.numbers()
                };
                on_both(turn, |got, expected| {
                    assert_same(&format!("{s:?}, {dtype}, inverse {inverse}"), got, expected);
                });
            }
        }
    }
}
