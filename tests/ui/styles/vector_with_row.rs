//! A vector of parameters as row-parallel: it has no dim that it reads.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

#[model]
struct Gate {
    #[sharded(tp = "row")]
    gain: Param<(Hidden,)>,
}

fn main() {}
