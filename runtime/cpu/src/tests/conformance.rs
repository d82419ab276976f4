//! The suite that all backends have to pass, at every vector width and for several thread counts.

use std::cell::Cell;
use std::sync::Arc;

use meshwright_conformance::Target;

use crate::CpuBackend;
use crate::simd::tests::at_every_isa;

meshwright_conformance::tests!(crate::tests::conformance::on_every_target);

/// Runs a test at every vector width, and asserts that results have the same bits for any number of threads, also if
/// operands are not aligned.
pub fn on_every_target(test: impl Fn(&Target)) {
    let digest = |threads, skew| {
        let backend = Arc::new(CpuBackend::new(threads).expect("threads start"));
        let target = Target::new(backend).with_skew(skew).with_large_cases();
        test(&target);
        target.digest()
    };
    let alone = Cell::new(0);
    at_every_isa(|| alone.set(digest(1, 0)));
    for (threads, skew) in [(2, 1), (5, 0)] {
        assert_eq!(digest(threads, skew), alone.get(), "bits depend on threads: {threads} of them");
    }
}
