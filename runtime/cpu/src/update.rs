//! Elementwise optimizer updates: all nodes are evaluated on a block of elements while it is in the L1 cache.

use super::float::{Float, convert};
use super::math::zip_map;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::state_rounding::store_state;
use super::workers::{Rows, Workers};
use meshwright_backend::{StateRounding, UpdateExpr, UpdateNode};

/// Elements per block: 2 KiB per node.
const BLOCK: usize = 512;

/// Updates parameters and states in place, these with their rounding if they are bf16; new parameters are also written
/// to `copy`.
pub(super) fn apply_update<G: Float, C: Float, S: Float>(
    workers: &Workers,
    expr: &UpdateExpr,
    param: &mut [f32],
    gradient: &[G],
    (states, rounding): (Vec<&mut [S]>, &[StateRounding]),
    copy: Option<&mut [C]>,
) {
    let (len, nodes) = (param.len(), expr.nodes.len());
    let states: Vec<_> = states.into_iter().map(|state| Rows(state, BLOCK)).collect();
    let outputs = (Rows(param, BLOCK), states, copy.map(|copy| Rows(copy, BLOCK)));
    workers.rows(len.div_ceil(BLOCK), BLOCK * nodes, outputs, |range, (param, states, copy)| {
        let first = range.start * BLOCK;
        let gradient = &gradient[first..len.min(range.end * BLOCK)];
        let mut states: Vec<&mut [S]> = states.into_iter().map(|state| state.0).collect();
        with_scratch(nodes * BLOCK, |values| {
            let copy = copy.map(|copy| copy.0);
            let states = (&mut states[..], rounding, first);
            update_range(expr, param.0, gradient, states, copy, values);
        });
    });
}

dispatch! {
    // The states are those from an element on of all that the rounding covers.
    fn update_range<const FMA: bool, G: Float, C: Float, S: Float>(
        expr: &UpdateExpr,
        param: &mut [f32],
        gradient: &[G],
        states: (&mut [&mut [S]], &[StateRounding], usize),
        copy: Option<&mut [C]>,
        values: &mut [f32],
    ) {
        let (states, rounding, first) = states;
        let mut copy = copy;
        for start in (0..param.len()).step_by(BLOCK) {
            let block = start..param.len().min(start + BLOCK);
            let len = block.len();
            for (index, node) in expr.nodes.iter().enumerate() {
                let (earlier, out) = values.split_at_mut(index * BLOCK);
                let (value, out) = (|node: &usize| &earlier[node * BLOCK..][..len], &mut out[..len]);
                match node {
                    UpdateNode::Param => out.copy_from_slice(&param[block.clone()]),
                    UpdateNode::Gradient => convert(&gradient[block.clone()], out),
                    UpdateNode::State(state) => convert(&states[*state][block.clone()], out),
                    // The first block is the longest one, and nothing overwrites constants.
                    UpdateNode::Constant(constant) if start == 0 => out.fill(*constant),
                    UpdateNode::Constant(_) => {}
                    UpdateNode::Neg(x) => zip_map([value(x)], out, |[x]| -x),
                    UpdateNode::Abs(x) => zip_map([value(x)], out, |[x]| x.abs()),
                    UpdateNode::Sign(x) => zip_map([value(x)], out, |[x]| {
                        if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }
                    }),
                    UpdateNode::Sqrt(x) => zip_map([value(x)], out, |[x]| x.sqrt()),
                    UpdateNode::Add(a, b) => zip_map([value(a), value(b)], out, |[a, b]| a + b),
                    UpdateNode::Sub(a, b) => zip_map([value(a), value(b)], out, |[a, b]| a - b),
                    UpdateNode::Mul(a, b) => zip_map([value(a), value(b)], out, |[a, b]| a * b),
                    UpdateNode::Div(a, b) => zip_map([value(a), value(b)], out, |[a, b]| a / b),
                    UpdateNode::Min(a, b) => zip_map([value(a), value(b)], out, |[a, b]| {
                        if a < b || a.is_nan() { a } else { b }
                    }),
                    UpdateNode::Max(a, b) => zip_map([value(a), value(b)], out, |[a, b]| {
                        if a > b || a.is_nan() { a } else { b }
                    }),
                    UpdateNode::Call(function, a, b) => {
                        zip_map([value(a), value(b)], out, |[a, b]| (function.cpu)(a, b));
                    }
                }
            }
            let value = |node: usize| &values[node * BLOCK..][..len];
            param[block.clone()].copy_from_slice(value(expr.param));
            for (index, (state, node)) in states.iter_mut().zip(&expr.states).enumerate() {
                let (state, value) = (&mut state[block.clone()], value(*node));
                if S::IS_F32 {
                    convert(value, state);
                } else {
                    let range = first + block.start..first + block.end;
                    store_state(rounding, range, index, value, state);
                }
            }
            if let Some(copy) = &mut copy {
                convert(value(expr.param), &mut copy[block]);
            }
        }
    }
}
