//! Messages of pipelines in groups (`MESHWRIGHT_NCCL_P2P=grouped`), on installations where a message that waits holds
//! up the others of its device.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::nn::Layers;
use meshwright::pipeline::StageCut;
use meshwright::schedule::{Action, Lockstep, Schedule, ScheduleKind, verify};
use meshwright::train::Machine;
use meshwright_gpu_sim::not_checked_on_gpu;
use meshwright_tests::compare::assert_same_bits;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::small_gpt2;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup};

use super::graphs::run_of_size;
use super::llama::{DATA, setup};
use super::nccl::Cluster;

const MICRO_BATCHES: usize = 4;
const STEPS: u64 = 3;

/// The setup of a Llama with two layers for each rank along `pp`.
pub fn setup_for(ranks: usize) -> Setup {
    let setup = Setup { micro_batches: MICRO_BATCHES, steps: STEPS, ..setup(DType::F32) };
    Setup { sizes: setup.sizes.clone().with(Layers, 2 * ranks), ..setup }
}

/// Trains a Llama with the setup for `ranks`.
pub fn train_on(
    (mesh, ranks): (&str, usize),
    kind: ScheduleKind,
    machine: Arc<dyn Machine>,
) -> Outcome {
    let setup = Setup { machine: Some(machine), ..setup_for(ranks) };
    train_stages::<Llama>(mesh, &setup, &generate(ranks, kind), &StageCut::Auto, DATA)
}

/// Generates a schedule with the default number of stages per rank.
pub fn generate(ranks: usize, kind: ScheduleKind) -> Schedule {
    kind.generate(ranks, kind.default_chunks(), MICRO_BATCHES).unwrap()
}

#[track_caller]
fn assert_bits(place: &str, got: &Outcome, expected: &Outcome) {
    assert_eq!(got.losses, expected.losses, "{place}");
    assert_eq!(got.norms, expected.norms, "{place}");
    assert_same_bits(&format!("{place}: gradients"), &got.gradients, &expected.gradients);
    assert_same_bits(&format!("{place}: parameters"), &got.trained, &expected.trained);
}

/// Trains with messages in groups, on `world` devices, and compares with `expected`, and each round of messages with a
/// group.
#[track_caller]
pub fn check_groups(
    (mesh, ranks): (&str, usize),
    world: usize,
    kind: ScheduleKind,
    expected: &Outcome,
) {
    let cluster = Arc::new(Cluster::new(world).grouped().with_one_queue());
    let grouped = train_on((mesh, ranks), kind, Arc::clone(&cluster) as Arc<dyn Machine>);
    assert_bits(&format!("{kind} on {mesh}"), &grouped, expected);
    if world == ranks {
        let verified = verify(&generate(ranks, kind)).unwrap();
        for rank in 0..world {
            let expected = STEPS as usize * groups_with_messages(verified.lockstep(), rank);
            let is_message = |text: &&String| text.contains("send") || text.contains("recv");
            let found = cluster.hub.take_log(rank).iter().filter(is_message).count();
            // One group connects the ranks.
            assert_eq!(found, 1 + expected, "{kind} on {mesh}, rank {rank}");
        }
    }
}

/// More ranks, and another axis; `nccl_pipeline` has every schedule on two ranks.
#[test]
fn schedules_have_the_same_bits_in_groups() {
    if not_checked_on_gpu() {
        return;
    }
    for (mesh, ranks, kind) in
        [("pp=4", 4, ScheduleKind::Interleaved), ("fsdp=2,pp=2", 2, ScheduleKind::ZeroBubbleV)]
    {
        let pairwise = train_on((mesh, ranks), kind, Arc::new(Cluster::new(4)));
        check_groups((mesh, ranks), 4, kind, &pairwise);
    }
}

/// The number of rounds with messages of a rank.
fn groups_with_messages(lockstep: &Lockstep, rank: usize) -> usize {
    let actions = &lockstep.program().ranks[rank];
    let groups =
        actions.chunk_by(|first: &Action, second| lockstep.are_in_one_round(first, second));
    groups.filter(|group| group[0].message().is_some()).count()
}

/// The first and the last stage exchange the gradient of the tied embedding after the step.
#[test]
fn tied_embeddings_are_exchanged_in_groups() {
    if not_checked_on_gpu() {
        return;
    }
    let data = TokenData { batch: 4, seq: 7, vocab: 61, masked: true };
    let train = |mesh: &str, cluster: Cluster| {
        let machine = Some(Arc::new(cluster) as Arc<dyn Machine>);
        let setup = Setup::new(small_gpt2::<Gpt2>(&data, 4));
        let setup = Setup { micro_batches: MICRO_BATCHES, steps: 2, machine, ..setup };
        let ranks = mesh.trim_start_matches("pp=").parse().unwrap();
        let schedule = ScheduleKind::OneFOneB.generate(ranks, 1, MICRO_BATCHES).unwrap();
        train_stages::<Gpt2>(mesh, &setup, &schedule, &StageCut::Even, data)
    };
    for (mesh, ranks) in [("pp=2", 2), ("pp=4", 4)] {
        let pairwise = train(mesh, Cluster::new(ranks));
        let grouped = train(mesh, Cluster::new(ranks).grouped().with_one_queue());
        assert_bits(mesh, &grouped, &pairwise);
    }
}

/// A whole run with samples, whose forward passes send messages one by one.
#[test]
fn runs_with_samples_are_the_same_in_groups() {
    if not_checked_on_gpu() {
        return;
    }
    let size = "--batch 4 --seq 4 --hidden 16 --layers 2";
    let words = "--dtype f32 --steps 4 --mesh pp=2 --micro-batches 4 --schedule zb-h1";
    let pairwise = run_of_size::<Llama>(size, words, Box::new(Cluster::new(2)));
    let grouped = Cluster::new(2).grouped().with_one_queue();
    let grouped = run_of_size::<Llama>(size, words, Box::new(grouped));
    let (of, from) = (&grouped.summary, &pairwise.summary);
    assert_eq!(of.losses, from.losses);
    assert_eq!(of.grad_norms, from.grad_norms);
    assert_eq!(of.sample, from.sample);
    assert!(grouped.saved == pairwise.saved, "parameters and optimizer state");
}
