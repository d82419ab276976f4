//! `--preflight`: the first steps of a run on its mesh, compared with the same steps on one rank.

use std::panic::Location;

use crate::backend::Bytes;
use crate::comm::launch;
use crate::mesh::MeshShape;
use crate::parity::{Observed, Parity, Part};

use super::console::counted;
use super::plan::Plan;
use super::run::{RankLoop, Shared};
use super::{Error, Result, Task};

/// Fixes for a model that is too large to be compared.
const SHRINK: &str = "compare a smaller model of the same kind: fewer --layers, a smaller --hidden, --vocab, --batch \
                      or --seq";

/// Compares losses, the gradient of every parameter, and the updated parameters in each step of the run with one
/// rank's, and returns how close they are, in one line.
///
/// # Errors
/// [`Error::Mismatch`] with the first step, the axes and the fields that differ; errors of the runs, and a mesh of one
/// rank.
#[track_caller]
pub fn compare_with_one_rank<T: Task>(plan: &Plan) -> Result<String> {
    let mesh = &plan.config.mesh;
    let compared = match Part::of_comparison(Location::caller()) {
        Part::Compares(compared) => compared,
        Part::Observes(observer) => {
            // The plan is that of the mesh: see `Config::for_preflight`.
            observer.observe(|_, noise| observe::<T>(plan, noise))
        }
        Part::Skips => return Ok(format!("{mesh} is not compared")),
    };
    if mesh.world_size() == 1 {
        let reason = "--preflight: the mesh has one rank, so there is nothing to compare; name the --mesh of the run";
        return Err(Error::Input(reason.to_owned()));
    }
    let one = plan.on_mesh::<T>(MeshShape::SINGLE).map_err(|error| {
        Error::Input(format!("--preflight: one rank holds the whole model: {error}\n{SHRINK}"))
    })?;
    let many = plan.on_mesh::<T>(*mesh)?;
    check_copies(&[&one, &many])?;
    let run = |mesh: &MeshShape, noise: Option<u32>| match mesh {
        mesh if *mesh == one.config.mesh => observe::<T>(&one, noise),
        mesh if *mesh == many.config.mesh => observe::<T>(&many, noise),
        _ => observe::<T>(&plan.on_mesh::<T>(*mesh)?, noise),
    };
    let mut parity = Parity::new(compared, run).map_err(Error::of_parity)?;
    Ok(parity.check(mesh).map_err(Error::of_parity)?.to_string())
}

/// Trains with the settings of `plan`, and returns the numbers of each rank.
fn observe<T: Task>(plan: &Plan, noise: Option<u32>) -> Result<Vec<Observed>> {
    let shared = Shared::default();
    let body = |comms| RankLoop::<T>::new(plan, &shared, comms)?.observe_steps(noise);
    launch(&plan.config.mesh, body).map_err(Error::of_ranks)
}

/// Checks that the memory of the host holds the numbers of the four runs on one rank beside a run: gradients and
/// parameters of each step.
fn check_copies(plans: &[&Plan]) -> Result<()> {
    for plan in plans {
        let Some(available) = plan.machine.memory() else { continue };
        let tensors = 4.0 * (2 * plan.config.steps + 1) as f64;
        let copies = tensors * 4.0 * plan.parameters as f64;
        let needed = plan.memory.of_all_ranks() + copies;
        if needed > available {
            return Err(Error::Input(format!(
                "--preflight: not enough memory: the gradients and parameters of {}, kept four times, take {}, \
                 and with the run on mesh {} {}; {} are available\n{SHRINK}, or fewer steps: --preflight 1",
                counted(plan.config.steps as usize, "step"),
                Bytes(copies),
                plan.config.mesh,
                Bytes(needed),
                Bytes(available)
            )));
        }
    }
    Ok(())
}
