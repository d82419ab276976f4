//! The weights of a weighted sum are given before its losses are added.

use meshwright::prelude::*;
use meshwright::tensor::{Objective, OfStep};

dims! { Batch @ data }

fn number_on_the_left(objective: Objective) -> Objective {
    2.0 * objective
}

fn number_on_the_right(objective: Objective, scale: f64) -> Objective {
    objective * scale
}

fn averaged(mut objective: Objective<OfStep>) -> Objective<OfStep> {
    objective /= 2.0;
    objective
}

fn difference(objective: Objective, penalty: Loss<(Batch,)>) -> Objective {
    objective - penalty.weighted(0.1)
}

fn subtracted(mut objective: Objective<OfStep>, other: Objective<OfStep>) -> Objective<OfStep> {
    objective -= other;
    objective
}

fn without_weight(mut objective: Objective, penalty: Loss<(Batch,)>) -> Objective {
    objective += penalty;
    objective
}

fn main() {}
