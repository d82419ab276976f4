//! The subcommand `run`: starts the processes of a run, and starts them again after failures.

mod attempt;
mod elastic;
mod journal;
mod mpirun;
mod output;
mod reports;
mod restarts;
mod separator;
mod start;
mod supervisor;
mod train_command;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use meshwright::launch::ProcessRank;
use meshwright::train::config::TimeLimit;

use super::failure::Failure;
use elastic::Elastic;
use restarts::Restarts;
pub use separator::check_separator;
use start::Starter;
use supervisor::Supervisor;
use train_command::TrainCommand;

/// Most processes of a run that are started here.
const MAX_PROCESSES: i64 = 4096;

pub fn command() -> Command {
    Command::new("run")
        .about("Start the processes of a training program, pass signals on, and start them again after failures")
        .override_usage("meshwright run [OPTIONS] -- PROGRAM [ARGS]..")
        .arg(
            Arg::new("processes")
                .short('n')
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=MAX_PROCESSES as u64))
                .help("Start N processes on this host, each of them a rank: by mpirun, or with `--device cuda` in the \
                       command one for each GPU [default: one process, whose ranks are threads]"),
        )
        .arg(
            Arg::new("launcher")
                .long("launcher")
                .value_name("COMMAND")
                .conflicts_with("processes")
                .help("Start the program by another launcher, such as \"srun --kill-on-bad-exit=1\""),
        )
        .arg(
            Arg::new("max-restarts")
                .long("max-restarts")
                .value_name("N")
                .default_value("0")
                .value_parser(value_parser!(u32))
                .help("Start again after exit code 3, from the newest checkpoint, until N restarts in a row have saved \
                       no further step [needs --save in the command]"),
        )
        .arg(
            Arg::new("elastic")
                .long("elastic")
                .value_name("MIN")
                .num_args(0..=1)
                .default_missing_value("1")
                .value_parser(value_parser!(u64).range(1..=MAX_PROCESSES as u64))
                .help("Start as many processes as there are GPUs, or cores, at each attempt: from MIN to N of -n, or \
                       as many as the launcher has [MIN: 1; needs --mesh auto=N in the command]"),
        )
        .arg(
            Arg::new("grace")
                .long("grace")
                .value_name("TIME")
                .default_value("120s")
                .value_parser(parse_time)
                .help("Time from a signal to the end of the processes, after which they are killed"),
        )
        .arg(
            Arg::new("command")
                .value_name("PROGRAM")
                .num_args(1..)
                .last(true)
                .value_parser(value_parser!(OsString))
                .help("The training program with its arguments, after --"),
        )
}

/// Runs the subcommand. Returns the exit code of the run.
pub fn run_command(matches: &ArgMatches) -> Result<u8, Failure> {
    refuse_rank()?;
    let words = matches.get_many::<OsString>("command").into_iter().flatten().cloned();
    let words: Vec<OsString> = words.collect();
    if words.is_empty() {
        return Err("needs a program: meshwright run .. -- PROGRAM ..".to_owned().into());
    }
    let command = TrainCommand::new(words);
    let processes = matches.get_one::<u64>("processes").map(|count| *count as usize);
    let launcher = matches.get_one::<String>("launcher").map(String::as_str);
    let starter = Starter::choose(processes, launcher, &command)?;
    let min = matches.get_one::<u64>("elastic").map(|min| *min as usize);
    let elastic = min.map(|min| Elastic::new(min, &starter, &command)).transpose()?;
    let limit = *matches.get_one::<u32>("max-restarts").expect("it has a default");
    if limit > 0 {
        command.check_restarts()?;
    }
    let grace = *matches.get_one::<Duration>("grace").expect("it has a default");
    Supervisor::open(command, starter, elastic, Restarts::new(limit), grace)?.run()
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = text.parse::<TimeLimit>();
    time.map(|time| time.0).map_err(|()| "must be a time such as 120s or 5m".to_owned())
}

/// Refuses to be one of several processes of a launcher: each of them would start the whole run.
fn refuse_rank() -> Result<(), Failure> {
    match ProcessRank::from_environment() {
        Ok(Some(ProcessRank { rank, world, .. })) if world > 1 => Err(format!(
            "this process was started as rank {rank} of {world}, and each would start the whole run; start `meshwright \
             run` once, and name the launcher in it: --launcher \"srun --kill-on-bad-exit=1\""
        )
        .into()),
        _ => Ok(()),
    }
}
