//! A parameter in a struct, captured.

use meshwright::prelude::*;

dims! { Hidden }

struct Weights {
    gains: Vec<Param<(Hidden,)>>,
}

fn run(weights: Weights) -> meshwright::Result<Vec<usize>> {
    let run = move |_: &Rank| Ok(weights.gains.len());
    meshwright::run_on("tp=2", 0, run)
}

fn main() {}
