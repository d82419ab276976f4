//! The choice of an algorithm from its measured timings.

/// Result and timing of one candidate algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlgorithmTiming {
    /// Index of the algorithm among the candidates.
    pub algorithm: usize,
    /// True if the result is bitwise equal to that of the first candidate.
    pub same_bits: bool,
    /// Milliseconds per matmul; `None` if not measured: the algorithm may not be chosen, or is the only candidate.
    pub milliseconds: Option<f32>,
}

impl AlgorithmTiming {
    /// Returns true if the algorithm may be chosen.
    pub fn is_permitted(&self, allow_nondeterministic: bool) -> bool {
        allow_nondeterministic || self.same_bits
    }
}

/// Minimum relative speedup over the first candidate: clocks and caches vary by less.
const MIN_SPEEDUP: f32 = 0.01;

/// Returns the index of the fastest permitted algorithm if it is faster than the first candidate by more than the
/// measurement noise, else of the first candidate. Ties go to the earlier algorithm. `None` without candidates.
pub fn choose_algorithm(
    timings: &[AlgorithmTiming],
    allow_nondeterministic: bool,
) -> Option<usize> {
    let first = timings.first()?;
    let time = |timing: &&AlgorithmTiming| timing.milliseconds.unwrap_or(f32::INFINITY);
    let allowed = timings.iter().filter(|timing| timing.is_permitted(allow_nondeterministic));
    let fastest = allowed.min_by(|a, b| time(a).total_cmp(&time(b)))?;
    let is_faster = time(&fastest) < (1.0 - MIN_SPEEDUP) * time(&first);
    Some(if is_faster { fastest.algorithm } else { first.algorithm })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(algorithm: usize, same_bits: bool, milliseconds: f32) -> AlgorithmTiming {
        AlgorithmTiming { algorithm, same_bits, milliseconds: Some(milliseconds) }
    }

    #[test]
    fn fastest_bitwise_equal_algorithm_is_chosen() {
        // The second algorithm was refused and has no timing.
        let timings = [timing(0, true, 3.0), timing(2, false, 1.0), timing(3, true, 2.0)];
        assert_eq!(choose_algorithm(&timings, false), Some(3));
        assert_eq!(choose_algorithm(&timings, true), Some(2));
        assert_eq!(choose_algorithm(&timings[..2], false), Some(0));
    }

    #[test]
    fn ties_go_to_the_earlier_proposal() {
        let timings = [timing(0, true, 2.0), timing(1, true, 2.0), timing(2, true, f32::NAN)];
        assert_eq!(choose_algorithm(&timings, false), Some(0));
        let untimed = AlgorithmTiming { milliseconds: None, ..timing(4, true, 0.0) };
        assert_eq!(choose_algorithm(&[untimed], false), Some(4));
        assert_eq!(choose_algorithm(&[], true), None);
    }

    /// The first candidate stays unless another one is faster by more than one percent.
    #[test]
    fn small_speedups_are_ignored() {
        let with = |other| choose_algorithm(&[timing(0, true, 1.0), timing(1, true, other)], false);
        assert_eq!(with(0.995), Some(0));
        assert_eq!(with(0.98), Some(1));
    }
}
