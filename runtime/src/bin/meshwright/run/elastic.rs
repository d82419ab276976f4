//! `--elastic`: the number of processes follows what there is at each attempt.

use std::env;
use std::process::{Command, Stdio};

use super::Failure;
use super::start::Starter;
use super::train_command::TrainCommand;

/// A run on a variable number of processes.
///
/// The number changes between attempts only, as a run does not change its mesh: another number is another mesh, on
/// which the checkpoint loads. Other launchers know themselves how many processes they start, so the mesh follows them.
pub struct Elastic {
    min: usize,
    /// Most processes; `None` if another launcher determines them.
    max: Option<usize>,
    /// Numbers of processes from this one on are not tried, as no mesh fits.
    refused: Option<usize>,
}

impl Elastic {
    /// Checks that the mesh of the command can follow the number of processes.
    ///
    /// # Errors
    /// A mesh with fixed degrees, and a number of processes that cannot change.
    pub fn new(min: usize, starter: &Starter, command: &TrainCommand) -> Result<Elastic, Failure> {
        let max = match (starter, starter.processes()) {
            (Starter::Alone, _) => {
                let message = "--elastic: needs several processes, by -n N or --launcher; the ranks of one process are \
                               threads";
                return Err(message.to_owned().into());
            }
            (_, Some(max)) if min > max => {
                return Err(format!("--elastic: {min} is more than -n {max}").into());
            }
            (_, max) => max,
        };
        let mesh = command.setting("mesh").unwrap_or_default();
        let mesh = mesh.to_string_lossy();
        let ranks = match mesh.split_once('=').unwrap_or((&mesh, "")) {
            ("auto", ranks) => ranks.parse::<usize>().ok(),
            _ => {
                let message = "--elastic: needs --mesh auto=N in the command, as the degrees of other meshes are fixed";
                return Err(message.to_owned().into());
            }
        };
        if let (Some(ranks), Some(max)) = (ranks, max)
            && ranks != max
        {
            return Err(format!(
                "--elastic: --mesh {mesh} is a mesh of another number of ranks than -n {max}"
            )
            .into());
        }
        let elastic = Elastic { min, max, refused: None };
        elastic.available(starter)?;
        Ok(elastic)
    }

    /// Returns the number of processes of the next attempt, if it is known, and the mesh.
    ///
    /// # Errors
    /// Fewer than there are to be at least.
    pub fn next_size(&self, starter: &Starter) -> Result<(Option<usize>, String), Failure> {
        let Some(max) = self.max else { return Ok((None, "auto".to_owned())) };
        let (available, what) = self.available(starter)?;
        let count = available.min(max).min(self.refused.map_or(max, |refused| refused - 1));
        if count < self.min {
            let min = self.min;
            return Err(format!(
                "--elastic {min}: {count} processes can be started, as there are {available} {what}"
            )
            .into());
        }
        Ok((Some(count), format!("auto={count}")))
    }

    /// Notes that the program has refused `count` processes. Returns true if fewer are to be tried: the command is not
    /// at fault if it was accepted with the most processes.
    pub fn try_fewer(&mut self, count: Option<usize>) -> bool {
        let Some(count) = count.filter(|count| self.max.is_some_and(|max| *count < max)) else {
            return false;
        };
        self.refused = Some(count);
        count > self.min
    }

    /// Returns the number of devices of this host, and their name.
    fn available(&self, starter: &Starter) -> Result<(usize, &'static str), Failure> {
        match starter {
            Starter::Processes(_) => Ok((count_gpus()?, "GPUs")),
            _ => Ok((std::thread::available_parallelism().map_or(1, |cores| cores.get()), "cores")),
        }
    }
}

/// Counts the GPUs in a process of its own, as the driver of a process does not notice a GPU that is lost later.
fn count_gpus() -> Result<usize, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("--elastic: {error}"), &error);
    let program = env::current_exe().map_err(failed)?;
    let output =
        Command::new(program).arg("probe").stdin(Stdio::null()).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().filter(|line| line.starts_with("GPU ")).count();
    if count > 0 {
        return Ok(count);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().chain(errors.lines()).last().unwrap_or("no GPU was found");
    Err(format!("--elastic: {}", reason.trim_start_matches("error: ")).into())
}
