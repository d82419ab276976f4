//! The subcommand `bench`: measures collectives and matmuls.

mod comm;
mod comm_record;
mod gemm;
mod output;
mod table;

use std::sync::Arc;

use clap::{Arg, ArgMatches, Command};
use meshwright::train::{Config, Error, Machine, open_machine};

use super::failure::Failure;

pub fn command() -> Command {
    Command::new("bench")
        .about("Measure collectives between ranks, and matmuls")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([comm::command(), gemm::command()])
}

/// Runs the subcommand. Returns the text to print, which is empty on all processes but the first, and true.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    match matches.subcommand() {
        Some(("comm", matches)) => comm::run_command(matches),
        Some((_, matches)) => gemm::run_command(matches),
        None => unreachable!("a subcommand is required"),
    }
    .map(|text| (text, true))
}

/// Returns the argument `device`.
fn device_arg() -> Arg {
    Arg::new("device")
        .long("device")
        .value_name("DEVICE")
        .value_parser(["cpu", "cuda"])
        .default_value("cpu")
        .help("Device of the ranks: cpu, or cuda in a program built with --features cuda")
}

/// Opens a machine of `ranks` ranks.
fn open(device: &str, ranks: usize, threads: Option<usize>) -> Result<Arc<dyn Machine>, Failure> {
    #[cfg(feature = "cuda")]
    meshwright_cuda::native::request_hardware_queues();
    // A batch that every number of ranks divides.
    let words = format!("meshwright --device {device} --mesh dp={ranks} --batch {ranks}");
    let threads = threads.map(|threads| format!(" --threads {threads}")).unwrap_or_default();
    let config =
        Config::parse((words + &threads).split(' ')).map_err(|error| failure(error.into()))?;
    open_machine(&config).map(Arc::from).map_err(failure)
}

/// Converts an error of the runtime.
fn failure(error: Error) -> Failure {
    Failure { message: error.to_string(), code: error.exit_code() }
}

/// Converts the message about an argument to an error of the runtime, with which a rank stops the others.
fn refused(failure: Failure) -> Error {
    Error::Input(failure.message)
}
