//! Only a split dim can be gathered.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Plain = Tensor<(Batch, Seq, Hidden)>;
type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct ToPlain {}

#[forward]
impl ToPlain {
    fn forward(&self, x: &Sequence) -> Plain {
        x.gather(Seq).gather(Seq)
    }
}

fn main() {}
