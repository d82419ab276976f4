//! Command-line tool that writes new projects, starts, supervises and reports runs, draws metrics and pipeline
//! schedules, and reports GPUs, libraries, checkpoints and clusters:
//! `cargo run --release --features cuda --bin meshwright -- --help`.

mod bench;
mod calibrate;
mod ckpt;
mod clusters;
mod failure;
mod flight;
mod new;
mod plot;
mod report;
mod run;
mod schedule;

use std::io::Write;
use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;
use failure::Failure;
use meshwright::exit_code::exit_on_panic;
use meshwright::{finish_stdout, print_text};

const ABOUT: &str = "Writes new projects, starts and supervises runs, draws metrics and pipeline schedules, and \
                     reports GPUs, libraries, checkpoints and clusters";

fn main() -> ExitCode {
    meshwright::ignore_file_size_signal();
    match exit_on_panic(run_command_line) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { message, code }) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::from(code)
        }
    }
}

/// Runs the command line of this process and prints its text. Returns the exit code: 1 if what it checks is not in
/// order, and that of a run.
fn run_command_line() -> Result<u8, Failure> {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "run") {
        // Built, so that its flags have their numbers of values.
        let mut command = run::command();
        command.build();
        run::check_separator(&command, words)?;
    }
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        // Without arguments, the help is the message.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        Err(error) if error.use_stderr() => return Err(error.into()),
        Err(help) => {
            finish_stdout(help.print()).map_err(unprinted)?;
            return Ok(0);
        }
    };
    let (text, good) = match matches.subcommand() {
        Some(("schedule", matches)) => schedule::run_command(matches),
        Some(("ckpt", matches)) => ckpt::run_command(matches),
        Some(("clusters", matches)) => clusters::run_command(matches),
        Some(("bench", matches)) => bench::run_command(matches),
        Some(("calibrate", matches)) => calibrate::run_command(matches),
        Some(("flight", matches)) => flight::run_command(matches),
        Some(("new", matches)) => new::run_command(matches),
        Some(("plot", matches)) => plot::run_command(matches),
        Some(("report", matches)) => report::run_command(matches),
        Some(("run", matches)) => return run::run_command(matches),
        _ => probe(),
    }?;
    print_text(&text).map_err(unprinted)?;
    Ok(u8::from(!good))
}

fn unprinted(error: std::io::Error) -> Failure {
    Failure::new(error.to_string(), &error)
}

fn command() -> Command {
    let probe = Command::new("probe").about("Print the GPUs and libraries found on this machine");
    Command::new("meshwright")
        .about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            new::command(),
            run::command(),
            plot::command(),
            report::command(),
            probe,
            schedule::command(),
            ckpt::command(),
            clusters::command(),
            bench::command(),
            calibrate::command(),
            flight::command(),
        ])
}

/// Reports libraries and GPUs; returns false if no rank can run on a GPU.
#[cfg(feature = "cuda")]
fn probe() -> Result<(String, bool), Failure> {
    use meshwright_cuda::native;
    let mut text = String::new();
    for (library, found) in native::libraries() {
        text += &match found {
            Ok(found) => {
                format!("{} {}: {}\n", library.name(), found.version, found.path.display())
            }
            Err(error) => format!("not found: {error}\n"),
        };
    }
    match native::probe() {
        Ok(found) => {
            for (ordinal, device) in found.devices.iter().enumerate() {
                let (major, minor) = device.capability;
                let gib = device.memory as f64 / f64::from(1 << 30);
                let (name, multiprocessors) = (&device.name, device.multiprocessors);
                text += &format!(
                    "GPU {ordinal}: {name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors, \
                     {gib:.1} GiB\n"
                );
            }
            Ok((text, true))
        }
        Err(error) => Ok((text + &format!("no GPU can be used: {error}\n"), false)),
    }
}

#[cfg(not(feature = "cuda"))]
fn probe() -> Result<(String, bool), Failure> {
    Err("this program was built without GPU support: build it with `--features cuda`"
        .to_string()
        .into())
}
