//! Layers that a helper builds, one for each of several names.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

struct Norms {
    norms: Vec<RmsNorm<Seq>>,
}

impl Build for Norms {
    fn build(builder: &mut Builder<'_>) -> Self {
        let names = ["first", "second"];
        Norms { norms: names.iter().map(|name| Build::build(&mut builder.field(name))).collect() }
    }
}

impl Norms {
    fn forward(&self, x: &Tensor<(Hidden, Seq)>) -> Tensor<(Hidden, Seq)> {
        self.norms.iter().fold(x.clone(), |x, norm| norm.forward(&x))
    }
}

fn main() {}
