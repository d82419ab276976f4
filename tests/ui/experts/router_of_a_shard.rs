//! A router that reads a shard of the features.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Experts, TopK }

fn route(router: &Router<Hidden, Experts, TopK>, x: &Tensor<(Batch, Split<Hidden, Tp>)>) {
    let _ = router.forward(x);
}

fn main() {}
