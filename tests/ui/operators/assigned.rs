//! Assignments of a partial sum, of another split, of a number of 64 bits, and of values to partial sums.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Down {
    #[sharded(tp = "row")]
    weight: Param<(Ffn, Hidden)>,
}

#[forward]
impl Down {
    fn forward(&self, (x, h): &(Stream, Tensor<(Batch, Seq, Split<Ffn, Tp>)>)) -> Stream {
        let mut x = x.clone();
        x += h.contract(&self.weight);
        x
    }
}

fn residual(mut x: Stream, y: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Stream {
    x -= y;
    x
}

fn scaled(mut x: Stream, temperature: f64) -> Stream {
    x /= temperature;
    x
}

fn biased(mut sum: Partial<(Batch, Hidden), Tp>, bias: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
    sum += bias;
    sum.all_reduce()
}

fn gated(mut sum: Partial<(Batch, Hidden), Tp>, gate: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
    sum *= gate;
    sum.all_reduce()
}

fn main() {}
