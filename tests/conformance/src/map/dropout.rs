//! Dropout masks.

use meshwright_backend::{BlockIndex, DropoutMask, Expr, Node};

use super::{backward, evaluate};
use crate::Target;
use crate::random::parts;

pub fn mask_of(rate: f32, index: BlockIndex) -> DropoutMask {
    DropoutMask { key: 0x1234_5678_9abc_def0, rate, index }
}

fn dropout(rate: f32, index: BlockIndex) -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::Dropout(0, mask_of(rate, index))] }
}

/// Returns the factors of dropout: the result of ones, which is also the gradient for ones.
fn factors(target: &Target, rate: f32, index: &BlockIndex) -> Vec<f32> {
    let (len, expr) = (index.len(), dropout(rate, index.clone()));
    let ones = [target.put(&vec![1.0f32; len])];
    let factors = evaluate(target, &expr, &ones, len).numbers();
    let grads = backward(target, &expr, &ones, &[true], &ones[0], None);
    let gradient = grads[0].as_ref().expect("a gradient").numbers();
    assert_eq!(gradient, factors, "the backward pass uses the same mask");
    factors
}

/// Returns the factors of the dropout in an expression, if it has one.
pub fn mask(target: &Target, expr: &Expr, len: usize) -> Vec<f64> {
    let factors = |node: &Node| match node {
        Node::Dropout(_, mask) => Some(factors(target, mask.rate, &mask.index)),
        _ => None,
    };
    let mask = expr.nodes.iter().find_map(factors).unwrap_or_default();
    assert!(mask.is_empty() || mask.len() == len);
    crate::values::wide(&mask)
}

/// The rate is dropped, and the mean is kept.
pub fn rate(target: &Target) {
    let len = 100_000;
    for rate in [0.0, 0.1, 0.5, 1.0] {
        let factors = factors(target, rate, &BlockIndex::whole(&[100, 1000]));
        let kept = factors.iter().filter(|x| **x != 0.0).count() as f32 / len as f32;
        assert!((kept - (1.0 - rate)).abs() < 0.006, "rate {rate}: kept {kept}");
        let value = if rate < 1.0 { 1.0 / (1.0 - rate) } else { 0.0 };
        assert!(factors.iter().all(|x| *x == 0.0 || *x == value));
    }
}

fn block(local: &[usize], global: &[usize], offset: &[usize]) -> BlockIndex {
    BlockIndex::one_range(local.to_vec(), global.to_vec(), offset.to_vec())
}

fn with_gap(mut index: BlockIndex, dim: usize, at: usize, len: usize) -> BlockIndex {
    (index.gap_at[dim], index.gap[dim]) = (at, len);
    index
}

/// A block has the mask of its part of the whole tensor.
pub fn blocks(target: &Target) {
    let blocks = [
        BlockIndex::whole(&[3, 50, 8]),
        block(&[3, 10, 40], &[6, 10, 40], &[3, 0, 0]),
        block(&[30, 40], &[30, 120], &[0, 40]),
        block(&[6, 10, 20], &[9, 30, 21], &[2, 7, 1]),
        // Two ranges of indices: of the last dim, of one before a whole one, and of one before a split one.
        with_gap(block(&[1200], &[4000], &[37]), 0, 601, 999),
        with_gap(block(&[30, 40], &[30, 120], &[0, 7]), 1, 13, 50),
        with_gap(block(&[3, 10, 40], &[6, 50, 40], &[3, 4, 0]), 1, 5, 30),
        with_gap(block(&[6, 10, 20], &[9, 30, 21], &[2, 1, 1]), 1, 3, 15),
    ];
    for index in blocks.into_iter().chain(parts(&[6, 10, 34])) {
        for rate in [0.0, 0.3, 1.0] {
            let whole = factors(target, rate, &BlockIndex::whole(&index.global));
            let part = factors(target, rate, &index);
            let expected = (0..index.len()).map(|i| whole[index.global_index(i) as usize]);
            assert_eq!(part, expected.collect::<Vec<_>>(), "{index:?}, rate {rate}");
        }
    }
}

/// Elements with indices beyond 32 bits have the same mask in any block.
pub fn large_indices(target: &Target) {
    let global = 1 << 40;
    let mask = factors(target, 0.3, &block(&[1200], &[global], &[global - 1200]));
    for element in [0, 1, 700, 1199] {
        let alone = block(&[1], &[global], &[global - 1200 + element]);
        assert_eq!(factors(target, 0.3, &alone), [mask[element]], "element {element}");
    }
}
