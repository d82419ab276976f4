//! Rotary position embedding.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::{Buffer, Category, RopeArgs, RopeShape};
use crate::layout::{Dim, Local, OnEveryRank, Whole};
use crate::tensor::{
    AlwaysRecomputed, Count, InBackward, Operands, Operation, OperationBackward, OperationForward,
    OperationInput, Rank, Tensor, apply,
};

use super::{Build, Builder};

/// Rotates pairs of elements of head dim `D` by angles that grow with the position (Su et al., 2021), in the
/// half-split convention of Hugging Face's Llama: element `i` is paired with `i + D/2`, and the pair is rotated by
/// `position * theta^(-2i/D)`.
pub struct Rope<D> {
    theta: f32,
    tables: RefCell<Option<Tables>>,
    dim: PhantomData<D>,
}

/// Cosine and sine tables.
#[derive(Clone)]
struct Tables {
    cos: Arc<Buffer>,
    sin: Arc<Buffer>,
    positions: usize,
}

/// The rotation of each head by the angles of its position.
struct Rotation {
    shape: RopeShape,
    tables: Tables,
}

impl Rotation {
    /// Rotates `x`, or rotates it back.
    fn rotate(&self, rank: &Rank, x: &Buffer, inverse: bool) -> Buffer {
        let mut y = rank.alloc(x.len());
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

impl<D> Rope<D> {
    /// Rotates `x` shaped `[batch, sequence, heads, D]`; the sequence must be whole on each rank.
    #[track_caller]
    pub fn forward<B: Dim, S: Local, H: Dim>(
        &self,
        x: &Tensor<(B, S, H, D)>,
    ) -> Tensor<(B, S, H, D)>
    where
        D: Whole,
    {
        let value = x.value();
        let rank = value.rank();
        let [batch, seq, heads, head_dim] = [0, 1, 2, 3].map(|dim| value.extents()[dim].local);
        let shape = RopeShape { batch, seq, heads, head_dim };
        let operands = Operands::<Count<1>, Count<0>> {
            rank,
            path: "",
            inputs: [OperationInput::new(value, InBackward::Ignores)],
            params: [],
            extents: value.extents().to_vec(),
        };
        Tensor::wrap(apply(Rotation { shape, tables: self.tables(rank, seq, head_dim) }, operands))
    }

    /// Returns the cosine and sine tables for `seq` positions, which are cached until `seq` changes.
    fn tables(&self, rank: &Rank, seq: usize, head_dim: usize) -> Tables {
        let mut tables = self.tables.borrow_mut();
        if let Some(tables) = tables.as_ref().filter(|tables| tables.positions == seq) {
            return tables.clone();
        }
        let half = head_dim / 2;
        let angle = |position: usize, i: usize| {
            position as f64 * f64::from(self.theta).powf(-2.0 * i as f64 / head_dim as f64)
        };
        let table = |f: fn(f64) -> f64| {
            let values: Vec<f32> = (0..seq)
                .flat_map(|position| (0..half).map(move |i| f(angle(position, i)) as f32))
                .collect();
            Arc::new(rank.allocator().copy_of(&values, Category::Activations))
        };
        let made = Tables { cos: table(f64::cos), sin: table(f64::sin), positions: seq };
        tables.replace(made.clone());
        made
    }
}

impl<D: Whole> Build for Rope<D>
where
    D::Home: OnEveryRank<D>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let head_dim = builder.size::<D>();
        if !head_dim.is_multiple_of(2) {
            builder.problem(format_args!(
                "{} = {head_dim} is odd, but rotary embedding needs pairs of elements",
                D::DECLARED_NAME
            ));
        }
        Rope { theta: builder.sizes().rope_theta, tables: None.into(), dim: PhantomData }
    }
}
