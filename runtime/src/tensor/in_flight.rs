//! Results of asynchronous collectives.

use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

use crate::comm::{Pending, ReduceOp, Site};
use crate::layout::{AxisSet, Shape};

use super::rank::fail;
use super::tape::NodeId;
use super::value::{Extent, Value};
use super::{Rank, Tensor};

/// A `T` that a collective is bringing. It exists only after [`wait`](InFlight::wait).
#[must_use = "the tensor is there only after `.wait()`"]
pub struct InFlight<T> {
    rank: Rank,
    extents: Vec<Extent>,
    node: Option<NodeId>,
    arrival: Arrival,
    result: PhantomData<T>,
}

enum Arrival {
    Here(Value),
    Pending(Pending),
}

impl<S: Shape> InFlight<Tensor<S>> {
    /// Waits for the collective; the other ranks of the axis must have issued it too.
    pub fn wait(self) -> Tensor<S> {
        let value = match self.arrival {
            Arrival::Here(value) => value,
            Arrival::Pending(pending) => {
                let data = pending.wait().unwrap_or_else(|error| fail(error));
                Value::alias(&self.rank, self.extents, Arc::new(data), self.node)
            }
        };
        Tensor::wrap(value)
    }

    pub(crate) fn all_reduce(value: Value, axes: AxisSet, site: &Site) -> Self {
        let rank = value.rank().clone();
        let extents = value.extents().to_vec();
        let group = rank.group(axes);
        let (node, arrival) = if group.size() > 1 {
            let (data, node) = value.into_unique();
            (node, Arrival::Pending(group.start_all_reduce(site, ReduceOp::Sum, data)))
        } else {
            (None, Arrival::Here(value))
        };
        InFlight { rank, extents, node, arrival, result: PhantomData }
    }
}

/// Never implemented: what something under way would have to be to be used.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is still on its way",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait UsedBeforeWait {
    #[doc(hidden)]
    fn never() -> !;
}

macro_rules! after_wait {
    ($($name:ident -> $out:ty;)*) => {
        /// What is under way cannot be used; these methods never compile, and say why.
        #[allow(missing_docs, reason = "each says in its bound that it cannot be called")]
        impl<S: Shape> InFlight<Tensor<S>> {$(
            #[doc(hidden)]
            pub fn $name(&self) -> $out
            where
                Self: UsedBeforeWait,
            {
                Self::never()
            }
        )*}
    };
}

after_wait! {
    silu -> Tensor<S>;
    gelu -> Tensor<S>;
    gelu_tanh -> Tensor<S>;
    relu -> Tensor<S>;
    tanh -> Tensor<S>;
    exp -> Tensor<S>;
    softmax -> Tensor<S>;
    to_vec -> Vec<f32>;
}

/// Never implemented: what could be combined with something under way.
#[diagnostic::on_unimplemented(
    message = "`{Left}` is still on its way",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait Awaited<Left> {
    #[doc(hidden)]
    fn never() -> !;
}

/// Never implemented: what could be used before it is there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is still on its way",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait Arrived {
    #[doc(hidden)]
    fn never() -> !;
}

macro_rules! operators_after_wait {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; its bound says what to do.
        impl<T, R: Awaited<InFlight<T>>> $operator<R> for InFlight<T> {
            type Output = T;

            fn $method(self, _: R) -> T {
                R::never()
            }
        }
    )*};
}

operators_after_wait! {
    Add add;
    Sub sub;
    Mul mul;
}
