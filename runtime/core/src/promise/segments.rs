//! The program of a checkpointed segment: its recomputation has to use the same parameters and numbers.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Fingerprint of a segment, compared between forward and recomputation: the parameters that it uses, in order, the
/// numbers that come from the host, and its results. A recomputation may use fewer numbers, because a layer may keep
/// constants.
#[derive(Default)]
pub(crate) struct SegmentProgram {
    params: DefaultHasher,
    numbers: HashSet<u64>,
    results: Vec<u64>,
}

impl SegmentProgram {
    /// Adds the use of the parameter at `path`.
    pub(crate) fn add_param(&mut self, path: &str) {
        path.hash(&mut self.params);
    }

    /// Adds a number, or the hash of several.
    pub(crate) fn add_number(&mut self, number: u64) {
        self.numbers.insert(number);
    }

    /// Adds the hash of a result.
    pub(crate) fn add_result(&mut self, result: u64) {
        self.results.push(result);
    }

    /// Returns true if `again` has used the same parameters, and no other numbers, and has the same results.
    pub(crate) fn is_repeated_by(&self, again: &SegmentProgram) -> bool {
        self.params.finish() == again.params.finish()
            && again.numbers.is_subset(&self.numbers)
            && self.results == again.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_differ_by_parameters_and_new_numbers() {
        let program = |params: &[&str], numbers: &[u64]| {
            let mut program = SegmentProgram::default();
            params.iter().for_each(|path| program.add_param(path));
            numbers.iter().for_each(|number| program.add_number(*number));
            program
        };
        let forward = program(&["up", "down"], &[1, 2]);
        assert!(forward.is_repeated_by(&program(&["up", "down"], &[2, 1, 1])));
        assert!(forward.is_repeated_by(&program(&["up", "down"], &[])));
        let mut with_result = program(&["up", "down"], &[]);
        with_result.add_result(7);
        assert!(!forward.is_repeated_by(&with_result));
        for (params, numbers) in [
            (&["down", "up"][..], &[1, 2][..]),
            (&["up"], &[1, 2]),
            (&["up", "down", "down"], &[1, 2]),
            (&["up", "down"], &[1, 3]),
        ] {
            assert!(!forward.is_repeated_by(&program(params, numbers)), "{params:?} {numbers:?}");
        }
    }
}
