//! Backward of elementwise expressions.

use std::sync::Arc;

use crate::context::{Rank, alloc_like};
use crate::fsdp::{InBackward, ParamRef, UnitSlice};
use meshwright_backend::{Buffer, DType, Expr, LeafGrad, Node, View};

use super::super::function::SavedInput;
use super::super::param_use::ParamUse;
use super::super::tape::{Dependencies, NodeId, TapeGradients};
use super::leaf::{ExprLeaf, LeafData};

/// Records an expression whose leaves had the numbers `data`.
pub(super) fn record_expression(
    rank: &Rank,
    expr: &Expr,
    leaves: &[ExprLeaf],
    data: &[LeafData<'_>],
) -> NodeId {
    let passes = passing_leaves(expr, leaves.len());
    let differentiable = differentiable_leaves(expr, leaves.len());
    let linear = is_linear(expr);
    let saved: Vec<SavedLeaf> = leaves
        .iter()
        .zip(data)
        .zip(&differentiable)
        .map(|((leaf, data), differentiable)| match (leaf, data) {
            (ExprLeaf::Param(param, gradient_axes), _) => {
                SavedLeaf::Param(ParamUse::of_deferred(param, *gradient_axes, InBackward::Reads))
            }
            (ExprLeaf::Value(value), LeafData::Value(computed)) => {
                let data = (!linear).then(|| value.save());
                let source = computed.node.clone().filter(|_| *differentiable);
                SavedLeaf::Value(SavedInput::new(data, source), value.len())
            }
            (ExprLeaf::Value(_), _) => unreachable!("data is read leaf by leaf"),
        })
        .collect();
    let expr = expr.clone();
    let sources = saved.iter().filter_map(|leaf| match leaf {
        SavedLeaf::Value(input, _) => input.source(),
        SavedLeaf::Param(_) => None,
    });
    let uses = saved.iter().filter_map(|leaf| match leaf {
        SavedLeaf::Value(..) => None,
        SavedLeaf::Param(param_use) => Some(param_use.unit_use()),
    });
    let dependencies = Dependencies::on(sources).with_uses(uses);
    rank.tape().record(dependencies, move |gradients, gradient| {
        // Leaves that only pass through additions share the gradient of the result, without a copy.
        for (leaf, passes) in saved.iter().zip(&passes) {
            if let (SavedLeaf::Value(input, _), true) = (leaf, passes) {
                input.add_gradient(gradients, Arc::clone(&gradient));
            }
        }
        let is_left = |(leaf, passes): (&SavedLeaf, &bool)| match leaf {
            SavedLeaf::Value(..) => !passes,
            SavedLeaf::Param(param_use) => param_use.is_trained(),
        };
        if saved.iter().zip(&passes).any(is_left) {
            backward_leaves(&expr, saved, &passes, gradients, &gradient);
        }
    })
}

/// Returns true if no derivative depends on the value of a leaf.
fn is_linear(expr: &Expr) -> bool {
    let nodes = &expr.nodes;
    let mut reads_leaf: Vec<bool> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let reads = node.leaf().is_some() || node.operands().any(|operand| reads_leaf[operand]);
        reads_leaf.push(reads);
    }
    nodes.iter().zip(&reads_leaf).all(|(node, reads)| match node {
        _ if !reads => true,
        Node::Leaf(_)
        | Node::Row(_)
        | Node::Along(..)
        | Node::Position(_)
        | Node::Constant(_)
        | Node::Add(..)
        | Node::Sub(..)
        | Node::Scale(..)
        | Node::Offset(..)
        | Node::Dropout(..) => true,
        Node::Div(_, divisor) => !reads_leaf[*divisor],
        Node::Mul(a, b) => !reads_leaf[*a] || !reads_leaf[*b],
        Node::Select(mask, ..) => !reads_leaf[*mask],
        Node::Max(..)
        | Node::Min(..)
        | Node::Compare(..)
        | Node::Clamp(..)
        | Node::Pow(..)
        | Node::Apply(..) => false,
    })
}

/// Returns, for each leaf, true if a gradient flows to it.
pub(super) fn differentiable_leaves(expr: &Expr, leaves: usize) -> Vec<bool> {
    let mut reached = vec![false; expr.nodes.len()];
    let mut differentiable = vec![false; leaves];
    reached[expr.nodes.len() - 1] = true;
    for (index, node) in expr.nodes.iter().enumerate().rev() {
        if reached[index] {
            node.differentiable_operands().for_each(|operand| reached[operand] = true);
            if let Some(leaf) = node.leaf() {
                differentiable[leaf] = true;
            }
        }
    }
    differentiable
}

/// Returns, for each leaf, true if only additions are between the leaf and the result, and nothing else reads it, so
/// that both have the same gradient.
fn passing_leaves(expr: &Expr, leaves: usize) -> Vec<bool> {
    let readers =
        |node: usize| expr.nodes.iter().flat_map(Node::operands).filter(move |x| *x == node);
    let mut passes = vec![false; leaves];
    let mut open = vec![expr.nodes.len() - 1];
    while let Some(node) = open.pop() {
        match expr.nodes[node] {
            Node::Leaf(leaf) => passes[leaf] = true,
            Node::Add(a, b) => open.extend([a, b].into_iter().filter(|x| readers(*x).count() == 1)),
            _ => {}
        }
    }
    passes
}

/// Leaf as saved for backward: a value, or the use of a parameter.
enum SavedLeaf {
    /// A value, and its number of elements.
    Value(SavedInput, usize),
    Param(ParamUse),
}

/// Computes the gradients of the leaves that are not just the gradient of the result.
fn backward_leaves(
    expr: &Expr,
    leaves: Vec<SavedLeaf>,
    passes: &[bool],
    gradients: &mut TapeGradients<'_>,
    gradient: &Arc<Buffer>,
) {
    let rank = gradients.rank;
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    let mut targets = Vec::new();
    for (index, (leaf, passes)) in leaves.into_iter().zip(passes).enumerate() {
        match leaf {
            SavedLeaf::Value(mut input, len) => {
                let requires_grad = input.requires_grad() && !passes;
                // Nothing was saved if no derivative depends on a value: any numbers will do.
                let data = input.take_data(rank).unwrap_or_else(|| Arc::clone(gradient));
                let is_short = data.len() < len;
                let data = if is_short { Arc::new(alloc_like(gradient, len)) } else { data };
                inputs.push(Input::Value(data, len));
                let is_sum = is_repeated(expr, index) && gradient.dtype() != DType::F32;
                outputs.push(requires_grad.then(|| {
                    if is_sum {
                        rank.alloc_scratch(DType::F32, len)
                    } else {
                        alloc_like(gradient, len)
                    }
                }));
                targets.push(Target::Value(input, is_sum));
            }
            SavedLeaf::Param(param_use) => {
                inputs.push(Input::Param(param_use.param().clone()));
                let len = param_use.param().local_len();
                let is_trained = param_use.is_trained();
                outputs.push(is_trained.then(|| rank.alloc_scratch(DType::F32, len)));
                targets.push(Target::Param(param_use));
            }
        }
    }
    {
        let guards: Vec<Option<UnitSlice<'_>>> = inputs
            .iter()
            .map(|input| match input {
                Input::Value(..) => None,
                Input::Param(param) => Some(param.values()),
            })
            .collect();
        let views: Vec<View<'_>> = inputs
            .iter()
            .zip(&guards)
            .map(|(input, guard)| match (input, guard) {
                (Input::Value(data, len), _) => data.view().slice(0..*len),
                (Input::Param(_), Some(values)) => values.view(),
                (Input::Param(_), None) => unreachable!("every parameter was borrowed"),
            })
            .collect();
        let mut leaf_grads: Vec<Option<LeafGrad<'_>>> = outputs
            .iter_mut()
            .map(|output| {
                output
                    .as_mut()
                    .map(|buffer| LeafGrad { view: buffer.view_mut(), accumulate: false })
            })
            .collect();
        rank.backend().map_backward(expr, &views, gradient.view(), &mut leaf_grads);
    }
    for (target, output) in targets.into_iter().zip(outputs) {
        match (target, output) {
            (Target::Value(input, is_sum), Some(output)) => {
                let output = if is_sum {
                    let mut rounded = alloc_like(gradient, output.len());
                    rank.backend().cast(output.view(), rounded.view_mut());
                    rounded
                } else {
                    output
                };
                input.add_gradient(gradients, Arc::new(output));
            }
            (Target::Param(param_use), Some(output)) => param_use.finish_with(gradients, &output),
            (Target::Value(..) | Target::Param(_), None) => {}
        }
    }
}

/// Returns true if a leaf is read in a repeated form, in which its gradient is a sum in f32.
fn is_repeated(expr: &Expr, leaf: usize) -> bool {
    let repeats = |node: &Node| matches!(node, Node::Row(of) | Node::Along(of, _) if *of == leaf);
    expr.nodes.iter().any(repeats)
}

/// Operand of the backward kernel.
enum Input {
    /// The first elements of a buffer.
    Value(Arc<Buffer>, usize),
    Param(ParamRef),
}

/// Receiver of a leaf's gradient.
enum Target {
    /// A value, and true if its gradient is a sum in f32, to be rounded.
    Value(SavedInput, bool),
    Param(ParamUse),
}
