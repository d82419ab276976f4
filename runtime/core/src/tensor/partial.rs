//! Partial sums over the ranks of an axis, until they are reduced (DTensor's `Partial` placement).

use std::marker::PhantomData;
use std::panic::Location;

use crate::autograd::{Value, tensor_parallel};
use crate::layout::{Axis, AxisGroup, Dims, SplitDim};
use meshwright_comm::Site;

use super::{InFlight, Tensor};

/// This rank's partial sum over the ranks of `A`; the sum is shaped `S`. It is not a value: only linear operations
/// compile until `.all_reduce()` or `.reduce_scatter(Dim)` makes a [`Tensor`] of it.
#[must_use = "a partial sum is not a value yet: `.all_reduce()` or `.reduce_scatter(Dim)` it"]
pub struct Partial<S, A> {
    value: Value,
    site: Site,
    shape: PhantomData<(S, A)>,
}

impl<S: Dims, A: AxisGroup> Partial<S, A> {
    /// Returns the sum over the axis, on every rank of it: all-reduce forward, identity backward.
    ///
    /// Shape: a partial sum `S -> S`.
    #[track_caller]
    pub fn all_reduce(self) -> Tensor<S> {
        let site = self.site.at_location(Location::caller());
        Tensor::from_untyped(tensor_parallel::all_reduce(self.value, A::AXES, &site))
    }

    /// [`all_reduce`](Self::all_reduce) in the background: the tensor arrives with `.wait()`.
    ///
    /// Shape: a partial sum `S -> S`, in flight.
    #[track_caller]
    pub fn start_all_reduce(self) -> InFlight<Tensor<S>> {
        let site = self.site.at_location(Location::caller());
        InFlight::all_reduce(self.value, A::AXES, &site)
    }

    /// Returns the sum over the axis with `dim` split over it: reduce-scatter forward, all-gather backward.
    ///
    /// Shape: a partial sum `[.., D, ..] -> [.., Split<D, A>, ..]`.
    #[track_caller]
    pub fn reduce_scatter<D, P>(self, dim: D) -> Tensor<D::Out>
    where
        A: Axis,
        D: SplitDim<S, A, P>,
    {
        let _: D = dim;
        let site = self.site.at_location(Location::caller());
        Tensor::from_untyped(tensor_parallel::reduce_scatter(&self.value, A::ID, D::DIM, &site))
    }

    /// [`reduce_scatter`](Self::reduce_scatter) in the background: the tensor arrives with `.wait()`.
    ///
    /// Shape: a partial sum `[.., D, ..] -> [.., Split<D, A>, ..]`, in flight.
    #[track_caller]
    pub fn start_reduce_scatter<D, P>(self, dim: D) -> InFlight<Tensor<D::Out>>
    where
        A: Axis,
        D: SplitDim<S, A, P>,
    {
        let _: D = dim;
        let site = self.site.at_location(Location::caller());
        InFlight::reduce_scatter(&self.value, A::ID, D::DIM, &site)
    }

    pub(crate) fn from_untyped(value: Value, site: Site) -> Partial<S, A> {
        const {
            assert!(
                S::VARIES.intersection(A::AXES).is_empty(),
                "the ranks of an axis hold different parts of this dim and cannot sum over it: gather the dim that the \
                 axis distributes first"
            );
        }
        Partial { value, site, shape: PhantomData }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }
}

impl<S: Dims, A: AxisGroup> std::fmt::Debug for Partial<S, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = S::DIMS.iter().map(ToString::to_string).collect();
        write!(f, "Partial(({}) over {})", dims.join(", "), A::AXES)
    }
}

/// Never implemented: a partial sum that could be used as a value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a partial sum, not a value yet",
    label = "reduce it first: `.all_reduce()` or `.reduce_scatter(Dim)`",
    note = "`f(a) + f(b)` is not `f(a + b)`: the ranks' partial sums must be reduced first"
)]
pub trait NotAValue {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! non_linear {
    ($($name:ident)*) => {
        /// Non-linear functions, which never compile for a partial sum; their messages explain why.
        #[allow(missing_docs, reason = "each says in its bound that it cannot be called")]
        impl<S: Dims, A: AxisGroup> Partial<S, A> {$(
            #[doc(hidden)]
            pub fn $name(&self) -> Tensor<S>
            where
                Self: NotAValue,
            {
                Self::never_implemented()
            }
        )*}
    };
}

non_linear! {
    silu gelu gelu_tanh relu sigmoid softplus tanh exp log sqrt rsqrt recip square abs sin cos softmax log_softmax
    across
}

macro_rules! one_argument {
    ($($name:ident)*) => {
        /// Functions with one argument, which never compile for a partial sum; their messages explain why.
        #[allow(missing_docs, reason = "each says in its bound that it cannot be called")]
        impl<S: Dims, A: AxisGroup> Partial<S, A> {$(
            #[doc(hidden)]
            pub fn $name<T>(&self, _: T) -> Tensor<S>
            where
                Self: NotAValue,
            {
                Self::never_implemented()
            }
        )*}
    };
}

one_argument! { max min var norm log_sum_exp softmax_over log_softmax_over maximum minimum gt ge lt le eq ne }

/// Functions with arguments, and reads, which never compile for a partial sum.
impl<S: Dims, A: AxisGroup> Partial<S, A> {
    #[doc(hidden)]
    pub fn clamp(&self, _: f32, _: f32) -> Tensor<S>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn pow(&self, _: f32) -> Tensor<S>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn with_auxiliary_loss<T>(&self, _: &T) -> Tensor<S>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn to_vec(&self) -> Vec<f32>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn to_local_vec(&self) -> Vec<f32>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn gather_to_vec(&self) -> Vec<f32>
    where
        Self: NotAValue,
    {
        Self::never_implemented()
    }
}

/// Never implemented: a tensor that could be reduced over the ranks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a partial sum: it is complete on every rank already",
    label = "another sum would count it once per rank",
    note = "only a `Partial`, the result of a contraction or sum over a split dim, is reduced"
)]
pub trait StillPartial {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Reductions, which never compile for a tensor, because it is complete; their messages explain why.
impl<S: Dims> Tensor<S> {
    #[doc(hidden)]
    pub fn all_reduce(&self) -> Tensor<S>
    where
        Self: StillPartial,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn reduce_scatter<D>(&self, _: D) -> Tensor<S>
    where
        Self: StillPartial,
    {
        Self::never_implemented()
    }
}
