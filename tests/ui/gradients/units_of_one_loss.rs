//! The units whose gradients are computed are those of all losses of a step.

use std::rc::Rc;

use meshwright::prelude::*;
use meshwright::tensor::{ForwardPass, Unit};

dims! { Batch @ data, Hidden }

type Row = Tensor<(Batch, Hidden)>;

fn of_the_last_micro_batch(x: &Row, units: &[Rc<Unit>]) {
    let last = Loss::mean_of(x).only(units);
    let _ = Loss::mean_of(x).accumulate().backward(last).reduce();
}

fn of_one_term(x: &Row, units: &[Rc<Unit>]) {
    let square = Loss::mean_of(&x.square()).weighted(0.1).only(units);
    let _ = (Loss::mean_of(x).weighted(1.0) + square).backward().reduce();
}

fn of_a_pass(pass: &mut ForwardPass<Row, Row>, y: &Row, units: &[Rc<Unit>]) {
    pass.add_loss(y, |y| Loss::mean_of(y).only(units));
}

fn main() {}
