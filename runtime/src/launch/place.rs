//! What a launcher tells a process.

use std::env;

/// The port of the store where the launcher names none.
const DEFAULT_PORT: u16 = 29_500;

/// Which rank a process is, of how many, and where rank 0 listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The world rank.
    pub rank: usize,
    /// Number of ranks.
    pub world: usize,
    /// Number among the ranks of the same host, which is that of its GPU.
    pub local_rank: usize,
    /// Host and port at which rank 0 listens.
    pub master: String,
    /// What all processes of the job have in common, and others do not: they refuse each other.
    pub job: String,
}

/// Environment variables that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A variable of the launcher is missing.
    #[error(
        "the environment has {present}, but no {missing}: start all processes by one launcher, or set it"
    )]
    Missing {
        /// What shows that there is a launcher.
        present: &'static str,
        /// What else it has to set.
        missing: &'static str,
    },
    /// A variable is no number, or too large a one.
    #[error("{name}={value} is not {expected}")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it should be.
        expected: String,
    },
}

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    /// What names the job, if the launcher does.
    job: &'static [&'static str],
}

/// torchrun and what imitates it first: other launchers often run it.
const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        rank: "RANK",
        world: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"],
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["SLURM_JOB_ID", "PMIX_NAMESPACE"],
    },
    Launcher {
        rank: "SLURM_PROCID",
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID"],
    },
];

/// Names the job where the launcher does not, or instead of it.
const SECRET: &str = "MESHWRIGHT_JOB";

impl Place {
    /// The place of this process, as its environment says; nothing where no launcher has started it.
    ///
    /// # Errors
    /// When variables are missing or do not fit together.
    pub fn of_process() -> Result<Option<Place>, PlaceError> {
        Place::of(|name| env::var(name).ok())
    }

    /// The place that variables describe.
    ///
    /// # Errors
    /// As [`of_process`](Self::of_process).
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Place>, PlaceError> {
        let is_set = |launcher: &&Launcher| variable(launcher.rank).is_some();
        let Some(launcher) = LAUNCHERS.iter().find(is_set) else { return Ok(None) };
        let number = |name: &'static str| {
            let Some(value) = variable(name) else {
                return Err(PlaceError::Missing { present: launcher.rank, missing: name });
            };
            value.trim().parse::<usize>().map_err(|_| PlaceError::Invalid {
                name,
                value,
                expected: "a number".into(),
            })
        };
        let (rank, world) = (number(launcher.rank)?, number(launcher.world)?);
        if rank >= world {
            return Err(PlaceError::Invalid {
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
                return Err(PlaceError::Missing { present: launcher.rank, missing: "MASTER_ADDR" });
            }
        };
        let port = match variable("MASTER_PORT") {
            Some(value) => value.trim().parse::<u16>().map_err(|_| PlaceError::Invalid {
                name: "MASTER_PORT",
                value,
                expected: "a port".into(),
            })?,
            None => DEFAULT_PORT,
        };
        // There torchrun itself listens.
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|used| used == "True");
        let port = if is_taken { port.checked_add(1).unwrap_or(DEFAULT_PORT) } else { port };
        let job = std::iter::once(&SECRET).chain(launcher.job).find_map(|name| variable(name));
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let master = format!("{host}:{port}");
        Ok(Some(Place { rank, world, local_rank, master, job: job.unwrap_or_default() }))
    }
}

/// Whether the launcher says that all ranks are on one host.
fn is_one_host(
    variable: &impl Fn(&str) -> Option<String>,
    launcher: &Launcher,
    world: usize,
) -> bool {
    let size = match launcher.rank {
        "RANK" => variable("LOCAL_WORLD_SIZE"),
        "SLURM_PROCID" => return variable("SLURM_NNODES").as_deref() == Some("1"),
        _ => variable("OMPI_COMM_WORLD_LOCAL_SIZE"),
    };
    size.and_then(|size| size.parse().ok()) == Some(world)
}
