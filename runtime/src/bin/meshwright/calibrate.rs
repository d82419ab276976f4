//! The subcommand `calibrate`: fits the curves of a cluster to records of steps.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use meshwright_sim::calibrate::{Calibration, StepRecord, calibrate};

use super::failure::Failure;
use super::plot::output::{check_replaced, write_whole};

pub fn command() -> Command {
    Command::new("calibrate")
        .about("Fit the curves of a cluster to steps that --record has measured on this machine")
        .arg(
            Arg::new("files")
                .value_name("FILE.json")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .help("Records of one device: of a CPU, those of 1, 2 and 4 ranks show how ranks share it"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE.toml")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The cluster to write; its name is that of the file"),
        )
}

/// Runs the subcommand. Returns the text to print, and true.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let output: &PathBuf = matches.get_one("output").expect("the argument is required");
    let unwritable =
        |error: io::Error| Failure::new(format!("-o {}: {error}", output.display()), &error);
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = output.file_stem().unwrap_or_default().to_string_lossy();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_toml = output.extension().is_some_and(|extension| extension == "toml");
    if !is_toml || !name.chars().all(is_allowed) {
        let message = "name a file such as this.toml, of letters, digits, `-` and `_`";
        return Err(unwritable(io::Error::other(message)));
    }
    if !folder.is_dir() || output.is_dir() {
        let message = "the folder does not exist, or the file is one";
        return Err(unwritable(io::Error::other(message)));
    }
    check_replaced("-o", output, |text| text.starts_with("[gpu]"))?;
    let read = |path: &PathBuf| Ok((path.clone(), StepRecord::read(path)?));
    let paths = matches.get_many::<PathBuf>("files").into_iter().flatten();
    let calibrated = paths
        .map(read)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|records| calibrate(&records, &name));
    let calibration = calibrated.map_err(|error| Failure::new(error.to_string(), &error))?;
    write_whole(output, &calibration.cluster.to_toml()).map_err(unwritable)?;
    Ok((describe(&calibration, output), true))
}

/// Returns the errors by kind, and how the cluster is used.
fn describe(calibration: &Calibration, output: &Path) -> String {
    let Calibration { cluster, errors } = calibration;
    let mut text = "Error of every fifth shape, left out of a first fit:\n".to_owned();
    for error in errors {
        let mean = match error.left_out {
            0 => "too few shapes".to_owned(),
            _ => format!("{:.1} %", 100.0 * error.mean),
        };
        text += &format!(
            "  {:<18} {:>3} of {:>3} shapes  {mean}\n",
            error.kind, error.left_out, error.shapes
        );
    }
    for factors in &cluster.gpu.sharing {
        text += &format!(
            "Kernels of {} at a time: matmuls and attention take {:.2} times as long, others {:.2}\n",
            meshwright::counted(factors.ranks, "rank"),
            factors.compute.value,
            factors.memory.value
        );
    }
    let path = output.display();
    let path = if output.is_absolute() || path.to_string().contains('/') {
        path.to_string()
    } else {
        format!("./{path}")
    };
    text += &format!(
        "Wrote {path}, with an uncertainty of +-{:.0} %. Simulate a step of N ranks by --simulate {path}xN, such as\n  \
         train_llama --mesh tp=2 --simulate {path}x2\n",
        100.0 * cluster.uncertainty(false)
    );
    text
}
