//! Two dims of one tensor cannot be split over the same axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Plain = Tensor<(Batch, Seq, Hidden)>;
type Sequence = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Cut {}

#[forward]
impl Cut {
    fn forward(&self, x: &Plain) -> Tensor<(Batch, Split<Seq, Tp>, Split<Hidden, Tp>)> {
        x.slice(Hidden, Tp).slice(Seq, Tp)
    }
}

fn main() {}
