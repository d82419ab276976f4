//! Command-line tool that reports GPUs, libraries and checkpoints, checks the CUDA kernels, and draws pipeline
//! schedules: `cargo run --release --features cuda --bin meshwright -- --help`.

mod ckpt;
mod failure;
mod schedule;

use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use failure::Failure;
use meshwright::exit_code::exit_on_panic;
use meshwright::{finish_stdout, print_text};

const ABOUT: &str = "Reports GPUs, libraries and checkpoints, checks the CUDA kernels, and draws pipeline schedules";

fn main() -> ExitCode {
    meshwright::ignore_file_size_signal();
    match exit_on_panic(run_command_line) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Failure { message, code }) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::from(code)
        }
    }
}

/// Runs the command line of this process and prints its text. Returns false if what it checks is not in order.
fn run_command_line() -> Result<bool, Failure> {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            finish_stdout(help.print()).map_err(unprinted)?;
            return Ok(true);
        }
    };
    let (text, good) = match matches.subcommand() {
        Some(("schedule", matches)) => schedule::run_command(matches),
        Some(("ckpt", matches)) => ckpt::run_command(matches),
        _ => run_cuda(&matches),
    }?;
    print_text(&text).map_err(unprinted)?;
    Ok(good)
}

fn unprinted(error: std::io::Error) -> Failure {
    Failure::new(error.to_string(), &error)
}

fn command() -> Command {
    let probe = Command::new("probe").about("Print the GPUs and libraries found on this machine");
    let kernels = Command::new("kernels")
        .about("Print the names of the kernel sources")
        .arg(Arg::new("check").long("check").action(ArgAction::SetTrue).help(
            "Compile the kernels, print their resource usage, and fail if one spills registers, exceeds a resource \
             limit, or takes too long to compile; needs no GPU",
        ))
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("LIST")
                .value_delimiter(',')
                .default_value("sm_80,sm_90a,sm_100")
                .requires("check")
                .help("Architectures to compile for"),
        )
        .arg(
            Arg::new("sources")
                .value_name("SOURCE")
                .num_args(0..)
                .help("Only these sources [default: all, including sources generated for typical models]"),
        );
    Command::new("meshwright")
        .about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([probe, kernels, schedule::command(), ckpt::command()])
}

/// Runs a subcommand that needs CUDA. Returns the text to print, and true on success.
#[cfg(feature = "cuda")]
fn run_cuda(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let reported = match matches.subcommand() {
        Some(("kernels", matches)) => {
            let list = |name: &str| -> Vec<String> {
                matches.get_many(name).into_iter().flatten().cloned().collect()
            };
            let sources = cuda::sources(&list("sources"))?;
            if matches.get_flag("check") {
                cuda::check_sources(&sources, &list("arch"))
            } else {
                Ok((cuda::names(&sources), true))
            }
        }
        _ => Ok(cuda::probe()),
    };
    reported.map_err(|error| Failure::new(error.to_string(), &error))
}

#[cfg(not(feature = "cuda"))]
fn run_cuda(_: &ArgMatches) -> Result<(String, bool), Failure> {
    Err("this program was built without GPU support: build it with `--features cuda`"
        .to_string()
        .into())
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use meshwright_cuda::native::{
        CheckedSource, CompiledKernel, DiskCache, KernelProblem, check_kernels, generated_sources,
        libraries, probe as probe_devices,
    };
    use meshwright_cuda::{DriverError, KernelSource, SOURCES};

    /// Returns the sources with these names; without names, all sources, including those generated for typical models.
    pub fn sources(names: &[String]) -> Result<Vec<KernelSource>, String> {
        let mut all: Vec<KernelSource> = SOURCES.iter().copied().cloned().collect();
        all.extend(generated_sources());
        if names.is_empty() {
            return Ok(all);
        }
        let named = |name: &String| {
            let found = all.iter().find(|source| source.name == name.as_str()).cloned();
            found.ok_or_else(|| {
                format!(
                    "there is no kernel source `{name}`: `meshwright kernels` prints their names"
                )
            })
        };
        names.iter().map(named).collect()
    }

    pub fn names(sources: &[KernelSource]) -> String {
        sources.iter().map(|source| format!("{}\n", source.name)).collect()
    }

    /// Reports libraries and GPUs; returns false if no rank can run on a GPU.
    pub fn probe() -> (String, bool) {
        let mut text = String::new();
        for (library, found) in libraries() {
            text += &match found {
                Ok(found) => {
                    format!("{} {}: {}\n", library.name(), found.version, found.path.display())
                }
                Err(error) => format!("not found: {error}\n"),
            };
        }
        match probe_devices() {
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
                (text, true)
            }
            Err(error) => (text + &format!("no GPU can be used: {error}\n"), false),
        }
    }

    pub fn check_sources(
        sources: &[KernelSource],
        architectures: &[String],
    ) -> Result<(String, bool), DriverError> {
        let sources: Vec<&KernelSource> = sources.iter().collect();
        let checked = check_kernels(&sources, architectures, &DiskCache::from_environment())?;
        let mut text = table(&checked, architectures);
        let warnings = checked.iter().flat_map(|checked| &checked.warnings);
        text.extend(warnings.map(|warning| format!("{warning}\n")));
        let problems: Vec<KernelProblem> =
            checked.iter().flat_map(CheckedSource::problems).collect();
        text.extend(problems.iter().map(|problem| format!("REFUSED {problem}\n")));

        let compiled = checked.iter().filter_map(|checked| Some((checked.time?, checked)));
        let longest = compiled.clone().max_by_key(|(time, _)| *time);
        let longest = longest.map_or(String::new(), |(time, longest)| {
            let (source, seconds) = (&longest.source, time.as_secs_f32());
            format!(", the longest in {seconds:.1} s ({source}.cu for {})", longest.architecture)
        });
        let kernels: usize = checked.iter().map(|checked| checked.kernels.len()).sum();
        let _ = writeln!(
            text,
            "{} sources for {}: {kernels} kernels, {} compilations{longest}; {} refused",
            sources.len(),
            architectures.join(", "),
            compiled.count(),
            problems.len(),
        );
        Ok((text, problems.is_empty()))
    }

    /// Formats one line per kernel. Numbers that differ between architectures are listed in the order of
    /// `architectures`.
    fn table(checked: &[CheckedSource], architectures: &[String]) -> String {
        let mut rows: BTreeMap<(&str, &str), Vec<&CompiledKernel>> = BTreeMap::new();
        for checked in checked {
            for kernel in &checked.kernels {
                rows.entry((&checked.source, &kernel.name)).or_default().push(kernel);
            }
        }
        let each = |kernels: &[&CompiledKernel], number: fn(&CompiledKernel) -> u32| -> String {
            let mut numbers: Vec<String> =
                kernels.iter().map(|kernel| number(kernel).to_string()).collect();
            if numbers.iter().all(|number| *number == numbers[0]) {
                numbers.truncate(1);
            }
            numbers.join("/")
        };
        let width = rows.keys().map(|(source, kernel)| source.len() + kernel.len() + 1).max();
        let width = width.unwrap_or(0).max("kernel".len());
        let mut text = format!(
            "{:width$}  {:>7}  {:>11}  {:>9}  {:>6}  {:>5}  {:>7}   ({})\n",
            "kernel",
            "threads",
            "registers",
            "blocks/SM",
            "shared",
            "stack",
            "spilled",
            architectures.join("/"),
        );
        for ((source, kernel), kernels) in &rows {
            let _ = writeln!(
                text,
                "{:width$}  {:>7}  {:>11}  {:>9}  {:>6}  {:>5}  {:>7}",
                format!("{source}/{kernel}"),
                each(kernels, |kernel| kernel.threads),
                each(kernels, |kernel| kernel.usage.registers),
                each(kernels, CompiledKernel::blocks_per_multiprocessor),
                each(kernels, |kernel| kernel.usage.shared),
                each(kernels, |kernel| kernel.usage.stack),
                each(kernels, |kernel| kernel.usage.spilled),
            );
        }
        text
    }
}
