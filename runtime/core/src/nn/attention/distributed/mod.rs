//! Attention over a sequence that is distributed over ranks: its types, its build, and its application.

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::layout::{AxisId, AxisSet, Cp, OnEveryRank, Whole};
use crate::tensor::{Operand, Tensor, Value};
use meshwright_comm::Site;

use super::super::{Build, Builder, Shard};
use super::Attention;
use super::context::{ContextAttention, ContextParallel, TypedContextStyle};
use super::extras::{AttentionExtra, Extras};
use super::inputs::{AttentionCore, AttentionInputs};
use super::mask::AttentionMask;
use super::operands::{QueriesKeysValues, QueriesOf};
use super::score_operands::ScoreSources;

const CP: AxisSet = AxisSet::of(AxisId::Cp);

#[diagnostic::do_not_recommend]
impl<H, K, D, M, V, W> Shard<ContextParallel<Cp, W>> for Attention<H, K, D, M, V> {
    type Sharded = Attention<H, K, D, M, V, ContextParallel<Cp, W>>;
}

impl<H, K, D, M, V, W> Build for Attention<H, K, D, M, V, ContextParallel<Cp, W>>
where
    H: Whole<Home: OnEveryRank<H>>,
    K: Whole<Home: OnEveryRank<K>>,
    D: Whole<Home: OnEveryRank<D>>,
    V: Whole<Home: OnEveryRank<V>>,
    M: AttentionMask,
    W: TypedContextStyle,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let style = builder.context_style::<H, K>(W::STYLE);
        let core = AttentionCore {
            context: Some(style),
            ..AttentionCore::from_builder::<H, K, D, M, V>(builder)
        };
        Attention { core, kind: PhantomData }
    }
}

impl<X, Q, Keys, Values, H, K, D, M, V, W>
    QueriesKeysValues<H, K, D, M, V, ContextParallel<Cp, W>, (Q, Keys, Values)> for X
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape, ContextParallel<Cp, W>>>,
{
    type Out = Tensor<
        <Q::Shape as QueriesOf<
            H,
            D,
            K,
            M,
            V,
            Keys::Shape,
            Values::Shape,
            ContextParallel<Cp, W>,
        >>::Out,
    >;

    #[track_caller]
    fn attend(operands: &(Q, Keys, Values), core: &AttentionCore) -> Self::Out {
        let (q, k, v) = operands;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let extras = Extras::from_inputs(&inputs);
        Tensor::from_untyped(inputs.attend_distributed(extras))
    }
}

impl<X, Q, Keys, Values, E, H, K, D, M, V, W>
    QueriesKeysValues<H, K, D, M, V, ContextParallel<Cp, W>, (Q, Keys, Values, E)> for X
where
    Keys: Operand,
    Values: Operand,
    Q: Operand<Shape: QueriesOf<H, D, K, M, V, Keys::Shape, Values::Shape, ContextParallel<Cp, W>>>,
    E: AttentionExtra<Q::Shape, Keys::Shape>,
{
    type Out = Tensor<
        <Q::Shape as QueriesOf<
            H,
            D,
            K,
            M,
            V,
            Keys::Shape,
            Values::Shape,
            ContextParallel<Cp, W>,
        >>::Out,
    >;

    #[track_caller]
    fn attend(operands: &(Q, Keys, Values, E), core: &AttentionCore) -> Self::Out {
        let (q, k, v, extra) = operands;
        let inputs = AttentionInputs::new(core, q, k, v, Q::Shape::ENTRIES);
        let mut extras = Extras::from_inputs(&inputs);
        extra.add_to_extras(&mut extras);
        Tensor::from_untyped(inputs.attend_distributed(extras))
    }
}

impl AttentionInputs<'_> {
    /// Computes attention of queries along a sequence that the ranks of `cp` share. In cross attention each rank has
    /// all keys, so nothing is exchanged.
    #[track_caller]
    fn attend_distributed(&self, mut extras: Extras<'_>) -> Value {
        extras.find_documents(self);
        let rank = &self.rank;
        if rank.degree_of(CP) == 1 || self.is_cross() {
            return self.attend(extras);
        }
        let path = &self.core.path;
        let queries = self.queries.extents();
        let shape = self.shape();
        let style = self.core.context.expect("context-parallel attention has a style");
        let algorithm = style
            .algorithm(rank.degree_of(CP), shape.heads, shape.kv_heads)
            .unwrap_or_else(|problem| panic!("`{path}`: {problem}"));
        let (seq, chunks) = (queries[1].global, 2 * rank.degree_of(CP));
        assert!(
            seq.is_multiple_of(chunks),
            "`{path}`: a sequence of {seq} positions is not divisible into {chunks} chunks of equal length, two for \
             each rank of cp; use a multiple of {chunks}"
        );
        let Extras { visible, bias, sinks, .. } = extras;
        let (scores, params) = ScoreSources::new(bias, sinks);
        let attention = ContextAttention {
            site: Site::new(Arc::clone(path)).at_location(Location::caller()),
            axes: CP,
            shape,
            seq,
            visible,
            scores,
        };
        let extents = vec![queries[0], queries[1], queries[2], self.values.extents()[3]];
        let inputs = [self.queries, &self.keys, &self.values];
        attention.apply(algorithm, &self.rank, inputs, params, extents)
    }
}
