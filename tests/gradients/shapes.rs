//! Products of two tensors and operations on shapes against finite differences.

use meshwright::dims;
use meshwright::tensor::{Index, Tensor};

use super::{
    Batch, Ffn, HeadDim, Heads, Hidden, KvHeads, Memory, Operation, Seq, Stream, Vocab, probe,
};

dims! {
    /// Another name of the input dim.
    Other,
    /// A part of a dim.
    Front,
    /// The rest of a dim.
    Back,
    /// All samples.
    Everyone,
}

/// Returns the input in heads, `(Batch, Seq, Heads, HeadDim)` with 3 heads of 2.
fn heads(x: &Stream) -> Tensor<(Batch, Seq, Heads, HeadDim)> {
    x.part(Hidden, (Heads, HeadDim), 2)
}

pub(super) const SHAPES: &[Operation] = &[
    ("permute", |_, x, y| {
        probe(
            &(heads(x).permute((HeadDim, Seq, Batch, Heads)).square() * {
                heads(y).permute((HeadDim, Seq, Batch, Heads))
            }),
        )
    }),
    ("rename", |_, x, y| probe(&((x * y).rename(Hidden, Other).tanh() * x.rename(Hidden, Other)))),
    ("join and part", |_, x, y| {
        let z = heads(&(x * y)).join((Heads, HeadDim), Hidden) + x;
        probe(&z.join((Seq, Hidden), Memory).square())
    }),
    ("range and pad", |_, x, y| {
        let z = (x * y).range(Hidden, 1..4, Front).pad(Front, 1, 2, Hidden);
        probe(&(z * x + x.range(Seq, 0..0, Memory).pad(Memory, 0, 5, Seq)))
    }),
    ("cut", |_, x, y| {
        let (front, middle, back) = x.cut(Hidden, (Front, Other, Back), [2, 3]);
        let (first, _) = y.cut(Hidden, (Front, Back), [2]);
        let z = (front * first).concat(&middle.square(), (Front, Other), Vocab);
        probe(&z.concat(&back, (Vocab, Back), Hidden))
    }),
    ("concat of one with itself", |_, x, y| {
        probe(&(x * y).concat(&(x * y), (Hidden, Hidden), Other).square())
    }),
    ("concat along the first dims", |_, x, y| {
        probe(&x.concat(&y.range(Seq, 1..3, Memory), (Seq, Memory), Vocab).square())
    }),
    ("select", |_, x, y| {
        probe(&((x * y).select(Hidden, 5) + x.select(Hidden, 0) * y.select(Hidden, 2)))
    }),
    ("select a sample", |_, x, y| probe(&(x * y).select(Batch, 0).all_reduce().square())),
    ("expand", |_, x, y| {
        let z = x.select(Seq, 1).expand_as(Seq, y) * y;
        probe(&(z.expand(Other, 3).select(Other, 1) + z.expand(Other, 2).sum(Other)))
    }),
    ("dot", |_, x, y| {
        let z = heads(x).dot(&heads(y).rename(Seq, Memory), HeadDim, (Batch, Heads)).softmax();
        probe(&z.dot(&heads(y).rename(Seq, Memory), Memory, (Batch, Heads)))
    }),
    ("dot of one with itself", |_, x, _| probe(&x.dot(&x.rename(Seq, Memory), Hidden, (Batch,)))),
    ("dot over a pair", |_, x, y| {
        probe(&heads(x).dot(
            &heads(y).permute((HeadDim, Batch, Heads, Seq)),
            (Heads, HeadDim),
            (Seq, Batch),
        ))
    }),
    ("dot over samples", |_, x, y| {
        let (x, y) = (x.join((Seq, Hidden), Front), y.select(Seq, 3));
        probe(&x.dot(&y.rename(Hidden, Ffn), Batch, ()).all_reduce())
    }),
    ("dot whose operands are copied", |_, x, y| {
        let (a, b) =
            (heads(x).permute((Seq, HeadDim, Batch, Heads)), heads(y).rename(HeadDim, KvHeads));
        probe(&a.dot(&b.permute((Heads, KvHeads, Seq, Batch)), Seq, (Heads, Batch)))
    }),
    ("gather_as", |_, x, y| {
        let all = (x * y).gather_as(Batch, Everyone);
        probe(&x.dot(&all, Hidden, (Seq,)))
    }),
    ("elements by their index", |_, x, y| {
        let index = Index::<Hidden, (Seq, Memory)>::from_fn(x.rank(), &[5, 2], 6, |at| {
            (at[0] + 4 * at[1]) % 6
        });
        let taken = (x * y).take(&index, (Seq,));
        probe(
            &(taken.square().scatter_add(&index, Memory, (Seq,))
                + x.permute((Seq, Hidden, Batch)).square()),
        )
    }),
    ("the largest elements", |_, x, y| {
        // Far apart, so that the differences do not change the order.
        let apart: Stream =
            Tensor::from_fn(x.rank(), &x.sizes(), |at| (at[1] * 7 % 5) as f32 * 8.0);
        let z = x + apart;
        let (values, _) = z.top_k(Seq, 3, Memory);
        let (_, rows) = z.select(Hidden, 1).top_k(Seq, 2, Vocab);
        let values = values * 0.1;
        let values = values.square() + y.range(Seq, 1..4, Memory);
        probe(&(values.select(Memory, 1) + y.take(&rows, (Batch,)).select(Vocab, 1)))
    }),
    ("running sums", |_, x, y| probe(&(x.cumsum(Seq) * y.square().cumsum(Hidden)))),
];
