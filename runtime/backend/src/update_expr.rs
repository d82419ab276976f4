//! Elementwise optimizer updates as expressions, evaluated by one fused kernel each.
//!
//! Every operation is rounded once, as IEEE 754 defines it, and never contracted into a fused multiply-add. So an
//! update gives the same bits on every CPU and GPU.

use std::fmt;

use super::ops::state_rounding::{StateRounding, check_rounding};
use super::{DType, View, ViewMut};

/// An elementwise update of parameters and optimizer state, given their gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateExpr {
    /// Operations in topological order: operands are indices of earlier nodes.
    pub nodes: Vec<UpdateNode>,
    /// The node that becomes the new parameter.
    pub param: usize,
    /// The node that becomes the new value of each state.
    pub states: Vec<usize>,
}

/// One operation of an [`UpdateExpr`], in f32.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateNode {
    /// The parameter before the update.
    Param,
    /// The gradient, widened to f32.
    Gradient,
    /// The state of this index before the update.
    State(usize),
    /// A number that is the same for all elements.
    Constant(f32),
    /// `-x`.
    Neg(usize),
    /// `|x|`.
    Abs(usize),
    /// 1 for positive numbers, -1 for negative ones; zeros and NaN stay.
    Sign(usize),
    /// Square root.
    Sqrt(usize),
    /// Sum of two nodes.
    Add(usize, usize),
    /// Difference of two nodes.
    Sub(usize, usize),
    /// Product of two nodes.
    Mul(usize, usize),
    /// Quotient of two nodes.
    Div(usize, usize),
    /// Smaller of two nodes; NaN if either is NaN.
    Min(usize, usize),
    /// Larger of two nodes; NaN if either is NaN.
    Max(usize, usize),
    /// A user-defined function of two nodes.
    Call(&'static ScalarFunction, usize, usize),
}

/// A user-defined function of two numbers, for the CPU and as CUDA source.
///
/// ```
/// use meshwright::backend::ScalarFunction;
///
/// static ATAN2: ScalarFunction =
///     ScalarFunction { name: "atan2", cpu: f32::atan2, cuda: "return atan2f(x, y);" };
/// ```
pub struct ScalarFunction {
    /// Name in kernel profiles: letters, digits and underscores.
    pub name: &'static str,
    /// The function on the CPU.
    pub cpu: fn(f32, f32) -> f32,
    /// Body of a CUDA C++ function `float f(float x, float y)`.
    pub cuda: &'static str,
}

/// Operands of an [`UpdateExpr`], all of one length.
pub struct UpdateOperands<'a> {
    /// Parameters, f32.
    pub param: ViewMut<'a>,
    /// Their gradient, f32 or bf16.
    pub gradient: View<'a>,
    /// Optimizer state, f32 or bf16, all of one dtype.
    pub states: Vec<ViewMut<'a>>,
    /// Rounding of the states in the order of the elements; empty if they are f32.
    pub rounding: &'a [StateRounding],
    /// Second destination of the new parameters, in its own dtype: f32 or bf16.
    pub copy: Option<ViewMut<'a>>,
}

impl UpdateExpr {
    /// Asserts that the expression is well formed and that `operands` fit it.
    ///
    /// # Panics
    /// If they do not: a fault of the calling code.
    pub fn check_operands(&self, operands: &UpdateOperands<'_>) {
        let states = operands.states.len();
        assert_eq!(self.states.len(), states, "an update has one result per state");
        for (index, node) in self.nodes.iter().enumerate() {
            assert!(
                node.operands().all(|operand| operand < index),
                "nodes are in topological order"
            );
            if let UpdateNode::State(state) = node {
                assert!(*state < states, "state {state} of an update is one of {states}");
            }
        }
        let mut results = self.states.iter().chain([&self.param]);
        assert!(results.all(|node| *node < self.nodes.len()), "results of an update are nodes");
        let len = operands.gradient.len();
        assert_eq!(operands.param.dtype(), DType::F32, "parameters are f32");
        let states: Vec<&ViewMut<'_>> = operands.states.iter().collect();
        check_rounding(&states, operands.rounding, len);
        let written = states.into_iter().chain([&operands.param]).chain(&operands.copy);
        for operand in written {
            assert_eq!(operand.len(), len, "operands of an update have one length");
        }
    }
}

impl UpdateNode {
    /// Returns the nodes that this node reads.
    pub fn operands(&self) -> impl Iterator<Item = usize> {
        let (first, second) = match *self {
            UpdateNode::Param
            | UpdateNode::Gradient
            | UpdateNode::State(_)
            | UpdateNode::Constant(_) => (None, None),
            UpdateNode::Neg(x) | UpdateNode::Abs(x) | UpdateNode::Sign(x) | UpdateNode::Sqrt(x) => {
                (Some(x), None)
            }
            UpdateNode::Add(a, b)
            | UpdateNode::Sub(a, b)
            | UpdateNode::Mul(a, b)
            | UpdateNode::Div(a, b)
            | UpdateNode::Min(a, b)
            | UpdateNode::Max(a, b)
            | UpdateNode::Call(_, a, b) => (Some(a), Some(b)),
        };
        first.into_iter().chain(second)
    }
}

impl fmt::Debug for ScalarFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Functions are equal if their names and CUDA sources are equal.
impl PartialEq for ScalarFunction {
    fn eq(&self, other: &ScalarFunction) -> bool {
        (self.name, self.cuda) == (other.name, other.cuda)
    }
}
