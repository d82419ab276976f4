//! The rank of a process, by the variables of its launcher.

use std::env;

/// The rank of a process among those that its launcher has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRank {
    /// The world rank.
    pub rank: usize,
    /// World size.
    pub world: usize,
}

/// An invalid rank assignment in the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankAssignmentError {
    /// A variable of the launcher is missing.
    #[error(
        "the environment has {present}, but no {missing}: start all processes by one launcher, or set it"
    )]
    Missing {
        /// The variable that identified the launcher.
        present: &'static str,
        /// The missing variable.
        missing: &'static str,
    },
    /// There are several processes, and the rank of this one is unknown.
    #[error(
        "the environment has {present}, but no {missing}, so each process would train the whole run: start all \
         processes by one launcher, or set {missing} in each; for one process, unset {present}"
    )]
    UnknownRank {
        /// The variable with the number of processes.
        present: &'static str,
        /// The missing variable.
        missing: &'static str,
    },
    /// The launcher gives ranks, but does not tell how many.
    #[error(
        "the environment has {present}, so a launcher has started this process, but no number of processes: each would \
         train the whole run; start them by mpirun, srun or torchrun, or set RANK and WORLD_SIZE (0 and 1 for one \
         process)"
    )]
    UnknownWorld {
        /// The variable with the rank.
        present: &'static str,
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
    /// World rank; the variable identifies the launcher.
    pub rank: &'static str,
    /// Candidates for the world size; none if the launcher does not tell it.
    world: &'static [&'static str],
    /// Candidates for the rank among the processes of the same host; none if it has one process.
    pub local_rank: &'static [&'static str],
    /// Candidates for the number of processes of the same host.
    pub local_size: &'static [&'static str],
    /// Candidates for the job identifier.
    pub job: &'static [&'static str],
}

/// The variables of torchrun, which other tools set too. `RANK` alone may mean anything.
const TORCHRUN: LauncherVars = LauncherVars {
    rank: "RANK",
    world: &["WORLD_SIZE"],
    local_rank: &["LOCAL_RANK"],
    local_size: &["LOCAL_WORLD_SIZE"],
    job: &["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"],
};

/// In the order of precedence. torchrun and compatible launchers are first, as they often run under the others; SLURM
/// and PMIx are last, as other launchers run in a job of SLURM, or set the variables of PMIx too.
const LAUNCHERS: [LauncherVars; 15] = [
    TORCHRUN,
    // Open MPI.
    LauncherVars {
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &["SLURM_JOB_ID", "PMIX_NAMESPACE"],
    },
    // MPICH and Intel MPI.
    LauncherVars {
        rank: "PMI_RANK",
        world: &["PMI_SIZE"],
        local_rank: &[
            "MPI_LOCALRANKID",
            "PALS_LOCAL_RANKID",
            "FLUX_TASK_LOCAL_ID",
            "SLURM_LOCALID",
        ],
        local_size: &["MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"],
        job: &["SLURM_JOB_ID", "PMI_JOBID"],
    },
    // MVAPICH, and its version 2.
    LauncherVars {
        rank: "MVP_COMM_WORLD_RANK",
        world: &["MVP_COMM_WORLD_SIZE"],
        local_rank: &["MVP_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MVP_COMM_WORLD_LOCAL_SIZE"],
        job: &["SLURM_JOB_ID", "PMI_JOBID"],
    },
    LauncherVars {
        rank: "MV2_COMM_WORLD_RANK",
        world: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        job: &["SLURM_JOB_ID", "PMI_JOBID"],
    },
    // jsrun.
    LauncherVars {
        rank: "JSM_NAMESPACE_RANK",
        world: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
        job: &["LSB_JOBID"],
    },
    // horovodrun.
    LauncherVars {
        rank: "HOROVOD_RANK",
        world: &["HOROVOD_SIZE"],
        local_rank: &["HOROVOD_LOCAL_RANK"],
        local_size: &["HOROVOD_LOCAL_SIZE"],
        job: &["SLURM_JOB_ID"],
    },
    // Platform MPI.
    LauncherVars {
        rank: "MPI_RANKID",
        world: &["MPI_NRANKS"],
        local_rank: &["MPI_LOCALRANKID"],
        local_size: &["MPI_LOCALNRANKS"],
        job: &["LSB_JOBID", "SLURM_JOB_ID"],
    },
    // PALS.
    LauncherVars {
        rank: "PALS_RANKID",
        world: &["PMI_SIZE"],
        local_rank: &["PALS_LOCAL_RANKID"],
        local_size: &["PALS_LOCAL_SIZE"],
        job: &["PALS_APID"],
    },
    // Flux.
    LauncherVars {
        rank: "FLUX_TASK_RANK",
        world: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        local_size: &[],
        job: &["FLUX_JOB_ID"],
    },
    // Indexed jobs of Kubernetes, with one process for each pod.
    LauncherVars {
        rank: "JOB_COMPLETION_INDEX",
        world: &["MESHWRIGHT_WORLD_SIZE"],
        local_rank: &[],
        local_size: &[],
        job: &[],
    },
    // A step has its own number of tasks.
    LauncherVars {
        rank: "SLURM_PROCID",
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
        job: &["SLURM_JOB_ID"],
    },
    LauncherVars::without_world("PMIX_RANK", &["PMIX_NAMESPACE"]),
    // ALPS.
    LauncherVars::without_world("ALPS_APP_PE", &["ALPS_APP_ID"]),
    // A rank on the host only, of a launcher that tells nothing else.
    LauncherVars::without_world("MPI_LOCALRANKID", &[]),
];

/// Numbers of processes that users set, and not only launchers, with the variables of the rank.
const SIZES_OF_USERS: [(&str, &str); 2] =
    [("WORLD_SIZE", "RANK"), ("MESHWRIGHT_WORLD_SIZE", "JOB_COMPLETION_INDEX")];

/// Numbers from which on SLURM counts steps that are no task: batch scripts, interactive shells and others.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

impl ProcessRank {
    /// Returns the rank of this process; `None` if it was not started by a launcher.
    ///
    /// # Errors
    /// If variables are missing or inconsistent. `RANK` without `WORLD_SIZE` is none of a launcher, and neither is a
    /// `WORLD_SIZE` of 1 without `RANK`.
    pub fn from_environment() -> Result<Option<ProcessRank>, RankAssignmentError> {
        ProcessRank::from_variables(&|name| env::var(name).ok())
    }

    /// Returns the rank in the given environment variables. Empty ones count as not set.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ProcessRank>, RankAssignmentError> {
        let variables = Variables::new(variable);
        // `RANK` alone may mean anything.
        let is_launcher = |launcher: &&LauncherVars| {
            launcher.rank != TORCHRUN.rank || launcher.is_sized(&variables)
        };
        match LauncherVars::find(&variables).filter(is_launcher) {
            Some(launcher) => launcher.process_rank(&variables).map(Some),
            None => LauncherVars::refuse_lone_size(&variables).map(|()| None),
        }
    }
}

/// Environment variables; empty ones count as not set.
pub struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl<'a> Variables<'a> {
    /// Wraps a function that returns the value of a variable.
    pub fn new(variable: &'a dyn Fn(&str) -> Option<String>) -> Variables<'a> {
        Variables(variable)
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    /// Returns the first of the variables that is set, with its value.
    pub fn first_of(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }
}

impl LauncherVars {
    /// Creates the variables of a launcher that gives ranks, but does not tell how many.
    const fn without_world(rank: &'static str, job: &'static [&'static str]) -> LauncherVars {
        LauncherVars { rank, world: &[], local_rank: &[], local_size: &[], job }
    }

    /// Returns the launcher whose variables are set: the first one that tells the number of processes, else the last
    /// one.
    pub fn find(variables: &Variables<'_>) -> Option<&'static LauncherVars> {
        let has_started = |launcher: &&LauncherVars| launcher.has_started(variables);
        let mut sized = LAUNCHERS.iter().filter(has_started);
        sized
            .find(|launcher| launcher.is_sized(variables))
            .or_else(|| LAUNCHERS.iter().rev().find(has_started))
    }

    /// Refuses a number of processes that users set, of several, without the rank of this one: each process would train
    /// the whole run.
    pub fn refuse_lone_size(variables: &Variables<'_>) -> Result<(), RankAssignmentError> {
        for (present, missing) in SIZES_OF_USERS {
            let size = variables.get(present).and_then(|size| size.trim().parse::<usize>().ok());
            if size.is_some_and(|size| size > 1) {
                return Err(RankAssignmentError::UnknownRank { present, missing });
            }
        }
        Ok(())
    }

    /// Returns true if the launcher has started this process.
    ///
    /// The batch script of a SLURM job has the variables of the first of its tasks, but is not one of them: only `srun`
    /// starts tasks, and sets `SLURM_STEP_ID`.
    fn has_started(&self, variables: &Variables<'_>) -> bool {
        let Some(rank) = variables.get(self.rank) else { return false };
        if self.rank != "SLURM_PROCID" {
            return true;
        }
        match variables.get("SLURM_STEP_ID") {
            Some(step) => step.trim().parse().is_ok_and(|step: u64| step < FIRST_SPECIAL_STEP),
            None => rank.trim() != "0",
        }
    }

    /// Returns true if the launcher tells the number of processes.
    fn is_sized(&self, variables: &Variables<'_>) -> bool {
        variables.first_of(self.world).is_some()
    }

    /// Returns the rank in the variables of this launcher.
    pub fn process_rank(
        &self,
        variables: &Variables<'_>,
    ) -> Result<ProcessRank, RankAssignmentError> {
        if self.world.is_empty() {
            return Err(RankAssignmentError::UnknownWorld { present: self.rank });
        }
        let (size, world) = self.number(variables, self.world)?;
        let (_, rank) = self.number(variables, &[self.rank])?;
        if rank >= world {
            return Err(RankAssignmentError::Invalid {
                name: self.rank,
                value: rank.to_string(),
                expected: format!("below {size}={world}"),
            });
        }
        Ok(ProcessRank { rank, world })
    }

    /// Returns the number in the first of `names` that is set, with its name.
    pub fn number(
        &self,
        variables: &Variables<'_>,
        names: &[&'static str],
    ) -> Result<(&'static str, usize), RankAssignmentError> {
        let Some((name, value)) = variables.first_of(names) else {
            let missing = names.first().copied().unwrap_or_default();
            return Err(RankAssignmentError::Missing { present: self.rank, missing });
        };
        match value.trim().parse() {
            Ok(number) => Ok((name, number)),
            Err(_) => {
                Err(RankAssignmentError::Invalid { name, value, expected: "a number".into() })
            }
        }
    }
}
