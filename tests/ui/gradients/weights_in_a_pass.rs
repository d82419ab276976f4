//! Weighted losses of forward passes are divided by the counts of the step.

use meshwright::prelude::*;
use meshwright::tensor::ForwardPass;

dims! { Batch @ data, Hidden }

type Row = Tensor<(Batch, Hidden)>;

fn add(pass: &mut ForwardPass<Row, Row>, y: &Row) {
    pass.add_loss(y, |y| Loss::mean_of(y).weighted(1.0) + Loss::mean_of(&y.square()).weighted(0.1));
}

fn add_tensor(pass: &mut ForwardPass<Row, Row>, y: &Row) {
    pass.add_loss(y, |y| y.square());
}

fn main() {}
