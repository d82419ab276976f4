//! Sums and means over a dim: a tensor if this rank holds all of the dim, else a partial sum.

use std::panic::Location;
use std::sync::Arc;

use crate::autograd::Value;
use crate::backend::MiddleDim;
use crate::comm::Site;
use crate::context::{elements_along, scope};
use crate::layout::{Cp, Data, Dims, Dp, Ep, Fsdp, Here, Internal, Pp, SumOver, Tp};
use crate::mesh::local_len;

use super::{Partial, Tensor};

/// Result of a sum over a dim: a [`Tensor`] if the home of the dim is [`Here`], else a [`Partial`] over its axes.
pub trait SumState<S> {
    /// The result.
    type Out;
    #[doc(hidden)]
    fn from_value(value: Value, site: Site, internal: Internal) -> Self::Out;
}

impl<S: Dims> SumState<S> for Here {
    type Out = Tensor<S>;

    fn from_value(value: Value, _: Site, _: Internal) -> Tensor<S> {
        Tensor::wrap(value)
    }
}

macro_rules! partial_over {
    ($($axis:ident),*) => {$(
        impl<S: Dims> SumState<S> for $axis {
            type Out = Partial<S, $axis>;

            fn from_value(value: Value, site: Site, _: Internal) -> Partial<S, $axis> {
                Partial::wrap(value, site)
            }
        }
    )*};
}

partial_over! { Data, Pp, Dp, Fsdp, Ep, Cp, Tp }

type Summed<S, D, P> =
    <<S as SumOver<D, P>>::PartialOver as SumState<<S as SumOver<D, P>>::Left>>::Out;

impl<S: Dims> Tensor<S> {
    /// Returns the sum over `dim`: a partial sum if the dim is split, or distributed by declaration.
    #[track_caller]
    pub fn sum<D, P>(&self, dim: D) -> Summed<S, D, P>
    where
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let _: D = dim;
        let site = Site::new(scope::current_or("Tensor::sum")).at(Location::caller());
        <S::PartialOver as SumState<S::Left>>::from_value(
            sum(self.value(), S::DIM, 1.0),
            site,
            Internal::new(),
        )
    }

    /// Returns the mean over all of `dim`, across ranks: a partial sum if the dim is split, or distributed by declaration.
    ///
    /// Over the rows of a batch it is the mean of the micro-batch that the tensor is computed from: of its rows on all
    /// ranks.
    #[track_caller]
    pub fn mean<D, P>(&self, dim: D) -> Summed<S, D, P>
    where
        S: SumOver<D, P>,
        S::PartialOver: SumState<S::Left>,
    {
        let _: D = dim;
        let site = Site::new(scope::current_or("Tensor::mean")).at(Location::caller());
        let (info, extent) = (&S::DIMS[S::DIM], &self.local_extents()[S::DIM]);
        let factor = 1.0 / elements_along(info, extent, self.rank(), &site) as f32;
        <S::PartialOver as SumState<S::Left>>::from_value(
            sum(self.value(), S::DIM, factor),
            site,
            Internal::new(),
        )
    }
}

/// Returns `factor` times the sum over this rank's part of dim `dim`.
fn sum(x: &Value, dim: usize, factor: f32) -> Value {
    let rank = x.rank();
    let (before, rest) = x.extents().split_at(dim);
    let (summed, after) = (rest[0], &rest[1..]);
    let (outer, n, inner) = (local_len(before), summed.local, local_len(after));
    let ready = x.compute();
    let mut out = rank.alloc(outer * inner);
    rank.backend().sum_dim(
        MiddleDim { outer, len: n, inner },
        ready.data.view(),
        out.view_mut(),
        factor,
    );
    let node = ready.node.map(|source| {
        rank.tape().record(move |gradients, dy| {
            let mut dx = gradients.rank.alloc(outer * n * inner);
            gradients.rank.backend().broadcast_dim(
                MiddleDim { outer, len: n, inner },
                dy.view(),
                dx.view_mut(),
                factor,
            );
            gradients.add(&source, Arc::new(dx));
        })
    });
    Value::ready(rank, [before, after].concat(), out, node)
}

/// Returns the sum of all elements on this rank, in f32.
#[track_caller]
pub(super) fn sum_of_elements(x: &Value) -> Value {
    let rank = x.rank();
    let ready = x.compute();
    let len = ready.data.len();
    let mut sum = rank.stats(1);
    rank.backend().sum_dim(
        MiddleDim { outer: 1, len, inner: 1 },
        ready.data.view(),
        sum.view_mut(),
        1.0,
    );
    let node = ready.node.map(|source| {
        rank.tape().record(move |gradients, dy| {
            let mut dx = gradients.rank.alloc(len);
            gradients.rank.backend().broadcast_dim(
                MiddleDim { outer: 1, len, inner: 1 },
                dy.view(),
                dx.view_mut(),
                1.0,
            );
            gradients.add(&source, Arc::new(dx));
        })
    });
    Value::ready(rank, Vec::new(), sum, node)
}
