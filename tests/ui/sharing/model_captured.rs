//! A model that one rank has built, used by all ranks of another run.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

#[model]
struct Scaled {
    gain: Param<(Hidden,)>,
    norm: RmsNorm<Hidden>,
}

fn run(model: &Scaled) -> meshwright::Result<Vec<usize>> {
    meshwright::run_on("tp=2", 0, |_| Ok(model.gain.handle().global_len()))
}

fn main() {}
