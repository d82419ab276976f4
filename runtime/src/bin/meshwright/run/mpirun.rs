//! The launchers of MPI libraries.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Failure;

/// The launcher of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiLauncher {
    /// Open MPI.
    OpenMpi,
    /// Hydra, of MPICH and others.
    Hydra,
    /// Another one, whose own flags are not known.
    Other,
}

impl MpiLauncher {
    /// Returns true for the names of such launchers: `mpirun`, `mpiexec.hydra` and others.
    pub fn is_name(program: &OsStr) -> bool {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let stem = name.split(['.', '-']).next().unwrap_or_default();
        ["mpirun", "mpiexec", "orterun", "prterun"].contains(&stem)
    }

    /// Finds out the library of a launcher.
    ///
    /// # Errors
    /// A program that cannot be started, and an environment in which it starts nothing.
    pub fn detect(program: &OsStr) -> Result<MpiLauncher, Failure> {
        let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            let message = format!("cannot start {}: {error}", Path::new(program).display());
            Failure::new(message, &error)
        })?;
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        Ok(if text.contains("open mpi") || text.contains("openrte") || text.contains("prrte") {
            if std::env::var_os("HOME").is_none_or(|home| home.is_empty()) {
                let message =
                    "HOME is not set, without which Open MPI starts nothing; set it to a folder";
                return Err(message.to_owned().into());
            }
            MpiLauncher::OpenMpi
        } else if text.contains("hydra") {
            MpiLauncher::Hydra
        } else {
            MpiLauncher::Other
        })
    }

    /// Returns the flags of `count` processes on this host.
    pub fn flags(self, count: usize) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        if self == MpiLauncher::OpenMpi {
            // The program divides the cores among the threads of its ranks, which have to reach them. By itself, it
            // starts at most as many processes as there are cores, not counting their hyperthreads.
            flags.extend(["--bind-to", "none", "--oversubscribe"].map(OsString::from));
        }
        flags.extend(["-n".into(), count.to_string().into()]);
        flags
    }

    /// Returns the flags that pass an environment variable on to processes of other hosts.
    pub fn export_flags(self, variable: &str) -> Vec<OsString> {
        match self {
            MpiLauncher::OpenMpi => vec!["-x".into(), variable.into()],
            // It passes all of them on.
            MpiLauncher::Hydra | MpiLauncher::Other => Vec::new(),
        }
    }

    /// Returns the signal of an exit code with which the launcher reports that a signal has ended a process.
    pub fn signal_of_code(self, code: i32) -> Option<i32> {
        const WITHOUT_CORE: [i32; 6] = [
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGKILL,
            libc::SIGSEGV,
            libc::SIGXCPU,
        ];
        let is_signal = self == MpiLauncher::Hydra && WITHOUT_CORE.contains(&code);
        is_signal.then_some(code)
    }
}

/// Variables with which Open MPI starts processes of the root user. It refuses them otherwise, for fear of programs
/// with faults; but the user has started this program, and a training program without MPI is not refused either.
pub const ROOT_VARIABLES: [&str; 4] = [
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
];
