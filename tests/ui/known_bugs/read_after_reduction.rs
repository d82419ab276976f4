//! Aliasing: a reduction in place turns a local number into a global one under the old name.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, h: &Tensor<(Batch, Seq, Split<Ffn, Tp>)>) -> Tensor<(Batch, Seq, Hidden)> {
        let local = h.contract(&self.weight);
        let global = local.all_reduce();
        global + local.start_all_reduce().wait()
    }
}

fn main() {}
