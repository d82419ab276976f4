//! The rank of a process, by the variables of its launcher.

use std::env;

/// The rank of a process among those that its launcher has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRank {
    /// The world rank.
    pub rank: usize,
    /// World size.
    pub world: usize,
    /// Rank among the processes of the same host.
    pub local_rank: usize,
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
pub struct LauncherVars {
    pub rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    /// Candidates for the job identifier.
    pub job: &'static [&'static str],
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

impl ProcessRank {
    /// Returns the rank of this process; `None` if it was not started by a launcher.
    ///
    /// # Errors
    /// If variables are missing or inconsistent.
    pub fn from_environment() -> Result<Option<ProcessRank>, RankAssignmentError> {
        ProcessRank::from_variables(|name| env::var(name).ok())
    }

    /// Returns the rank in the given environment variables; `None` in the batch script of a SLURM job, which has the
    /// variables of the first of its tasks, but is not one of them: only `srun` starts tasks, and sets `SLURM_STEP_ID`.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<ProcessRank>, RankAssignmentError> {
        let Some(launcher) = LauncherVars::find(&variable) else { return Ok(None) };
        let process = launcher.process_rank(&variable)?;
        let is_slurm = launcher.rank == "SLURM_PROCID";
        let is_batch_script = is_slurm && process.rank == 0 && variable("SLURM_STEP_ID").is_none();
        Ok((!is_batch_script).then_some(process))
    }
}

impl LauncherVars {
    /// Returns the launcher whose variables are set.
    pub fn find(variable: &impl Fn(&str) -> Option<String>) -> Option<&'static LauncherVars> {
        LAUNCHERS.iter().find(|launcher| variable(launcher.rank).is_some())
    }

    /// Returns the rank in the variables of this launcher.
    pub fn process_rank(
        &self,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<ProcessRank, RankAssignmentError> {
        let number = |name: &'static str| {
            let Some(value) = variable(name) else {
                return Err(RankAssignmentError::Missing { present: self.rank, missing: name });
            };
            value.trim().parse::<usize>().map_err(|_| RankAssignmentError::Invalid {
                name,
                value,
                expected: "a number".into(),
            })
        };
        let (rank, world) = (number(self.rank)?, number(self.world)?);
        if rank >= world {
            return Err(RankAssignmentError::Invalid {
                name: self.rank,
                value: rank.to_string(),
                expected: format!("below {}={world}", self.world),
            });
        }
        Ok(ProcessRank { rank, world, local_rank: number(self.local_rank)? })
    }
}
