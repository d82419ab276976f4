//! What the trainer needs to know of a model.

use crate::checkpoint::hf::LlamaConfig;
use crate::layout::{Local, Whole};
use crate::nn::{Model, Sizes};
use crate::tensor::{Loss, Targets, Tensor, Tokens};

/// A model that predicts the next token, and can be trained by [`Trainer`](super::Trainer).
pub trait LanguageModel: Model {
    /// The dim of sequences, declared `@ data`.
    type Batch: Whole;
    /// The dim of positions.
    type Seq: Local;
    /// The dim of token ids.
    type Vocab: Whole;

    /// The model's parameters in the Hugging Face format; `*` stands for the number of a layer.
    const HF_NAMES: &'static [HfName];

    /// The sizes of the model's dims for a Llama-like configuration.
    ///
    /// A model with parameters over its sequence dim, such as learned positions, gives it the size
    /// `config.max_positions`; others leave it out.
    fn sizes(config: &LlamaConfig) -> Sizes;

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
}

impl HfName {
    /// A parameter that lies as it does here: embeddings, heads, norms.
    pub const fn same(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: false }
    }

    /// The weight of a linear layer.
    pub const fn transposed(path: &'static str, name: &'static str) -> HfName {
        HfName { path, name, transposed: true }
    }

    /// The tensor's name for the parameter at `path`, if this is its entry.
    pub fn matched(&self, path: &str) -> Option<String> {
        let mut numbers = Vec::new();
        let mut parts = path.split('.');
        for pattern in self.path.split('.') {
            match (pattern, parts.next()?) {
                ("*", number) if number.parse::<usize>().is_ok() => numbers.push(number),
                (pattern, part) if pattern == part => {}
                _ => return None,
            }
        }
        parts.next().is_none().then(|| {
            let mut numbers = numbers.into_iter();
            let parts = self
                .name
                .split('.')
                .map(|part| if part == "*" { numbers.next().unwrap_or("*") } else { part });
            parts.collect::<Vec<_>>().join(".")
        })
    }
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
