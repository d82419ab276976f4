//! The subcommand `bench gemm`: FLOP/s of matmuls by size.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright::backend::DType;
use meshwright::bench::{MatmulSize, measure_matmul};
use meshwright::comm::LaunchOptions;
use meshwright::launch::ProcessRank;
use meshwright::mesh::MeshShape;
use meshwright::train::{Error, Machine, PeakFlops, run_on_machine};
use meshwright_backend::__internal::Bytes;
use serde_json::{Value, json};

use super::output::{BenchFiles, Curves, file_args};
use super::table::{align, time_text};
use super::{device_arg, failure, open, refused};
use crate::failure::Failure;

/// Least number of runs of a matmul, and their least duration.
const AT_LEAST: (u32, Duration) = (5, Duration::from_millis(200));

/// Largest size of a dim.
const LARGEST: usize = 1 << 20;

pub fn command() -> Command {
    Command::new("gemm")
        .about("Measure the FLOP/s of matmuls by size, on one device, as a share of its peak")
        .arg(device_arg())
        .arg(
            Arg::new("threads")
                .long("threads")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=4096))
                .help("Threads on the CPU [default: all cores]"),
        )
        .arg(
            Arg::new("sizes")
                .long("sizes")
                .value_name("N|MxNxK,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help(
                    "Sizes of square matrices, or MxNxK for [M, K] times [K, N] [default: 64 to 2048 in powers of two, \
                     on a GPU 256 to 16384]",
                ),
        )
        .arg(
            Arg::new("dtypes")
                .long("dtypes")
                .value_name("DTYPE,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(["f32", "bf16"])
                .default_values(["f32", "bf16"])
                .help("Dtypes of the matrices; sums are in f32"),
        )
        .arg(
            Arg::new("peak-flops")
                .long("peak-flops")
                .value_name("X")
                .allow_negative_numbers(true)
                .value_parser(value_parser!(f64))
                .help(
                    "Peak FLOP/s of the device in this dtype, such as 989e12 [default: that of the GPU's data sheet, \
                     else the fastest matmul]",
                ),
        )
        .args(file_args("Write the measurements"))
}

/// A measured matmul.
struct MeasuredMatmul {
    size: MatmulSize,
    dtype: DType,
    seconds: f64,
}

/// The peak of a dtype, and its source.
struct Peak {
    flops: f64,
    text: String,
}

/// Runs the subcommand. Returns the text to print.
pub fn run_command(matches: &ArgMatches) -> Result<String, Failure> {
    if let Ok(Some(ProcessRank { rank, world, .. })) = ProcessRank::from_environment()
        && world > 1
    {
        let message = format!(
            "bench gemm measures one device, and this process was started as rank {rank} of {world}; start one process"
        );
        return Err(message.into());
    }
    let device: &String = matches.get_one("device").expect("it has a default");
    let sizes = sizes(matches, device)?;
    let names: Vec<&String> = matches.get_many("dtypes").into_iter().flatten().collect();
    let dtypes = [DType::F32, DType::Bf16].into_iter();
    let dtypes: Vec<DType> =
        dtypes.filter(|dtype| names.iter().any(|name| *name == dtype.name())).collect();
    let given = given_peak(matches, &dtypes)?;
    let threads = matches.get_one::<u64>("threads").map(|threads| *threads as usize);
    if threads.is_some() && device == "cuda" {
        return Err("--threads: is of the CPU; leave it out with --device cuda".to_owned().into());
    }
    let files = BenchFiles::of(matches);
    files.check()?;
    let machine = open(device, 1, threads)?;
    check_memory(&sizes, &*machine).map_err(failure)?;
    let options = LaunchOptions::default();
    let measured = run_on_machine(&*machine, &MeshShape::SINGLE, &options, |rank| {
        let cases = dtypes.iter().flat_map(|dtype| sizes.iter().map(move |size| (*dtype, *size)));
        let measure = |(dtype, size)| {
            let seconds = measure_matmul(rank, size, dtype, AT_LEAST);
            MeasuredMatmul { size, dtype, seconds }
        };
        Ok(cases.map(measure).collect::<Vec<_>>())
    });
    let measured = measured.map_err(failure)?;
    let peaks: Vec<(DType, Peak)> =
        dtypes.iter().map(|dtype| (*dtype, peak_of(*dtype, given, &*machine, &measured))).collect();
    let written =
        files.write(&record(&*machine, &peaks, &measured), &curves(&dtypes, &measured))?;
    Ok(describe(&*machine, &peaks, &measured) + &written)
}

/// Returns the sizes in the order in which they are given.
fn sizes(matches: &ArgMatches, device: &str) -> Result<Vec<MatmulSize>, Failure> {
    let Some(texts) = matches.get_many::<String>("sizes") else {
        let powers = if device == "cuda" { 8..=14 } else { 6..=11 };
        return Ok(powers.map(|power| MatmulSize::square(1 << power)).collect());
    };
    let size = |text: &String| {
        let text = text.trim();
        let dims: Option<Vec<usize>> = text.split('x').map(|dim| dim.trim().parse().ok()).collect();
        let dims = dims.filter(|dims| dims.iter().all(|dim| (1..=LARGEST).contains(dim)));
        match dims.as_deref() {
            Some([size]) => Ok(MatmulSize::square(*size)),
            Some([m, n, k]) => Ok(MatmulSize { m: *m, n: *n, k: *k }),
            _ => Err(Failure::from(format!(
                "--sizes: must be numbers from 1 to {LARGEST} such as 512, or three such as 2048x1408x512, not `{text}`"
            ))),
        }
    };
    texts.map(size).collect()
}

fn given_peak(matches: &ArgMatches, dtypes: &[DType]) -> Result<Option<f64>, Failure> {
    let Some(peak) = matches.get_one::<f64>("peak-flops").copied() else { return Ok(None) };
    if !(peak.is_finite() && peak > 0.0) {
        return Err(format!("--peak-flops: must be above 0, not {peak}").into());
    }
    if dtypes.len() > 1 {
        let message = "--peak-flops: is the peak in one dtype; name it, such as --dtypes bf16";
        return Err(message.to_owned().into());
    }
    Ok(Some(peak))
}

/// Refuses sizes that do not fit in memory: matrices are also created in f32.
fn check_memory(sizes: &[MatmulSize], machine: &dyn Machine) -> Result<(), Error> {
    let bytes = |size: &MatmulSize| size.bytes(DType::F32) * 2.0;
    let largest = sizes.iter().max_by(|a, b| bytes(a).total_cmp(&bytes(b)));
    match (largest, machine.memory()) {
        (Some(size), Some(memory)) if bytes(size) > memory => Err(refused(Failure::from(format!(
            "--sizes: {} needs about {}, but {} are available; use smaller sizes",
            size_text(*size),
            Bytes(bytes(size)),
            Bytes(memory)
        )))),
        _ => Ok(()),
    }
}

fn peak_of(
    dtype: DType,
    given: Option<f64>,
    machine: &dyn Machine,
    measured: &[MeasuredMatmul],
) -> Peak {
    if let Some(flops) = given {
        let text = format!("{}FLOP/s, as given", rate_text(flops));
        return Peak { flops, text };
    }
    let of_dtype = measured.iter().filter(|one| one.dtype == dtype);
    let fastest = of_dtype.map(MeasuredMatmul::rate).fold(0.0, f64::max);
    match machine.peak_flops(dtype) {
        Some(flops) => {
            Peak { flops, text: PeakFlops { flops, is_of_data_sheet: true }.to_string() }
        }
        None => Peak {
            flops: fastest,
            text: format!("{}FLOP/s, the fastest matmul", rate_text(fastest)),
        },
    }
}

impl MeasuredMatmul {
    fn rate(&self) -> f64 {
        self.size.flops() / self.seconds
    }
}

fn share(peaks: &[(DType, Peak)], one: &MeasuredMatmul) -> f64 {
    let peak = peaks.iter().find(|(dtype, _)| *dtype == one.dtype);
    peak.map_or(0.0, |(_, peak)| one.rate() / peak.flops)
}

fn describe(machine: &dyn Machine, peaks: &[(DType, Peak)], measured: &[MeasuredMatmul]) -> String {
    let head = ["dtype", "m x n x k", "time", "FLOP/s", "of the peak"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(measured.iter().map(|one| {
        let (dtype, share) = (one.dtype.name().to_owned(), share(peaks, one));
        let (time, rate) = (time_text(one.seconds), rate_text(one.rate()));
        vec![dtype, size_text(one.size), time, rate, format!("{:.1} %", 100.0 * share)]
    }));
    let device = machine.device();
    let place = if device.is_gpu {
        device.name
    } else {
        format!("{} ({})", device.name, machine.describe())
    };
    let peaks =
        peaks.iter().map(|(dtype, peak)| format!("peak of {}: {}\n", dtype.name(), peak.text));
    format!("matmuls on {place}\n{}{}", align(&rows, 2), peaks.collect::<String>())
}

fn record(machine: &dyn Machine, peaks: &[(DType, Peak)], measured: &[MeasuredMatmul]) -> Value {
    let device = machine.device();
    let matmul = |one: &MeasuredMatmul| {
        let MatmulSize { m, n, k } = one.size;
        json!({
            "m": m, "n": n, "k": k,
            "dtype": one.dtype.name(),
            "seconds": one.seconds,
            "flops_per_s": one.rate(),
            "share": share(peaks, one),
        })
    };
    let peak = |(dtype, peak): &(DType, Peak)| {
        let (flops, source) = (peak.flops, &peak.text);
        json!({ "dtype": dtype.name(), "flops_per_s": flops, "source": source })
    };
    json!({
        "format": "meshwright bench gemm",
        "version": 1,
        "device": device.name,
        "units": device.units,
        "peaks": peaks.iter().map(peak).collect::<Value>(),
        "matmuls": measured.iter().map(matmul).collect::<Value>(),
    })
}

/// Returns the FLOP/s by the cube root of m n k, the size of a square matmul of as many FLOPs.
fn curves(dtypes: &[DType], measured: &[MeasuredMatmul]) -> Curves {
    let curve = |dtype: &DType| {
        let own = measured.iter().filter(|one| one.dtype == *dtype);
        let side = |one: &MeasuredMatmul| (one.size.flops() / 2.0).cbrt().round() as u64;
        let mut points: Vec<(u64, f64)> = own.map(|one| (side(one), one.rate())).collect();
        points.sort_by_key(|(side, _)| *side);
        (dtype.name().to_owned(), points)
    };
    Curves {
        title: "matmuls (FLOP/s)".to_owned(),
        sizes: "size: cube root of m n k",
        curves: dtypes.iter().map(curve).collect(),
        is_log: false,
    }
}

fn size_text(MatmulSize { m, n, k }: MatmulSize) -> String {
    format!("{m} x {n} x {k}")
}

fn rate_text(flops: f64) -> String {
    match flops {
        flops if flops >= 1e15 => format!("{:.2} P", flops / 1e15),
        flops if flops >= 1e12 => format!("{:.2} T", flops / 1e12),
        flops => format!("{:.2} G", flops / 1e9),
    }
}
