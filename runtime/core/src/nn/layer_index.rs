//! The index of a layer, as a field of a model.

use super::{Build, Builder};

/// The index of the layer in the innermost [`Stack`](super::Stack) around this field, from 0.
///
/// It is the same on every mesh. A counter is not: a rank of a pipeline builds the model more often than other ranks,
/// and computes some of its layers.
///
/// ```
/// use meshwright::nn::LayerIndex;
/// use meshwright::prelude::*;
///
/// dims! { Batch @ data, Hidden }
///
/// #[model]
/// struct Block {
///     layer: LayerIndex,
///     mix: Linear<Hidden, Hidden>,
/// }
///
/// #[forward]
/// impl Block {
///     fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Hidden)> {
///         x + self.mix.forward(x).scale(1.0 / (1 + self.layer.get()) as f32)
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerIndex(usize);

impl LayerIndex {
    /// Returns the index.
    pub fn get(self) -> usize {
        self.0
    }
}

impl Build for LayerIndex {
    fn build(builder: &mut Builder<'_>) -> Self {
        let index = builder.layer_index();
        if index.is_none() {
            builder.problem(format_args!("is the index of a layer, but no `Stack` contains it"));
        }
        LayerIndex(index.unwrap_or_default())
    }
}
