//! Rotary position embedding.

use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{DType, RopeLayout, RopeShape};

use crate::values::{round, wide};
use crate::{FLOATS, Operand, Target, values};

/// Batch, positions, heads, elements of a head, and rotated elements of a head: whole heads and parts of them, even and
/// odd, whose rests are vectors or not.
const SIZES: [[usize; 5]; 15] = [
    [0, 4, 2, 8, 8],
    [2, 5, 3, 14, 14],
    [1, 3, 2, 8, 8],
    [2, 9, 4, 64, 64],
    [1, 40, 1, 128, 128],
    [1, 2, 3, 2, 2],
    [2, 5, 3, 64, 16],
    [2, 9, 3, 40, 24],
    [2, 9, 3, 64, 32],
    [1, 7, 2, 80, 16],
    [2, 5, 3, 14, 6],
    [1, 3, 5, 7, 4],
    [2, 5, 3, 40, 2],
    [1, 4, 2, 40, 32],
    [1, 4, 2, 36, 32],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 5]; 2] = [[1, 70, 4, 64, 64], [3, 70, 4, 24, 16]];

fn shapes(target: &Target) -> impl Iterator<Item = RopeShape> {
    target.cases(&SIZES, &LARGE).into_iter().flat_map(
        |[batch, seq, heads, head_dim, rotary_dim]| {
            [RopeLayout::HalfSplit, RopeLayout::Interleaved].map(|layout| RopeShape {
                batch,
                seq,
                heads,
                head_dim,
                rotary_dim,
                layout,
            })
        },
    )
}

/// Rotates `x`, in either direction.
fn rotated(
    target: &Target,
    s: &RopeShape,
    dtype: DType,
    [x, cos, sin]: [&[f32]; 3],
    inverse: bool,
) -> Operand {
    let (x, cos, sin) = (target.floats(dtype, x), target.put(cos), target.put(sin));
    let mut y = target.blank(dtype, s.elements());
    let (x, cos, sin, to) = (x.view(), cos.view(), sin.view(), y.view_mut());
    target.backend().rope(s, RopeArgs { x, cos, sin, inverse, y: to });
    y
}

/// Pairs are multiplied by the numbers of the tables at their position, without fused multiply-add.
pub fn formula(target: &Target) {
    for s in shapes(target) {
        let half = s.rotary_dim / 2;
        let [cos, sin] = [2, 3].map(|seed| values(s.seq * half, seed));
        for (dtype, inverse) in FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
        {
            let x: Vec<f32> =
                values(s.elements(), 1).into_iter().map(|x| round(dtype, x)).collect();
            let mut expected = x.clone();
            for (head, rotated) in expected.chunks_exact_mut(s.head_dim).enumerate() {
                for j in 0..half {
                    let (first, second) = match s.layout {
                        RopeLayout::HalfSplit => (j, j + half),
                        RopeLayout::Interleaved => (2 * j, 2 * j + 1),
                    };
                    let at = head / s.heads % s.seq * half + j;
                    let (cos, sin) = (cos[at], if inverse { -sin[at] } else { sin[at] });
                    let (a, b) = (rotated[first], rotated[second]);
                    (rotated[first], rotated[second]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
            let got = rotated(target, &s, dtype, [&x, &cos, &sin], inverse);
            target.check_exactly(&format!("{s:?}, inverse {inverse}"), &got, &expected);
        }
    }
}

/// A rotation by angles and its inverse give the input.
pub fn there_and_back(target: &Target) {
    for s in shapes(target) {
        let angles = (0..s.seq * s.rotary_dim / 2).map(|i| i as f32 * 0.37);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos(), a.sin())).unzip();
        let x = values(s.elements(), 1);
        let y = rotated(target, &s, DType::F32, [&x, &cos, &sin], false);
        let back = rotated(target, &s, DType::F32, [&y.numbers(), &cos, &sin], true);
        target.check(&format!("{s:?}"), &back, &wide(&x), 1e-6);
    }
}
