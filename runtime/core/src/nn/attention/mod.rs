//! Scaled dot-product attention that never stores a sequence-by-sequence matrix: grouped queries (GQA), masks, windows,
//! biases of positions, sinks and cross attention.

mod alibi;
mod context;
mod distributed;
mod documents;
mod extras;
mod inputs;
mod layer_options;
mod mask;
mod operands;
mod operation;
mod options;
mod padding;
mod relative_bias;
mod score_bias;
mod score_operands;
mod sinks;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use crate::layout::{OnEveryRank, Whole};

use super::builder::AttentionSizes;
use super::chain::stage_layers;
use super::{Build, Builder, Layer, Plain};
use inputs::AttentionCore;
use layer_options::LayerOptions;

pub use alibi::Alibi;
pub use context::{
    Attended, ContextParallel, ContextStyle, DistributedOver, GatherStyle, GatheredKeys, Hybrid,
    HybridStyle, Ring, RingStyle, TypedContextStyle, Ulysses, UlyssesStyle,
};
pub use documents::DocumentsOf;
pub use extras::{
    AttentionExtra, BiasOfScores, ExtraAfter, KeysOfQueries, SameHeads, SameSequence, SinksOfHeads,
};
pub use mask::{AttentionMask, Bidirectional, Causal, MaskBetween};
pub use operands::{HomeOfKeys, KeysShaped, QueriesKeysValues, QueriesOf, ValuesShaped};
pub use options::AttentionOptions;
pub use padding::{Padding, PaddingOf};
pub use relative_bias::RelativeBias;
pub use sinks::AttentionSinks;

/// `softmax(q · kᵀ / sqrt(D), mask) · v` for each head; query head `h` reads key-value head `h * K / H`
/// (grouped-query attention, Ainslie et al., 2023). Computed tile by tile with an online softmax (Dao, 2023).
///
/// Shape: `(q, k, v)`, which are `[batch, sequence, H, D]`, `[batch, keys, K, D]` and `[batch, keys, K, V]`, to
/// `[batch, sequence, H, V]`.
///
/// The sequences must be whole on each rank, unless `Style` is [`ContextParallel`](crate::nn::ContextParallel):
/// `#[sharded(cp = "ring")]`.
///
/// - **Heads** `H` and `K` are both whole, or both split over one axis. With split `H`, keys and values may be whole
///   too, as when `K` is less than the degree of the axis: each rank reads the key-value heads of its query heads, and
///   the gradients of keys and values are summed over the axis.
/// - **Mask** `M` is [`Causal`](crate::nn::Causal) or [`Bidirectional`](crate::nn::Bidirectional). Cross attention is
///   bidirectional: its keys and values are tensors over another dim, or the same. With context parallelism the other
///   dim is declared without `@`, so that each rank has all keys, and none are exchanged.
/// - **Values** may have heads of another width `V`, as in multi-head latent attention (DeepSeek-AI, 2024).
/// - **Windows**, soft cap and scale are numbers, and come from [`Sizes::attention`](crate::nn::Sizes::attention).
/// - **Documents** in the rows of the keys are kept apart: those of the tokens that the operands are computed from,
///   [`Tokens::with_documents`](crate::tensor::Tokens::with_documents).
///   [`ignoring_documents`](Self::ignoring_documents) is the exception.
/// - **Optional operands** are a fourth element of the input, one of these or a tuple of them in this order: the keys
///   that queries have, by [`Padding`](crate::nn::Padding), or by [`Documents`](crate::tensor::Documents) that the
///   model computes; a bias on the scores by position, [`Alibi`](crate::nn::Alibi) or
///   [`RelativeBias`](crate::nn::RelativeBias); [`AttentionSinks`](crate::nn::AttentionSinks):
///   `core.forward(&(q, k, v, (padding, &self.bias, &self.sinks)))`.
///
/// A query that sees no key has the result zero.
pub struct Attention<H, K, D, M = Causal, V = D, Style = Plain> {
    core: AttentionCore,
    kind: PhantomData<(H, K, D, M, V, Style)>,
}

/// Computes the attention of `(q, k, v)`, or of `(q, k, v, extras)`.
///
/// # Panics
/// If sizes of the operands do not fit together, in a message that names the field and the operand.
impl<T, H, K, D, M, V, Style> Layer<T> for Attention<H, K, D, M, V, Style>
where
    T: QueriesKeysValues<H, K, D, M, V, Style>,
{
    type Out = T::Out;

    #[track_caller]
    fn forward(&self, qkv: &T) -> T::Out {
        T::attend(qkv, &self.core)
    }
}

impl<H, K, D, M, V, Style> std::fmt::Debug for Attention<H, K, D, M, V, Style> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attention")
            .field("is_causal", &self.core.is_causal)
            .field("options", &self.core.options)
            .field("context", &self.core.context)
            .finish()
    }
}

impl<H, K, D, M, V, Style> Attention<H, K, D, M, V, Style> {
    /// Returns the same attention, whose queries attend to the keys of all documents of their rows.
    pub fn ignoring_documents(&self) -> Attention<H, K, D, M, V, Style> {
        let core = AttentionCore { ignores_documents: true, ..self.core.clone() };
        Attention { core, kind: PhantomData }
    }
}

impl<H: Whole, K: Whole, D: Whole, M: AttentionMask, V: Whole> Build for Attention<H, K, D, M, V>
where
    H::Home: OnEveryRank<H>,
    K::Home: OnEveryRank<K>,
    D::Home: OnEveryRank<D>,
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        Attention { core: AttentionCore::from_builder::<H, K, D, M, V>(builder), kind: PhantomData }
    }
}

impl AttentionCore {
    /// Checks the sizes of the attention that `builder` builds, and notes it.
    fn from_builder<H: Whole, K: Whole, D: Whole, M: AttentionMask, V: Whole>(
        builder: &mut Builder<'_>,
    ) -> AttentionCore {
        let (heads, kv_heads) = (builder.size::<H>(), builder.size::<K>());
        if heads % kv_heads != 0 {
            builder.problem(format_args!(
                "{} = {heads} is not divisible by {} = {kv_heads}: each key-value head serves as many query heads",
                H::DECLARED_NAME,
                K::DECLARED_NAME
            ));
        }
        let dims = [builder.size::<D>(), builder.size::<V>()];
        let rank = builder.rank();
        if let Err(limit) = rank.backend().check_attention_heads(dims, rank.compute_dtype()) {
            builder.problem(format_args!("{limit}"));
        }
        let options = LayerOptions::from_builder(builder);
        let visible =
            |window: usize| if M::IS_CAUSAL { window } else { window.saturating_mul(2) - 1 };
        builder.note_attention(AttentionSizes {
            heads,
            head_dim: dims[0],
            value_dim: dims[1],
            window: options.window.filter(|window| *window > 0).map(visible),
            is_causal: M::IS_CAUSAL,
            // More for some styles of context parallelism, which are checked when the whole model is declared.
            position_ranks: 1,
        });
        let path: Arc<str> = builder.site().field().into();
        let is_causal = M::IS_CAUSAL;
        AttentionCore { path, is_causal, ignores_documents: false, options, context: None }
    }
}

stage_layers! {
    Attention<H, K, D>;
}
