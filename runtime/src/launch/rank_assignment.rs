//! Rank assignment by a launcher, read from the environment.

use std::env;

use super::process_rank::{LauncherVars, ProcessRank, RankAssignmentError};

/// Port of the store if the launcher does not set `MASTER_PORT`.
const DEFAULT_PORT: u16 = 29_500;

/// Rank assignment of a process: its rank, the world size, and the address of rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankAssignment {
    /// The world rank.
    pub rank: usize,
    /// World size.
    pub world: usize,
    /// Rank among the processes of the same host, which selects the GPU.
    pub local_rank: usize,
    /// Host and port of the store on rank 0.
    pub master: String,
    /// Job identifier: the store refuses processes of other jobs.
    pub job: String,
}

/// Job identifier, instead of that of the launcher.
const JOB_VARIABLE: &str = "MESHWRIGHT_JOB";

impl RankAssignment {
    /// Returns the rank assignment of this process; `None` if it was not started by a launcher.
    ///
    /// # Errors
    /// If variables are missing or inconsistent.
    pub fn from_environment() -> Result<Option<RankAssignment>, RankAssignmentError> {
        RankAssignment::from_variables(|name| env::var(name).ok())
    }

    /// Returns the rank assignment in the given environment variables.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<RankAssignment>, RankAssignmentError> {
        let Some(launcher) = LauncherVars::find(&variable) else { return Ok(None) };
        let ProcessRank { rank, world, local_rank } = launcher.process_rank(&variable)?;
        let host = match variable("MASTER_ADDR") {
            Some(host) => host,
            None if local_rank == rank && is_one_host(&variable, launcher, world) => {
                "127.0.0.1".into()
            }
            None => {
                return Err(RankAssignmentError::Missing {
                    present: launcher.rank,
                    missing: "MASTER_ADDR",
                });
            }
        };
        let port = match variable("MASTER_PORT") {
            Some(value) => {
                value.trim().parse::<u16>().map_err(|_| RankAssignmentError::Invalid {
                    name: "MASTER_PORT",
                    value,
                    expected: "a port".into(),
                })?
            }
            None => DEFAULT_PORT,
        };
        // torchrun itself listens on that port.
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|used| used == "True");
        let port = if is_taken { port.checked_add(1).unwrap_or(DEFAULT_PORT) } else { port };
        let job =
            std::iter::once(&JOB_VARIABLE).chain(launcher.job).find_map(|name| variable(name));
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let master = format!("{host}:{port}");
        Ok(Some(RankAssignment { rank, world, local_rank, master, job: job.unwrap_or_default() }))
    }
}

/// Returns `true` if all ranks are on one host according to the launcher.
fn is_one_host(
    variable: &impl Fn(&str) -> Option<String>,
    launcher: &LauncherVars,
    world: usize,
) -> bool {
    let size = match launcher.rank {
        "RANK" => variable("LOCAL_WORLD_SIZE"),
        "SLURM_PROCID" => return variable("SLURM_NNODES").as_deref() == Some("1"),
        _ => variable("OMPI_COMM_WORLD_LOCAL_SIZE"),
    };
    size.and_then(|size| size.parse().ok()) == Some(world)
}
