//! Training runs of a small model cut into pipeline stages, with the results of all stages together.

use std::sync::Arc;

use meshwright::layout::Shape;
use meshwright::nn::{Layer, Model, Module};
use meshwright::optim::Optimizer;
use meshwright::pipeline::{
    Pipeline, PipelineStep, StageCut, StageRequest, build_stages, plan_stages,
};
use meshwright::schedule::{Schedule, Verified, verify};
use meshwright::tensor::{Loss, Mean, ParamRef, Rank, SegmentData};
use meshwright::train::LanguageModel;

use crate::compare::{Tensors, assert_same_bits};
use crate::data::{Batches, Turn};
use crate::run::{Outcome, Setup, on_setup_mesh};

/// Trains an `M` on `mesh`, whose `pp` ranks run `schedule` on stages cut by `cut`.
///
/// # Panics
/// If a rank fails, or two ranks compute different bits of values that both have.
#[track_caller]
pub fn train_stages<M: LanguageModel>(
    mesh: &str,
    setup: &Setup,
    schedule: &Schedule,
    cut: &StageCut,
    data: impl Batches,
) -> Outcome {
    let job = Job {
        seq: data.seq(),
        batch: |rank: &Rank, turn| data.block(rank, turn),
        loss: |model: &M, output: &OutputOf<M>, targets: &_| model.loss_of_output(output, targets),
    };
    train_job(mesh, setup, schedule, cut, &job)
}

/// The output of a model.
pub type OutputOf<M> = <M as Layer<<M as Module>::In>>::Out;

/// Batches and loss of a model.
pub struct Job<B, L> {
    /// Positions that attentions count.
    pub seq: usize,
    /// Input of a micro-batch, and what its loss needs beside the output.
    pub batch: B,
    /// The loss of an output.
    pub loss: L,
}

/// Trains as [`train_stages`] does, with batches and loss of any model.
///
/// # Panics
/// As [`train_stages`].
#[track_caller]
pub fn train_job<M, E, S, B, L>(
    mesh: &str,
    setup: &Setup,
    schedule: &Schedule,
    cut: &StageCut,
    job: &Job<B, L>,
) -> Outcome
where
    M: Model + Module<In: SegmentData>,
    S: Shape,
    B: Fn(&Rank, Turn) -> (M::In, E) + Sync,
    L: Fn(&M, &M::Out, &E) -> Loss<S> + Sync,
{
    assert_eq!(setup.micro_batches, schedule.micro_batches, "the micro-batches of the schedule");
    let schedule = Arc::new(verify(schedule).unwrap_or_else(|faults| panic!("{faults:?}")));
    let run = |rank: &Rank| run_rank::<M, E, S, B, L>(rank, setup, &schedule, cut, job);
    let outcomes = on_setup_mesh(mesh, setup, run);
    let mut outcomes = outcomes.into_iter();
    let Some(mut all) = outcomes.next() else { panic!("{mesh} has no ranks") };
    for (index, other) in outcomes.enumerate() {
        let label = format!("{mesh}: rank {} compared with others", index + 1);
        assert_eq!(other.losses, all.losses, "{label}, losses");
        assert_eq!(other.norms, all.norms, "{label}, gradient norms");
        add_tensors(&format!("{label}, gradients"), &mut all.gradients, other.gradients);
        add_tensors(&format!("{label}, initial parameters"), &mut all.initial, other.initial);
        add_tensors(&format!("{label}, parameters"), &mut all.trained, other.trained);
    }
    all
}

fn run_rank<M, E, S, B, L>(
    rank: &Rank,
    setup: &Setup,
    schedule: &Arc<Verified>,
    cut: &StageCut,
    job: &Job<B, L>,
) -> Outcome
where
    M: Model + Module<In: SegmentData>,
    S: Shape,
    B: Fn(&Rank, Turn) -> (M::In, E),
    L: Fn(&M, &M::Out, &E) -> Loss<S>,
{
    let request = StageRequest { placement: &schedule.lowered().placement, cut, seq: job.seq };
    let plan = plan_stages::<M>(rank, &setup.sizes, &request);
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    let built = build_stages::<M>(rank, &setup.sizes, &plan);
    let built = built.unwrap_or_else(|error| panic!("{error}"));
    let pipeline = Pipeline::new(rank, &built, &setup.sizes, &plan, schedule);
    let pipeline = pipeline.unwrap_or_else(|error| panic!("{error}"));
    let mut optimizer = Optimizer::new(rank, &built.units, Arc::clone(&setup.optimizer));
    let owned: Vec<ParamRef> = built.params().into_iter().filter(ParamRef::is_owned).collect();
    let gather = || -> Tensors {
        owned.iter().map(|param| (param.path().to_owned(), param.gather(rank))).collect()
    };
    let initial = gather();
    let (mut losses, mut norms, mut first) = (Vec::new(), Vec::new(), Tensors::new());
    for step in 0..setup.steps {
        rank.set_step(step);
        let count = setup.micro_batches;
        let blocks = (0..count).map(|index| (job.batch)(rank, Turn { step, index, count }));
        let (tokens, targets): (Vec<_>, Vec<_>) = blocks.unzip();
        let result = pipeline.run_step(&built.model, &tokens, |model, output, micro_batch| {
            (job.loss)(model, output, &targets[micro_batch])
        });
        let step_result = result.unwrap_or_else(|error| panic!("{error}"));
        let PipelineStep { losses: of_micro_batches, gradients, .. } = step_result;
        let mut mean = Mean::default();
        of_micro_batches.iter().for_each(|loss| mean += loss.reduce());
        losses.push(mean.value());
        let mut gradients = gradients.reduce();
        if step == 0 {
            let gather = |param: &ParamRef| (param.path().to_owned(), gradients.gather(param));
            first = owned.iter().filter(|param| !param.is_frozen()).map(gather).collect();
        }
        norms.push(if setup.clips { gradients.clip(1.0) } else { gradients.norm() });
        optimizer.step(setup.lr, gradients);
    }
    Outcome { losses, norms, gradients: first, initial, trained: gather() }
}

/// Adds the tensors of another rank; those that both have must have the same bits.
#[track_caller]
fn add_tensors(label: &str, all: &mut Tensors, other: Tensors) {
    let is_common = |path: &String| all.contains_key(path);
    let common: Tensors = other
        .iter()
        .filter(|(path, _)| is_common(path))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let own: Tensors = all
        .iter()
        .filter(|(path, _)| common.contains_key(*path))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    assert_same_bits(label, &common, &own);
    all.extend(other);
}
