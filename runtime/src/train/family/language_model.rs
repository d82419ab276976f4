//! What the trainer needs to know of a model.

use crate::layout::{BatchDim, Local};
use crate::nn::{Model, Sizes};
use crate::tensor::{Loss, Targets, Tensor, Tokens};

use super::Family;

/// A model that predicts the next token, and can be trained by [`Trainer`](crate::train::Trainer).
pub trait LanguageModel: Model {
    /// The dim of sequences, declared `@ data`.
    type Batch: BatchDim;
    /// The dim of positions.
    type Seq: Local;
    /// The dim of token ids.
    type Vocab: Local;

    /// The configuration of the model's family: what `config.json` and the flags of sizes say.
    type Config: Family;

    /// The model's parameters in the family's Hugging Face format; `*` stands for the number of a layer.
    const HF_NAMES: &'static [HfName];

    /// The sizes of the model's dims for a configuration.
    ///
    /// A model with parameters over its sequence dim gives it the length of its sequences, and can be trained with that
    /// `--seq` only; others leave it out.
    fn sizes(config: &Self::Config) -> Sizes;

    /// The mean cross-entropy of predicting `targets[b, s]` after `tokens[b, ..=s]`.
    fn loss(
        &self,
        tokens: &Tokens<(Self::Batch, Self::Seq)>,
        targets: &Targets<(Self::Batch, Self::Seq)>,
    ) -> Loss<(Self::Batch, Self::Seq)>;

    /// The logits after each token, whole on every rank.
    fn logits(
        &self,
        tokens: &Tokens<(Self::Batch, Self::Seq)>,
    ) -> Tensor<(Self::Batch, Self::Seq, Self::Vocab)>;
}

/// A parameter's name in the Hugging Face format, and how it lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HfName {
    /// Path of the parameter in the model, with `*` for the number of a layer.
    pub path: &'static str,
    /// Name of the tensor, with `*` for the same number.
    pub name: &'static str,
    /// Whether the tensor is `[out, in]`, as that of a linear layer is, where the parameter is `(in, out)`.
    pub transposed: bool,
    /// Whether the tensor holds the outputs of several parameters, side by side in the order of the table.
    pub fused: bool,
}

impl HfName {
    /// A parameter that lies as it does here: embeddings, heads, norms, biases, and weights stored `[in, out]`.
    pub const fn same(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: false, fused: false }
    }

    /// The weight of a linear layer, stored `[out, in]`.
    pub const fn transposed(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: true, fused: false }
    }

    /// The same as one of several parameters whose outputs share the tensor, as those of queries, keys and values may.
    /// They stand in the table in the order in which they lie there.
    #[must_use]
    pub const fn fused(self) -> HfName {
        HfName { fused: true, ..self }
    }

    /// The tensor's name for the parameter at `path`, if this is its entry.
    pub fn matched(&self, path: &str) -> Option<String> {
        Some(numbered(self.name, &self.numbers(path)?))
    }

    /// The numbers of layers in `path`, if this is its entry.
    pub(in crate::train) fn numbers<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
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

/// `pattern` with these numbers in the places of its stars.
pub(in crate::train) fn numbered(pattern: &str, numbers: &[&str]) -> String {
    let mut numbers = numbers.iter();
    let parts = pattern.split('.');
    let parts = parts.map(|part| if part == "*" { numbers.next().unwrap_or(&"*") } else { part });
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_carries_the_number_of_a_layer_over() {
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
