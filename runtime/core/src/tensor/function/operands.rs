//! Operands of a function: how they are passed to it, and how its kernels see them.

use crate::autograd::Value;
use crate::context::Rank;
use crate::fsdp::ParamRef;
use crate::layout::{Dims, Seal};
use meshwright_backend::{DType, View, ViewMut};
use meshwright_mesh::Extent;

use super::super::{Param, Tensor};
use super::shapes::{PerOperand, Shapes};

/// Inputs that a function is applied to: a tuple of tensors by reference, `(&x, &y)`; of one: `(&x,)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of tensors",
    label = "a function is applied to tensors by reference: `(&x, &y)`; to one: `(&x,)`",
    note = "a partial sum becomes a tensor by `.all_reduce()` or `.reduce_scatter(Dim)`, the result of an asynchronous \
            collective by `.wait()`"
)]
pub trait FunctionInputs {
    /// The shapes of the tensors.
    type Shapes: Shapes;
    #[doc(hidden)]
    fn values(&self) -> PerOperand<Self::Shapes, &Value>;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Parameters that a function is applied to: a tuple of parameters by reference, `(&self.weight,)`, or `()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of parameters",
    label = "a function is applied to parameters by reference: `(&self.weight,)`; to none: `()`"
)]
pub trait FunctionParams {
    /// The shapes of the parameters.
    type Shapes: Shapes;
    #[doc(hidden)]
    fn param_handles(&self) -> PerOperand<Self::Shapes, &ParamRef>;
    #[doc(hidden)]
    const SEAL: Seal;
}

impl FunctionParams for () {
    type Shapes = ();

    fn param_handles(&self) -> [&ParamRef; 0] {
        []
    }

    const SEAL: Seal = Seal::new();
}

macro_rules! operands {
    ($(($($name:ident: $shape:ident),+))*) => {$(
        impl<$($shape: Dims),+> FunctionInputs for ($(&Tensor<$shape>,)+) {
            type Shapes = ($($shape,)+);

            fn values(&self) -> PerOperand<Self::Shapes, &Value> {
                let ($($name,)+) = self;
                [$($name.value()),+]
            }

            const SEAL: Seal = Seal::new();
        }

        impl<$($shape: Dims),+> FunctionParams for ($(&Param<$shape>,)+) {
            type Shapes = ($($shape,)+);

            fn param_handles(&self) -> PerOperand<Self::Shapes, &ParamRef> {
                let ($($name,)+) = self;
                [$($name.handle()),+]
            }

            const SEAL: Seal = Seal::new();
        }
    )*};
}

operands! { (a: A) (a: A, b: B) (a: A, b: B, c: C) (a: A, b: B, c: C, d: D) }

/// This rank's block of an operand, row-major.
#[derive(Clone, Copy)]
pub struct OperandView<'a> {
    pub(super) view: Option<View<'a>>,
    pub(super) extents: &'a [Extent],
    pub(super) name: OperandName<'a>,
}

impl<'a> OperandView<'a> {
    /// Returns the elements, in the compute dtype, in memory of the host or of the device.
    ///
    /// # Panics
    /// In backward, if the function does not save the operand: see [`backward_reads`](super::Function::backward_reads).
    #[track_caller]
    pub fn view(&self) -> View<'a> {
        self.view.unwrap_or_else(|| {
            panic!(
                "{} is read in backward, but not saved for it: set it in the function's `backward_reads`",
                self.name
            )
        })
    }

    /// Returns the elements on the host, widened to f32. If they are on a device, it waits for them.
    #[track_caller]
    pub fn to_f32(&self) -> Vec<f32> {
        self.name.rank.read(self.view())
    }

    /// Returns the local extent of each dim, which also has the global size and indices.
    pub fn local_extents(&self) -> &'a [Extent] {
        self.extents
    }
}

/// This rank's block of a result, row-major: every element is to be written.
pub struct ResultView<'a> {
    pub(super) view: ViewMut<'a>,
    pub(super) extents: &'a [Extent],
    pub(super) rank: &'a Rank,
}

impl ResultView<'_> {
    /// Returns the elements to write: the output and the gradients of inputs in the compute dtype, the gradients of
    /// parameters in f32.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        self.view.reborrow()
    }

    /// Writes `values`, rounded to the dtype of the result. If the result is on a device, they are uploaded.
    ///
    /// # Panics
    /// If there are more or fewer of them than elements.
    #[track_caller]
    pub fn write_f32(&mut self, values: &[f32]) {
        let len = self.len();
        assert_eq!(values.len(), len, "the number of values written to a result of {len} elements");
        let values = self.rank.stage_values(values);
        self.rank.backend().cast(values.view(), self.view.reborrow());
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.view.dtype()
    }

    /// Returns the local extent of each dim, which also has the global size and indices.
    pub fn local_extents(&self) -> &[Extent] {
        self.extents
    }
}

/// An operand of a function in messages: ``input 0 of `blocks.3.gate` ``.
#[derive(Clone, Copy)]
pub(super) struct OperandName<'a> {
    rank: &'a Rank,
    path: &'a str,
    role: &'static str,
    index: Option<usize>,
}

impl<'a> OperandName<'a> {
    /// Creates the name of the only operand in this role.
    pub(super) fn new(rank: &'a Rank, path: &'a str, role: &'static str) -> OperandName<'a> {
        OperandName { rank, path, role, index: None }
    }

    /// Returns the name of one of several operands in this role.
    pub(super) fn numbered(self, index: usize) -> OperandName<'a> {
        OperandName { index: Some(index), ..self }
    }
}

impl std::fmt::Display for OperandName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{} {index} of `{}`", self.role, self.path),
            None => write!(f, "the {} of `{}`", self.role, self.path),
        }
    }
}
