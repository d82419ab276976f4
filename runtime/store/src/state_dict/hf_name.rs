//! Names and layouts of parameters in the Hugging Face format.

/// The Hugging Face tensor of a parameter, and the parameter's layout in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HfName {
    /// Path of the parameter in the model, with `*` for the number of a layer or an element.
    pub path: &'static str,
    /// Name of the tensor, with `*` for the same numbers, in the same order; and with a further `*` at last for the
    /// number of a weight, if they are [`stacked`](Self::stacked).
    pub name: &'static str,
    /// Set if the tensor is `[out, in]`, as that of a `torch.nn.Linear`, and the parameter `(in, out)`.
    pub transposed: bool,
    /// Set if the tensor concatenates the outputs of several parameters, in the order of the table.
    pub fused: bool,
    /// Set if the parameter is a stack, and each of its weights has a tensor of its own.
    pub stacked: bool,
    /// Sizes of the tensor's dims, with zeros behind them, if it has [other dims](Self::shaped) than the parameter; all
    /// zeros if it does not.
    pub shape: [usize; MAX_DIMS],
}

/// Most dims of a tensor with dims of its own.
const MAX_DIMS: usize = 5;

impl HfName {
    /// Names a parameter that is stored in the layout of the model: embeddings, heads, norms, biases, and weights
    /// stored `[in, out]`.
    pub const fn same(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: false, fused: false, stacked: false, shape: [0; MAX_DIMS] }
    }

    /// Names the weight of a linear layer that is stored `[out, in]`.
    pub const fn transposed(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: true, fused: false, stacked: false, shape: [0; MAX_DIMS] }
    }

    /// Names the weights of a stack, such as the experts of [`GroupedLinear`](meshwright_core::nn::GroupedLinear). Each
    /// weight is stored `[out, in]` in a tensor of its own. The last `*` of `name` is the number of the weight.
    ///
    /// ```
    /// # use meshwright::prelude::HfName;
    /// const UP: HfName = HfName::stacked(
    ///     "blocks.*.moe.experts.up.weight",
    ///     "model.layers.*.block_sparse_moe.experts.*.w3.weight",
    /// );
    /// let of_layer = UP.matched("blocks.7.moe.experts.up.weight");
    /// assert_eq!(of_layer.as_deref(), Some("model.layers.7.block_sparse_moe.experts.*.w3.weight"));
    /// ```
    pub const fn stacked(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: true, fused: false, stacked: true, shape: [0; MAX_DIMS] }
    }

    /// Marks the parameter as one of several whose outputs share the tensor, as the outputs for queries, keys and
    /// values may. The tensor concatenates them in the order of the table.
    #[must_use]
    pub const fn fused(self) -> HfName {
        HfName { fused: true, ..self }
    }

    /// States the sizes of the tensor's dims, where they are not the sides of the matrix or the vector: those of a side
    /// are written as several, in row-major order, or with dims of size 1 beside them. No element moves.
    ///
    /// ```
    /// # use meshwright::prelude::HfName;
    /// // A convolution of patches of 4 by 4 pixels, as a linear layer that reads 48 values.
    /// const PATCHES: HfName =
    ///     HfName::transposed("patches.weight", "projection.weight").shaped(&[32, 3, 4, 4]);
    /// ```
    ///
    /// # Panics
    /// If there are more than 5 dims, or one has no elements.
    #[must_use]
    pub const fn shaped(mut self, sizes: &[usize]) -> HfName {
        assert!(sizes.len() <= MAX_DIMS, "a tensor of `HF_NAMES` has at most 5 dims");
        let mut dim = 0;
        while dim < sizes.len() {
            assert!(sizes[dim] > 0, "a tensor of `HF_NAMES` has a dim without elements");
            self.shape[dim] = sizes[dim];
            dim += 1;
        }
        self
    }

    /// Returns the sizes of the tensor's dims, if they are [stated](Self::shaped).
    pub(super) fn dims(&self) -> &[usize] {
        let len = self.shape.iter().take_while(|size| **size > 0).count();
        &self.shape[..len]
    }

    /// Returns the name of the tensor of the parameter at `path`, if this is its entry. Of a stack, whose weights have
    /// tensors of their own, the number of the weight stays a `*`.
    pub fn matched(&self, path: &str) -> Option<String> {
        Some(numbered(self.name, &self.layer_numbers(path)?))
    }

    /// Returns the layer numbers in `path`, if this is its entry.
    pub(super) fn layer_numbers<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let mut numbers = Vec::new();
        let mut parts = path.split('.');
        for pattern in self.path.split('.') {
            match (pattern, parts.next()?) {
                ("*", number) if number.parse::<usize>().is_ok() => numbers.push(number),
                (pattern, part) if pattern == part => {}
                _ => return None,
            }
        }
        parts.next().is_none().then_some(numbers)
    }
}

/// Replaces the stars of `pattern` by `numbers`.
pub(super) fn numbered(pattern: &str, numbers: &[&str]) -> String {
    let mut numbers = numbers.iter();
    let parts = pattern.split('.');
    let parts = parts.map(|part| if part == "*" { numbers.next().unwrap_or(&"*") } else { part });
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_the_number_of_a_layer() {
        let name =
            HfName::transposed("blocks.*.mlp.up.weight", "model.layers.*.mlp.up_proj.weight");
        assert_eq!(
            name.matched("blocks.12.mlp.up.weight").as_deref(),
            Some("model.layers.12.mlp.up_proj.weight")
        );
        assert_eq!(name.matched("blocks.12.mlp.up"), None);
        assert_eq!(name.matched("blocks.x.mlp.up.weight"), None);
        assert_eq!(name.matched("blocks.1.mlp.up.weight.more"), None);
    }
}
