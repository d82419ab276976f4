//! BERT and ModernBERT on every kind of mesh, with padding, types of tokens, windows and biases.

use std::sync::Arc;

use meshwright::layout::{Shape, Whole};
use meshwright::models::encoders::{
    ClassLabels, MaskedModel, SequenceClassifier, TextEncoder, TokenClassifier,
};
use meshwright::models::modernbert::Pooling;
use meshwright::models::{
    BertClassifier, BertConfig, BertMaskedLm, BertTokenClassifier, ModernBertClassifier,
    ModernBertConfig, ModernBertMaskedLm, ModernBertTokenClassifier,
};
use meshwright::nn::{Model, RecomputeOverride};
use meshwright::optim::AdamWOptions;
use meshwright::pipeline::StageCut;
use meshwright::prelude::{Loss, Padding, Rank, Tokens};
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::pipeline_run::{Job, train_job};
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

const DATA: TokenData = TokenData { batch: 8, seq: 16, vocab: 29, masked: true };

const LABELS: usize = 3;

#[test]
fn masked_tokens_of_a_bert() {
    check::<BertMaskedLm, _, _>(&bert(), of_positions, |model, x, targets| {
        model.masked_loss(x, targets)
    });
}

#[test]
fn classes_and_numbers_of_texts_of_a_bert() {
    check::<BertClassifier, _, _>(&bert(), of_texts, |model, x, labels| {
        model.class_loss(x, labels).with_penalty(&model.number(x).square())
    });
}

#[test]
fn classes_of_tokens_of_a_bert() {
    check::<BertTokenClassifier, _, _>(&bert(), of_tokens, |model, x, labels| {
        model.token_loss(x, labels)
    });
}

#[test]
fn masked_tokens_of_a_modernbert() {
    check::<ModernBertMaskedLm, _, _>(&modernbert(), of_positions, |model, x, targets| {
        model.masked_loss(x, targets)
    });
}

#[test]
fn classes_of_texts_of_a_modernbert() {
    let biased = ModernBertConfig {
        pooling: Pooling::Mean,
        attention_bias: true,
        mlp_bias: true,
        norm_bias: true,
        classifier_bias: true,
        ..modernbert()
    };
    for config in [modernbert(), biased] {
        check::<ModernBertClassifier, _, _>(&config, of_texts, |model, x, labels| {
            model.class_loss(x, labels)
        });
    }
}

#[test]
fn classes_of_tokens_of_a_modernbert() {
    check::<ModernBertTokenClassifier, _, _>(&modernbert(), of_tokens, |model, x, labels| {
        model.token_loss(x, labels)
    });
}

fn bert<U>() -> BertConfig<U> {
    BertConfig {
        hidden: 16,
        ffn: 24,
        layers: 3,
        heads: 4,
        vocab: DATA.vocab,
        positions: DATA.seq + 2,
        norm_eps: 1e-3,
        padding: Some(5),
        labels: ClassLabels::numbered(LABELS),
        ..BertConfig::default()
    }
}

fn modernbert<U>() -> ModernBertConfig<U> {
    ModernBertConfig {
        hidden: 16,
        ffn: 24,
        layers: 3,
        heads: 4,
        vocab: DATA.vocab,
        local_attention: 6,
        slides: vec![false, true, true],
        padding: Some(5),
        labels: ClassLabels::numbered(LABELS),
        ..ModernBertConfig::default()
    }
}

/// Returns the valid positions of a row: all of some rows, and one of others.
fn length(row: usize) -> u32 {
    [16, 1, 9, 12][row % 4]
}

fn of_positions<S: Shape>(_: &Rank, targets: Tokens<S>) -> Tokens<S> {
    targets
}

/// Returns a label of each row; that of some is ignored.
fn of_texts<B: Whole, S>(rank: &Rank, _: Tokens<(B, S)>) -> Tokens<(B,)>
where
    (B,): Shape,
    (B, S): Shape,
{
    let labels = [2, 0, u32::MAX, 1, 1];
    Tokens::from_fn(rank, &[DATA.batch], |at| labels[at[0] % labels.len()])
}

/// Returns a label of each token that is not padding.
fn of_tokens<S: Shape>(rank: &Rank, _: Tokens<S>) -> Tokens<S> {
    Tokens::from_fn(rank, &[DATA.batch, DATA.seq], |at| {
        let is_valid = (at[1] as u32) < length(at[0]);
        if is_valid { ((at[0] + 2 * at[1]) % LABELS) as u32 } else { Tokens::<S>::IGNORED }
    })
}

/// Compares meshes with one rank: losses, norms, all gradients and the values after two steps. `extra` makes targets of
/// those of each position.
fn check<M, E, S>(
    config: &M::Config,
    extra: impl Fn(&Rank, Tokens<(M::Batch, M::Seq)>) -> E + Sync,
    loss: impl Fn(&M, &M::Out, &E) -> Loss<S> + Sync,
) where
    M: TextEncoder + Model,
    S: Shape,
    (M::Batch, M::Seq): Shape,
    (M::Batch,): Shape,
{
    let mut sizes = M::dim_sizes(config);
    // Makes attention, norms and gradients nontrivial.
    sizes.init_std = 0.2;
    let setup = |zero: usize, recompute: Option<RecomputeOverride>| {
        let setup = Setup::new(sizes.clone());
        let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        // Elements with a gradient near zero do not take whole steps.
        let optimizer = Arc::new(AdamWOptions { eps: 1e-3, ..AdamWOptions::default() });
        let mut setup = Setup { steps: 2, settings, optimizer, ..setup };
        setup.sizes.recompute = recompute;
        setup
    };
    let input = |rank: &Rank, turn: Turn| {
        let (ids, targets) = DATA.block::<(M::Batch, M::Seq)>(rank, turn);
        // That of the micro-batch.
        let rank = ids.rank().clone();
        let sizes = [DATA.batch, DATA.seq];
        let types = Tokens::from_fn(&rank, &sizes, |at| u32::from(at[1] > 4 && at[0] % 3 == 1));
        let lengths = Tokens::from_fn(&rank, &sizes[..1], |at| length(at[0]));
        let padding = Padding::of_lengths(&lengths);
        (M::text_input(ids, types, padding), extra(&rank, targets))
    };
    let one_loss = |model: &M, rank: &Rank, turn| {
        let (input, extra) = input(rank, turn);
        loss(model, &model.forward(&input), &extra)
    };
    let trained = |mesh: &str, setup: &Setup| without_noise(train(mesh, setup, one_loss));
    let one = trained("1", &setup(0, None));
    let full = Some(RecomputeOverride::Full);
    let mut report = Report::default();
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("dp=2", 0, full),
        ("cp=2", 0, None),
        ("fsdp=2", 3, full),
        ("dp=2,tp=2", 1, full),
        ("cp=2,tp=2", 0, full),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        report_parity(&format!("{mesh}, stage {zero}, {recompute:?}"), &got, &one, &mut report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    let job = Job { seq: DATA.seq, batch: input, loss: &loss };
    for (mesh, counts, recompute) in
        [("pp=2", [1, 2], None), ("pp=2", [2, 1], full), ("pp=2,tp=2", [1, 2], None)]
    {
        let setup = Setup { micro_batches: 2, ..setup(0, recompute) };
        let cut = StageCut::Counts(counts.to_vec());
        let got = train_job::<M, E, S, _, _>(mesh, &setup, &schedule, &cut, &job);
        let label = format!("{mesh}, {counts:?}, {recompute:?}");
        report_parity(&label, &without_noise(got), &one, &mut report);
    }
    report.print();
}

/// Removes values that are noise: without rotary positions, a bias of keys shifts the scores of a query by one number,
/// which a softmax does not see.
fn without_noise(mut outcome: Outcome) -> Outcome {
    let is_noise = |path: &String| path.ends_with("attn.k.bias");
    let noise: Vec<String> =
        outcome.gradients.keys().filter(|path| is_noise(path)).cloned().collect();
    for path in noise {
        let gradient = outcome.gradients.remove(&path).unwrap_or_default();
        let queries = outcome.gradients.get_mut(&path.replace("k.bias", "q.bias"));
        queries.expect("queries have a bias").extend(gradient);
        outcome.trained.remove(&path);
    }
    outcome
}
