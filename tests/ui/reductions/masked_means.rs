//! Masked means along dims that ranks do not hold whole, sums that are not reduced, and masks that are split otherwise.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type SplitMask = Mask<(Batch, Split<Seq, Tp>)>;

fn split(x: &Stream, mask: &SplitMask) -> Tensor<(Batch, Hidden)> {
    x.mean_where(Seq, mask)
}

fn of_the_batch(x: &Tensor<(Batch, Hidden)>, mask: &Mask<(Batch,)>) -> Tensor<(Hidden,)> {
    x.mean_where(Batch, mask)
}

fn sum(x: &Stream, mask: &SplitMask) -> Tensor<(Batch, Hidden)> {
    x.sum_where(Seq, mask).tanh()
}

fn whole_mask(x: &Stream, mask: &Mask<(Batch, Seq)>) -> Tensor<(Batch, Hidden)> {
    x.across().mean_where(Seq, mask)
}

fn main() {}
