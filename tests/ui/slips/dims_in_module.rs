//! The dims of a module are printed without its path, as no public type of the library has their names.

mod model {
    use meshwright::prelude::*;

    dims! { Batch @ data, Seq, Hidden, Ffn, Heads, HeadDim, KvHeads, Vocab }

    #[model]
    pub struct Mlp {
        up: Linear<Hidden, Ffn>,
        down: Linear<Ffn, Hidden>,
    }

    #[forward]
    impl Mlp {
        pub fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
            self.down.forward(&self.down.forward(&self.up.forward(x)))
        }
    }
}

fn main() {}
