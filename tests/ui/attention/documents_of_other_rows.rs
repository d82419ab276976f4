//! Documents of another sequence than that of queries and keys.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Heads, HeadDim }

fn attend(
    core: &Attention<Heads, Heads, HeadDim>,
    documents: Documents<(Batch, Memory)>,
    x: Tensor<(Batch, Seq, Heads, HeadDim)>,
) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    core.forward(&(x.clone(), x.clone(), x, documents))
}

fn main() {}
