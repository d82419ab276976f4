//! A struct with `#[pipeline_stage]` whose output cannot cross.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Up = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;

#[model]
#[pipeline_stage]
struct Front {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Front {
    fn forward(&self, x: &Up) -> Partial<(Batch, Seq, Hidden), Tp> {
        x.contract(&self.weight)
    }
}

fn main() {}
