//! Checks that are made in the first step only, or not at all.

use meshwright::optim::{Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Checks, Rank};

use super::harness::{MeshCase, Numbers, built, mesh, on_with, params_of, stage3};
use super::net::*;

const MESHES: [MeshCase; 3] = [mesh("tp=2"), mesh("dp=2,tp=2"), stage3("fsdp=2,tp=2")];

const ALL: [Checks; 3] = [Checks::Off, Checks::FirstStep, Checks::EveryStep];

/// Returns the parameters after three steps. The last rank has another loss in step `deviates`.
fn train(rank: &Rank, deviates: Option<u64>) -> Numbers {
    let net = built::<Net>(rank, &sizes());
    let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
    let is_last = rank.index() + 1 == rank.comms().shape().world_size();
    for step in 0..3 {
        rank.set_step(step);
        let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
        let y = net.model.plain.forward(&x) * &net.model.gain;
        let factor = if is_last && deviates == Some(step) { 1.5 } else { 1.0 };
        let gradients = Loss::mean_of(&(y.square() * factor)).backward().reduce();
        sgd.step(0.1, &gradients);
    }
    params_of("net", rank, &net)
}

#[test]
fn checks_change_no_result() {
    for case in MESHES {
        let [off, first, every] =
            ALL.map(|checks| on_with(case, checks, |rank| train(rank, None)).unwrap());
        assert_eq!(off, every, "{}", case.mesh);
        assert_eq!(first, every, "{}", case.mesh);
    }
}

#[test]
fn checks_are_made_in_their_steps() {
    for case in MESHES {
        for (checks, deviates, is_found) in [
            (Checks::EveryStep, 0, true),
            (Checks::EveryStep, 1, true),
            (Checks::FirstStep, 0, true),
            (Checks::FirstStep, 1, false),
            (Checks::Off, 0, false),
        ] {
            let result = on_with(case, checks, |rank| train(rank, Some(deviates)));
            let label = format!("{checks:?}, step {deviates} on {}", case.mesh);
            match result {
                Ok(_) => assert!(!is_found, "{label}: nothing was found"),
                Err(message) => {
                    assert!(
                        is_found && message.contains("declared the same"),
                        "{label}: {message}"
                    );
                }
            }
        }
    }
}
