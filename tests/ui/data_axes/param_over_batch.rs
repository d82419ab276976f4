//! A parameter that has a row for each sample.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

#[model]
struct Memory {
    rows: Param<(Batch, Hidden)>,
}

#[forward]
impl Memory {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
        x + &self.rows
    }
}

fn main() {}
