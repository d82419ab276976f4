//! Whole models on a device, compared with the CPU: every number of a training, on one rank and on meshes whose ranks
//! share the device.

mod captured_pipeline;
mod context;
mod context_captured;
mod context_windows;
mod dry_run;
mod functions;
mod gpt2;
mod graphs;
mod head;
mod llama;
mod moe;
mod nccl;
mod nccl_captured;
mod nccl_grouped;
mod nccl_pipeline;
mod nccl_scratch;
mod operations;
mod pipeline;
mod trainer;
mod uncaptured_pipeline;
mod validation;

use std::sync::Arc;

use meshwright::layout::Shape;
use meshwright::nn::Build;
use meshwright::tensor::{Loss, Rank};
use meshwright::train::{Gpus, Machine};
use meshwright_gpu_sim::{drivers, on_gpu};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::Turn;
use meshwright_tests::run::{Outcome, Setup, train, without_noise};

use nccl::{Cluster, ranks_of};

/// Relative tolerance between device and CPU.
#[derive(Clone, Copy)]
struct Tolerance {
    loss: f64,
    norm: f64,
    gradient: f64,
    trained: f64,
}

/// Tolerance of parameters that a device initializes, with its own logarithms and cosines.
const INITIAL: f64 = 2e-7;

const F32: Tolerance = Tolerance { loss: 1e-5, norm: 1e-4, gradient: 2e-5, trained: 1e-4 };
/// Tolerance between two meshes in bf16, whose sums are rounded in another order.
const BF16: Tolerance = Tolerance { loss: 9e-3, norm: 1e-1, gradient: 6e-2, trained: 6e-2 };

/// Creates one device for up to eight ranks.
fn device(seed: u64) -> Arc<dyn Machine> {
    Arc::new(Gpus::new(drivers(seed, 8), 1))
}

/// Creates a simulated device for each rank of `mesh`, with the tests' collectives library between them; if tests run
/// on a GPU, that one for all ranks.
fn machine_of(mesh: &str) -> Arc<dyn Machine> {
    if on_gpu() { device(0) } else { Arc::new(Cluster::new(ranks_of(mesh))) }
}

/// Trains on the CPU with one rank and on a device with the setups `others`, and compares.
#[track_caller]
fn check<'a, M: Build, S: Shape>(
    setup: &Setup,
    others: impl IntoIterator<Item = (&'a str, String, Setup)>,
    tolerance: Tolerance,
    loss: impl Fn(&M, &Rank, Turn) -> Loss<S> + Sync,
) {
    let expected = without_noise(train("1", setup, &loss));
    let mut report = Report::default();
    for (seed, (mesh, what, setup)) in others.into_iter().enumerate() {
        let on_device = |seed| {
            let setup = Setup { machine: Some(device(seed)), ..setup.clone() };
            train(mesh, &setup, &loss)
        };
        let got = on_device(2 * seed as u64);
        let place = format!("{what} on {mesh}");
        compare(&mut report, &place, &without_noise(got.clone()), &expected, tolerance);
        // The seed of the device's scheduler does not change results.
        let again = on_device(2 * seed as u64 + 1);
        assert_eq!(again.losses, got.losses, "{place}: losses of another order of work");
        assert_same_bits(&format!("{place}: another order of work"), &again.trained, &got.trained);
    }
    report.print();
}

fn compare(
    report: &mut Report,
    place: &str,
    got: &Outcome,
    expected: &Outcome,
    tolerance: Tolerance,
) {
    report.tensors("initial parameter", place, &got.initial, &expected.initial, INITIAL);
    report.scalars("loss", place, &got.losses, &expected.losses, tolerance.loss);
    report.scalars("norm", place, &got.norms, &expected.norms, tolerance.norm);
    report.tensors("gradient", place, &got.gradients, &expected.gradients, tolerance.gradient);
    report.tensors("trained parameter", place, &got.trained, &expected.trained, tolerance.trained);
}
