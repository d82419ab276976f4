//! Leaves that are repeated along some dims of the result, and positions along a dim.

use meshwright_backend::{
    Comparison, DType, Expr, LeafPositions, LeafStrides, Node, UnaryFunction,
};

use super::expressions::Case;
use super::{check, evaluate};
use crate::{FLOATS, Target};
use Node::*;

/// Sizes of results of four dims.
const SIZES: [[usize; 4]; 4] = [[3, 5, 4, 8], [2, 3, 5, 7], [0, 5, 4, 8], [2, 0, 4, 8]];

/// Sizes for several threads of a CPU, and for several parts of sums.
const LARGE: [[usize; 4]; 3] = [[33, 40, 8, 16], [1, 700, 1, 300], [300, 6, 10, 5]];

/// Returns the strides of a leaf whose dims, outermost first, are these of the result.
fn along(sizes: &[usize; 4], dims: &[usize]) -> LeafStrides {
    let (mut strides, mut stride) = ([0; 4], 1);
    for dim in dims.iter().rev() {
        strides[*dim] = stride;
        stride *= sizes[*dim];
    }
    LeafStrides { sizes: sizes.to_vec(), strides: strides.to_vec() }
}

/// Returns a leaf with these dims of the result, outermost first.
fn leaf(index: usize, sizes: &[usize; 4], dims: &[usize]) -> Node {
    Along(index, along(sizes, dims))
}

fn len(sizes: &[usize; 4], dims: &[usize]) -> usize {
    dims.iter().map(|dim| sizes[*dim]).product()
}

/// Expressions over leaves that have some dims of the result: few, as each is compiled for a GPU.
fn composite(sizes: &[usize; 4]) -> Vec<Case> {
    let n = sizes.iter().product();
    let leaf = |index: usize, dims: &[usize]| leaf(index, sizes, dims);
    let len = |dims: &[usize]| len(sizes, dims);
    // A chain with three broadcasts, two of which have one pattern.
    let modulated = vec![
        Leaf(0),
        leaf(1, &[0, 3]),
        Offset(1, 1.0),
        Mul(0, 2),
        leaf(2, &[0, 3]),
        Add(3, 4),
        leaf(3, &[0, 1]),
        Apply(UnaryFunction::Sigmoid, 6),
        Mul(5, 7),
    ];
    let lens = [n, len(&[0, 3]), len(&[0, 3]), len(&[0, 1])];
    let mut cases = vec![Case { tolerance: 2.0, ..Case::new(modulated, &lens) }];
    // Four patterns: of a number, in another order, and in the middle; and a row, and only some gradients.
    let mixed = vec![
        leaf(1, &[]),
        leaf(2, &[3, 0]),
        Mul(0, 1),
        leaf(3, &[1]),
        Mul(2, 3),
        leaf(4, &[0, 2]),
        Add(4, 5),
        Row(5),
        Mul(6, 7),
        Leaf(0),
        Sub(8, 9),
    ];
    if sizes[3] > 0 {
        let lens = [n, 1, len(&[3, 0]), len(&[1]), len(&[0, 2]), sizes[3]];
        let wanted = vec![true, true, true, false, true, true];
        cases.push(Case { wanted, tolerance: 2.0, ..Case::new(mixed, &lens) });
    }
    cases
}

/// Expressions over one leaf that has some dims of the result.
fn simple(sizes: &[usize; 4]) -> Vec<Case> {
    let n = sizes.iter().product();
    let patterns: [&[usize]; 9] =
        [&[0], &[2], &[0, 2], &[1, 3], &[0, 1], &[3, 0], &[0, 3], &[], &[2, 1]];
    let product = |dims: &&[usize]| {
        let leaf = || leaf(1, sizes, dims);
        let nodes = vec![Leaf(0), leaf(), Mul(0, 1), leaf(), Add(2, 3)];
        Case::new(nodes, &[n, len(sizes, dims)])
    };
    let mut cases: Vec<Case> = patterns.iter().map(product).collect();
    // A result whose only leaf is repeated.
    cases.push(Case::new(vec![leaf(0, sizes, &[1])], &[sizes[1]]));
    cases
}

/// Repeated leaves and their gradients follow the formula.
pub fn repeated(target: &Target) {
    for sizes in target.cases(&SIZES, &LARGE) {
        for case in [composite(&sizes), target.cases(&[], &simple(&sizes))].concat() {
            FLOATS.into_iter().for_each(|dtype| check(target, &case, &sizes, dtype));
        }
    }
}

/// Positions are those of the global tensor, also behind a gap, for each dim of the result.
pub fn positions(target: &Target) {
    let sizes = vec![2, 3, 5, 9];
    let len = sizes.iter().product();
    let leaf = target.floats(DType::F32, &vec![0.0; len]);
    for dim in 0..sizes.len() {
        for (offset, gap_at, gap) in [(0, 0, 0), (7, 0, 0), (3, 1, 1000), (1 << 20, 2, 5)] {
            let positions = LeafPositions { sizes: sizes.clone(), dim, offset, gap_at, gap };
            let (inner, size) = (positions.inner(), sizes[dim]);
            let expected: Vec<f32> =
                (0..len).map(|i| positions.position(i / inner % size) as f32).collect();
            let nodes = vec![Leaf(0), Position(positions.clone()), Add(0, 1)];
            let got = evaluate(target, &Expr { nodes }, std::slice::from_ref(&leaf), len);
            target.check_exactly(&format!("{positions:?}"), &got, &expected);
        }
    }
    // A causal mask, whose first query is behind the first key.
    let of_dim =
        |dim, offset| LeafPositions { sizes: vec![2, 4, 8], dim, offset, gap_at: 0, gap: 0 };
    let nodes = vec![
        Leaf(0),
        Position(of_dim(1, 3)),
        Position(of_dim(2, 0)),
        Compare(Comparison::Ge, 1, 2),
        Constant(-1.0),
        Select(3, 0, 4),
    ];
    let leaf = target.floats(DType::F32, &[1.0; 64]);
    let got = evaluate(target, &Expr { nodes }, &[leaf], 64);
    let is_visible = |i: usize| 3 + i / 8 % 4 >= i % 8;
    let expected: Vec<f32> = (0..64).map(|i| if is_visible(i) { 1.0 } else { -1.0 }).collect();
    target.check_exactly("a causal mask", &got, &expected);
}
