//! What is chosen, given how the trials went.

/// How a way did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Its number.
    pub way: usize,
    /// Whether its result has the bits of that of the first trial.
    pub same_bits: bool,
    /// How long it took.
    pub milliseconds: f32,
}

/// The fastest way with the bits of the first trial, or of any bits; of equally fast ones the earlier.
pub fn choose(trials: &[Trial], any_bits: bool) -> Option<usize> {
    let allowed = trials.iter().filter(|trial| any_bits || trial.same_bits);
    let fastest = allowed.min_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
    fastest.map(|trial| trial.way)
}

/// The middle one of an odd number of times: one run that something else held up does not count.
pub fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(way: usize, same_bits: bool, milliseconds: f32) -> Trial {
        Trial { way, same_bits, milliseconds }
    }

    #[test]
    fn the_fastest_way_with_the_first_bits_is_chosen() {
        // The second way was refused, and left no trial.
        let trials = [trial(0, true, 3.0), trial(2, false, 1.0), trial(3, true, 2.0)];
        assert_eq!(choose(&trials, false), Some(3));
        assert_eq!(choose(&trials, true), Some(2));
        assert_eq!(choose(&trials[..2], false), Some(0));
    }

    #[test]
    fn of_equally_fast_ways_the_one_that_was_proposed_first_is_chosen() {
        let trials = [trial(0, true, 2.0), trial(1, true, 2.0), trial(2, true, f32::NAN)];
        assert_eq!(choose(&trials, false), Some(0));
        assert_eq!(choose(&[], true), None);
    }

    #[test]
    fn one_slow_run_does_not_count() {
        assert_eq!(median(vec![2.0, 90.0, 1.0, 3.0, 2.5]), 2.5);
    }
}
