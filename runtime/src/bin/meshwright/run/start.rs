//! The ways in which the processes of a run are started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use meshwright_comm::__internal::random_digits;
use meshwright_comm::__internal::run_reports::RUN_REPORTS;

use super::Failure;
use super::mpirun::{MpiLauncher, ROOT_VARIABLES};
use super::reports::Reports;
use super::train_command::TrainCommand;

/// The environment variable with the secret of a run.
const TOKEN: &str = "MESHWRIGHT_TOKEN";

/// A way in which the processes of a run are started.
#[derive(Debug)]
pub enum Starter {
    /// One process, whose ranks are threads.
    Alone,
    /// Processes of this program, one for each GPU.
    Processes(usize),
    /// Processes on this host by `mpirun`.
    Mpi(usize, MpiLauncher),
    /// Another launcher with its arguments.
    Launcher(Vec<OsString>, Option<MpiLauncher>),
}

impl Starter {
    /// Chooses the way by the flags and the command.
    ///
    /// # Errors
    /// A launcher or a program that is missing, or cannot be executed.
    pub fn choose(
        processes: Option<usize>,
        launcher: Option<&str>,
        command: &TrainCommand,
    ) -> Result<Starter, Failure> {
        let program = command.program();
        if let Some(launcher) = launcher {
            return Starter::of_launcher(launcher);
        }
        if MpiLauncher::is_name(program) {
            if let Some(count) = processes {
                let name = Path::new(program).display();
                let message = format!(
                    "-n {count}: starts the processes of {name} itself; leave one of both out, or use --launcher \
                     \"{name} ..\""
                );
                return Err(message.into());
            }
            check_program(program)?;
            return Ok(Starter::Launcher(Vec::new(), Some(MpiLauncher::detect(program)?)));
        }
        check_program(program)?;
        match processes {
            None | Some(1) => Ok(Starter::Alone),
            Some(count) if command.is_on_gpus() => Ok(Starter::Processes(count)),
            Some(count) => {
                let mpirun = OsStr::new("mpirun");
                if find_program(mpirun).is_none() {
                    let message = format!(
                        "-n {count}: ranks on CPUs are processes of MPI, and there is no mpirun in PATH: install Open \
                         MPI or MPICH, or leave -n out, for ranks that are threads of one process"
                    );
                    return Err(message.into());
                }
                Ok(Starter::Mpi(count, MpiLauncher::detect(mpirun)?))
            }
        }
    }

    fn of_launcher(line: &str) -> Result<Starter, Failure> {
        if line.contains(['"', '\'', '\\']) {
            let message = "--launcher: its words are separated by blanks, and quotes have no meaning; write a script \
                           that starts the launcher, and name that";
            return Err(message.to_owned().into());
        }
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let Some(program) = words.first() else {
            return Err("--launcher: names no program; leave it out for one process"
                .to_owned()
                .into());
        };
        check_program(program)?;
        let mpi = MpiLauncher::is_name(program).then(|| MpiLauncher::detect(program));
        let mpi = mpi.transpose()?;
        Ok(Starter::Launcher(words, mpi))
    }

    /// Returns the number of processes, if it is known.
    pub fn processes(&self) -> Option<usize> {
        match self {
            Starter::Alone => Some(1),
            Starter::Processes(count) | Starter::Mpi(count, _) => Some(*count),
            Starter::Launcher(..) => None,
        }
    }

    /// Returns the same way with another number of processes.
    pub fn with_processes(&self, count: usize) -> Starter {
        match self {
            _ if count == 1 => Starter::Alone,
            Starter::Mpi(_, launcher) => Starter::Mpi(count, *launcher),
            _ => Starter::Processes(count),
        }
    }

    /// Returns the commands of an attempt, in the order of ranks: one for each process that is started here. Their
    /// programs report to `reports`.
    ///
    /// # Errors
    /// Of the system, which has no random numbers or no free port.
    pub fn commands(
        &self,
        words: &[OsString],
        attempt: u32,
        reports: &Reports,
    ) -> io::Result<Vec<Command>> {
        let token = random_digits()?;
        let job = format!("meshwright-run-{}-{attempt}", std::process::id());
        let base = |words: &[OsString]| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).env(TOKEN, &token);
            match reports.path() {
                Some(path) => command.env(RUN_REPORTS, path),
                None => command.env_remove(RUN_REPORTS),
            };
            command
        };
        let port = || TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|own| own.port());
        let with_store = |mut command: Command, port: u16| {
            let port = port.to_string();
            command.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)]);
            command.env("MESHWRIGHT_JOB", &job);
            command
        };
        Ok(match self {
            Starter::Alone => vec![base(words)],
            Starter::Processes(count) => {
                let port = port()?;
                let of_rank = |rank: usize| {
                    let mut command = with_store(base(words), port);
                    let (rank, count) = (rank.to_string(), count.to_string());
                    command.envs([("RANK", &rank), ("LOCAL_RANK", &rank)]);
                    command.envs([("WORLD_SIZE", &count), ("LOCAL_WORLD_SIZE", &count)]);
                    command
                };
                (0..*count).map(of_rank).collect()
            }
            Starter::Mpi(count, launcher) => {
                let start = [vec!["mpirun".into()], launcher.flags(*count), words.to_vec()];
                let mut command = with_store(base(&start.concat()), port()?);
                for name in ROOT_VARIABLES.into_iter().filter(|name| env::var_os(name).is_none()) {
                    command.env(name, "1");
                }
                vec![command]
            }
            Starter::Launcher(launcher, mpi) => {
                let all = [launcher, words].concat();
                let export = mpi.map_or_else(Vec::new, |mpi| mpi.export_flags(TOKEN));
                // Before the program, whose arguments it would be otherwise.
                let at = launcher.len().max(1);
                vec![base(&[&all[..at], &export, &all[at..]].concat())]
            }
        })
    }

    /// Returns true if a process of another launcher is started, which starts the ranks.
    pub fn is_by_launcher(&self) -> bool {
        matches!(self, Starter::Mpi(..) | Starter::Launcher(..))
    }

    /// Returns true if the user has named the launcher, which may start the program on another host.
    pub fn is_of_user(&self) -> bool {
        matches!(self, Starter::Launcher(..))
    }

    /// Returns the signal that stops the ranks if this program gets `signal`.
    ///
    /// `mpirun` kills its processes after SIGTERM, and passes SIGUSR1 on to them. `srun` prints a status after SIGINT.
    pub fn signal_to_pass(&self, signal: i32) -> i32 {
        match self {
            Starter::Alone | Starter::Processes(_) => signal,
            Starter::Mpi(..) | Starter::Launcher(_, Some(_)) => libc::SIGUSR1,
            Starter::Launcher(_, None) if signal == libc::SIGINT => libc::SIGTERM,
            Starter::Launcher(_, None) => signal,
        }
    }

    /// Returns the signal that has ended a process, also one that a launcher or a shell reports by its exit code.
    pub fn signal_of(&self, status: ExitStatus) -> Option<i32> {
        let mpi = match self {
            Starter::Mpi(_, mpi) => Some(*mpi),
            Starter::Launcher(_, mpi) => *mpi,
            Starter::Alone | Starter::Processes(_) => None,
        };
        let of_code = |code: i32| {
            let of_shell = (129..=128 + 64).contains(&code).then_some(code - 128);
            of_shell.or_else(|| mpi?.signal_of_code(code))
        };
        status.signal().or_else(|| status.code().and_then(of_code))
    }
}

/// Checks that a program of this host can be started.
fn check_program(program: &OsStr) -> Result<(), Failure> {
    let name = Path::new(program).display();
    let Some(path) = find_program(program) else {
        let is_here = Path::new(program).is_file() && !has_folder(program);
        let advice = match (is_here, has_folder(program)) {
            (true, _) => format!("; that of this folder is ./{name}"),
            (_, true) => String::new(),
            _ => " in PATH; name it with its folder".into(),
        };
        return Err(format!("there is no program {name}{advice}").into());
    };
    let metadata = fs::metadata(&path);
    let reason = match &metadata {
        Ok(metadata) if metadata.is_dir() => "it is a folder",
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            "it has no permission to be executed (chmod +x)"
        }
        _ if !has_program_header(&path) => {
            "it is neither a program nor a script that begins with #!"
        }
        _ => return Ok(()),
    };
    Err(format!("cannot start {name}: {reason}").into())
}

/// Returns the path of a program, as the system would find it.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    if has_folder(program) {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let paths: Vec<PathBuf> =
        env::split_paths(&folders).map(|folder| folder.join(program)).collect();
    let is_executable = |path: &&PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found =
        paths.iter().find(is_executable).or_else(|| paths.iter().find(|path| path.is_file()));
    found.cloned()
}

fn has_folder(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

fn has_program_header(path: &Path) -> bool {
    let mut header = Vec::new();
    // One that may be executed, but not read.
    let Ok(file) = File::open(path) else { return true };
    file.take(4).read_to_end(&mut header).is_ok()
        && (header == b"\x7fELF" || header.starts_with(b"#!"))
}
