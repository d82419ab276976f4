//! Rotary position embedding.

mod tables;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{Dim, OnEveryRank, Seal, Whole};
use crate::rotary::RopeParameters;
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operand, Operands, Operation, OperationBackward,
    OperationForward, OperationInput, Rank, Tensor, apply,
};
use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{Buffer, RopeLayout, RopeShape};

use super::{Build, Builder, Layer};
pub use tables::with_unpadded_length;
use tables::{RopeTables, TableKey};

/// Rotates pairs of elements of head dim `D` by angles that grow with the position (Su et al., "RoFormer", 2021).
///
/// Shape: `[batch, sequence, heads, D] -> [batch, sequence, heads, D]`, or without heads, for a key that all heads
/// share.
///
/// [`Sizes::rope`](super::Sizes::rope) has the base, the part of a head that rotates, and the scaling for long
/// sequences. [`Sizes::ropes`](super::Sizes::ropes) has those of each layer of a stack, and
/// [`Sizes::with_rope`](super::Sizes::with_rope) those of a field; without any, the layer returns its input.
/// [`Sizes::rope_layout`](super::Sizes::rope_layout) decides which elements form a pair. By default pair `i`
/// is the elements `i` and `i + D/2`, the half-split convention of Hugging Face's Llama, and is rotated by `position *
/// 10000^(-2i/D)`.
///
/// The tables of cosines and sines are computed once per rank, and shared by all layers with the same parameters.
pub struct Rope<D> {
    /// The parameters, and the number of elements of a head that they rotate.
    rotates: Option<(RopeParameters, usize)>,
    layout: RopeLayout,
    /// The tables that were used last.
    tables: RefCell<Option<Rc<RopeTables>>>,
    dim: PhantomData<D>,
}

impl<D> std::fmt::Debug for Rope<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.rotates {
            Some((parameters, rotary_dim)) => {
                write!(f, "Rope of {rotary_dim}, {:?}, {parameters:?}", self.layout)
            }
            None => f.write_str("Rope of nothing"),
        }
    }
}

/// Shapes of queries and keys with heads of `D`: `(batch, sequence, heads, D)` or `(batch, sequence, D)`. The shape is
/// a parameter, and not `Self`, so that messages do not list the impl.
#[diagnostic::on_unimplemented(
    message = "a `Rope` of `{D}` cannot rotate a tensor shaped `{Self}`",
    label = "not batch, sequence and heads before a whole `{D}`, or batch and sequence",
    note = "declare it over the last dim of queries and keys, the elements of a head: `Rope<HeadDim>` for tensors \
            shaped `(Batch, Seq, Heads, HeadDim)`"
)]
pub trait RotatedHeads<D, Shape = Self> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<X, B: Dim, S: Dim, H: Dim, D: Whole> RotatedHeads<D, (B, S, H, D)> for X {
    const SEAL: Seal = Seal::new();
}

impl<X, B: Dim, S: Dim, D: Whole> RotatedHeads<D, (B, S, D)> for X {
    const SEAL: Seal = Seal::new();
}

/// The rotation of each head by the angles of its position.
struct Rotation {
    shape: RopeShape,
    tables: Rc<RopeTables>,
}

impl Rotation {
    /// Rotates `x`, or applies the inverse rotation.
    fn rotate(&self, rank: &Rank, x: &Buffer, inverse: bool) -> Buffer {
        let mut y = rank.alloc_activation(x.len());
        let (cos, sin) = (self.tables.cos.view(), self.tables.sin.view());
        let args = RopeArgs { x: x.view(), cos, sin, inverse, y: y.view_mut() };
        rank.backend().rope(&self.shape, args);
        y
    }
}

impl Operation<Count<1>, Count<0>> for Rotation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<0>>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x], .. } = forward;
        (self.rotate(rank, &x.compute().data, false), ())
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<0>>,
        _: AlwaysRecomputed<()>,
    ) {
        let OperationBackward { gradients, inputs: [x], gradient: dy, .. } = backward;
        let dx = self.rotate(gradients.rank, &dy, true);
        drop(dy);
        x.add_gradient(gradients, Arc::new(dx));
    }
}

/// Rotates a tensor shaped `[batch, sequence, heads, D]` or `[batch, sequence, D]`, by the positions of this rank's
/// elements in the whole sequence.
impl<D, T: Operand<Shape: RotatedHeads<D>>> Layer<T> for Rope<D> {
    type Out = Tensor<T::Shape>;

    #[track_caller]
    fn forward(&self, x: &T) -> Self::Out {
        let value = x.operand().value();
        let (rank, extents) = (value.rank(), value.extents());
        let Some((parameters, rotary_dim)) = self.rotates.clone() else {
            return Tensor::from_untyped(value.unchanged());
        };
        let [batch, seq] = [0, 1].map(|dim| extents[dim].local);
        let [heads, head_dim] = match &extents[2..] {
            [heads, head_dim] => [heads.local, head_dim.local],
            without_heads => [1, without_heads[0].local],
        };
        let shape = RopeShape { batch, seq, heads, head_dim, rotary_dim, layout: self.layout };
        let key = TableKey::new(rank, parameters, head_dim, extents[1]);
        let operands = Operands::<Count<1>, Count<0>> {
            rank,
            path: "",
            inputs: [OperationInput::new(value, InBackward::Ignores)],
            params: [],
            extents: extents.to_vec(),
        };
        Tensor::from_untyped(apply(Rotation { shape, tables: self.tables(rank, &key) }, operands))
    }
}

impl<D> Rope<D> {
    /// Returns the tables of `key`, which are kept until another sequence is used.
    fn tables(&self, rank: &Rank, key: &TableKey) -> Rc<RopeTables> {
        let mut tables = self.tables.borrow_mut();
        match tables.as_ref().filter(|tables| tables.are_for(key)) {
            Some(tables) => Rc::clone(tables),
            None => Rc::clone(tables.insert(RopeTables::shared(rank, key))),
        }
    }
}

impl<D: Whole> Build for Rope<D>
where
    D::Home: OnEveryRank<D>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let head_dim = builder.size::<D>();
        let layout = builder.sizes().rope_layout;
        let rotates = builder.rope_parameters().map(|parameters| {
            let rotary_dim = parameters.rotary_dim(head_dim).unwrap_or_else(|problem| {
                let name = D::DECLARED_NAME;
                let is_whole = parameters.partial_rotary_factor == 1.0;
                if is_whole && !head_dim.is_multiple_of(2) {
                    builder.problem(format_args!(
                        "{name} = {head_dim} is odd, but rotary embedding needs pairs of elements"
                    ));
                } else {
                    builder.problem(format_args!("{name} = {head_dim}: {problem}"));
                }
                head_dim
            });
            (parameters, rotary_dim)
        });
        Rope { rotates, layout, tables: None.into(), dim: PhantomData }
    }
}
