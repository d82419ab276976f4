//! User-defined functions of tensors and parameters, with a backward of their own.
//!
//! A [`Function`] states its shapes and its kernels, and [`apply`] does the rest: it checks the shapes, unshards
//! parameters, allocates the output, records the function, saves its operands, takes part in recomputation, enters
//! tensor-parallel regions, and reduces gradients over the axes that follow from the shapes.
//!
//! ```
//! use meshwright::prelude::*;
//! use meshwright::tensor::function::{Backward, Forward, Function, apply};
//!
//! /// `x³ + shift` along any dims.
//! struct ShiftedCube;
//!
//! impl<B: Dim, H: Dim> Function<((B, H),), ((H,),)> for ShiftedCube {
//!     type Output = Tensor<(B, H)>;
//!     type Saved = ();
//!
//!     fn path(&self) -> &str {
//!         "shifted_cube"
//!     }
//!
//!     fn forward_pass(&self, call: Forward<'_, ((B, H),), ((H,),)>) {
//!         let Forward { inputs: [x], params: [shift], mut output, .. } = call;
//!         let shift = shift.to_f32().into_iter().cycle();
//!         output.write_f32(&x.to_f32().iter().zip(shift).map(|(x, s)| x.powi(3) + s).collect::<Vec<_>>());
//!     }
//!
//!     fn backward_pass(&self, call: Backward<'_, ((B, H),), ((H,),), ()>) {
//!         let Backward { inputs: [x], output_gradient: dy, .. } = call;
//!         let Backward { input_gradients: [dx], param_gradients: [dshift], .. } = call;
//!         let (x, dy) = (x.to_f32(), dy.to_f32());
//!         if let Some(mut dx) = dx.target() {
//!             dx.write_f32(&x.iter().zip(&dy).map(|(x, dy)| 3.0 * x * x * dy).collect::<Vec<_>>());
//!         }
//!         if let Some(mut dshift) = dshift.target() {
//!             let mut sums = vec![0.0; dshift.len()];
//!             for row in dy.chunks(sums.len()) {
//!                 sums.iter_mut().zip(row).for_each(|(sum, dy)| *sum += dy);
//!             }
//!             dshift.write_f32(&sums);
//!         }
//!     }
//! }
//!
//! dims! { Batch @ data, Hidden }
//!
//! #[model]
//! struct Net {
//!     shift: Param<(Hidden,)>,
//! }
//!
//! #[forward]
//! impl Net {
//!     fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
//!         apply(ShiftedCube, (x,), (&self.shift,))
//!     }
//! }
//! ```

mod apply;
mod calls;
mod definition;
mod extents;
mod gradient_target;
mod halves;
mod made_up;
mod operands;
mod output;
mod probe;
mod recorded;
mod saved;
mod shapes;

pub use apply::{AppliesTo, apply};
pub use calls::{Backward, Forward, FunctionContext};
pub use definition::{BackwardReads, Function};
pub use gradient_target::GradientTarget;
pub use operands::{FunctionInputs, FunctionParams, OperandView, ResultView};
pub use output::FunctionOutput;
pub use saved::SavedBuffers;
pub use shapes::{PerOperand, Shapes};
