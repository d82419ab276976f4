//! Masks by global positions along two dims, such as those of queries and keys.

use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, Not};

use crate::autograd::{Binary, Pointwise, Unary, Value};
use crate::context::block_index;
use crate::layout::{Dims, HasDim, Whole, refuse_routed};
use meshwright_backend::{Comparison, LeafPositions, UnaryFunction};
use meshwright_mesh::Extent;

use super::Tensor;
use super::documents_along::InRows;
use super::mask::{Mask, MaskOf, select};
use super::typed::note_number;

/// A mask by the global positions along dims `Q` and `K`, or by their documents, for tensors with these dims in any
/// order, whole, split or distributed: `Mask::causal(Seq, Keys)`. It is computed where it is read, and never stored.
///
/// `&`, `|` and `!` combine masks by the positions along the same dims; [`over`](Self::over) makes a [`Mask`] of one.
#[derive(Debug, Clone)]
pub struct PositionMask<Q, K> {
    rule: Rule,
    dims: PhantomData<(Q, K)>,
}

/// The rule for a query and a key.
#[derive(Debug, Clone)]
enum Rule {
    /// The key is not behind the query.
    Causal,
    /// Their distance is less than a number.
    Near(usize),
    /// They are in one document.
    SameDocument,
    Not(Box<Rule>),
    Both(Box<[Rule; 2]>),
    Either(Box<[Rule; 2]>),
}

impl Mask<()> {
    /// Returns the mask of the positions along `K` that are not behind the position along `Q`: what a causal attention
    /// sees. True for a key at the position of the query, too.
    ///
    /// ```
    /// # use meshwright::prelude::*;
    /// # dims! { Batch @ data, Heads, Seq, Keys }
    /// fn masked(scores: &Tensor<(Batch, Heads, Seq, Keys)>) -> Tensor<(Batch, Heads, Seq, Keys)> {
    ///     scores.masked(&Mask::causal(Seq, Keys), f32::NEG_INFINITY)
    /// }
    /// ```
    pub fn causal<Q: Whole, K: Whole>(queries: Q, keys: K) -> PositionMask<Q, K> {
        let (_, _) = (queries, keys);
        PositionMask::of_rule(Rule::Causal)
    }

    /// Returns the mask of the positions along `K` at a distance of less than `size` from the position along `Q`, on
    /// either side. A causal window of `size` keys, with that of the query, is `Mask::causal(Q, K) & Mask::window(Q, K,
    /// size)`.
    ///
    /// # Panics
    /// If `size` is 0.
    #[track_caller]
    pub fn window<Q: Whole, K: Whole>(queries: Q, keys: K, size: usize) -> PositionMask<Q, K> {
        let (_, _) = (queries, keys);
        assert!(
            size > 0,
            "`Mask::window` of 0 positions: a window holds at least that of the query"
        );
        PositionMask::of_rule(Rule::Near(size))
    }

    /// Returns the mask of the positions along `K` that are in the same document as the position along `Q`: what an
    /// attention sees of rows of [several documents](super::Tokens::with_documents). They are those of the tokens that
    /// the masked tensor is computed from; without documents, each row is one.
    ///
    /// `Q` is the sequence of the tokens, and `K` the whole of it under another name. A mask of a causal attention
    /// within documents is `Mask::causal(Q, K) & Mask::documents(Q, K)`. Numbers of documents are copied to the device
    /// in each step, which is then not captured as a CUDA graph.
    ///
    /// # Panics
    /// Where it is used, if the tokens have documents, but not along `Q` of the masked tensor, or if the tensor lacks
    /// the dim of their samples.
    pub fn documents<Q: Whole, K: Whole>(queries: Q, keys: K) -> PositionMask<Q, K> {
        let (_, _) = (queries, keys);
        PositionMask::of_rule(Rule::SameDocument)
    }
}

impl<Q, K> PositionMask<Q, K> {
    fn of_rule(rule: Rule) -> PositionMask<Q, K> {
        PositionMask { rule, dims: PhantomData }
    }

    /// Returns the mask for tensors shaped like `x`, of its sizes.
    #[track_caller]
    pub fn over<S: Dims + HasDim<Q, P> + HasDim<K, R>, P, R>(&self, x: &Tensor<S>) -> Mask<S> {
        const { refuse_routed::<S>() };
        let dims = [<S as HasDim<Q, P>>::DIM, <S as HasDim<K, R>>::DIM];
        let pointwise = self.pointwise::<S>(InRows::of(x), dims);
        Mask::from_untyped(Value::deferred(x.rank(), x.local_extents().to_vec(), pointwise))
    }

    /// Returns the mask for a tensor shaped `S`, with the positions of queries and keys along `dims`.
    #[track_caller]
    fn pointwise<S: Dims>(&self, tensor: InRows<'_>, dims: [usize; 2]) -> Pointwise {
        for size in self.rule.windows() {
            note_number::<S>(tensor.rank, "masked by a window of", size as f32);
        }
        let [queries, keys] =
            dims.map(|dim| Pointwise::positions(positions_along(tensor.extents, dim)));
        self.rule.pointwise(&Compared { tensor, dims, queries, keys })
    }
}

/// Positions that a rule compares.
struct Compared<'a> {
    tensor: InRows<'a>,
    /// The dims of queries and keys.
    dims: [usize; 2],
    queries: Pointwise,
    keys: Pointwise,
}

/// Returns the global positions along a dim of a block.
#[track_caller]
fn positions_along(extents: &[Extent], dim: usize) -> LeafPositions {
    /// Larger numbers are not exact in f32.
    const MOST: usize = 1 << 24;
    let block = block_index(extents);
    let positions = LeafPositions {
        dim,
        offset: block.offset[dim],
        gap_at: block.gap_at[dim],
        gap: block.gap[dim],
        sizes: block.local,
    };
    assert!(
        positions.end() <= MOST,
        "a mask by positions compares at most {MOST} of them, but the dim has {}",
        extents[dim].global
    );
    positions
}

impl Rule {
    /// Returns the sizes of the windows.
    fn windows(&self) -> Vec<usize> {
        match self {
            Rule::Causal | Rule::SameDocument => Vec::new(),
            Rule::Near(size) => vec![*size],
            Rule::Not(rule) => rule.windows(),
            Rule::Both(rules) | Rule::Either(rules) => {
                rules.iter().flat_map(Rule::windows).collect()
            }
        }
    }

    #[track_caller]
    fn pointwise(&self, of: &Compared<'_>) -> Pointwise {
        let Compared { queries, keys, .. } = of;
        let compare = |left: Pointwise, comparison, right: Pointwise| {
            left.binary(right, Binary::Compare(comparison))
        };
        match self {
            Rule::Causal => compare(keys.clone(), Comparison::Le, queries.clone()),
            Rule::Near(size) => {
                let offset = queries.clone().binary(keys.clone(), Binary::Sub);
                let distance = offset.unary(Unary::Apply(UnaryFunction::Abs));
                distance.with_number(*size as f32, Binary::Compare(Comparison::Lt))
            }
            Rule::SameDocument => of.tensor.same_document(of.dims),
            Rule::Not(rule) => rule.pointwise(of).with_number(0.0, Binary::Compare(Comparison::Eq)),
            Rule::Both(rules) => rules[0].pointwise(of).binary(rules[1].pointwise(of), Binary::Min),
            Rule::Either(rules) => {
                rules[0].pointwise(of).binary(rules[1].pointwise(of), Binary::Max)
            }
        }
    }
}

impl<Q, K> BitAnd for PositionMask<Q, K> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        PositionMask::of_rule(Rule::Both(Box::new([self.rule, other.rule])))
    }
}

impl<Q, K> BitOr for PositionMask<Q, K> {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        PositionMask::of_rule(Rule::Either(Box::new([self.rule, other.rule])))
    }
}

impl<Q, K> Not for PositionMask<Q, K> {
    type Output = Self;

    fn not(self) -> Self {
        PositionMask::of_rule(Rule::Not(Box::new(self.rule)))
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims + HasDim<Q, P> + HasDim<K, R>, Q, K, P, R> MaskOf<S, (P, R)> for PositionMask<Q, K> {
    type Out = S;

    fn replace_others(&self, tensor: &Tensor<S>, value: f32) -> Tensor<S> {
        const { refuse_routed::<S>() };
        let extents = tensor.local_extents();
        let dims = [<S as HasDim<Q, P>>::DIM, <S as HasDim<K, R>>::DIM];
        let mask = self.pointwise::<S>(InRows::of(tensor), dims);
        let mut chosen = tensor.value().to_pointwise();
        if !Pointwise::fit_together(&[&mask, &chosen]) {
            chosen = Pointwise::leaf(tensor.value().unchanged_computed());
        }
        let branches = [chosen, Pointwise::number(value)];
        Tensor::from_untyped(select(tensor.rank(), extents.to_vec(), mask, branches))
    }
}
