//! Attention of every kind against PyTorch and transformers, by the fixture that `reference/attention_cases.py` writes:
//! outputs, and gradients of queries, keys, values, sinks and biases.

mod case;

use meshwright::prelude::*;

use case::{Attends, BATCH, Case, Positions};

dims! {
    Batch @ data,
    Seq,
    /// Sequence of the keys of cross attention.
    Memory,
    /// All positions of all samples.
    Rows,
    Heads,
    KvHeads,
    HeadDim,
    ValueDim,
    Buckets,
}

/// Creates a model whose weights are queries, keys and values: the input of their projections selects the row of each
/// position. Gradients of the weights are the gradients of queries, keys and values.
macro_rules! attention {
    (
        $(#[$context:meta])*
        $name:ident, $mask:ident, keys along $keys:ident,
        $({ $(#[$style:meta])* $field:ident: $layer:ty },)?
        |$model:ident, $at:ident| ($($extra:expr)?)
    ) => {
        #[model]
        struct $name {
            #[sharded(tp = "col")]
            q: Linear<Rows, (Heads, HeadDim)>,
            #[sharded(tp = "col")]
            k: Linear<Rows, (KvHeads, HeadDim)>,
            #[sharded(tp = "col")]
            v: Linear<Rows, (KvHeads, ValueDim)>,
            $(#[$context])*
            core: Attention<Heads, KvHeads, HeadDim, $mask, ValueDim>,
            $($(#[$style])* $field: $layer,)?
        }

        impl Attends for $name {
            type Out = (Batch, Seq, Split<Heads, Tp>, ValueDim);

            fn attend(&self, $at: Positions<'_>) -> Tensor<Self::Out> {
                let $model = self;
                let along_keys =
                    if stringify!($keys) == "Memory" { $at.of_memory() } else { $at };
                let queries: Tensor<(Batch, Seq, Rows)> = $at.select();
                let keys: Tensor<(Batch, $keys, Rows)> = along_keys.select();
                let (q, k, v) =
                    (self.q.forward(&queries), self.k.forward(&keys), self.v.forward(&keys));
                self.core.forward(&(q, k, v, $($extra)?))
            }
        }
    };
}

// After the macro that it uses.
mod distributed;

attention!(CausalOnly, Causal, keys along Seq, |_model, at| ());
attention!(BidirectionalOnly, Bidirectional, keys along Seq, |_model, at| ());
attention!(
    WithPadding, Bidirectional, keys along Memory,
    |_model, at| (Padding::<(Batch, Memory)>::from_block(at.rank, BATCH, &at.of_samples(&[0..5, 2..7])))
);
attention!(WithDocuments, Causal, keys along Seq, |_model, at| (at.documents::<(Batch, Seq)>()));
attention!(WithAlibi, Causal, keys along Seq, { alibi: Alibi<Heads> }, |model, at| (&model.alibi));
attention!(
    WithSinks, Causal, keys along Seq,
    { #[sharded(tp = "col")] sinks: AttentionSinks<Heads> },
    |model, at| (&model.sinks)
);
attention!(
    Encoder, Bidirectional, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, at| (&model.table)
);
attention!(
    Decoder, Causal, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, at| (&model.table)
);

/// Gemma 2 with a window.
fn gemma2() -> Case {
    Case::new("gemma2").windowed(5).capped(2.5).scaled(0.6)
}

/// Gemma 2 without a window.
fn soft_cap() -> Case {
    Case::new("soft_cap").capped(2.5).scaled(0.6)
}

/// All query heads read one head of keys and values.
fn one_key_head() -> Case {
    Case { kv_heads: 1, ..Case::new("one_key_head") }
}

/// Queries and keys of another width than values.
fn latent() -> Case {
    Case { kv_heads: 4, head_dim: 12, ..Case::new("latent") }
}

fn t5(name: &'static str) -> Case {
    Case { kv_heads: 4, ..Case::new(name).scaled(1.0) }
}

#[test]
fn causal_and_full_attention_of_pytorch() {
    Case::new("causal").check::<CausalOnly>();
    Case::new("full").check::<BidirectionalOnly>();
}

#[test]
fn windows_of_pytorch() {
    Case::new("window").windowed(4).check::<CausalOnly>();
    Case::new("near").windowed(4).check::<BidirectionalOnly>();
}

#[test]
fn soft_caps_and_windows_of_gemma2() {
    gemma2().check::<CausalOnly>();
    soft_cap().check::<CausalOnly>();
}

#[test]
fn one_key_head_of_pytorch() {
    one_key_head().check_on_data_ranks::<CausalOnly>();
}

#[test]
fn linear_biases_of_bloom() {
    Case::new("alibi").check::<WithAlibi>();
}

#[test]
fn head_widths_of_deepseek() {
    latent().check::<CausalOnly>();
    let deepseek = Case::new("deepseek");
    Case { seq: 4, heads: 1, kv_heads: 1, head_dim: 192, value_dim: 128, ..deepseek }
        .check_on_data_ranks::<CausalOnly>();
}

#[test]
fn sinks_of_gpt_oss() {
    Case::new("sinks").check::<WithSinks>();
    Case::new("sinks_window").windowed(4).check::<WithSinks>();
}

#[test]
fn relative_biases_of_t5() {
    t5("t5_encoder").check::<Encoder>();
    t5("t5_decoder").check::<Decoder>();
}

#[test]
fn padding_of_pytorch() {
    Case::new("padded").check::<WithPadding>();
}

#[test]
fn documents_of_pytorch() {
    Case::new("packed").check::<WithDocuments>();
}
