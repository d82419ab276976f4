//! Limits of a GPU, and every kernel at the sizes of a training step relative to them.
//!
//! `gpu [NAME] [--tables LIST] [--json FILE]` prints Markdown tables of the kernels whose names contain NAME, and
//! appends each row to FILE as a JSON object after its measurement. `gpu --compile ARCHITECTURE` (such as `sm_90a`)
//! needs no GPU: it compiles the kernels of the tables and of the example models into the cache `MESHWRIGHT_CACHE`.

mod compile;
mod suite;

use std::fs::File;
use std::process::ExitCode;
use std::sync::Arc;

use meshwright::backend::Backend;
use meshwright_cuda::cudnn::CudnnOptions;
use meshwright_cuda::native::{NativeDriver, NativeOptions};
use meshwright_cuda::{CudaBackend, DeviceProperties, Driver, DriverError};

use suite::report::{Effort, append_to};
use suite::{Sizes, TABLES, Table, Variant, measured_report};

/// Command-line options.
#[derive(Default)]
struct Args {
    filter: String,
    tables: Vec<String>,
    json: Option<String>,
    compile: Option<String>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--tables" => args.tables = value()?.split(',').map(str::to_owned).collect(),
            "--json" => args.json = Some(value()?),
            "--compile" => args.compile = Some(value()?),
            _ if word.starts_with('-') => return Err(format!("unknown flag {word}")),
            _ => args.filter = word,
        }
    }
    let names = TABLES.map(|table| table.name);
    match args.tables.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            Err(format!("--tables: `{name}` is not a table; choose from {}", names.join(", ")))
        }
        None => Ok(args),
    }
}

fn run(args: Args) -> Result<(), String> {
    let failed = |error: DriverError| error.to_string();
    if let Some(architecture) = args.compile {
        return compile::run(&architecture).map_err(failed);
    }
    let mut append = match args.json {
        Some(path) => {
            let opened = File::options().create(true).append(true).open(&path);
            Some(append_to(opened.map_err(|error| format!("--json {path}: {error}"))?))
        }
        None => None,
    };
    let mut sink = |row: &serde_json::Value| {
        if let Some(append) = &mut append {
            append(row);
        }
    };
    let chosen =
        |table: &Table| args.tables.is_empty() || args.tables.iter().any(|n| n == table.name);
    let mut described = false;
    for Table { name, variant, rows } in TABLES.iter().filter(|table| chosen(table)) {
        let driver = NativeDriver::with_options(0, options(*variant)).map_err(failed)?;
        if !described {
            describe(driver.properties());
            described = true;
        }
        println!("\n# {name} ({variant:?})");
        let backend: Arc<dyn Backend> = Arc::new(CudaBackend::new(driver));
        let sizes = Sizes::full();
        let effort = Effort::FULL;
        rows(&mut measured_report(backend, &sizes, &args.filter, effort, &mut sink), &sizes);
    }
    Ok(())
}

fn options(variant: Variant) -> NativeOptions {
    let mut options = NativeOptions::default();
    match variant {
        Variant::Default => {}
        Variant::Nondeterministic => {
            let attention = CudnnOptions { deterministic: false, ..CudnnOptions::default() };
            (options.allow_nondeterministic, options.attention) = (true, Some(attention));
        }
        Variant::OwnAttention => options.attention = None,
    }
    options
}

fn describe(properties: &DeviceProperties) {
    let DeviceProperties { name, capability: (major, minor), multiprocessors, .. } = properties;
    println!("{name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors");
}
