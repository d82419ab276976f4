//! A parameter as the input of a layer of generic type, in a helper.

use meshwright::nn::NormInput;
use meshwright::tensor::Operand;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn apply<T: Operand>(norm: &LayerNorm<Hidden>, x: &T) -> Tensor<T::Shape>
where
    T::Shape: NormInput<Hidden>,
{
    norm.forward(x)
}

fn normed(norm: &LayerNorm<Hidden>, gain: &Param<(Hidden,)>) -> Tensor<(Hidden,)> {
    apply(norm, gain)
}

fn main() {}
