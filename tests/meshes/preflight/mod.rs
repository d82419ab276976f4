//! Comparison with one rank: right programs pass on every mesh, and of wrong ones step, axis and field are named.

mod functions;
mod local_numbers;
mod macros;
mod optimizers;
mod rounding;
mod stages;
mod statics;
mod trainer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use meshwright::layout::{AxisId, Dims};
use meshwright::nn::{Built, build};
use meshwright::optim::{AdamWOptions, Optimizer, UpdateRule};
use meshwright::prelude::*;
use meshwright::testing::{Observed, compare_meshes};

dims! { Batch @ data, Seq @ cp, Hidden, Ffn, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;
type Inner = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;
type Ids = Tokens<(Batch, Seq)>;

/// Sequences, positions and width of the stream.
const SIZES: [usize; 3] = [4, 8, 6];
const VOCAB: usize = 10;

#[model]
struct Net {
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    gate: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    /// Zero at first.
    alpha: Bias<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

fn net(rank: &Rank) -> meshwright::Result<Built<Net>> {
    let mut sizes = Sizes::new().with(Hidden, SIZES[2]).with(Ffn, 8).with(Vocab, VOCAB);
    sizes.init_std = 0.4;
    Ok(build::<Net>(rank, &sizes)?)
}

fn stream(rank: &Rank) -> Stream {
    Tensor::from_fn(rank, &SIZES, |at| (at[0] as f32 + 2.3 * (at[1] * 6 + at[2]) as f32).sin())
}

/// The id of a position of a row.
fn id(row: usize, position: usize) -> u32 {
    ((7 * row + position.pow(3) + 2 * position) % VOCAB) as u32
}

/// Trains for three steps by a loss of the model and the step, from 1, and observes everything.
fn train<S: Dims>(
    rank: &Rank,
    loss: impl Fn(&Net, u64) -> Loss<S>,
) -> meshwright::Result<Observed> {
    train_with(rank, AdamWOptions::default(), loss)
}

fn train_with<S: Dims>(
    rank: &Rank,
    rule: impl UpdateRule,
    loss: impl Fn(&Net, u64) -> Loss<S>,
) -> meshwright::Result<Observed> {
    let built = net(rank)?;
    let mut optimizer = Optimizer::new(rank, &built.units, Arc::new(rule));
    let mut observed = Observed::new(rank);
    observed.parameters(&built);
    for step in 1..=3 {
        rank.set_step(step - 1);
        let loss = loss(&built.model, step);
        observed.loss(loss.reduce().value());
        let gradients = loss.backward().reduce();
        observed.gradients(&built, &gradients);
        optimizer.step(1e-2, gradients);
        observed.parameters(&built);
    }
    Ok(observed)
}

/// Returns the error of a wrong program. A difference must name each of `parts`; a program that is refused in a step
/// has a message of its own.
#[track_caller]
fn caught(
    name: &str,
    meshes: &[&str],
    parts: &[&str],
    body: impl Fn(&Rank) -> meshwright::Result<Observed> + Sync,
) {
    for mesh in meshes {
        let text = match compare_meshes([mesh], &body) {
            Ok(lines) => panic!("{name}: {lines:?}"),
            Err(error) => error.to_string(),
        };
        println!("{name}: {text}\n");
        if !text.contains("differs from one rank") && !text.contains("two runs on one rank") {
            continue;
        }
        for part in parts {
            assert!(text.contains(part), "{name} on {mesh}: no `{part}` in: {text}");
        }
    }
}

/// Asserts that a right program passes on each mesh.
#[track_caller]
fn passes(
    name: &str,
    meshes: &[&str],
    body: impl Fn(&Rank) -> meshwright::Result<Observed> + Sync,
) {
    match compare_meshes(meshes, body) {
        Ok(lines) => println!("{name}:\n{}", lines.join("\n")),
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn a_right_program_equals_one_rank() {
    passes(
        "a network",
        &["dp=2", "tp=2", "cp=2", "fsdp=2", "fsdp=2,tp=2", "dp=2,cp=2,tp=2"],
        |rank| {
            train(rank, |net, _| {
                let x = stream(rank);
                let y = net.down.forward(&(net.up.forward(&x).silu() * net.gate.forward(&x)));
                let y = net.alpha.forward(&y);
                Loss::mean_of(&(&y * &y))
            })
        },
    );
}

#[test]
fn nothing_to_compare_is_refused() {
    let error = compare_meshes(["dp=2"], |rank| Ok(Observed::new(rank))).unwrap_err();
    assert!(error.to_string().contains("nothing was observed"), "{error}");
}

#[test]
fn numbers_of_one_rank_are_refused_in_a_test_itself() {
    let outcome = compare_meshes(["tp=2"], |rank| {
        let mut observed = Observed::new(rank);
        let part: Tensor<(Batch, Split<Hidden, Tp>)> =
            Tensor::from_fn(rank, &[4, 6], |at| (at[0] + at[1]) as f32);
        observed.value("outputs", &part.to_local_vec());
        Ok(observed)
    });
    let text = outcome.unwrap_err().to_string();
    let part = "value `outputs`: ranks 0 and 1 hold different numbers of it";
    assert!(text.contains(part) && text.contains("along tp"), "{text}");
}

#[test]
fn not_a_number_is_refused_on_one_rank() {
    let outcome = compare_meshes(["dp=2"], |rank| {
        let mut observed = Observed::new(rank);
        observed.loss(1.0);
        observed.loss(f64::NAN);
        Ok(observed)
    });
    let text = outcome.unwrap_err().to_string();
    assert_eq!(text, "step 2: loss: infinite or NaN on one rank");
}

#[test]
fn not_a_number_on_a_mesh_differs() {
    let outcome = compare_meshes(["dp=2,tp=2"], |rank| {
        let mut observed = Observed::new(rank);
        let is_wrong = rank.degree(AxisId::Dp) > 1;
        observed.loss(if is_wrong { f64::NAN } else { 1.0 });
        Ok(observed)
    });
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("in step 1, along dp (tp alone agrees):\n  loss: infinite"), "{text}");
}

/// A term whose value is zero, and whose gradient is not: an error of a backward alone.
#[test]
fn an_error_of_a_backward_names_its_parameters() {
    let error = compare_meshes(["dp=2,tp=2"], |rank| {
        let factor = rank.degree(AxisId::Tp) as f32;
        train(rank, |net, _| {
            let x = stream(rank);
            let y = net.down.forward(&net.up.forward(&x).silu());
            let zeros: Stream = Tensor::from_fn(rank, &SIZES, |_| 0.0);
            let alpha = net.alpha.forward(&zeros);
            let no_value = &alpha - rank.evaluate(|| net.alpha.forward(&zeros));
            Loss::mean_of(&(&y * &y + no_value * factor))
        })
    });
    let text = error.unwrap_err().to_string();
    let start = "dp=2,tp=2 differs from one rank in step 1, along tp (dp alone agrees):\n  \
                 gradient of `alpha.bias`: differs by 1.0e0 ";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("losses agree") && !text.contains("`up.weight`"), "{text}");
}

#[test]
fn an_error_of_an_update_names_its_parameters() {
    let error = compare_meshes(["fsdp=2"], |rank| {
        let built = net(rank)?;
        let mut optimizer = Optimizer::new(rank, &built.units, AdamWOptions::default());
        let mut observed = Observed::new(rank);
        for _ in 0..2 {
            let y = built.model.down.forward(&built.model.up.forward(&stream(rank)).silu());
            let loss = Loss::mean_of(&(&y * &y));
            observed.loss(loss.reduce().value());
            let gradients = loss.backward().reduce();
            observed.gradients(&built, &gradients);
            optimizer.step(1e-3 * rank.degree(AxisId::Fsdp) as f64, gradients);
            observed.parameters(&built);
        }
        Ok(observed)
    });
    let text = error.unwrap_err().to_string();
    let start = "fsdp=2 differs from one rank in step 1, along fsdp:\n  \
                 `head.weight` after the update: differs by ";
    assert!(text.starts_with(start), "{text}");
    let end =
        "gradients agree: the update of the optimizer depends on the mesh (later steps differ too)";
    assert!(text.ends_with(end), "{text}");
}

static RUNS: AtomicU32 = AtomicU32::new(0);

#[test]
fn a_number_that_outlives_a_run_is_found_on_one_rank() {
    let error = compare_meshes(["dp=2"], |rank| {
        let mut observed = Observed::new(rank);
        observed.loss(1.0);
        observed.value("runs", &[RUNS.fetch_add(1, Ordering::Relaxed) as f32]);
        Ok(observed)
    });
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("two runs on one rank differ in step 1, first in: value `runs`; "),
        "{text}"
    );
}
