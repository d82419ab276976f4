//! Dispatch of a shard of each token's features: the weights' gradients would be partial sums.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts, TopK }

fn dispatched(
    routing: &TokenRouting<(Batch,), Experts, TopK>,
    x: &Tensor<(Batch, Split<Hidden, Tp>)>,
) {
    let _ = routing.dispatch(x, Ep);
}

fn main() {}
