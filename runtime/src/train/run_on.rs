//! Runs a closure on every rank of a mesh.

use crate::comm::{LaunchOptions, RankComms, launch, launch_coded, launch_rank};
use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::tensor::{Rank, Settings};
use meshwright_core::__internal::AppliedUpdates;

use super::machine::{Machine, open_cpu};
use super::{Error, Result};

/// Runs `body` once per rank of `mesh` (`"dp=2,tp=2"`; `"1"` for a single rank), each on a thread of this process, and
/// returns the results in rank order.
///
/// The CPU cores are divided among the ranks. Initial weights and dropout masks are drawn from `seed`. A program that
/// needs another backend or thread count calls [`launch`] and [`Rank::new`] itself.
///
/// ```
/// use meshwright::prelude::*;
///
/// dims! { Batch @ data, Wide }
///
/// let sums = meshwright::run_on("dp=2,tp=2", 0, |rank| {
///     let x: Tensor<(Batch, Split<Wide, Tp>)> =
///         Tensor::from_fn(rank, &[2, 4], |at| (10 * at[0] + at[1]) as f32);
///     Ok(x.sum(Wide).all_reduce().to_local_vec())
/// })?;
/// assert_eq!(sums, [[6.0], [6.0], [46.0], [46.0]]);
/// # Ok::<_, meshwright::Error>(())
/// ```
///
/// # Errors
/// A mesh that cannot be parsed, an unused axis of the mesh, ranks that end with different updates of their parameters,
/// and the error of the rank that failed first and stopped the others.
pub fn run_on<T: Send>(
    mesh: &str,
    seed: u64,
    body: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    run_on_shape(&mesh.parse()?, Settings::new(seed), body)
}

/// Runs `body` like [`run_on`], with settings.
///
/// # Errors
/// As [`run_on`].
pub fn run_on_shape<T: Send>(
    shape: &MeshShape,
    settings: Settings,
    body: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = (cores / shape.world_size()).max(1);
    let ended = launch(shape, |comms| {
        let rank = Rank::with_settings(comms, Box::new(open_cpu(threads)?), settings);
        let result = body(&rank)?;
        check_axes_used(&rank)?;
        Ok((result, rank.applied_updates()))
    })
    .map_err(Error::of_ranks)?;
    // Here, where no rank waits for others: one may evaluate for a long time after its last step.
    let (results, updates): (Vec<T>, Vec<AppliedUpdates>) = ended.into_iter().unzip();
    match AppliedUpdates::difference(&updates) {
        Some(difference) => Err(Error::Input(difference)),
        None => Ok(results),
    }
}

/// Runs `body` on the ranks of `machine` that are in this process, and returns the result of the first of them.
///
/// # Errors
/// Of the machine, and of the rank that failed first and stopped the others, with its exit code on every process.
pub fn run_on_machine<T: Send>(
    machine: &dyn Machine,
    shape: &MeshShape,
    options: &LaunchOptions,
    body: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<T> {
    let run_rank = |comms: RankComms| {
        let backend = machine.backend(comms.rank())?;
        let comms = machine.connect(comms, &*backend)?;
        body(&Rank::with_settings(comms, backend, Settings::new(0)))
    };
    let ended = match machine.own_rank() {
        Some(rank) => launch_rank(options, shape, rank, Error::exit_code, run_rank),
        None => launch_coded(options, shape, Error::exit_code, run_rank)
            .map(|mut all| all.swap_remove(0)),
    };
    ended.map_err(Error::of_ranks)
}

/// Axes that count as used only if a dim is declared over them, or ranks communicate along them.
const EXPLICIT_AXES: [AxisId; 2] = [AxisId::Pp, AxisId::Cp];

/// Refuses a mesh with an axis along which all ranks have done the same work.
fn check_axes_used(rank: &Rank) -> Result<()> {
    let used = rank.used_axes();
    let idle =
        EXPLICIT_AXES.into_iter().find(|axis| rank.degree(*axis) > 1 && !used.contains(*axis));
    let Some(axis) = idle else { return Ok(()) };
    let fix = match axis {
        AxisId::Cp => "declare the dim of sequences `Seq @ cp`, or leave the axis out",
        _ => "build the model as stages, by `build_stages`, or leave the axis out",
    };
    let degree = rank.degree(axis);
    Err(Error::Input(format!(
        "the mesh has {axis}={degree}, but no tensor or parameter is distributed over `{axis}`, so its ranks have done \
         the same work; {fix}"
    )))
}
