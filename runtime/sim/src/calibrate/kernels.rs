//! Curves of kernels.

use std::collections::{BTreeMap, HashMap};

use meshwright_backend::{DType, Kernel, KernelOp};

use crate::cluster::{AttentionCurve, Figure, Gpu, Origin};
use crate::time::{is_transfer, kernel_seconds};

use super::fit::{mean_log, minimize};
use super::{CurveError, StepRecord};

/// Every shape of this number is left out of the first fit.
const LEFT_OUT: usize = 5;
/// The most lengths of a curve of attention.
const MOST_LENGTHS: usize = 6;
/// Seconds that no kernel takes less than.
const SHORTEST: f64 = 1e-9;
/// Seconds that no start takes less than.
const SHORTEST_START: f64 = 1e-8;

/// Equal kernels.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub kernel: Kernel,
    /// Mean seconds of each.
    pub seconds: f64,
    /// Seconds of all in a step.
    pub weight: f64,
}

/// Rates of attention and their weights, by the number of keys.
type RatesByLength = BTreeMap<u32, Vec<(f64, f64)>>;

/// A kind of kernel, each with its own curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelKind {
    Matmul,
    Attention,
    Pass,
    HostCopy,
}

impl KernelKind {
    const ALL: [KernelKind; 4] =
        [KernelKind::Matmul, KernelKind::Attention, KernelKind::Pass, KernelKind::HostCopy];

    const fn name(self) -> &'static str {
        match self {
            KernelKind::Matmul => "matmuls",
            KernelKind::Attention => "attention",
            KernelKind::Pass => "other kernels",
            KernelKind::HostCopy => "copies to the host",
        }
    }
}

impl Sample {
    /// Returns the kernels of records. Equal ones of several records are one, with the geometric mean of their seconds.
    pub fn of_records(records: &[&StepRecord]) -> Vec<Sample> {
        let mut shapes: Vec<(Kernel, Vec<f64>, u64)> = Vec::new();
        let mut indices: HashMap<Kernel, usize> = HashMap::new();
        let kernels = records.iter().flat_map(|record| &record.kernels);
        for (kernel, record) in kernels.filter_map(|record| Some((record.kernel()?, record))) {
            let idx = *indices.entry(kernel).or_insert_with(|| {
                shapes.push((kernel, Vec::new(), 0));
                shapes.len() - 1
            });
            shapes[idx].1.push(record.seconds.max(SHORTEST));
            shapes[idx].2 += record.count;
        }
        let samples = shapes.into_iter().map(|(kernel, seconds, count)| {
            let seconds = mean_log(seconds.into_iter().map(|seconds| (seconds, 1.0))).exp();
            Sample { kernel, seconds, weight: seconds * count as f64 }
        });
        samples.collect()
    }

    pub fn kind(&self) -> KernelKind {
        match self.kernel.op {
            op if op.is_matmul() => KernelKind::Matmul,
            op if op.is_attention() => KernelKind::Attention,
            KernelOp::Upload | KernelOp::Download => KernelKind::HostCopy,
            op if is_transfer(op) => KernelKind::HostCopy,
            _ => KernelKind::Pass,
        }
    }

    /// Returns the predicted seconds by the measured ones.
    fn ratio(&self, gpu: &Gpu) -> f64 {
        // Every recorded dtype has a peak.
        kernel_seconds(gpu, &self.kernel)
            .map_or(1.0, |seconds| seconds.max(SHORTEST) / self.seconds)
    }
}

/// Fits the curves of a GPU, and returns the errors of a fit without every fifth shape.
pub fn fit(start: &Gpu, samples: &[Sample], origin: &Origin) -> (Gpu, Vec<CurveError>) {
    let kinds = KernelKind::ALL.iter().map(|kind| {
        let of_kind: Vec<_> =
            samples.iter().filter(|sample| sample.kind() == *kind).copied().collect();
        (*kind, of_kind)
    });
    let kinds: Vec<(KernelKind, Vec<Sample>)> = kinds.filter(|(_, all)| !all.is_empty()).collect();
    let kept = kinds.iter().flat_map(|(_, of_kind)| {
        of_kind.iter().enumerate().filter(|(idx, _)| !is_left_out(*idx)).map(|(_, sample)| *sample)
    });
    let partial = fit_all(start, &kept.collect::<Vec<_>>(), origin);
    let errors = kinds.iter().map(|(kind, of_kind)| {
        let left_out: Vec<_> = of_kind
            .iter()
            .enumerate()
            .filter(|(idx, _)| is_left_out(*idx))
            .map(|(_, sample)| (sample.ratio(&partial), sample.weight))
            .collect();
        CurveError::of_ratios(kind.name(), of_kind.len(), &left_out)
    });
    let errors = errors.collect();
    (fit_all(start, samples, origin), errors)
}

/// Returns true for the shapes that are left out.
pub fn is_left_out(idx: usize) -> bool {
    idx % LEFT_OUT == LEFT_OUT - 1
}

impl CurveError {
    /// Returns the mean error of predictions relative to measurements, with weights.
    pub(super) fn of_ratios(
        kind: &'static str,
        shapes: usize,
        left_out: &[(f64, f64)],
    ) -> CurveError {
        let weights: f64 = left_out.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = left_out.iter().map(|(ratio, weight)| (ratio - 1.0).abs() * weight).sum();
        let mean = if weights > 0.0 { sum / weights } else { 0.0 };
        CurveError { kind, shapes, left_out: left_out.len(), mean }
    }
}

fn fit_all(start: &Gpu, samples: &[Sample], origin: &Origin) -> Gpu {
    let of_kind = |kind: KernelKind| -> Vec<Sample> {
        samples.iter().filter(|sample| sample.kind() == kind).copied().collect()
    };
    let mut gpu = start.clone();
    // The shortest kernel takes the start, too.
    let shortest = samples.iter().map(|sample| sample.seconds).fold(1e-3, f64::min);
    let starts = [SHORTEST_START, shortest.max(2.0 * SHORTEST_START)];
    // They bound matmuls, which bound attention.
    fit_passes(&mut gpu, &of_kind(KernelKind::Pass), starts, origin);
    fit_matmuls(&mut gpu, &of_kind(KernelKind::Matmul), starts, origin);
    fit_attention(&mut gpu, &of_kind(KernelKind::Attention), origin);
    let copies = of_kind(KernelKind::HostCopy);
    if !copies.is_empty() {
        let bandwidth = minimize(&[gpu.host_bandwidth.value], &[[1e6, 1e13]], |constants| {
            gpu_loss(&gpu, &copies, |gpu| gpu.host_bandwidth.value = constants[0])
        });
        gpu.host_bandwidth = Figure { value: bandwidth[0], origin: origin.clone() };
    }
    gpu
}

/// Returns the weighted sum of squared logarithms of predictions relative to measurements, after a change.
fn gpu_loss(gpu: &Gpu, samples: &[Sample], change: impl FnOnce(&mut Gpu)) -> f64 {
    let mut changed = gpu.clone();
    change(&mut changed);
    samples.iter().map(|sample| sample.weight * sample.ratio(&changed).ln().powi(2)).sum()
}

/// Efficiency, exponent of waves, length at half of the rate, and start.
fn fit_matmuls(gpu: &mut Gpu, samples: &[Sample], starts: [f64; 2], origin: &Origin) {
    if samples.is_empty() {
        return;
    }
    let curve = &gpu.matmul;
    let start = [&curve.efficiency, &curve.wave_exponent, &curve.half_k, &curve.start];
    let start = start.map(|figure| figure.value.max(1e-9));
    let bounds = [[1e-3, 1.0], [1e-3, 1.0], [1e-2, 1e4], starts];
    let set = |gpu: &mut Gpu, constants: &[f64]| {
        let curve = &mut gpu.matmul;
        let figures =
            [&mut curve.efficiency, &mut curve.wave_exponent, &mut curve.half_k, &mut curve.start];
        for (figure, value) in figures.into_iter().zip(constants) {
            *figure = Figure { value: *value, origin: origin.clone() };
        }
    };
    let constants =
        minimize(&start, &bounds, |constants| gpu_loss(gpu, samples, |gpu| set(gpu, constants)));
    set(gpu, &constants);
}

/// A rate for each size of heads, pass and length.
fn fit_attention(gpu: &mut Gpu, samples: &[Sample], origin: &Origin) {
    let start = gpu.matmul.start.value;
    let rate =
        |sample: &Sample| sample.kernel.flops as f64 / (sample.seconds - start).max(SHORTEST);
    let is_backward = |sample: &Sample| sample.kernel.op == KernelOp::AttentionBackward;
    let measured: Vec<&Sample> = samples.iter().filter(|sample| sample.kernel.flops > 0).collect();
    let mut by_curve: BTreeMap<_, RatesByLength> = BTreeMap::new();
    for sample in &measured {
        let [_, keys, _, head_dim] = sample.kernel.dims;
        let curve = (head_dim, is_backward(sample), sample.kernel.dtype.name());
        let of_length = by_curve.entry(curve).or_default().entry(keys).or_default();
        of_length.push((rate(sample), sample.weight));
    }
    for ((head_dim, is_backward, dtype), lengths) in by_curve {
        let skip = lengths.len().div_ceil(MOST_LENGTHS);
        let rates = lengths
            .into_iter()
            .step_by(skip)
            .map(|(keys, rates)| (keys as usize, mean_log(rates.into_iter()).exp()));
        let dtype = if dtype == DType::F32.name() { DType::F32 } else { DType::Bf16 };
        let (head_dim, rates, origin) = (head_dim as usize, rates.collect(), origin.clone());
        let same = |curve: &AttentionCurve| {
            (curve.head_dim, curve.is_backward, curve.dtype) == (head_dim, is_backward, dtype)
        };
        gpu.attention.retain(|curve| !same(curve));
        gpu.attention.push(AttentionCurve { head_dim, dtype, is_backward, rates, origin });
    }
    for (idx, backward) in [false, true].into_iter().enumerate() {
        let of_pass: Vec<_> =
            measured.iter().filter(|sample| is_backward(sample) == backward).collect();
        let Some(Ok(peak)) = of_pass.first().map(|sample| gpu.peak_of(sample.kernel.dtype)) else {
            continue;
        };
        let whole = peak.value * gpu.matmul.efficiency.value;
        let fractions = of_pass.iter().map(|sample| (rate(sample) / whole, sample.weight));
        let value = mean_log(fractions).exp().clamp(1e-3, 1.0);
        gpu.attention_fraction[idx] = Figure { value, origin: origin.clone() };
    }
}

/// A fraction of the bandwidth for each operation, and one start for all.
fn fit_passes(gpu: &mut Gpu, samples: &[Sample], starts: [f64; 2], origin: &Origin) {
    if samples.is_empty() {
        return;
    }
    let bandwidth = gpu.memory_bandwidth.value;
    let mut by_op: BTreeMap<KernelOp, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_op.entry(sample.kernel.op).or_default().push(sample);
    }
    // The best fraction of an operation if each of its kernels takes `start` besides.
    let fraction = |samples: &[&Sample], start: f64| {
        let seconds = |sample: &Sample, fraction: f64| {
            sample.kernel.bytes() as f64 / (bandwidth * fraction) + start
        };
        let loss = |constants: &[f64]| -> f64 {
            let log = |sample: &&Sample| (seconds(sample, constants[0]) / sample.seconds).ln();
            samples.iter().map(|sample| sample.weight * log(sample).powi(2)).sum()
        };
        let best = minimize(&[0.5], &[[1e-4, 1.0]], loss)[0];
        (best, loss(&[best]))
    };
    let start = minimize(&[1e-6], &[starts], |constants| {
        by_op.values().map(|samples| fraction(samples, constants[0]).1).sum()
    })[0];
    let figure = |value: f64| Figure { value, origin: origin.clone() };
    let fractions: Vec<_> =
        by_op.iter().map(|(op, samples)| (*op, fraction(samples, start).0)).collect();
    // It bounds matmuls and attention, so it is that of the fastest operation.
    let most = fractions.iter().map(|(_, fraction)| *fraction).fold(1e-4, f64::max);
    gpu.passes.others = figure(most);
    gpu.passes.of.extend(fractions.into_iter().map(|(op, fraction)| (op, figure(fraction))));
    gpu.passes.start = figure(start);
}

/// Adds the time of the host between two operations to the start of each: on a CPU, no kernel runs meanwhile.
pub fn add_host_time(gpu: &mut Gpu, records: &[&StepRecord]) {
    let kernels =
        |record: &&StepRecord| -> u64 { record.kernels.iter().map(|kernel| kernel.count).sum() };
    let between = records.iter().map(|record| (record.host_seconds, kernels(record)));
    let (seconds, kernels) = between
        .fold((0.0, 0), |(seconds, kernels), (host, count)| (seconds + host, kernels + count));
    for start in [&mut gpu.matmul.start, &mut gpu.passes.start] {
        start.value += seconds / kernels.max(1) as f64;
    }
}
