//! Stored tensors that hold several weights of a model, such as the weights of all experts of a layer.

use crate::checkpoint::TensorBox;

/// Weights in one stored tensor of three dims. The first one counts them. The second one, the outputs of each, is
/// divided among several weights of one number if there are several names.
#[derive(Debug, Clone, PartialEq)]
pub struct StackedWeights {
    /// Names of the weights, in the order of their outputs, each with a `*` for the number.
    pub names: Vec<String>,
}

/// The part of a stored tensor that is one weight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StackedPart {
    /// Shape of the stored tensor.
    pub stored: [usize; 3],
    number: usize,
    /// The first output, and their number.
    first: usize,
    outputs: usize,
}

impl StackedWeights {
    /// Returns name and part of each weight in a tensor of this shape.
    ///
    /// # Errors
    /// A shape that cannot be divided, as the end of a sentence about the tensor.
    pub(super) fn parts(&self, shape: &[usize]) -> Result<Vec<(String, StackedPart)>, String> {
        let names = &self.names;
        let stored = <[usize; 3]>::try_from(shape).ok();
        let Some(stored) = stored.filter(|stored| stored[1].is_multiple_of(names.len())) else {
            let count = names.len();
            return Err(format!(
                "has shape {shape:?}; of {count} weights for each expert, [experts, {count} * out, in] is read"
            ));
        };
        let outputs = stored[1] / names.len();
        let numbered = |number: usize| {
            names.iter().enumerate().map(move |(index, name)| {
                let part = StackedPart { stored, number, first: index * outputs, outputs };
                (name.replace('*', &number.to_string()), part)
            })
        };
        Ok((0..stored[0]).flat_map(numbered).collect())
    }
}

impl StackedPart {
    pub fn shape(&self) -> [usize; 2] {
        [self.outputs, self.stored[2]]
    }

    /// Returns a box of the weight as one of the stored tensor.
    pub fn in_stored(&self, of_weight: &TensorBox) -> TensorBox {
        let [first, column] = of_weight.offset[..] else { unreachable!("a weight has two dims") };
        let shape = [&[1], &of_weight.shape[..]].concat();
        TensorBox::new(&[self.number, self.first + first, column], &shape)
    }
}
