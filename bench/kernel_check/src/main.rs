//! Checks the CUDA kernels without a GPU: compiles them for several architectures, prints their resource usage, and
//! fails if one spills registers, exceeds a resource limit, or takes too long to compile.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use meshwright_cuda::native::DiskCache;
use meshwright_cuda::{DriverError, KernelSource, SOURCES};
use meshwright_kernel_check::{
    CheckedSource, CompiledKernel, KernelProblem, check_kernels, generated_sources,
};

fn main() -> ExitCode {
    match run(&command().get_matches()) {
        Ok((text, is_good)) => {
            print!("{text}");
            if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn command() -> Command {
    Command::new("kernel_check")
        .about(
            "Compiles the CUDA kernels, prints their resource usage, and fails if one spills registers, exceeds a \
             resource limit, or takes too long to compile; needs no GPU",
        )
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("LIST")
                .value_delimiter(',')
                .default_value("sm_80,sm_90a,sm_100")
                .help("Architectures to compile for"),
        )
        .arg(Arg::new("sources").value_name("SOURCE").num_args(0..).help(
            "Only these sources [default: all, including sources generated for typical models]",
        ))
}

/// Returns the text to print, and true if no kernel is refused.
fn run(matches: &ArgMatches) -> Result<(String, bool), String> {
    let list = |name: &str| -> Vec<String> {
        matches.get_many(name).into_iter().flatten().cloned().collect()
    };
    let sources = sources(&list("sources"))?;
    check_sources(&sources, &list("arch")).map_err(|error| error.to_string())
}

/// Returns the sources with these names; without names, all sources, including those generated for typical models.
fn sources(names: &[String]) -> Result<Vec<KernelSource>, String> {
    let mut all: Vec<KernelSource> = SOURCES.iter().copied().cloned().collect();
    all.extend(generated_sources());
    if names.is_empty() {
        return Ok(all);
    }
    let named = |name: &String| {
        let found = all.iter().find(|source| source.name == name.as_str()).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|source| &*source.name).collect();
            format!("there is no kernel source `{name}`; there are: {}", known.join(" "))
        })
    };
    names.iter().map(named).collect()
}

fn check_sources(
    sources: &[KernelSource],
    architectures: &[String],
) -> Result<(String, bool), DriverError> {
    let sources: Vec<&KernelSource> = sources.iter().collect();
    let checked = check_kernels(&sources, architectures, &DiskCache::from_environment())?;
    let mut text = table(&checked, architectures);
    let warnings = checked.iter().flat_map(|checked| &checked.warnings);
    text.extend(warnings.map(|warning| format!("{warning}\n")));
    let problems: Vec<KernelProblem> = checked.iter().flat_map(CheckedSource::problems).collect();
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
