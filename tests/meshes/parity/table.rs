//! Meshes and tolerances of the comparison with one rank.

use meshwright::layout::Shape;
use meshwright::nn::Build;
use meshwright::tensor::{Loss, Rank};
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::data::Turn;
use meshwright_tests::run::{Outcome, Setup, train, without_noise};

/// All meshes of dp and tp in 1, 2, 4 with two to eight ranks.
pub const MESHES: [&str; 7] =
    ["tp=2", "tp=4", "dp=2", "dp=4", "dp=2,tp=2", "dp=2,tp=4", "dp=4,tp=2"];

/// Meshes of at most two tensor-parallel ranks.
pub const NARROW_MESHES: [&str; 5] = ["tp=2", "dp=2", "dp=4", "dp=2,tp=2", "dp=4,tp=2"];

// Relative to one rank, in f32. Seen: 2e-7, 8e-7 and 2e-6 in the first step; 3e-7, 5e-6 and 4e-6 in ten.
const FIRST_LOSS: f64 = 1e-6;
const FIRST_NORM: f64 = 5e-6;
const GRADIENT: f64 = 1e-5;
const LOSS: f64 = 5e-6;
const NORM: f64 = 1e-4;
const TRAINED: f64 = 5e-5;

/// Trains on one rank and on every mesh, and compares.
#[track_caller]
pub fn check<M: Build, S: Shape>(
    what: &str,
    meshes: &[&str],
    setup: &Setup,
    loss: impl Fn(&M, &Rank, Turn) -> Loss<S> + Sync,
) {
    let others = meshes.iter().map(|mesh| (*mesh, what.to_owned(), setup.clone()));
    check_each(setup, others, loss);
}

/// Trains on one rank and on meshes with their own setups, and compares.
#[track_caller]
pub fn check_each<'a, M: Build, S: Shape>(
    setup: &Setup,
    others: impl IntoIterator<Item = (&'a str, String, Setup)>,
    loss: impl Fn(&M, &Rank, Turn) -> Loss<S> + Sync,
) {
    let one = without_noise(train("1", setup, &loss));
    let mut report = Report::default();
    for (mesh, what, setup) in others {
        let label = format!("{what} on {mesh}");
        let got = without_noise(train(mesh, &setup, &loss));
        report_parity(&label, &got, &one, &mut report);
    }
    report.print();
}

/// Compares a run with that of one rank.
#[track_caller]
pub fn report_parity(label: &str, got: &Outcome, one: &Outcome, report: &mut Report) {
    assert_same_bits(&format!("{label}: initial parameters"), &got.initial, &one.initial);
    let (first, later) = (&got.losses[..1], &got.losses);
    report.scalars("first loss", label, first, &one.losses[..1], FIRST_LOSS);
    report.scalars("first norm", label, &got.norms[..1], &one.norms[..1], FIRST_NORM);
    report.tensors("gradient", label, &got.gradients, &one.gradients, GRADIENT);
    report.scalars("loss", label, later, &one.losses, LOSS);
    report.scalars("norm", label, &got.norms, &one.norms, NORM);
    report.tensors("trained parameter", label, &got.trained, &one.trained, TRAINED);
}
