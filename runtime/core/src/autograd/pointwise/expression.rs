//! Deferred elementwise expressions over values and parameters, fused into one kernel, and their backward.

use std::rc::Rc;
use std::sync::Arc;

use crate::context::Rank;
use crate::fsdp::ParamRef;
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::{
    Buffer, Category, Comparison, DropoutMask, Expr, LeafPositions, Node, UnaryFunction, View,
    ViewMut,
};
use meshwright_mesh::Extent;

use super::super::activation_checkpointing::CheckpointedSegment;
use super::super::matmul::{BiasEpilogue, FusableEpilogue, fusable_epilogues, replace_by_leaves};
use super::super::tape::NodeId;
use super::super::value::{Computed, DeferredOp, Value};
use super::backward::{differentiable_leaves, record_expression};
use super::leaf::{ExprLeaf, LeafData};

/// Limit of nodes: longer expressions are computed before they are extended, which bounds repeated work when several
/// other expressions read one deferred value.
const MAX_NODES: usize = 12;

/// An elementwise expression over values and parameters.
#[derive(Clone)]
pub(crate) struct Pointwise {
    pub(super) expr: Expr,
    pub(super) leaves: Vec<ExprLeaf>,
}

/// A function of one element.
#[derive(Debug, Clone)]
pub(crate) enum Unary {
    Scale(f32),
    Offset(f32),
    Clamp(f32, f32),
    Pow(f32),
    Apply(UnaryFunction),
    Dropout(DropoutMask),
    /// The quotient of the element and a number.
    DivideBy(f32),
    /// The quotient of a number and the element.
    DivideInto(f32),
}

/// A function of two elements with the same index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    /// 1 if the elements compare so, else 0.
    Compare(Comparison),
}

impl Pointwise {
    pub(crate) fn leaf(value: Value) -> Pointwise {
        Pointwise {
            expr: Expr { nodes: vec![Node::Leaf(0)] },
            leaves: vec![ExprLeaf::Value(value)],
        }
    }

    pub(crate) fn param(param: &ParamRef, axes: AxisSet) -> Pointwise {
        param.rank().segments().note_param(param.path());
        Pointwise {
            expr: Expr { nodes: vec![Node::Row(0)] },
            leaves: vec![ExprLeaf::Param(param.defer(), axes)],
        }
    }

    /// Creates the expression of one number for all elements.
    pub(crate) fn number(number: f32) -> Pointwise {
        Pointwise { expr: Expr { nodes: vec![Node::Constant(number)] }, leaves: Vec::new() }
    }

    /// Creates the expression of the global positions along a dim.
    pub(crate) fn positions(positions: LeafPositions) -> Pointwise {
        Pointwise { expr: Expr { nodes: vec![Node::Position(positions)] }, leaves: Vec::new() }
    }

    /// Combines each element with a number.
    pub(crate) fn with_number(self, number: f32, op: Binary) -> Pointwise {
        self.binary(Pointwise::number(number), op)
    }

    /// Returns the expression if it reads parameters only, for work that is divided over `axis`, along which it does
    /// not vary: the gradients of its parameters are then partial over the axis.
    fn params_in_region(&self, axis: AxisId) -> Option<Pointwise> {
        let mut entered = self.clone();
        for leaf in &mut entered.leaves {
            match leaf {
                ExprLeaf::Param(_, axes) => *axes = axes.union(AxisSet::of(axis)),
                ExprLeaf::Value(_) => return None,
            }
        }
        Some(entered)
    }

    /// Returns the checkpointed segment in whose forward the expression is computed, unless it consists of constants.
    fn unrecorded_in(&self, rank: &Rank) -> Option<Rc<CheckpointedSegment>> {
        let segment = rank.segments().in_forward()?;
        self.requires_grad().then_some(segment)
    }

    pub(crate) fn unary(mut self, op: Unary) -> Pointwise {
        let x = self.expr.nodes.len() - 1;
        if let Unary::DivideBy(number) | Unary::DivideInto(number) = op {
            self.expr.nodes.push(Node::Constant(number));
        }
        self.expr.nodes.push(match op {
            Unary::Scale(factor) => Node::Scale(x, factor),
            Unary::Offset(offset) => Node::Offset(x, offset),
            Unary::Clamp(min, max) => Node::Clamp(x, min, max),
            Unary::Pow(exponent) => Node::Pow(x, exponent),
            Unary::Apply(function) => Node::Apply(function, x),
            Unary::Dropout(dropout) => Node::Dropout(x, dropout),
            Unary::DivideBy(_) => Node::Div(x, x + 1),
            Unary::DivideInto(_) => Node::Div(x + 1, x),
        });
        self
    }

    /// Computes the deferred matmuls among the leaves, each fused with the bias and the GELU that are applied to it
    /// alone.
    fn compute_matmuls(&mut self) {
        let is_matmul =
            |leaf: &ExprLeaf| matches!(leaf, ExprLeaf::Value(value) if value.is_deferred_matmul());
        let matmuls: Vec<bool> = self.leaves.iter().map(is_matmul).collect();
        if !matmuls.contains(&true) {
            return;
        }
        let mut fused = Vec::new();
        for FusableEpilogue { matmul, bias, root, gelu } in fusable_epilogues(&self.expr, &matmuls)
        {
            if let (ExprLeaf::Value(value), ExprLeaf::Param(bias, axes)) =
                (&self.leaves[matmul], &self.leaves[bias])
                && let Some(biased) =
                    value.with_bias(&BiasEpilogue { bias, gradient_axes: *axes, gelu })
            {
                self.leaves[matmul] = ExprLeaf::Value(biased);
                fused.push((root, matmul));
            }
        }
        let (expr, kept) = replace_by_leaves(&self.expr, &fused);
        self.expr = expr;
        self.leaves = kept.into_iter().map(|leaf| self.leaves[leaf].clone()).collect();
        for leaf in &self.leaves {
            if let ExprLeaf::Value(value) = leaf {
                value.compute_with_node();
            }
        }
    }

    /// Returns the value of an expression that consists of one value only.
    pub(super) fn as_value(&self) -> Option<&Value> {
        match (&self.expr.nodes[..], &self.leaves[..]) {
            ([Node::Leaf(0)], [ExprLeaf::Value(value)]) => Some(value),
            _ => None,
        }
    }

    /// Returns true if a gradient flows to a leaf that requires one, given for each leaf.
    fn has_gradient(&self, mut requires_grad: impl Iterator<Item = bool>) -> bool {
        if !self.expr.nodes.iter().any(|node| matches!(node, Node::Compare(..))) {
            return requires_grad.any(|requires_grad| requires_grad);
        }
        let differentiable = differentiable_leaves(&self.expr, self.leaves.len());
        requires_grad.zip(differentiable).any(|(requires_grad, flows)| requires_grad && flows)
    }

    fn is_long(&self) -> bool {
        self.expr.nodes.len() > MAX_NODES
    }

    /// Returns true if the expression is the sum of two values.
    fn is_sum(&self) -> bool {
        let values = self.leaves.iter().all(|leaf| matches!(leaf, ExprLeaf::Value(_)));
        values && self.expr == Expr::sum()
    }

    /// Computes `len` elements by `kernel`, which gets the numbers of the leaves, and with `recorded` records the
    /// expression if a gradient is required.
    fn compute_by(
        &self,
        rank: &Rank,
        len: usize,
        recorded: bool,
        kernel: impl FnOnce(&[View<'_>], ViewMut<'_>),
    ) -> Computed {
        self.record(rank, recorded, |leaves| Arc::new(result_of(rank, len, leaves, kernel)))
    }

    /// Returns the numbers that `compute` returns for the leaves, and with `recorded` records the expression if a
    /// gradient is required.
    fn record(
        &self,
        rank: &Rank,
        recorded: bool,
        compute: impl FnOnce(&[LeafData<'_>]) -> Arc<Buffer>,
    ) -> Computed {
        let leaves: Vec<LeafData<'_>> = self.leaves.iter().map(LeafData::read).collect();
        let data = compute(&leaves);
        let node = recorded.then(|| self.record_read(rank, &leaves)).flatten();
        Computed { data, node }
    }

    /// Records the expression before its numbers are computed, but after the numbers of its leaves.
    pub(super) fn record_early(&self, rank: &Rank) -> Option<NodeId> {
        let leaves: Vec<LeafData<'_>> = self.leaves.iter().map(LeafData::read).collect();
        self.record_read(rank, &leaves)
    }

    fn record_read(&self, rank: &Rank, leaves: &[LeafData<'_>]) -> Option<NodeId> {
        let of_leaves = self.leaves.iter().zip(leaves);
        let requires_grad =
            self.has_gradient(of_leaves.map(|(leaf, data)| data.requires_grad(leaf)));
        requires_grad.then(|| record_expression(rank, &self.expr, &self.leaves, leaves))
    }
}

/// Returns the `len` elements that `kernel` computes from the leaves.
fn result_of(
    rank: &Rank,
    len: usize,
    leaves: &[LeafData<'_>],
    kernel: impl FnOnce(&[View<'_>], ViewMut<'_>),
) -> Buffer {
    // The dtype of the values: a sum of losses is f32 for every compute dtype.
    let dtype = leaves.iter().find_map(LeafData::dtype).unwrap_or(rank.compute_dtype());
    let mut out = rank.allocator().alloc(dtype, len, Category::Activations);
    let views: Vec<View<'_>> = leaves.iter().map(LeafData::view).collect();
    kernel(&views, out.view_mut());
    drop(views);
    rank.round_with_noise(&mut out);
    out
}

impl DeferredOp for Pointwise {
    fn compute(
        &mut self,
        rank: &Rank,
        len: usize,
        recorded: bool,
        known: Option<Arc<Buffer>>,
    ) -> Computed {
        self.compute_matmuls();
        match (self.as_value(), known) {
            (Some(value), _) => value.compute_with_node(),
            (None, Some(known)) => self.record(rank, recorded, |_| known),
            (None, None) => self.compute_by(rank, len, recorded, |views, out| {
                rank.backend().map(&self.expr, views, out);
            }),
        }
    }

    fn peek(&self, rank: &Rank, len: usize) -> Buffer {
        let leaves: Vec<LeafData<'_>> = self.leaves.iter().map(LeafData::peek).collect();
        result_of(rank, len, &leaves, |views, out| rank.backend().map(&self.expr, views, out))
    }

    fn reads_params(&self) -> bool {
        self.leaves.iter().any(|leaf| matches!(leaf, ExprLeaf::Param(..)))
    }

    fn requires_grad(&self) -> bool {
        self.has_gradient(self.leaves.iter().map(|leaf| match leaf {
            ExprLeaf::Value(value) => value.requires_grad(),
            ExprLeaf::Param(..) => leaf.is_trained_param(),
        }))
    }
}

impl Value {
    /// Creates a value that defers `pointwise` until its numbers are needed.
    ///
    /// # Panics
    /// If no gradient flows, and a leaf is of another pipeline stage.
    #[track_caller]
    pub(crate) fn deferred(rank: &Rank, extents: Vec<Extent>, pointwise: Pointwise) -> Value {
        let unrecorded_in = pointwise.unrecorded_in(rank);
        if !rank.is_recording() || pointwise.requires_grad() {
            return Value::defer_op(rank, extents, pointwise, unrecorded_in);
        }
        let leaves = pointwise.leaves.clone();
        let values = || leaves.iter().filter_map(ExprLeaf::value);
        for value in values() {
            value.check_read();
        }
        Value::defer_op(rank, extents, pointwise, unrecorded_in).with_origin(values())
    }

    /// Returns the expression of a deferred value, to be extended; computed values and deferred matmuls are leaves of
    /// new expressions.
    #[track_caller]
    pub(crate) fn to_pointwise(&self) -> Pointwise {
        self.check_read();
        let is_leaf = self.node_at_boundary().is_some();
        let extended = self.with_deferred(|pointwise: &mut Pointwise, created| {
            let is_extended = !pointwise.is_long() && created.is_fusable(self.rank());
            is_extended
                .then(|| if is_leaf { Pointwise::leaf(self.clone()) } else { pointwise.clone() })
        });
        if let Some(Some(pointwise)) = extended {
            return pointwise;
        }
        if self.is_fusable_matmul() {
            return Pointwise::leaf(self.clone());
        }
        Pointwise::leaf(self.unchanged_computed())
    }

    /// Returns the value inside of a tensor-parallel region over `axis` if it is a deferred expression over parameters
    /// only: their gradients are reduced with those of their unit, without a collective of the region.
    pub(in crate::autograd) fn params_in_region(&self, axis: AxisId) -> Option<Value> {
        self.check_recorded();
        if self.node_at_boundary().is_some() {
            return None;
        }
        let entered = self.with_deferred(|pointwise: &mut Pointwise, created| {
            created.is_fusable(self.rank()).then(|| pointwise.params_in_region(axis)).flatten()
        });
        let entered = entered.flatten()?;
        Some(Value::deferred(self.rank(), self.extents().to_vec(), entered))
    }

    /// Computes the deferred matmuls of a deferred expression, which may be recorded now.
    pub(crate) fn compute_matmuls(&self) {
        if let Some(value) = self.before_boundary() {
            return value.compute_matmuls();
        }
        self.with_deferred(|pointwise: &mut Pointwise, created| {
            if created.is_computable(self.rank()) {
                pointwise.compute_matmuls();
            }
        });
    }

    /// Returns true if the value is the deferred sum of two values, which may be recorded now.
    pub(crate) fn is_deferred_sum(&self) -> bool {
        if let Some(value) = self.before_boundary() {
            return value.is_deferred_sum();
        }
        let is_sum = self.with_deferred(|pointwise: &mut Pointwise, created| {
            created.is_computable(self.rank()) && pointwise.is_sum()
        });
        is_sum == Some(true)
    }

    /// Computes a [deferred sum](Self::is_deferred_sum) by a kernel that gets both summands and the sum to write.
    /// Returns true if the value was one.
    pub(crate) fn compute_sum(&self, kernel: impl FnOnce(View<'_>, View<'_>, ViewMut<'_>)) -> bool {
        if let Some(value) = self.before_boundary() {
            return value.compute_sum(kernel);
        }
        self.is_deferred_sum()
            && self.compute_deferred(|pointwise: &mut Pointwise, recorded| {
                pointwise.compute_by(self.rank(), self.len(), recorded, |summands, sum| {
                    kernel(summands[0], summands[1], sum);
                })
            })
    }
}
