//! Mixtrals: with the load-balancing loss of their folder, and without one, as transformers trains them by default.

use meshwright::models::mixtral::Mixtral;
use meshwright_tests::compare::{Report, assert_same_bits};

use super::families::check_training;
use super::{Case, check, weights_of};

#[test]
fn a_mixtral_with_masked_targets_and_several_files() {
    check::<Mixtral>("mixtral_masked_sharded");
}

#[test]
fn a_tied_mixtral_with_a_balance_loss() {
    check::<Mixtral>("mixtral_balanced");
}

/// The experts of a folder come to the ranks that have them, and from there to an export, with the same bits.
#[test]
fn experts_are_imported_and_exported_on_any_mesh() {
    for (name, mesh) in [
        ("mixtral_masked_sharded", "ep=2,tp=2"),
        ("mixtral_masked_sharded", "fsdp=2,cp=2,tp=2"),
        ("mixtral_balanced", "pp=2,ep=2"),
        ("mixtral_balanced", "ep=4"),
    ] {
        let case = Case::open(name);
        let out = tempfile::tempdir().unwrap();
        case.train_on::<Mixtral>(mesh, &case.folder, out.path(), 1, "0");
        let original = weights_of(&case.folder);
        assert_same_bits(&format!("{name} on {mesh}"), &weights_of(out.path()), &original);
    }
}

/// Losses and gradient norms on meshes agree with PyTorch too.
#[test]
fn mixtrals_on_meshes_train_as_in_pytorch() {
    let mut report = Report::default();
    for (name, meshes) in [
        ("mixtral_balanced", ["ep=2,cp=2", "dp=2,tp=2", "ep=2,tp=2,pp=2", "dp=2,ep=2"]),
        ("mixtral_masked_sharded", ["ep=2", "dp=2,ep=2", "ep=2,tp=2", "ep=2,pp=2"]),
    ] {
        let case = Case::open(name);
        meshes.iter().for_each(|mesh| check_training::<Mixtral>(&case, mesh, &mut report));
    }
    report.print();
}
