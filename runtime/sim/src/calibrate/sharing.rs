//! Ranks that share a machine.

use std::collections::BTreeMap;

use crate::cluster::{Figure, Gpu, Origin, SharingFactors};
use crate::time::{kernel_seconds, start_seconds};

use super::StepRecord;
use super::kernels::{KernelKind, Sample};

/// Returns the factors on the times of kernels by the number of ranks: measured times relative to those of `gpu`, each
/// summed over a step.
///
/// If ranks are more than the cores, a kernel runs at full speed or waits for a core, by chance and by the order in
/// which the system runs the ranks, so its time means nothing. Then cores do the work of several ranks one after the
/// other: the factor grows in proportion to the ranks from the largest number that has cores.
pub fn factors(gpu: &Gpu, records: &[&StepRecord], origin: &Origin) -> Vec<SharingFactors> {
    let mut by_ranks: BTreeMap<usize, Vec<&StepRecord>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.sharing_ranks <= gpu.units) {
        by_ranks.entry(record.sharing_ranks).or_default().push(record);
    }
    if by_ranks.is_empty() {
        let figure = || Figure { value: 1.0, origin: origin.clone() };
        let ranks = records.iter().map(|record| record.sharing_ranks).min().unwrap_or(1);
        return vec![SharingFactors { ranks, compute: figure(), memory: figure() }];
    }
    let fewest = by_ranks.keys().next().copied();
    let factors = by_ranks.into_iter().map(|(ranks, records)| {
        let samples = Sample::of_records(&records);
        let factor = |is_compute: bool| {
            let is_own = |sample: &&Sample| (sample.kind() != KernelKind::Pass) == is_compute;
            let (measured, predicted) =
                samples.iter().filter(is_own).fold((0.0, 0.0), |(measured, predicted), sample| {
                    let start = start_seconds(gpu, &sample.kernel);
                    let seconds = kernel_seconds(gpu, &sample.kernel).unwrap_or(start) - start;
                    let count = sample.weight / sample.seconds;
                    let work = (sample.seconds - start).max(0.0);
                    (measured + work * count, predicted + seconds * count)
                });
            let is_known = Some(ranks) != fewest && predicted > 0.0 && measured > 0.0;
            let value = if is_known { measured / predicted } else { 1.0 };
            Figure { value, origin: origin.clone() }
        };
        SharingFactors { ranks, compute: factor(true), memory: factor(false) }
    });
    factors.collect()
}
