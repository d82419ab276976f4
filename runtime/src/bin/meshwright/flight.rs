//! The subcommand `flight`: names the rank that has stopped the others.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use meshwright::comm::FlightReport;

use super::failure::Failure;

pub fn command() -> Command {
    Command::new("flight")
        .about("Compare the last calls of all ranks, and name the rank that has stopped or slowed down the others")
        .arg(
            Arg::new("folder")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The folder of --flight, or `flight` in the folder of --save"),
        )
}

/// Runs the subcommand. Returns the text to print, and false if a rank is to blame.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let folder: &PathBuf = matches.get_one("folder").expect("the argument is required");
    let report = FlightReport::of_folder(folder).map_err(|error| error.to_string())?;
    Ok((report.to_string(), report.culprits().is_empty()))
}
