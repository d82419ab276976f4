//! A penalty on parameters, as the mean over them.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

struct Penalty {
    weights: Vec<Param<(Hidden, Ffn)>>,
}

impl Penalty {
    fn losses(&self) -> Vec<Loss<(Hidden, Ffn)>> {
        self.weights.iter().map(|weight| Loss::mean_of(weight)).collect()
    }
}

fn main() {}
