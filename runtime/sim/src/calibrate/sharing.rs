//! Ranks that share a machine.

use std::collections::BTreeMap;

use crate::cluster::{Figure, Gpu, Origin, SharingFactors};
use crate::time::kernel_seconds;

use super::StepRecord;
use super::kernels::{KernelKind, Sample};

/// Returns the factors on the times of kernels by the number of ranks: measured times relative to those of `gpu`, each
/// summed over a step.
pub fn factors(gpu: &Gpu, records: &[&StepRecord], origin: &Origin) -> Vec<SharingFactors> {
    let mut by_ranks: BTreeMap<usize, Vec<&StepRecord>> = BTreeMap::new();
    for record in records {
        by_ranks.entry(record.sharing_ranks).or_default().push(record);
    }
    let fewest = by_ranks.keys().next().copied();
    let factors = by_ranks.into_iter().map(|(ranks, records)| {
        let samples = Sample::of_records(&records);
        let factor = |is_compute: bool| {
            let is_own = |sample: &&Sample| {
                (sample.kind() != KernelKind::Pass) == is_compute
            };
            let (measured, predicted) = samples.iter().filter(is_own).fold(
                (0.0, 0.0),
                |(measured, predicted), sample| {
                    let seconds = kernel_seconds(gpu, &sample.kernel).unwrap_or(sample.seconds);
                    let count = sample.weight / sample.seconds;
                    (measured + sample.weight, predicted + seconds * count)
                },
            );
            let is_known = Some(ranks) != fewest && predicted > 0.0;
            let value = if is_known { measured / predicted } else { 1.0 };
            Figure { value, origin: origin.clone() }
        };
        SharingFactors { ranks, compute: factor(true), memory: factor(false) }
    });
    factors.collect()
}
