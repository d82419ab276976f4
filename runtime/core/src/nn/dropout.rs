//! Dropout with masks that do not depend on the mesh.

use std::sync::Arc;

use crate::layout::Dims;
use crate::tensor::{Operand, Tensor};

use super::chain::stage_layers;
use super::{Build, Builder, Layer};

/// Zeroes elements at the model's dropout rate in training (Srivastava et al., 2014), and scales the others so that the
/// expectation is unchanged.
///
/// The rate is [`Sizes::dropout`](super::Sizes::dropout), or that of the field by
/// [`Sizes::with_dropout`](super::Sizes::with_dropout).
///
/// Shape: `[..] -> [..]`.
///
/// The mask is a function of the seed, the step, the field's path and the element's index in the global tensor: a field
/// applied twice in a step uses the same mask twice.
pub struct Dropout {
    path: Arc<str>,
    rate: f32,
}

/// Applies dropout to `x`.
impl<S: Dims, T: Operand<Shape = S>> Layer<T> for Dropout {
    type Out = Tensor<S>;

    #[track_caller]
    fn forward(&self, x: &T) -> Tensor<S> {
        x.operand().dropout(&self.path, self.rate)
    }
}

impl std::fmt::Debug for Dropout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dropout {}", self.rate)
    }
}

impl Build for Dropout {
    fn build(builder: &mut Builder<'_>) -> Self {
        let rate = builder.dropout_rate();
        if !(0.0..1.0).contains(&rate) {
            builder.problem(format_args!("the dropout rate {rate} is not in 0..1"));
        }
        Dropout { path: builder.site().field().into(), rate }
    }
}

stage_layers! {
    Dropout;
}
