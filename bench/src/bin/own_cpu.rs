//! Predicted and measured steps of a small Llama on this CPU, calibrated by records of one, two and four ranks.
//!
//! `cargo run --release -p meshwright-bench --bin own_cpu -- [ROUNDS]`
//!
//! Rounds repeat all runs, so that a busy moment of the machine meets all of them. Of the steps of a mesh the fastest
//! counts, and of the records of a number of ranks the fastest three: others wait for what else the machine does.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use meshwright::models::llama::Llama;
use meshwright::sim::calibrate::{StepRecord, calibrate};
use meshwright::sim::cluster::{Cluster, SizedCluster};
use meshwright::train::{Config, StepObserver, StepReport, Trainer};

const MODEL: &str = "--hidden 256 --layers 4 --heads 8 --kv-heads 4 --seq 128 --batch 8 --sample-tokens 0 \
                     --log-every 1h";
const RECORDED: [&str; 3] = ["dp=1", "dp=2", "dp=4"];
/// Meshes, and further settings.
const RUNS: [&str; 20] = [
    "dp=1",
    "dp=2",
    "fsdp=2 --zero 1",
    "fsdp=2 --zero 2",
    "fsdp=2 --zero 3",
    "tp=2",
    "cp=2",
    "pp=2 --micro-batches 4",
    "pp=2 --micro-batches 4 --schedule interleaved",
    "pp=2 --micro-batches 4 --schedule zb-h1",
    "dp=4",
    "fsdp=4 --zero 1",
    "fsdp=4 --zero 3",
    "tp=4",
    "cp=4",
    "pp=4 --micro-batches 4",
    "dp=2,tp=2",
    "fsdp=2,cp=2 --zero 3",
    "pp=2,dp=2 --micro-batches 4",
    "pp=2,tp=2 --micro-batches 4 --schedule interleaved",
];

/// Steps of a measured run, and of a recorded one, whose last step is recorded.
const STEPS: [usize; 2] = [12, 4];
/// Records of each number of ranks in a round.
const RECORDS: usize = 6;
/// The fastest records of each number of ranks that calibrate.
const KEPT: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let folder = tempfile::tempdir()?;
    let mut fastest = RUNS.map(|_| f64::INFINITY);
    let mut records = [const { Vec::new() }; RECORDED.len()];
    for round in 0..rounds {
        for number in 0..RECORDS {
            for (idx, mesh) in RECORDED.iter().enumerate() {
                let path = folder.path().join(format!("{idx}-{round}-{number}.json"));
                train(&format!("{mesh} --steps {} --record {}", STEPS[1], path.display()))?;
                records[idx].push((path.clone(), StepRecord::read(&path)?));
            }
        }
        for (fastest, flags) in fastest.iter_mut().zip(RUNS) {
            *fastest = fastest.min(train(&format!("{flags} --steps {}", STEPS[0]))?);
        }
        eprintln!("round {} of {rounds}: load {}", round + 1, load());
    }
    for records in &mut records {
        records.sort_by(|(_, a), (_, b)| a.recorded_seconds.total_cmp(&b.recorded_seconds));
        records.truncate(KEPT);
    }
    let records = records.concat();
    let calibration = calibrate(&records, "this")?;
    for error in &calibration.errors {
        println!(
            "{}: {} shapes, {:.1} % on {} left out",
            error.kind,
            error.shapes,
            100.0 * error.mean,
            error.left_out
        );
    }
    let cluster = Arc::new(calibration.cluster);
    let path = keep(&cluster)?;
    println!("| mesh | measured | predicted | error | memory | bytes |\n|---|---|---|---|---|---|");
    let mut errors = Vec::new();
    for (measured, flags) in fastest.into_iter().zip(RUNS) {
        let predicted = predict(&path, &cluster, flags)?;
        let (memory, bytes_are_equal) = compare_logs(flags)?;
        let error = predicted / measured - 1.0;
        errors.push(error.abs());
        println!(
            "| `{flags}` | {:.0} ms | {:.0} ms | {:+.1} % | {:.2} % | {} |",
            1e3 * measured,
            1e3 * predicted,
            1e2 * error,
            1e2 * memory,
            if bytes_are_equal { "equal" } else { "DIFFER" }
        );
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    println!("mean error {:.1} %, largest {:.1} %", 1e2 * mean, 1e2 * most);
    Ok(())
}

/// Returns the largest relative difference of peaks of memory by category between a dry run and the run, and true if
/// both send the same bytes over all axes.
fn compare_logs(flags: &str) -> Result<(f64, bool), Box<dyn Error>> {
    let trainer = || -> Result<_, Box<dyn Error>> {
        Ok(Trainer::<Llama>::new(config(&format!("{flags} --steps 3"))?)?)
    };
    let (planned, run) = (trainer()?.step_logs()?, trainer()?.record_steps()?);
    let off = planned.iter().zip(&run).map(|(planned, run)| {
        let totals = [&**planned, run].map(|log| log.memory_peak(|_| true).bytes as f64);
        (totals[0] / totals[1] - 1.0).abs()
    });
    let is_equal = planned.iter().zip(&run).all(|(planned, run)| planned.sent() == run.sent());
    Ok((off.fold(0.0, f64::max), is_equal))
}

/// Trains, and returns the seconds of the fastest step.
fn train(flags: &str) -> Result<f64, Box<dyn Error>> {
    let seconds = Arc::new(Mutex::new(f64::INFINITY));
    let fastest = Arc::clone(&seconds);
    let trainer = Trainer::<Llama>::new(config(flags)?)?;
    trainer.on_step(move |_| Ok(Fastest(Arc::clone(&fastest)))).train()?;
    let seconds = *seconds.lock().expect("no rank has failed");
    Ok(seconds)
}

/// Observes the fastest step.
struct Fastest(Arc<Mutex<f64>>);

impl StepObserver for Fastest {
    fn end(&mut self, report: &StepReport<'_>) -> meshwright::Result<()> {
        // A rank that ends early waits for the others in its next step.
        if report.rank.index() == 0 && report.step > 1 {
            let mut fastest = self.0.lock().expect("no rank has failed");
            *fastest = fastest.min(report.seconds);
        }
        Ok(())
    }
}

fn config(flags: &str) -> Result<Config, Box<dyn Error>> {
    Ok(Config::parse(format!("own_cpu {MODEL} --mesh {flags}").split_whitespace())?)
}

/// Writes the cluster into the current folder.
fn keep(cluster: &Cluster) -> Result<PathBuf, Box<dyn Error>> {
    let path = PathBuf::from("this.toml");
    std::fs::write(&path, cluster.to_toml())?;
    Ok(path)
}

/// Returns the predicted seconds of a step.
fn predict(path: &Path, cluster: &Arc<Cluster>, flags: &str) -> Result<f64, Box<dyn Error>> {
    let gpus = config(flags)?.mesh.world_size();
    let flags = format!("{flags} --simulate {}x{gpus}", path.display());
    let on = SizedCluster { cluster: Arc::clone(cluster), gpus };
    Ok(Trainer::<Llama>::new(config(&flags)?)?.simulate(&on)?.step_s)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
