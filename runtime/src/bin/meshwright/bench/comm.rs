//! The subcommand `bench comm`: times and bandwidths of collectives.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright::bench::{COLLECTIVES, MEASURED_AXIS};
use meshwright::comm::LaunchOptions;
use meshwright::mesh::MeshShape;
use meshwright::train::run_on_machine;

use super::comm_cases::CommCases;
use super::comm_record::{bandwidth_curves, comm_record};
use super::output::{BenchFiles, file_args};
use super::{device_arg, failure, open, refused};
use crate::failure::Failure;

/// Most ranks that are started as threads.
const MAX_THREADS: u64 = 256;

pub fn command() -> Command {
    let names = || COLLECTIVES.iter().map(|collective| collective.name);
    Command::new("comm")
        .about(
            "Measure collectives between ranks: time, algorithm and bus bandwidth. Ranks are threads, or the processes \
             that mpirun, torchrun or `meshwright run` has started",
        )
        .arg(
            Arg::new("ranks")
                .long("ranks")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=MAX_THREADS))
                .help("Number of ranks, at least 2 [default: all GPUs, else 2; of processes, as many as there are]"),
        )
        .arg(device_arg())
        .arg(
            Arg::new("ops")
                .long("ops")
                .value_name("NAME,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(PossibleValuesParser::new(names()))
                .help("Collectives to measure [default: all]"),
        )
        .arg(
            Arg::new("sizes")
                .long("sizes")
                .value_name("BYTES,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .default_value("1KiB,8KiB,64KiB,1MiB,8MiB,64MiB")
                .help("Sizes of the whole tensor, rounded down to the same number of elements for each rank"),
        )
        .arg(
            Arg::new("dtype")
                .long("dtype")
                .value_name("DTYPE")
                .value_parser(["f32", "bf16"])
                .default_value("f32")
                .help("Dtype of the elements; sums of bf16 are computed in f32"),
        )
        .args(file_args("Write the measurements, which `meshwright calibrate` reads beside a record of --record"))
}

/// Runs the subcommand. Returns the text to print, which is empty on all processes but the first.
pub fn run_command(matches: &ArgMatches) -> Result<String, Failure> {
    let device: &String = matches.get_one("device").expect("it has a default");
    let cases = CommCases::of(matches, device)?;
    let files = BenchFiles::of(matches);
    let machine = open(device, cases.ranks, None)?;
    cases
        .check_memory(&*machine)
        .inspect_err(|error| machine.announce_failure(error))
        .map_err(failure)?;
    let shape =
        MeshShape::new([(MEASURED_AXIS, cases.ranks)]).expect("the number of ranks is valid");
    let measured = run_on_machine(&*machine, &shape, &LaunchOptions::default(), |rank| {
        if rank.index() == 0 {
            files.check().map_err(refused)?;
        }
        cases.check_agreement(rank)?;
        cases.measure(rank)
    });
    let measured = measured.map_err(failure)?;
    if machine.own_rank().is_some_and(|rank| rank > 0) {
        return Ok(String::new());
    }
    let record = comm_record(&cases, &*machine, &measured);
    let written = files.write(&record, &bandwidth_curves(&cases, &measured))?;
    Ok(cases.describe(&*machine, &measured) + &written)
}
