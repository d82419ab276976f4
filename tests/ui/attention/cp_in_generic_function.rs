//! Attention without a style in a function of any sequence, called with one that is distributed over `cp`.

use meshwright::nn::QueriesKeysValues;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

type Core = Attention<Heads, Heads, HeadDim>;
type Operand<S> = Tensor<(Batch, S, Heads, HeadDim)>;
type Operands<S> = (Operand<S>, Operand<S>, Operand<S>);

fn of_any<S: Dim>(core: &Core, x: Operand<S>) -> Operand<S> {
    core.forward(&(x.clone(), x.clone(), x))
}

fn of_fitting<S: Dim>(core: &Core, x: Operand<S>) -> Operand<S>
where
    Operands<S>: QueriesKeysValues<Heads, Heads, HeadDim, Causal, HeadDim, meshwright::nn::Plain, Out = Operand<S>>,
{
    core.forward(&(x.clone(), x.clone(), x))
}

fn call(core: &Core, x: Operand<Seq>) -> Operand<Seq> {
    of_fitting(core, x)
}

fn main() {}
