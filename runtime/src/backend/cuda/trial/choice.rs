//! The choice of an algorithm from its measured timings.

/// Result and timing of one candidate algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Index of the algorithm among the candidates.
    pub way: usize,
    /// True if the result is bitwise equal to that of the first candidate.
    pub same_bits: bool,
    /// Milliseconds per matmul; `None` if not measured: the algorithm may not be chosen, or is the only candidate.
    pub milliseconds: Option<f32>,
}

impl Trial {
    /// Returns true if the algorithm may be chosen.
    pub fn is_allowed(&self, any_bits: bool) -> bool {
        any_bits || self.same_bits
    }
}

/// Minimum relative speedup over the first candidate: clocks and caches vary by less.
const GAIN: f32 = 0.01;

/// Returns the index of the fastest permitted algorithm if it is faster than the first candidate by more than the
/// measurement noise, else of the first candidate. Ties go to the earlier algorithm. `None` without candidates.
pub fn choose(trials: &[Trial], any_bits: bool) -> Option<usize> {
    let first = trials.first()?;
    let time = |trial: &&Trial| trial.milliseconds.unwrap_or(f32::INFINITY);
    let allowed = trials.iter().filter(|trial| trial.is_allowed(any_bits));
    let fastest = allowed.min_by(|a, b| time(a).total_cmp(&time(b)))?;
    let is_faster = time(&fastest) < (1.0 - GAIN) * time(&first);
    Some(if is_faster { fastest.way } else { first.way })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(way: usize, same_bits: bool, milliseconds: f32) -> Trial {
        Trial { way, same_bits, milliseconds: Some(milliseconds) }
    }

    #[test]
    fn the_fastest_way_with_the_first_bits_is_chosen() {
        // The second algorithm was refused and has no timing.
        let trials = [trial(0, true, 3.0), trial(2, false, 1.0), trial(3, true, 2.0)];
        assert_eq!(choose(&trials, false), Some(3));
        assert_eq!(choose(&trials, true), Some(2));
        assert_eq!(choose(&trials[..2], false), Some(0));
    }

    #[test]
    fn of_equally_fast_ways_the_one_that_was_proposed_first_is_chosen() {
        let trials = [trial(0, true, 2.0), trial(1, true, 2.0), trial(2, true, f32::NAN)];
        assert_eq!(choose(&trials, false), Some(0));
        let untimed = Trial { milliseconds: None, ..trial(4, true, 0.0) };
        assert_eq!(choose(&[untimed], false), Some(4));
        assert_eq!(choose(&[], true), None);
    }

    /// The first candidate stays unless another one is faster by more than one percent.
    #[test]
    fn a_small_gain_is_none() {
        let with = |other| choose(&[trial(0, true, 1.0), trial(1, true, other)], false);
        assert_eq!(with(0.995), Some(0));
        assert_eq!(with(0.98), Some(1));
    }
}
