//! Rank assignment by a launcher, read from the environment.

use std::env;
use std::net::IpAddr;

use super::process_rank::{LauncherVars, ProcessRank, RankAssignmentError, Variables};

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
    /// Set if all ranks are known to be on one host.
    pub one_host: bool,
}

/// Job identifier, instead of that of the launcher.
const JOB_VARIABLE: &str = "MESHWRIGHT_JOB";

impl RankAssignment {
    /// Returns the rank assignment of this process; `None` if it was not started by a launcher.
    ///
    /// # Errors
    /// If variables are missing or inconsistent.
    pub fn from_environment() -> Result<Option<RankAssignment>, RankAssignmentError> {
        RankAssignment::from_variables(&|name| env::var(name).ok())
    }

    /// Returns the rank assignment in the given environment variables. Empty ones count as not set.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<RankAssignment>, RankAssignmentError> {
        let variables = &Variables::new(variable);
        let Some(launcher) = LauncherVars::find(variables) else {
            return LauncherVars::refuse_lone_size(variables).map(|()| None);
        };
        let ProcessRank { rank, world } = launcher.process_rank(variables)?;
        let local_rank = match launcher.local_rank {
            [] => 0,
            names => launcher.number(variables, names)?.1,
        };
        let one_host = is_one_host(variables, launcher, world);
        let host = match variables.get("MASTER_ADDR") {
            Some(host) => host,
            None if one_host => "127.0.0.1".into(),
            None => {
                return Err(RankAssignmentError::Missing {
                    present: launcher.rank,
                    missing: "MASTER_ADDR",
                });
            }
        };
        let port = match variables.get("MASTER_PORT") {
            Some(value) => {
                let port = value.trim().parse::<u16>().ok().filter(|port| *port > 0);
                port.ok_or_else(|| RankAssignmentError::Invalid {
                    name: "MASTER_PORT",
                    value,
                    expected: "a port from 1 to 65535".into(),
                })?
            }
            None => DEFAULT_PORT,
        };
        // torchrun itself listens on that port.
        let agent_store = variables.get("TORCHELASTIC_USE_AGENT_STORE");
        let is_taken = agent_store.is_some_and(|used| used == "True");
        let port = if is_taken { port.checked_add(1).unwrap_or(DEFAULT_PORT) } else { port };
        let job = variables.get(JOB_VARIABLE);
        let job = job.or_else(|| variables.first_of(launcher.job).map(|(_, job)| job));
        // Others could not reach a loopback address.
        let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let one_host = one_host || is_loopback || host == "localhost";
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let master = format!("{host}:{port}");
        let job = job.unwrap_or_default();
        Ok(Some(RankAssignment { rank, world, local_rank, master, job, one_host }))
    }
}

/// Returns `true` if all ranks are on one host according to the launcher, which may number them otherwise within the
/// host.
fn is_one_host(variables: &Variables<'_>, launcher: &LauncherVars, world: usize) -> bool {
    let local_size = variables.first_of(launcher.local_size);
    let size = local_size.and_then(|(_, size)| size.trim().parse().ok());
    let nodes = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
    world == 1
        || size == Some(world)
        || launcher.rank == "SLURM_PROCID"
            && variables.first_of(&nodes).is_some_and(|(_, nodes)| nodes.trim() == "1")
}
