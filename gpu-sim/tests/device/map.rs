//! Elementwise expressions on a simulated device.

use std::sync::Arc;

use meshwright::backend::{
    Backend, BlockIndex, CachingAllocator, Category, DType, DropoutMask, ElementwiseOps, Expr,
    LeafGrad, Node, UnaryFunction,
};
use meshwright_cuda::{CallKind, CudaBackend};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::{FLOATS, Side, assert_close, assert_same, epsilon, on_both, values};

use Node::*;
use UnaryFunction::*;

fn dropout(index: BlockIndex) -> DropoutMask {
    DropoutMask { key: 0x1234_5678_9abc_def0, rate: 0.3, index }
}

/// An expression, the lengths of its result and leaves, and which leaves have a gradient.
struct Case {
    nodes: Vec<Node>,
    len: usize,
    leaves: Vec<usize>,
    wanted: Vec<bool>,
    /// Maximum error in rounding units of the result.
    roundings: f32,
}

impl Case {
    fn new(nodes: Vec<Node>, len: usize, leaves: &[usize]) -> Case {
        let wanted = vec![true; leaves.len()];
        Case { nodes, len, leaves: leaves.to_vec(), wanted, roundings: 4.0 }
    }
}

/// Returns expressions over operands of `rows` rows of `cols`.
fn cases(rows: usize, cols: usize) -> Vec<Case> {
    let n = rows * cols;
    let functions = vec![
        Leaf(0),
        Apply(Silu, 0),
        Apply(Gelu, 0),
        Apply(GeluTanh, 0),
        Apply(Relu, 0),
        Apply(Tanh, 0),
        Scale(0, -0.7),
        Offset(0, 0.4),
        Apply(Exp, 6),
        Row(1),
        Mul(1, 8),
        Mul(2, 9),
        Sub(10, 3),
        Add(11, 4),
        Mul(12, 5),
        Sub(13, 7),
    ];
    // Of numbers from 0.5 on, where a function needs positive ones.
    let more = vec![
        Leaf(0),
        Apply(Square, 0),
        Offset(1, 0.5),
        Apply(Log, 2),
        Apply(Sqrt, 2),
        Apply(Rsqrt, 2),
        Apply(Recip, 2),
        Apply(Abs, 0),
        Apply(Sigmoid, 0),
        Apply(Softplus, 8),
        Clamp(7, 0.25, 1.5),
        Mul(3, 4),
        Div(11, 2),
        Mul(5, 6),
        Add(12, 13),
        Mul(9, 10),
        Sub(14, 15),
    ];
    let by_number = vec![
        Leaf(0),
        Constant(0.75),
        Div(0, 1),
        Row(1),
        Apply(Square, 3),
        Offset(4, 0.5),
        Constant(-1.5),
        Div(6, 5),
        Mul(2, 7),
    ];
    let by_row =
        vec![Leaf(0), Row(1), Apply(Square, 1), Offset(2, 0.5), Div(0, 3), Row(1), Mul(4, 5)];
    vec![
        Case::new(vec![Leaf(0)], n, &[n]),
        Case { roundings: 16.0, ..Case::new(more, n, &[n]) },
        Case::new(by_row, n, &[n, cols]),
        Case::new(by_number, n, &[n, cols]),
        Case::new(vec![Row(0), Leaf(1), Mul(0, 1), Mul(2, 0)], n, &[cols, n]),
        Case { roundings: 16.0, ..Case::new(functions, n, &[n, cols]) },
        Case::new(
            vec![Leaf(0), Row(1), Add(0, 1), Apply(Gelu, 2), Row(1), Mul(3, 4)],
            n,
            &[n, cols],
        ),
        // The gradient of a bias alone: the sums of the columns of the result's.
        Case {
            wanted: vec![false, true],
            ..Case::new(vec![Leaf(0), Row(1), Add(0, 1)], n, &[n, 2 * cols])
        },
        // SwiGLU, with the gradient of one operand only.
        Case {
            wanted: vec![true, false],
            ..Case::new(vec![Leaf(0), Apply(Silu, 0), Leaf(1), Mul(1, 2)], n, &[n, n])
        },
        // One leaf used repeatedly; one value used repeatedly.
        Case::new(vec![Leaf(0), Apply(Tanh, 0), Mul(1, 1), Leaf(0), Mul(2, 3), Sub(1, 4)], n, &[n]),
        // Rows of different lengths, one of them a whole operand.
        Case::new(
            vec![Leaf(0), Row(1), Mul(0, 1), Row(2), Add(2, 3), Row(3), Mul(4, 5)],
            n,
            &[n, cols, 2 * cols, n.max(1)],
        ),
        Case::new(
            vec![
                Leaf(0),
                Row(1),
                Add(0, 1),
                Dropout(2, dropout(BlockIndex::whole(&[rows, cols]))),
                Leaf(2),
                Add(3, 4),
            ],
            n,
            &[n, cols, n],
        ),
    ]
}

/// Returns the result and the gradients of leaves, which are written or accumulated.
fn run(side: &Side, dtype: DType, case: &Case, accumulate: bool) -> Vec<Vec<f32>> {
    let expr = Expr { nodes: case.nodes.clone() };
    let leaves = case.leaves.iter().enumerate().map(|(seed, len)| {
        let values: Vec<f32> = values(*len, seed as u64).into_iter().map(|x| 3.0 * x).collect();
        side.floats(dtype, &values)
    });
    let leaves: Vec<_> = leaves.collect();
    let views: Vec<_> = leaves.iter().map(|leaf| leaf.view()).collect();
    let mut out = side.blank(dtype, case.len);
    side.backend().map(&expr, &views, out.view_mut());

    let grad = side.floats(dtype, &values(case.len, 9));
    let before = if accumulate { 1.0 } else { f32::NAN };
    let mut grads: Vec<_> = case
        .leaves
        .iter()
        .enumerate()
        .map(|(leaf, len)| {
            let is_row = case.nodes.contains(&Row(leaf));
            let dtype = if is_row { DType::F32 } else { dtype };
            case.wanted[leaf].then(|| side.floats(dtype, &vec![before; *len]))
        })
        .collect();
    let slots = grads
        .iter_mut()
        .map(|grad| grad.as_mut().map(|grad| LeafGrad { view: grad.view_mut(), accumulate }));
    side.backend().map_backward(&expr, &views, grad.view(), &mut slots.collect::<Vec<_>>());
    let grads = grads.iter().flatten().map(|grad| grad.numbers());
    std::iter::once(out.numbers()).chain(grads).collect()
}

#[test]
fn expressions_and_gradients_match_the_cpu() {
    for [rows, cols] in [[0, 8], [2, 1], [10, 7], [40, 64], [6, 1032], [600, 16]] {
        for (index, case) in cases(rows, cols).iter().enumerate() {
            for dtype in FLOATS {
                for accumulate in [false, true] {
                    let compare = |got: &Vec<Vec<f32>>, expected: &Vec<Vec<f32>>| {
                        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                            // Sums over rows are f32 for all operand dtypes.
                            let scale = expected.iter().fold(1f32, |max, x| max.max(x.abs()));
                            let what = format!(
                                "operand {i} of expression {index}, {rows} x {cols}, {dtype}"
                            );
                            let tolerance = case.roundings * epsilon(dtype);
                            assert_close(&what, got, expected, tolerance, scale * 4e-6);
                        }
                    };
                    on_both(|side| run(side, dtype, case, accumulate), compare);
                }
            }
        }
    }
}

#[test]
fn dropout_masks_are_bitwise_those_of_the_cpu() {
    let block = |local: &[usize], global: &[usize], offset: &[usize]| {
        BlockIndex::one_range(local.to_vec(), global.to_vec(), offset.to_vec())
    };
    let with_gap = |mut index: BlockIndex, dim: usize, at: usize, len: usize| {
        (index.gap_at[dim], index.gap[dim]) = (at, len);
        index
    };
    let blocks = [
        BlockIndex::whole(&[3, 50, 8]),
        block(&[3, 10, 40], &[6, 10, 40], &[3, 0, 0]),
        block(&[30, 40], &[30, 120], &[0, 40]),
        block(&[6, 10, 20], &[9, 30, 21], &[2, 7, 1]),
        // Indices beyond 32 bits.
        block(&[1200], &[1 << 40], &[(1 << 40) - 1200]),
        // Two ranges of indices: of the last dim, of one before a whole one, and of one before a split one.
        with_gap(block(&[1200], &[4000], &[37]), 0, 601, 999),
        with_gap(block(&[30, 40], &[30, 120], &[0, 7]), 1, 13, 50),
        with_gap(block(&[3, 10, 40], &[6, 50, 40], &[3, 4, 0]), 1, 5, 30),
        with_gap(block(&[6, 10, 20], &[9, 30, 21], &[2, 1, 1]), 1, 3, 15),
    ];
    for index in blocks {
        let (len, what) = (index.len(), format!("{index:?}"));
        for rate in [0.0, 0.3, 1.0] {
            let nodes = vec![Leaf(0), Dropout(0, DropoutMask { rate, ..dropout(index.clone()) })];
            let case = Case::new(nodes, len, &[len]);
            on_both(
                |side| run(side, DType::F32, &case, false),
                |got, expected| {
                    assert_same(&format!("result, {what}, rate {rate}"), &got[0], &expected[0]);
                    assert_same(&format!("gradient, {what}, rate {rate}"), &got[1], &expected[1]);
                },
            );
        }
    }
}

#[test]
fn nan_and_infinities_pass_as_on_the_host() {
    let extreme = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -100.0, 100.0, -1e30, 1e30, -0.0];
    for function in UnaryFunction::ALL.iter().map(|function| Apply(*function, 0)) {
        let expr = Expr { nodes: vec![Leaf(0), function.clone()] };
        let run = |side: &Side| {
            let leaf = side.put(&extreme);
            let mut out = side.blank(DType::F32, extreme.len());
            side.backend().map(&expr, &[leaf.view()], out.view_mut());
            out.numbers()
        };
        on_both(run, |got, expected| {
            assert_close(&format!("{function:?}"), got, expected, 4.0 * f32::EPSILON, 1e-38);
        });
    }
}

#[test]
fn gradients_of_large_numbers_are_those_of_the_host() {
    let large = [-f32::MAX, -1e30, -1e20, 1e20, 1e30, f32::MAX];
    for function in UnaryFunction::ALL {
        let expr = Expr { nodes: vec![Leaf(0), Apply(*function, 0)] };
        let run = |side: &Side| {
            let [leaf, grad] = [large, [1.0; 6]].map(|values| side.put(&values));
            let mut slopes = side.blank(DType::F32, large.len());
            let slot = LeafGrad { view: slopes.view_mut(), accumulate: false };
            side.backend().map_backward(&expr, &[leaf.view()], grad.view(), &mut [Some(slot)]);
            slopes.numbers()
        };
        on_both(run, |got, expected| assert_same(&format!("{function:?}"), got, expected));
    }
}

/// Numbers whose reciprocals are not normal divide as others do.
#[test]
fn quotients_of_small_and_large_numbers_are_those_of_the_host() {
    let x = [0.0, -0.0, 1e-39, -3e-39, 2e38, 1e38, 0.3, f32::INFINITY];
    for number in [1e-40, -1e-45, 2e-39, 1e38, f32::MAX] {
        for quotient in [Div(0, 1), Div(1, 0)] {
            let expr = Expr { nodes: vec![Leaf(0), Constant(number), quotient.clone()] };
            let run = |side: &Side| {
                let [leaf, grad] = [x, [1e-3; 8]].map(|values| side.put(&values));
                let [mut out, mut slopes] = [(); 2].map(|()| side.blank(DType::F32, x.len()));
                side.backend().map(&expr, &[leaf.view()], out.view_mut());
                let slot = LeafGrad { view: slopes.view_mut(), accumulate: false };
                side.backend().map_backward(&expr, &[leaf.view()], grad.view(), &mut [Some(slot)]);
                [out.numbers(), slopes.numbers()]
            };
            on_both(run, |got, expected| {
                let what = format!("{quotient:?} of x and {number}");
                assert_same(&what, &got[0], &expected[0]);
                assert_same(&format!("gradient of {what}"), &got[1], &expected[1]);
            });
            let exact = x.map(|x| if quotient == Div(0, 1) { x / number } else { number / x });
            let side = crate::support::device(1, 0);
            assert_same("the quotients", &run(&side)[0], &exact);
        }
    }
}

#[test]
fn unused_leaf_has_no_gradient() {
    let case = Case::new(vec![Leaf(0), Leaf(2), Scale(0, 2.0)], 50, &[50, 50, 50]);
    for accumulate in [false, true] {
        let device = crate::support::device(1, 0);
        let grads = run(&device, DType::F32, &case, accumulate);
        let unchanged = if accumulate { 1.0 } else { 0.0 };
        assert_same("a leaf that does not occur", &grads[2], &[unchanged; 50]);
        assert_same("a leaf that does not matter", &grads[3], &[unchanged; 50]);
    }
}

#[test]
fn expressions_of_one_structure_are_one_kernel() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let allocator = CachingAllocator::on(cuda.device(), usize::MAX);
    for (rows, cols, factor, key, rate) in [(4, 64, 2.0, 1, 0.1), (9, 7, -1.0, 2, 0.9)] {
        let index = BlockIndex::whole(&[rows, cols]);
        let mask = DropoutMask { key, rate, index };
        let nodes = vec![Leaf(0), Row(1), Add(0, 1), Scale(2, factor), Dropout(3, mask)];
        let leaves =
            [rows * cols, cols].map(|len| allocator.copy_of(&values(len, 1), Category::Workspace));
        let mut out = allocator.alloc(DType::F32, rows * cols, Category::Workspace);
        cuda.map(&Expr { nodes }, &[leaves[0].view(), leaves[1].view()], out.view_mut());
    }
    let loads = device.log().into_iter().filter(|entry| entry.kind == CallKind::Load);
    let names: Vec<_> = loads.filter_map(|entry| entry.name).collect();
    assert_eq!(names, ["map_x0_row1_add_scale_dropout_f32"]);
}
