//! Documents of the queries' rows in cross attention, and documents together with padding.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Heads, HeadDim }

type OnAll<S> = Tensor<(Batch, S, Heads, HeadDim)>;

fn across(
    core: &Attention<Heads, Heads, HeadDim, Bidirectional>,
    documents: &Documents<(Batch, Seq)>,
    q: OnAll<Seq>,
    kv: OnAll<Memory>,
) -> OnAll<Seq> {
    core.forward(&(q, kv.clone(), kv, documents))
}

fn twice(
    core: &Attention<Heads, Heads, HeadDim>,
    documents: &Documents<(Batch, Seq)>,
    padding: &Padding<(Batch, Seq)>,
    x: OnAll<Seq>,
) -> OnAll<Seq> {
    core.forward(&(x.clone(), x.clone(), x, (documents, padding)))
}

fn main() {}
