//! Calibration: the curves of a cluster from records of steps.
//!
//! [`calibrate`] fits the constants that [`cluster`](crate::cluster) describes to the kernels and calls of
//! [records](StepRecord), by least squares of the logarithms of their times. A shape counts by the part of the step
//! that its kernels take. No constant is fitted on the time of a step.
//!
//! Every fifth shape of a kind is left out of a first fit, and its error is reported; the result is fitted on all.

mod error;
mod fit;
mod kernels;
mod links;
mod sharing;
mod step_record;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use meshwright_backend::DType;

use crate::cluster::{Catalog, Cluster, Figure, Gpu, MatmulCurve, Origin, PassRates, Trust};

use kernels::{KernelKind, Sample};

pub use error::CalibrateError;
pub use step_record::{CallRecord, KernelRecord, RecordedDevice, StepRecord};

/// A calibrated cluster, and how well its curves predict.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The cluster.
    pub cluster: Cluster,
    /// Errors of the curves by kind.
    pub errors: Vec<CurveError>,
}

/// Errors of shapes that a fit has not seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveError {
    /// The kind, such as `matmuls`.
    pub kind: &'static str,
    /// Number of shapes in the records.
    pub shapes: usize,
    /// Number of shapes that were left out.
    pub left_out: usize,
    /// Mean of their absolute relative errors, each by its part of the time; 0 without one.
    pub mean: f64,
}

/// Calibrates the cluster `name` by records of one device, each with its path.
///
/// A GPU of the catalog keeps its peak, memory, and links that no record has. The peak of others, and of a CPU, is the
/// best measured rate.
///
/// # Errors
/// No record, records of several devices or dtypes, and fewer than two shapes of matmuls.
pub fn calibrate(
    records: &[(PathBuf, StepRecord)],
    name: &str,
) -> Result<Calibration, CalibrateError> {
    let Some(((first_path, first), others)) = records.split_first() else {
        return Err(CalibrateError::NoFile);
    };
    for (path, record) in others {
        let paths = [first_path.clone(), path.clone()];
        let devices = [first, record].map(|record| record.device.name.clone());
        if devices[0] != devices[1] || first.device.kind != record.device.kind {
            return Err(CalibrateError::Devices { paths, devices });
        }
        if first.dtype != record.dtype {
            let dtypes = [first, record].map(|record| record.dtype.clone());
            return Err(CalibrateError::DTypes { paths, dtypes });
        }
    }
    let files: Vec<_> = records
        .iter()
        .map(|(path, _)| path.file_name().unwrap_or_default().to_string_lossy())
        .collect();
    let source = format!("meshwright calibrate {}", files.join(" "));
    let measured = Origin { source: source.as_str().into(), trust: Trust::Measured };
    // A CPU has the rates of its record with the fewest ranks; the factors of others are relative to it.
    let is_cpu = first.is_of_cpu();
    let all: Vec<&StepRecord> = records.iter().map(|(_, record)| record).collect();
    // Those of `meshwright bench comm` have calls only.
    let of_steps: Vec<&StepRecord> =
        all.iter().copied().filter(|record| !record.kernels.is_empty()).collect();
    let fewest = of_steps.iter().map(|record| record.sharing_ranks).min().unwrap_or(1);
    let is_base = |record: &&StepRecord| !is_cpu || record.sharing_ranks == fewest;
    let base: Vec<&StepRecord> = of_steps.iter().copied().filter(is_base).collect();
    let samples = Sample::of_records(&base);
    let matmuls = samples.iter().filter(|sample| sample.kind() == KernelKind::Matmul).count();
    if matmuls < 2 {
        return Err(CalibrateError::OneShape { path: first_path.clone(), shapes: matmuls });
    }
    let known = known_gpu(first);
    let start = starting_gpu(first, known.as_deref(), &samples, &measured);
    let (mut gpu, mut errors) = kernels::fit(&start, &samples, &measured);
    if is_cpu {
        gpu.sharing = sharing::factors(&gpu, &of_steps, &measured);
        kernels::add_host_time(&mut gpu, &base);
    }
    let (levels, links) = links::fit(known_levels(known.as_deref()), &all, &gpu, &measured);
    errors.extend(links);
    let (gpu, name) = (Arc::new(gpu), name.to_owned());
    let description = format!("{}, measured by --record", first.device.name);
    Ok(Calibration { cluster: Cluster { name, description, gpu, levels, gpus: None }, errors })
}

/// Returns the GPU of the catalog whose name the driver's name has, of the nearest memory.
fn known_gpu(record: &StepRecord) -> Option<Arc<Gpu>> {
    let name = record.device.name.to_ascii_lowercase();
    let catalog = Catalog::new();
    let gpus = catalog.clusters().map(|cluster| &cluster.gpu);
    let is_named = |gpu: &&Arc<Gpu>| {
        let model = gpu.name.split('-').next().unwrap_or_default();
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == model)
    };
    let distance = |gpu: &&Arc<Gpu>| (gpu.memory.value / record.device.memory as f64).ln().abs();
    gpus.filter(is_named).min_by(|a, b| distance(a).total_cmp(&distance(b))).cloned()
}

/// Returns the levels of the catalog's first cluster of a GPU.
fn known_levels(gpu: Option<&Gpu>) -> Option<Vec<crate::cluster::Level>> {
    let catalog = Catalog::new();
    let mut clusters = catalog.clusters();
    Some(clusters.find(|cluster| Some(&*cluster.gpu) == gpu)?.levels.clone())
}

/// Returns the description from which the fit starts.
fn starting_gpu(
    record: &StepRecord,
    known: Option<&Gpu>,
    samples: &[Sample],
    measured: &Origin,
) -> Gpu {
    if let Some(known) = known {
        return known.clone();
    }
    let figure = |value: f64| Figure { value, origin: measured.clone() };
    let dtype = record.compute_dtype();
    let best = |rate: &dyn Fn(&Sample) -> f64| samples.iter().map(rate).fold(1.0, f64::max);
    let peak = best(&|sample| match sample.kind() {
        KernelKind::Matmul => sample.kernel.flops as f64 / sample.seconds,
        _ => 0.0,
    });
    let bandwidth = best(&|sample| match sample.kind() {
        KernelKind::Pass => sample.kernel.bytes() as f64 / sample.seconds,
        _ => 0.0,
    });
    let dtypes = if dtype == DType::F32 { vec![dtype] } else { vec![dtype, DType::F32] };
    let launch = if record.is_of_cpu() { [0.0; 2] } else { [2.5e-6, 0.3e-6] };
    Gpu {
        name: slug(&record.device.name),
        memory: figure(record.device.memory.max(1) as f64),
        memory_bandwidth: figure(bandwidth),
        host_bandwidth: figure(bandwidth),
        peak: dtypes.into_iter().map(|dtype| (dtype, figure(peak))).collect(),
        units: record.device.units,
        tile: [64, 64],
        matmul: MatmulCurve {
            efficiency: figure(0.7),
            wave_exponent: figure(0.1),
            half_k: figure(16.0),
            start: figure(1e-6),
        },
        attention: Vec::new(),
        attention_fraction: [figure(0.5), figure(0.5)],
        passes: PassRates { others: figure(0.5), of: Default::default(), start: figure(1e-6) },
        launch: launch.map(figure),
        sharing: Vec::new(),
    }
}

/// Returns a name of letters, digits and `-`.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if slug.is_empty() { "device".into() } else { slug }
}
