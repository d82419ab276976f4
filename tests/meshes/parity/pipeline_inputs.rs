//! Pipelines whose input begins with a part that is the same for all micro-batches, whose later stage takes a mean over
//! the samples of a micro-batch, and whose steps have sequences of several lengths.

use std::sync::Arc;

use meshwright::layout::AxisSet;
use meshwright::nn::build;
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::{Gradients, Mean};
use meshwright_tests::compare::scalar_distance;
use meshwright_tests::run::on_mesh;

dims! { Batch @ data, Seq, Hidden, Vocab }

const MICRO_BATCHES: usize = 4;

/// Sequence length of each step.
const LENGTHS: [usize; 3] = [6, 4, 6];

type Ids = Tokens<(Batch, Seq)>;
type Table = Tensor<(Seq, Hidden)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Front {
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl Front {
    fn forward(&self, (table, ids): &(Table, Ids)) -> (Table, Stream) {
        (table.clone(), self.embed.forward(ids))
    }
}

#[model]
struct Center {
    linear: Linear<Hidden, Hidden>,
}

#[forward]
impl Center {
    fn forward(&self, (table, x): &(Table, Stream)) -> Table {
        table + self.linear.forward(x).mean(Batch).all_reduce()
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    center: Center,
}

#[forward]
impl Net {
    fn forward(&self, input: &(Table, Ids)) -> Table;
}

/// Returns the table and the tokens of each micro-batch of two sequences.
fn inputs(rank: &Rank, seq: usize) -> Vec<(Table, Ids)> {
    let (at, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
    let rows = 8 / ranks / MICRO_BATCHES;
    let input = |index: usize| {
        let first = (index * 2 + at * rows) * seq;
        let ids: Vec<u32> = (0..rows * seq).map(|i| (first + i) as u32 % 11).collect();
        let table = Tensor::from_fn(rank, &[seq, 8], |at| at[1] as f32);
        (table, Tokens::from_rows(rank, &[8, seq], index * rows, &ids))
    };
    (0..MICRO_BATCHES).map(input).collect()
}

fn loss(y: &Table) -> Loss<(Seq, Hidden)> {
    Loss::mean_of(&(y * y))
}

#[test]
fn steps_of_pipelines_have_the_results_of_one_rank() {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Vocab, 11).with(Seq, LENGTHS[0]);
    sizes.init_std = 0.5;
    let whole = |mesh: &str| {
        let results = on_mesh(mesh, 1, |rank| {
            let built = build::<Net>(rank, &sizes).unwrap();
            LENGTHS.map(|seq| {
                let mut mean = Mean::default();
                let forward = |input: &(Table, Ids)| loss(&built.model.forward(input));
                let mut losses: Vec<_> = inputs(rank, seq).iter().map(forward).collect();
                losses.iter().for_each(|loss| mean += loss.reduce());
                let (last, first) = (losses.pop().unwrap(), losses.remove(0));
                let gradients = losses.into_iter().fold(first.accumulate(), Gradients::accumulate);
                [mean.value(), gradients.backward(last).reduce().norm()]
            })
        });
        results[0]
    };
    let one = whole("1");
    let mut found = vec![("dp=2", whole("dp=2"))];
    for mesh in ["pp=2", "pp=2,dp=2"] {
        let schedule = ScheduleKind::OneFOneB.generate(2, 1, MICRO_BATCHES).unwrap();
        let schedule = Arc::new(verify(&schedule).unwrap());
        let results = on_mesh(mesh, 1, |rank| {
            let placement = &schedule.lowered().placement;
            let request = StageRequest { placement, cut: &StageCut::Even, seq: LENGTHS[0] };
            let plan = plan_stages::<Net>(rank, &sizes, &request).unwrap();
            let built = build_stages::<Net>(rank, &sizes, &plan).unwrap();
            let pipeline = Pipeline::new(rank, &built, &sizes, &plan, &schedule).unwrap();
            LENGTHS.map(|seq| {
                let inputs = inputs(rank, seq);
                let step = pipeline.run_step(&built.model, &inputs, |_, y, _| loss(y)).unwrap();
                let mut mean = Mean::default();
                step.losses.iter().for_each(|loss| mean += loss.reduce());
                [mean.value(), step.gradients.reduce().norm()]
            })
        });
        found.push((mesh, results[0]));
    }
    for (mesh, steps) in found {
        for (number, expected) in steps.into_iter().flatten().zip(one.into_iter().flatten()) {
            let distance = scalar_distance(number, expected);
            assert!(distance < 1e-5, "{mesh}: {number}, and {expected} on one rank");
        }
    }
}
