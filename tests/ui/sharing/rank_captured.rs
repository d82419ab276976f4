//! The rank of one run, captured by another.

use meshwright::prelude::*;

dims! { Hidden }

fn run(outer: &Rank) -> meshwright::Result<Vec<usize>> {
    meshwright::run_on("tp=2", 0, |_| Ok(outer.degree(meshwright::layout::AxisId::Tp)))
}

fn main() {}
