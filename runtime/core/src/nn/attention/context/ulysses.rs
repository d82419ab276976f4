//! Context parallelism by exchange of heads: each rank gets some heads of the queries, keys and values of several ranks
//! (Jacobs et al. 2023, "DeepSpeed Ulysses"). Ranks that have the same heads form a ring (Fang and Zhao 2024, "USP").

use std::ops::Range;
use std::sync::Arc;

use meshwright_backend::{AttentionShape, Buffer, SequenceLayout, View, WeightDropout};

use super::super::score_operands::ScoreGradients;
use super::call::ContextCall;
use super::heads::{HeadExchange, HeadTensor};
use super::local::OutputGradient;
use super::ring::RingAttention;

/// One rank of those that exchange heads, consecutive members of the group of a call, in a ring with the others that
/// get the same heads.
///
/// If there are fewer key/value heads than ranks that exchange, several of them get the same ones.
pub(super) struct UlyssesAttention<'a> {
    exchange: HeadExchange<'a>,
    /// The call with the heads of this rank and the positions of all ranks that exchange.
    exchanged: ContextCall<'a>,
}

/// Operands and results of attention that a backward reads, with the heads of this rank and the positions of all ranks
/// that exchange.
pub(super) struct ExchangedAttention<B> {
    pub q: B,
    pub k: B,
    pub v: B,
    pub out: B,
    pub lse: B,
}

impl<'a> UlyssesAttention<'a> {
    /// Creates one rank's side of an exchange among `size` ranks, which divides the number of query heads.
    pub fn new(call: &'a ContextCall<'a>, size: usize) -> UlyssesAttention<'a> {
        debug_assert!(call.shape.heads.is_multiple_of(size), "query heads divide among ranks");
        let exchange = HeadExchange { call, size };
        let heads = query_heads(&call.shape, size, exchange.index());
        let kv_heads = read_heads(&call.shape, &heads);
        let positions = SequenceLayout::dense(call.shape.queries.len * size);
        let dropout = call.shape.dropout.map(|dropout| WeightDropout {
            first_head: dropout.first_head + heads.start,
            ..dropout
        });
        let shape = AttentionShape {
            queries: positions,
            keys: positions,
            heads: heads.len(),
            kv_heads: kv_heads.len(),
            first_head: call.shape.first_head + heads.start - kv_heads.start * call.shape.group,
            dropout,
            ..call.shape
        };
        let scores = call.scores.of_heads(heads);
        UlyssesAttention { exchange, exchanged: ContextCall { shape, scores, ..*call } }
    }

    /// Returns this rank's query heads, among the heads of the ranks that exchange.
    fn heads(&self) -> Range<usize> {
        query_heads(&self.exchange.call.shape, self.exchange.size, self.exchange.index())
    }

    /// Computes the output, and the values that a backward reads.
    pub fn forward(&self, q: View, k: View, v: View) -> (Buffer, ExchangedAttention<Buffer>) {
        let [q, k, v] = self.exchange.distribute([q, k, v], &self.qkv());
        let ring = RingAttention::new(&self.exchanged, self.exchange.size);
        let (out, lse) = ring.forward(q.view(), k.view(), v.view());
        let [own_out] = self.exchange.collect([out.view()], &self.out());
        (own_out, ExchangedAttention { q, k, v, out, lse })
    }

    /// Computes the gradients of queries, keys and values. The gradients of the scores' operands for this rank's heads
    /// are added to `dscores`, which has all heads.
    pub fn backward(
        &self,
        of: &ExchangedAttention<Arc<Buffer>>,
        dout: View,
        dscores: ScoreGradients,
    ) -> [Buffer; 3] {
        let [dout] = self.exchange.distribute([dout], &self.out());
        let ring = RingAttention::new(&self.exchanged, self.exchange.size);
        let (out, lse) = (of.out.view(), of.lse.view());
        let gradient = OutputGradient { q: of.q.view(), out, lse, dout: dout.view() };
        let dscores = dscores.of_heads(&self.exchange.call.scores, self.heads());
        let gradients = ring.backward(&gradient, of.k.view(), of.v.view(), dscores);
        self.exchange.collect(gradients.each_ref().map(Buffer::view), &self.qkv())
    }

    fn qkv(&self) -> [HeadTensor; 3] {
        let AttentionShape { head_dim, value_dim, .. } = self.exchange.call.shape;
        [self.query_tensor(head_dim), self.kv_tensor(head_dim), self.kv_tensor(value_dim)]
    }

    fn out(&self) -> [HeadTensor; 1] {
        [self.query_tensor(self.exchange.call.shape.value_dim)]
    }

    fn query_tensor(&self, dim: usize) -> HeadTensor {
        let (shape, size) = (&self.exchange.call.shape, self.exchange.size);
        let AttentionShape { batch, queries, heads, .. } = *shape;
        let of_rank = (0..size).map(|index| query_heads(shape, size, index)).collect();
        HeadTensor { batch, positions: queries.len, heads, dim, of_rank }
    }

    fn kv_tensor(&self, dim: usize) -> HeadTensor {
        let shape = &self.exchange.call.shape;
        let queries = self.query_tensor(dim);
        let of_rank = queries.of_rank.iter().map(|heads| read_heads(shape, heads)).collect();
        HeadTensor { heads: shape.kv_heads, of_rank, ..queries }
    }
}

/// Returns the query heads that rank `index` of `size` gets.
fn query_heads(shape: &AttentionShape, size: usize, index: usize) -> Range<usize> {
    let heads = shape.heads / size;
    index * heads..(index + 1) * heads
}

/// Returns the key/value heads that query heads read.
fn read_heads(shape: &AttentionShape, heads: &Range<usize>) -> Range<usize> {
    shape.kv_head(heads.start)..shape.kv_head(heads.end - 1) + 1
}
