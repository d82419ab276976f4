//! The sign of a weighted sum is that of its weights.

use meshwright::prelude::*;
use meshwright::tensor::{Objective, Pending};

dims! { Batch @ data }

fn ascend(objective: Objective) -> Gradients<Pending> {
    (-objective).backward()
}

fn difference(objective: Objective, reward: Loss<(Batch,)>) -> Objective {
    objective + -reward.weighted(0.1)
}

fn main() {}
