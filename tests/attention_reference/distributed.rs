//! The same over a sequence that ranks share. Positions after the fixture's make its length divisible.

use meshwright::nn::ContextStyle::{self, Gather, Hybrid, Ring, Ulysses};
use meshwright::prelude::*;

use super::case::{Attends, BATCH, Case, Positions};
use super::{Buckets, HeadDim, Heads, KvHeads, Rows, ValueDim};
use super::{gemma2, latent, one_key_head, soft_cap, t5};

dims! {
    Batch @ data,
    Seq @ cp,
}

const POSITIONS: usize = 16;

const RUNS: [(&str, Option<ContextStyle>); 6] = [
    ("cp=2", Some(Ring)),
    ("cp=2", Some(Ulysses)),
    ("cp=2", Some(Gather)),
    ("cp=4", Some(Hybrid(Some(2)))),
    ("cp=2,tp=2", Some(Ring)),
    ("cp=2,tp=2", Some(Ulysses)),
];

// No query of the fixture sees a position after its own, or by the padding one after the last of the fixture.
attention!(#[sharded(cp = "ring")] CausalOnly, Causal, keys along Seq, |_model, at| ());
attention!(
    #[sharded(cp = "ring")] BidirectionalOnly, Bidirectional, keys along Seq,
    |_model, at| (padding(at))
);
attention!(
    #[sharded(cp = "ring")] WithDocuments, Causal, keys along Seq,
    |_model, at| (at.documents::<(Batch, Seq)>())
);
attention!(
    #[sharded(cp = "ring")] WithAlibi, Causal, keys along Seq,
    { alibi: Alibi<Heads> },
    |model, at| (&model.alibi)
);
attention!(
    #[sharded(cp = "ring")] WithSinks, Causal, keys along Seq,
    { #[sharded(tp = "col")] sinks: AttentionSinks<Heads> },
    |model, at| (&model.sinks)
);
attention!(
    #[sharded(cp = "ring")] Encoder, Bidirectional, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, at| ((padding(at), &model.table))
);
attention!(
    #[sharded(cp = "ring")] Decoder, Causal, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, at| (&model.table)
);

/// Hides the positions after the fixture's.
fn padding(at: Positions<'_>) -> Padding<(Batch, Seq)> {
    let valid = [0..at.of_fixture, 0..at.of_fixture];
    Padding::from_block(at.rank, BATCH, &at.of_samples(&valid))
}

fn check<M: Attends>(case: &Case) {
    case.check_on::<M>(&RUNS, POSITIONS);
}

#[test]
fn causal_and_full_attention_over_cp() {
    check::<CausalOnly>(&Case::new("causal"));
    check::<BidirectionalOnly>(&Case::new("full"));
}

#[test]
fn windows_and_soft_caps_over_cp() {
    check::<CausalOnly>(&Case::new("window").windowed(4));
    check::<BidirectionalOnly>(&Case::new("near").windowed(4));
    check::<CausalOnly>(&gemma2());
    check::<CausalOnly>(&soft_cap());
}

#[test]
fn linear_biases_over_cp() {
    check::<WithAlibi>(&Case::new("alibi"));
}

/// The head of keys and values cannot be split over tp.
#[test]
fn one_key_head_over_cp() {
    let without_tp = RUNS.into_iter().filter(|(mesh, _)| !mesh.contains("tp"));
    one_key_head().check_on::<CausalOnly>(&without_tp.collect::<Vec<_>>(), POSITIONS);
}

#[test]
fn head_widths_over_cp() {
    check::<CausalOnly>(&latent());
}

#[test]
fn sinks_over_cp() {
    check::<WithSinks>(&Case::new("sinks"));
    check::<WithSinks>(&Case::new("sinks_window").windowed(4));
}

#[test]
fn relative_biases_over_cp() {
    check::<Encoder>(&t5("t5_encoder"));
    check::<Decoder>(&t5("t5_decoder"));
}

#[test]
fn documents_over_cp() {
    check::<WithDocuments>(&Case::new("packed"));
}
