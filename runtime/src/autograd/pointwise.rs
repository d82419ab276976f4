//! Deferred element-wise expressions, and what makes numbers and gradients of them.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Buffer, Category, DType, Dropout, Expr, LeafGrad, Node, View, ViewMut};
use crate::layout::AxisSet;

use crate::context::Rank;
use crate::fsdp::{ParamRef, Stretch};

use super::activation_checkpointing::Region;
use super::epilogue::{Found, biased_products, with_leaves};
use super::matmul::Biased;
use super::tape::{Gradients, NodeId};
use super::tensor_parallel::like;
use super::value::{InBackward, ParamUse, Ready, Saved, Value};

/// Longer expressions are computed before they are continued, which bounds what is computed twice when one deferred
/// value is read by several others.
const LONG: usize = 12;

/// An element-wise expression over values and parameters.
#[derive(Clone)]
pub(crate) struct Pointwise {
    expr: Expr,
    leaves: Vec<Leaf>,
}

#[derive(Clone)]
enum Leaf {
    Value(Value),
    /// A parameter over the trailing dims, repeated along the leading ones, and the axes of its gradient.
    Param(ParamRef, AxisSet),
}

/// A function of one element.
#[derive(Debug, Clone)]
pub(crate) enum Unary {
    Scale(f32),
    Offset(f32),
    Silu,
    Gelu,
    GeluTanh,
    Relu,
    Tanh,
    Exp,
    Dropout(Dropout),
}

/// A function of two elements at the same place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
}

impl Pointwise {
    pub(crate) fn leaf(value: Value) -> Pointwise {
        Pointwise { expr: Expr { nodes: vec![Node::Leaf(0)] }, leaves: vec![Leaf::Value(value)] }
    }

    pub(crate) fn param(param: &ParamRef, axes: AxisSet) -> Pointwise {
        Pointwise {
            expr: Expr { nodes: vec![Node::Row(0)] },
            leaves: vec![Leaf::Param(param.clone(), axes)],
        }
    }

    /// The segment in whose first run an expression is computed, unless it consists of constants.
    pub(crate) fn unrecorded_in(&self, rank: &Rank) -> Option<Rc<Region>> {
        let segment = rank.regions().first_run()?;
        let is_unrecorded = |leaf: &Leaf| match leaf {
            Leaf::Value(value) => value.is_unrecorded(),
            Leaf::Param(..) => true,
        };
        self.leaves.iter().any(is_unrecorded).then_some(segment)
    }

    pub(crate) fn unary(mut self, op: Unary) -> Pointwise {
        let x = self.expr.nodes.len() - 1;
        self.expr.nodes.push(match op {
            Unary::Scale(factor) => Node::Scale(x, factor),
            Unary::Offset(offset) => Node::Offset(x, offset),
            Unary::Silu => Node::Silu(x),
            Unary::Gelu => Node::Gelu(x),
            Unary::GeluTanh => Node::GeluTanh(x),
            Unary::Relu => Node::Relu(x),
            Unary::Tanh => Node::Tanh(x),
            Unary::Exp => Node::Exp(x),
            Unary::Dropout(dropout) => Node::Dropout(x, dropout),
        });
        self
    }

    pub(crate) fn binary(mut self, other: Pointwise, op: Binary) -> Pointwise {
        let a = self.expr.nodes.len() - 1;
        let leaf_base = self.leaves.len();
        self.leaves.extend(other.leaves);
        append_shifted(&mut self.expr, other.expr, leaf_base);
        let b = self.expr.nodes.len() - 1;
        self.expr.nodes.push(match op {
            Binary::Add => Node::Add(a, b),
            Binary::Sub => Node::Sub(a, b),
            Binary::Mul => Node::Mul(a, b),
        });
        self
    }

    /// Computes the products among its leaves that wait for it, with the bias and the GELU that they alone get.
    pub(crate) fn compute_products(&mut self) {
        let waits = |leaf: &Leaf| matches!(leaf, Leaf::Value(value) if value.is_waiting_product());
        let products: Vec<bool> = self.leaves.iter().map(waits).collect();
        if !products.contains(&true) {
            return;
        }
        let mut places = Vec::new();
        for Found { product, bias, root, gelu } in biased_products(&self.expr, &products) {
            if let (Leaf::Value(value), Leaf::Param(bias, axes)) =
                (&self.leaves[product], &self.leaves[bias])
                && let Some(biased) = value.with_bias(&Biased { bias, gradient_axes: *axes, gelu })
            {
                self.leaves[product] = Leaf::Value(biased);
                places.push((root, product));
            }
        }
        let (expr, kept) = with_leaves(&self.expr, &places);
        self.expr = expr;
        self.leaves = kept.into_iter().map(|leaf| self.leaves[leaf].clone()).collect();
        for leaf in &self.leaves {
            if let Leaf::Value(value) = leaf {
                value.settle();
            }
        }
    }

    /// The value, if it is nothing but one.
    pub(crate) fn as_value(&self) -> Option<&Value> {
        match (&self.expr.nodes[..], &self.leaves[..]) {
            ([Node::Leaf(0)], [Leaf::Value(value)]) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.expr.nodes.len() > LONG
    }

    /// Evaluates the expression over `len` elements in one pass, and with `recorded` records it where a gradient is
    /// wanted.
    pub(crate) fn compute(&self, rank: &Rank, len: usize, recorded: bool) -> Ready {
        self.compute_by(rank, len, recorded, |views, out| {
            rank.backend().map(&self.expr, views, out);
        })
    }

    /// Whether it is the sum of two values.
    pub(crate) fn is_sum(&self) -> bool {
        let values = self.leaves.iter().all(|leaf| matches!(leaf, Leaf::Value(_)));
        values && self.expr == Expr::sum()
    }

    /// [`compute`](Self::compute), with the numbers written by `kernel` from those of the leaves.
    pub(crate) fn compute_by(
        &self,
        rank: &Rank,
        len: usize,
        recorded: bool,
        kernel: impl FnOnce(&[View<'_>], ViewMut<'_>),
    ) -> Ready {
        let sources: Vec<Source<'_>> = self.leaves.iter().map(Source::of).collect();
        // That of the values: a sum of losses is f32 whatever the compute dtype.
        let dtype = sources.iter().find_map(Source::dtype).unwrap_or(rank.compute_dtype());
        let mut out = rank.meter().alloc(dtype, len, Category::Activations);
        {
            let views: Vec<View<'_>> = sources.iter().map(Source::view).collect();
            kernel(&views, out.view_mut());
        }
        let wanted = sources.iter().any(Source::wants_gradient);
        let node = (recorded && wanted).then(|| self.record(rank, &sources));
        Ready { data: Arc::new(out), node }
    }

    fn record(&self, rank: &Rank, sources: &[Source<'_>]) -> NodeId {
        let passes = passing_leaves(&self.expr, self.leaves.len());
        let all_pass = passes.iter().all(|passes| *passes);
        // No derivative of a linear expression depends on a value.
        let linear = is_linear(&self.expr);
        let saved: Vec<SavedLeaf> = self
            .leaves
            .iter()
            .zip(sources)
            .map(|(leaf, source)| match (leaf, source) {
                (Leaf::Param(param, axes), _) => {
                    SavedLeaf::Param(ParamUse::new(param, *axes, InBackward::Reads))
                }
                (Leaf::Value(value), Source::Value(ready)) => {
                    SavedLeaf::Value((!linear).then(|| value.save()), ready.node.clone())
                }
                (Leaf::Value(_), Source::Param(_)) => unreachable!("sources are made leaf by leaf"),
            })
            .collect();
        let expr = self.expr.clone();
        rank.tape().record(move |gradients, gradient| {
            // What only passes through additions hands the same gradient on, without a copy.
            for (leaf, passes) in saved.iter().zip(&passes) {
                if let (SavedLeaf::Value(_, Some(node)), true) = (leaf, passes) {
                    gradients.add(node, Arc::clone(&gradient));
                }
            }
            if !all_pass || saved.iter().any(|leaf| matches!(leaf, SavedLeaf::Param(_))) {
                backward(&expr, saved, &passes, gradients, &gradient);
            }
        })
    }
}

/// Puts the nodes of `tail` behind those of `expr`, with its leaves counted from `leaf_base`.
fn append_shifted(expr: &mut Expr, tail: Expr, leaf_base: usize) {
    let base = expr.nodes.len();
    expr.nodes.extend(tail.nodes.into_iter().map(|node| match node {
        Node::Leaf(leaf) => Node::Leaf(leaf + leaf_base),
        Node::Row(leaf) => Node::Row(leaf + leaf_base),
        node => node.with_operands(|operand| operand + base),
    }));
}

fn is_linear(expr: &Expr) -> bool {
    expr.nodes.iter().all(|node| {
        matches!(
            node,
            Node::Leaf(_)
                | Node::Row(_)
                | Node::Add(..)
                | Node::Sub(..)
                | Node::Scale(..)
                | Node::Offset(..)
                | Node::Dropout(..)
        )
    })
}

/// For each leaf, whether the gradient of the result is also its own: only additions stand between them.
fn passing_leaves(expr: &Expr, leaves: usize) -> Vec<bool> {
    let mut passes = vec![false; leaves];
    let mut open = vec![expr.nodes.len() - 1];
    while let Some(node) = open.pop() {
        match expr.nodes[node] {
            Node::Leaf(leaf) => passes[leaf] = true,
            Node::Add(a, b) => open.extend([a, b]),
            _ => {}
        }
    }
    passes
}

/// The numbers of a leaf during evaluation.
enum Source<'a> {
    Value(Ready),
    Param(Stretch<'a>),
}

impl<'a> Source<'a> {
    fn of(leaf: &'a Leaf) -> Source<'a> {
        match leaf {
            Leaf::Value(value) => Source::Value(value.settle()),
            Leaf::Param(param, axes) => Source::Param(param.read(*axes)),
        }
    }

    fn view(&self) -> View<'_> {
        match self {
            Source::Value(ready) => ready.data.view(),
            Source::Param(values) => values.view(),
        }
    }

    fn dtype(&self) -> Option<DType> {
        match self {
            Source::Value(ready) => Some(ready.data.dtype()),
            Source::Param(_) => None,
        }
    }

    fn wants_gradient(&self) -> bool {
        match self {
            Source::Value(ready) => ready.node.is_some(),
            Source::Param(_) => true,
        }
    }
}

enum SavedLeaf {
    Value(Option<Saved>, Option<NodeId>),
    Param(ParamUse),
}

/// Computes the gradients of the leaves that do more than pass the result's gradient through.
fn backward(
    expr: &Expr,
    leaves: Vec<SavedLeaf>,
    passes: &[bool],
    gradients: &mut Gradients<'_>,
    gradient: &Arc<Buffer>,
) {
    let rank = gradients.rank;
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    let mut targets = Vec::new();
    for (leaf, passes) in leaves.into_iter().zip(passes) {
        match leaf {
            SavedLeaf::Value(saved, node) => {
                let node = node.filter(|_| !passes);
                // Nothing was saved where no derivative depends on a value: any numbers will do.
                inputs.push(Input::Value(
                    saved.map_or_else(|| Arc::clone(gradient), |saved| saved.take(rank)),
                ));
                outputs.push(node.is_some().then(|| like(gradient, gradient.len())));
                targets.push(Target::Value(node));
            }
            SavedLeaf::Param(param_use) => {
                inputs.push(Input::Param(param_use.param().clone()));
                outputs.push(Some(rank.scratch(DType::F32, param_use.param().local_len())));
                targets.push(Target::Param(param_use));
            }
        }
    }
    {
        let guards: Vec<Option<Stretch<'_>>> = inputs
            .iter()
            .map(|input| match input {
                Input::Value(_) => None,
                Input::Param(param) => Some(param.values()),
            })
            .collect();
        let views: Vec<View<'_>> = inputs
            .iter()
            .zip(&guards)
            .map(|(input, guard)| match (input, guard) {
                (Input::Value(data), _) => data.view(),
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
            (Target::Value(Some(node)), Some(output)) => gradients.add(&node, Arc::new(output)),
            (Target::Param(param_use), Some(output)) => param_use.finish_with(gradients, &output),
            (Target::Value(_), _) | (Target::Param(_), None) => {}
        }
    }
}

enum Input {
    Value(Arc<Buffer>),
    Param(ParamRef),
}

enum Target {
    Value(Option<NodeId>),
    Param(ParamUse),
}
