//! A generic function that dispatches over an axis of its caller.

use meshwright::layout::SplitAxes;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts, TopK }

type ExpertTokens<A> = Tensor<(Routed<(Batch,), Split<Experts, A>>, Hidden)>;

fn rows<A: SplitAxes>(
    router: &Router<Hidden, Experts, TopK>,
    x: &Tensor<(Batch, Hidden)>,
    axes: A,
) -> ExpertTokens<A> {
    router.forward(x).dispatch(x, axes)
}

fn main() {}
