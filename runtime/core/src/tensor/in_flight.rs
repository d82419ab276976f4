//! Results of asynchronous collectives.

use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};
use std::rc::Rc;
use std::sync::Arc;

use crate::autograd::tensor_parallel::{self, ShardedDim};
use crate::autograd::{CheckpointedSegment, NodeId, Value};
use crate::context::{Rank, fail, scope};
use crate::layout::{Axis, AxisId, AxisSet, Dims, GatherDim};
use meshwright_backend::Buffer;
use meshwright_comm::{PendingCall, ReduceOp, Site};

use super::Tensor;

/// Result of an asynchronous collective, which exists only after [`wait`](InFlight::wait).
#[must_use = "the tensor exists only after `.wait()`"]
pub struct InFlight<T> {
    arrive: Box<dyn FnOnce() -> Value>,
    result: PhantomData<T>,
}

/// Records the result of a collective over a dim of a value that the operation of the node has made, in a checkpointed
/// segment, if any.
type RecordArrival =
    fn(&Rank, ShardedDim, Buffer, Option<NodeId>, Option<Rc<CheckpointedSegment>>) -> Value;

impl<S: Dims> InFlight<Tensor<S>> {
    /// Waits for the collective; the other ranks of the axis must issue it too.
    ///
    /// Shape: `S` in flight `-> S`.
    pub fn wait(self) -> Tensor<S> {
        Tensor::from_untyped((self.arrive)())
    }

    pub(crate) fn all_reduce(value: Value, axes: AxisSet, site: &Site) -> Self {
        let rank = value.rank().clone();
        let extents = value.extents().to_vec();
        let group = rank.process_group(axes);
        if group.size() == 1 {
            let value = value.unchanged_computed();
            return InFlight::new(|| value);
        }
        let segment = value.segment_of_result();
        let (data, node) = value.into_unique();
        let pending = group.start_all_reduce(site, ReduceOp::Sum, data);
        InFlight::new(move || {
            let data = pending.wait().unwrap_or_else(|error| fail(error));
            Value::ready(&rank, extents, data, node, segment)
        })
    }

    pub(crate) fn reduce_scatter(value: &Value, axis: AxisId, dim: usize, site: &Site) -> Self {
        let (start, record) = (ShardedDim::start_reduce_scatter, tensor_parallel::record_shard);
        InFlight::over_dim(value, axis, dim, site, start, record)
    }

    pub(crate) fn gather(value: &Value, axis: AxisId, dim: usize, site: &Site) -> Self {
        let (start, record) = (ShardedDim::start_all_gather, tensor_parallel::record_gathered);
        InFlight::over_dim(value, axis, dim, site, start, record)
    }

    /// Starts a collective over a dim of `value`, and records its result when it has arrived.
    fn over_dim(
        value: &Value,
        axis: AxisId,
        dim: usize,
        site: &Site,
        start: fn(&ShardedDim, &Rank, &Arc<Buffer>) -> PendingCall,
        record: RecordArrival,
    ) -> Self {
        let rank = value.rank().clone();
        if rank.degree(axis) == 1 {
            let value = value.unchanged_computed();
            return InFlight::new(|| value);
        }
        let dim = ShardedDim::new(&rank, value.extents(), axis, dim, site);
        let ready = value.compute();
        let pending = start(&dim, &rank, &ready.data);
        let segment = value.segment_of_result();
        InFlight::new(move || {
            let data = pending.wait().unwrap_or_else(|error| fail(error));
            record(&rank, dim, data, ready.node, segment)
        })
    }

    fn new(arrive: impl FnOnce() -> Value + 'static) -> Self {
        InFlight { arrive: Box::new(arrive), result: PhantomData }
    }
}

impl<S: Dims> Tensor<S> {
    /// [`gather`](Self::gather) in the background: the tensor arrives with `.wait()`.
    ///
    /// Shape: `[.., Split<D, A>, ..] -> [.., D, ..]`, in flight.
    #[track_caller]
    pub fn start_gather<D, P>(&self, dim: D) -> InFlight<Tensor<D::Out>>
    where
        D: GatherDim<S, P>,
    {
        let _: D = dim;
        let site = Site::here(scope::current_or("Tensor::start_gather"));
        InFlight::gather(self.value(), <D::Axis as Axis>::ID, D::DIM, &site)
    }
}

/// Never implemented: a result in flight that could be used.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is still in flight",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait UsedBeforeWait {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! after_wait {
    ($($name:ident)*) => {
        /// Methods that never compile, because the result is still in flight; their messages explain why.
        #[allow(missing_docs, reason = "each says in its bound that it cannot be called")]
        impl<S: Dims> InFlight<Tensor<S>> {$(
            #[doc(hidden)]
            pub fn $name(&self) -> Tensor<S>
            where
                Self: UsedBeforeWait,
            {
                Self::never_implemented()
            }
        )*}
    };
}

after_wait! {
    silu gelu gelu_tanh relu sigmoid softplus tanh exp log sqrt rsqrt recip square abs sin cos softmax log_softmax
    across
}

macro_rules! one_argument_after_wait {
    ($($name:ident)*) => {
        /// Functions with one argument that never compile, because the result is still in flight; their messages
        /// explain why.
        #[allow(missing_docs, reason = "each says in its bound that it cannot be called")]
        impl<S: Dims> InFlight<Tensor<S>> {$(
            #[doc(hidden)]
            pub fn $name<T>(&self, _: T) -> Tensor<S>
            where
                Self: UsedBeforeWait,
            {
                Self::never_implemented()
            }
        )*}
    };
}

one_argument_after_wait! {
    max min var norm log_sum_exp softmax_over log_softmax_over maximum minimum gt ge lt le eq ne
}

/// Functions with arguments, and reads, that never compile, because the result is still in flight.
impl<S: Dims> InFlight<Tensor<S>> {
    #[doc(hidden)]
    pub fn clamp(&self, _: f32, _: f32) -> Tensor<S>
    where
        Self: UsedBeforeWait,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn pow(&self, _: f32) -> Tensor<S>
    where
        Self: UsedBeforeWait,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn to_vec(&self) -> Vec<f32>
    where
        Self: UsedBeforeWait,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn to_local_vec(&self) -> Vec<f32>
    where
        Self: UsedBeforeWait,
    {
        Self::never_implemented()
    }

    #[doc(hidden)]
    pub fn gather_to_vec(&self) -> Vec<f32>
    where
        Self: UsedBeforeWait,
    {
        Self::never_implemented()
    }
}

/// Never implemented: an operand of a result in flight.
#[diagnostic::on_unimplemented(
    message = "`{Left}` is still in flight",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait Awaited<Left> {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

/// Never implemented: a result in flight as an operand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is still in flight",
    label = "`.wait()` for it first",
    note = "start the collective early, do other work, and call `.wait()` where its result is needed"
)]
pub trait Arrived {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! operators_after_wait {
    ($($operator:ident $method:ident;)*) => {$(
        /// Never applies; the message of its bound explains the fix.
        impl<T, R: Awaited<InFlight<T>>> $operator<R> for InFlight<T> {
            type Output = T;

            fn $method(self, _: R) -> T {
                R::never_implemented()
            }
        }
    )*};
}

operators_after_wait! {
    Add add;
    Sub sub;
    Mul mul;
}
