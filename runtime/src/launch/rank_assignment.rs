//! Rank assignment by a launcher, read from the environment.

use std::env;

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

/// An invalid rank assignment in the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankAssignmentError {
    /// A variable of the launcher is missing.
    #[error(
        "the environment has {present}, but no {missing}: start all processes by one launcher, or set it"
    )]
    Missing {
        /// The variable by which the launcher was recognized.
        present: &'static str,
        /// The missing variable.
        missing: &'static str,
    },
    /// A variable is not a number, or out of range.
    #[error("{name}={value} is not {expected}")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// The value of the variable.
        value: String,
        /// A description of valid values.
        expected: String,
    },
}

/// The environment variables of one launcher.
struct LauncherVars {
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    /// Candidates for the job identifier.
    job: &'static [&'static str],
}

/// torchrun and compatible launchers first: they often run under the other launchers.
const LAUNCHERS: [LauncherVars; 3] = [
    LauncherVars {
        rank: "RANK",
        world: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"],
    },
    LauncherVars {
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["SLURM_JOB_ID", "PMIX_NAMESPACE"],
    },
    LauncherVars {
        rank: "SLURM_PROCID",
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID"],
    },
];

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
        let is_set = |launcher: &&LauncherVars| variable(launcher.rank).is_some();
        let Some(launcher) = LAUNCHERS.iter().find(is_set) else { return Ok(None) };
        let number = |name: &'static str| {
            let Some(value) = variable(name) else {
                return Err(RankAssignmentError::Missing { present: launcher.rank, missing: name });
            };
            value.trim().parse::<usize>().map_err(|_| RankAssignmentError::Invalid {
                name,
                value,
                expected: "a number".into(),
            })
        };
        let (rank, world) = (number(launcher.rank)?, number(launcher.world)?);
        if rank >= world {
            return Err(RankAssignmentError::Invalid {
                name: launcher.rank,
                value: rank.to_string(),
                expected: format!("below {}={world}", launcher.world),
            });
        }
        let local_rank = number(launcher.local_rank)?;
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
