//! Values of an elementwise update: arithmetic on them records an expression.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use meshwright_backend::{ScalarFunction, UpdateExpr, UpdateNode};

/// A value per element, inside of [`update_elementwise`](super::FlatSlice::update_elementwise).
///
/// `+`, `-`, `*` and `/` take values and numbers; a number is rounded to f32. Every operation is computed in f32 and
/// rounded once.
#[derive(Clone, Copy)]
pub struct ElementValue<'e> {
    recorder: &'e Recorder,
    node: usize,
}

/// The operations recorded so far.
#[derive(Default)]
pub(super) struct Recorder {
    nodes: RefCell<Vec<UpdateNode>>,
}

impl Recorder {
    /// Records the expression of a rule with `N` states; its gradients are multiplied by `grad_scale`.
    pub fn record<const N: usize>(
        self,
        grad_scale: f32,
        rule: impl for<'e> FnOnce(
            ElementValue<'e>,
            ElementValue<'e>,
            [ElementValue<'e>; N],
        ) -> (ElementValue<'e>, [ElementValue<'e>; N]),
    ) -> UpdateExpr {
        let (param, states) = {
            let param = self.push(UpdateNode::Param);
            let unscaled = self.push(UpdateNode::Gradient);
            let scale = self.push(UpdateNode::Constant(grad_scale));
            let gradient = self.push(UpdateNode::Mul(unscaled.node, scale.node));
            let states = std::array::from_fn(|state| self.push(UpdateNode::State(state)));
            let (param, states) = rule(param, gradient, states);
            (param.node, states.iter().map(|state| state.node).collect())
        };
        UpdateExpr { nodes: self.nodes.into_inner(), param, states }
    }

    fn push(&self, node: UpdateNode) -> ElementValue<'_> {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(node);
        ElementValue { recorder: self, node: nodes.len() - 1 }
    }
}

impl<'e> ElementValue<'e> {
    /// Returns `|x|`.
    pub fn abs(self) -> Self {
        self.recorder.push(UpdateNode::Abs(self.node))
    }

    /// Returns 1 for positive numbers and -1 for negative ones; zeros and NaN stay.
    pub fn sign(self) -> Self {
        self.recorder.push(UpdateNode::Sign(self.node))
    }

    /// Returns the square root.
    pub fn sqrt(self) -> Self {
        self.recorder.push(UpdateNode::Sqrt(self.node))
    }

    /// Returns the smaller of two values; NaN if either is NaN.
    pub fn min(self, other: impl IntoElement<'e>) -> Self {
        self.binary(other, UpdateNode::Min)
    }

    /// Returns the larger of two values; NaN if either is NaN.
    pub fn max(self, other: impl IntoElement<'e>) -> Self {
        self.binary(other, UpdateNode::Max)
    }

    /// Returns a user-defined function of two values. Its bits on CPU and GPU may differ.
    pub fn call(self, function: &'static ScalarFunction, other: impl IntoElement<'e>) -> Self {
        self.binary(other, |a, b| UpdateNode::Call(function, a, b))
    }

    fn binary(
        self,
        other: impl IntoElement<'e>,
        node: impl FnOnce(usize, usize) -> UpdateNode,
    ) -> Self {
        let other = other.into_element(self);
        self.recorder.push(node(self.node, other.node))
    }
}

/// A value or a number in an elementwise update.
pub trait IntoElement<'e> {
    #[doc(hidden)]
    fn into_element(self, other: ElementValue<'e>) -> ElementValue<'e>;
}

impl<'e> IntoElement<'e> for ElementValue<'e> {
    fn into_element(self, _: ElementValue<'e>) -> ElementValue<'e> {
        self
    }
}

impl<'e> IntoElement<'e> for f64 {
    fn into_element(self, other: ElementValue<'e>) -> ElementValue<'e> {
        other.recorder.push(UpdateNode::Constant(self as f32))
    }
}

macro_rules! operators {
    ($($trait:ident, $function:ident;)*) => {$(
        impl<'e, Other: IntoElement<'e>> $trait<Other> for ElementValue<'e> {
            type Output = ElementValue<'e>;

            fn $function(self, other: Other) -> ElementValue<'e> {
                self.binary(other, UpdateNode::$trait)
            }
        }

        impl<'e> $trait<ElementValue<'e>> for f64 {
            type Output = ElementValue<'e>;

            fn $function(self, other: ElementValue<'e>) -> ElementValue<'e> {
                self.into_element(other).$function(other)
            }
        }
    )*};
}

operators! { Add, add; Sub, sub; Mul, mul; Div, div; }

impl<'e> Neg for ElementValue<'e> {
    type Output = ElementValue<'e>;

    fn neg(self) -> ElementValue<'e> {
        self.recorder.push(UpdateNode::Neg(self.node))
    }
}

impl fmt::Debug for ElementValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.recorder.nodes.borrow()[self.node])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_backend::{CachingAllocator, Category, OptimizerOps, UpdateOperands};
    use meshwright_cpu::CpuBackend;

    static LARGER: ScalarFunction =
        ScalarFunction { name: "larger", cpu: f32::max, cuda: "return fmaxf(x, y);" };

    /// Every operation against plain arithmetic, with one element, in several blocks, and on two threads.
    #[test]
    fn operations_are_plain_arithmetic() {
        let expr = Recorder::default().record(0.5, |p, g, [m, v]| {
            let m_new = 0.9 * m + g * 0.1;
            let v_new = (v * 0.5 + g * g).sqrt().max(m.abs()).call(&LARGER, 0.25);
            (p - 0.1 * (m_new.sign() + m_new / v_new).min(1.5) - (-p) * 0.01, [m_new, v_new])
        });
        for (len, threads) in [(1, 1), (7, 1), (1500, 1), (40_000, 2)] {
            let values = |factor: f32| -> Vec<f32> {
                (0..len).map(|index| (index as f32 * factor).sin()).collect()
            };
            let [p, g, m] = [0.3, 0.7, 1.3].map(values);
            let v: Vec<f32> = values(2.1).iter().map(|x| x * x).collect();
            let allocator = CachingAllocator::new();
            let [mut got_p, mut got_m, mut got_v] =
                [&p, &m, &v].map(|values| allocator.copy_of(values, Category::Optimizer));
            let (gradient, mut copy) = (
                allocator.copy_of(&g, Category::Gradients),
                allocator.copy_of(&p, Category::Parameters),
            );
            let operands = UpdateOperands {
                param: got_p.view_mut(),
                gradient: gradient.view(),
                states: vec![got_m.view_mut(), got_v.view_mut()],
                rounding: &[],
                copy: Some(copy.view_mut()),
            };
            CpuBackend::new(threads).unwrap().apply_update(&expr, operands);
            for index in 0..len {
                let (p, g, m, v) = (p[index], g[index] * 0.5, m[index], v[index]);
                let m_new = 0.9 * m + g * 0.1;
                let v_new = (v * 0.5 + g * g).sqrt().max(m.abs()).max(0.25);
                let sign = if m_new == 0.0 { m_new } else { m_new.signum() };
                let p_new = p - 0.1 * (sign + m_new / v_new).min(1.5) - (-p) * 0.01;
                assert_eq!(got_p.typed::<f32>()[index], p_new, "{index} of {len}");
                assert_eq!(got_m.typed::<f32>()[index], m_new, "{index} of {len}");
                assert_eq!(got_v.typed::<f32>()[index], v_new, "{index} of {len}");
            }
            assert_eq!(copy.typed::<f32>(), got_p.typed::<f32>());
        }
    }
}
