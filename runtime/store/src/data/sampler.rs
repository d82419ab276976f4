//! Sampling: the tokens of each sample.

use serde::{Deserialize, Serialize};

use super::permutation::{Permutation, mix_bits};

/// `--order`: how samples follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Order of the file.
    Sequential,
    /// A new random order every epoch.
    Shuffled,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Order::Sequential => "sequential",
            Order::Shuffled => "shuffled",
        })
    }
}

/// The position of a sample in the data. No two samples of a run have the same position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SamplePosition {
    /// Number of complete passes over the data before this sample.
    pub epoch: u64,
    /// Index of the first token.
    pub start: usize,
}

/// Maps (step, index in the global batch) to the position of a sample, the same on every rank.
///
/// `n` tokens hold `N = floor((n - 1) / T)` samples of length `T`. Sample `k` has the inputs `tokens[kT .. kT + T]`
/// and, one to the right, the targets. Sample `i` of step `s` is number `g = sB + i` of the run, in epoch `g / N` at
/// place `g mod N`:
///
/// - sequential: `k = g mod N`, so the file repeats from its start, and no sample is short;
/// - shuffled: `k` is a permutation, keyed by seed and epoch, of `g mod N`, so every epoch has each sample once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    order: Order,
    seed: u64,
    seq: usize,
    batch: usize,
    samples: u64,
}

impl Sampler {
    /// Creates a sampler of `tokens` tokens (the length of a file) in samples of `seq`, `batch` of them per step;
    /// `None` if the file holds no whole sample.
    pub fn new(
        tokens: usize,
        seq: usize,
        batch: usize,
        order: Order,
        seed: u64,
    ) -> Option<Sampler> {
        let samples = tokens.saturating_sub(1).checked_div(seq)? as u64;
        Sampler::of_samples(samples, seq, batch, order, seed)
    }

    /// Creates a sampler of `samples` samples of `seq` tokens, `batch` of them a step; `None` if there are no samples.
    pub(super) fn of_samples(
        samples: u64,
        seq: usize,
        batch: usize,
        order: Order,
        seed: u64,
    ) -> Option<Sampler> {
        (samples > 0).then_some(Sampler { order, seed, seq, batch, samples })
    }

    /// Returns the position of sample `index` of the global batch of `step` (from 0), for samples that follow one
    /// another in the data.
    pub fn place(&self, step: u64, index: usize) -> SamplePosition {
        let (epoch, sample) = self.sample_at(step, index);
        SamplePosition { epoch, start: sample as usize * self.seq }
    }

    /// The epoch of sample `index` of the global batch of `step`, and its number in the data.
    fn sample_at(&self, step: u64, index: usize) -> (u64, u64) {
        self.sample_of(step * self.batch as u64 + index as u64)
    }

    /// The epoch of sample `number` of the run, and its number in the data.
    pub(super) fn sample_of(&self, number: u64) -> (u64, u64) {
        let (epoch, place) = (number / self.samples, number % self.samples);
        let sample = match self.order {
            Order::Sequential => place,
            Order::Shuffled => {
                let key = mix_bits(self.seed ^ mix_bits(epoch.wrapping_add(0x5851_f42d_4c95_7f2d)));
                Permutation::new(self.samples, key).permuted(place)
            }
        };
        (epoch, sample)
    }

    /// The order of samples.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The seed of a shuffled order.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of whole samples in the data.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the number of inputs of a sample.
    pub fn seq(&self) -> usize {
        self.seq
    }

    /// Returns the number of samples of a step, over all ranks.
    pub fn batch(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_order_follows_the_formula() {
        // 3 samples of 4 fit in 13 tokens; 14, 15 and 16 have no further one.
        for tokens in 13..17 {
            let sampler = Sampler::new(tokens, 4, 2, Order::Sequential, 9).unwrap();
            assert_eq!(sampler.samples(), 3);
            let starts: Vec<_> = (0..4).flat_map(|step| (0..2).map(move |i| (step, i))).collect();
            let starts: Vec<_> =
                starts.into_iter().map(|(s, i)| sampler.place(s, i).start).collect();
            assert_eq!(starts, [0, 4, 8, 0, 4, 8, 0, 4]);
        }
        assert_eq!(Sampler::new(4, 4, 2, Order::Sequential, 9), None);
        assert_eq!(Sampler::new(5, 4, 2, Order::Sequential, 9).unwrap().samples(), 1);
        assert_eq!(Sampler::new(0, 4, 2, Order::Sequential, 9), None);
    }

    #[test]
    fn shuffled_epochs_are_permutations() {
        for samples in 1..=200 {
            let sampler = Sampler::new(samples * 3 + 1, 3, 1, Order::Shuffled, 7).unwrap();
            let epoch = |epoch: usize| -> Vec<usize> {
                (epoch * samples..(epoch + 1) * samples)
                    .map(|step| sampler.place(step as u64, 0).start)
                    .collect()
            };
            let (first, second) = (epoch(0), epoch(1));
            let mut sorted = first.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq((0..samples).map(|k| k * 3)), "{samples}");
            assert!(samples < 8 || first != second, "{samples}");
        }
    }

    #[test]
    fn places_are_unique_from_any_start() {
        for order in [Order::Sequential, Order::Shuffled] {
            for (samples, batch) in [(1, 1), (1, 3), (5, 2), (7, 7), (8, 4), (9, 20), (50, 6)] {
                let sampler = Sampler::new(samples * 2 + 1, 2, batch, order, 3).unwrap();
                let batch_of = |sampler: Sampler, step| -> Vec<SamplePosition> {
                    (0..batch).map(|index| sampler.place(step, index)).collect()
                };
                let steps = 4 * samples as u64;
                let mut places: Vec<_> = (0..steps).flat_map(|s| batch_of(sampler, s)).collect();
                let epochs = places.iter().map(|place| place.epoch);
                assert!(epochs.is_sorted(), "{order}: an epoch ends before the next begins");
                let all = places.len();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), all, "{order}, {samples} samples, batches of {batch}");
                // Whole epochs have every sample.
                let whole = all / samples * samples;
                let expected: Vec<_> = (0..whole)
                    .map(|n| SamplePosition { epoch: (n / samples) as u64, start: n % samples * 2 })
                    .collect();
                assert_eq!(places[..whole], expected, "{order}, {samples} samples of {batch}");
                // Another sampler, which has given nothing before, backwards.
                let other = Sampler::new(samples * 2 + 1, 2, batch, order, 3).unwrap();
                for step in (0..steps).rev() {
                    assert_eq!(batch_of(other, step), batch_of(sampler, step), "{order} {step}");
                }
            }
        }
    }

    #[test]
    fn seed_chooses_the_order_and_batch_size_does_not() {
        let starts = |seed, batch: usize| -> Vec<usize> {
            let sampler = Sampler::new(1001, 10, batch, Order::Shuffled, seed).unwrap();
            (0..60).map(|g| sampler.place((g / batch) as u64, g % batch).start).collect()
        };
        assert_eq!(starts(1, 4), starts(1, 4));
        assert_eq!(starts(1, 4), starts(1, 5));
        assert_ne!(starts(1, 4), starts(2, 4));
    }
}
