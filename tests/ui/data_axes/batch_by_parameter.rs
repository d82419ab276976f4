//! A trainer for a family of models over a batch of any home.

use meshwright::layout::BatchDim;
use meshwright::prelude::*;

dims! { Batch @ dp, Seq, Hidden }

fn train<M: LanguageModel<Batch = B, Seq = Seq>, B: BatchDim>(
    model: &M,
    tokens: &Tokens<(B, Seq)>,
) -> Loss<(B, Seq)> {
    model.loss(tokens, tokens)
}

fn step<M: LanguageModel<Seq = Seq>>(model: &M, tokens: &Tokens<(Batch, Seq)>)
where
    M: LanguageModel<Batch = Batch>,
{
    train::<M, Batch>(model, tokens).backward().discard();
}

fn main() {}
