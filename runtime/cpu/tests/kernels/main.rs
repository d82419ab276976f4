//! The suite that all backends have to pass, at every vector width and for several thread counts.
//!
//! In a program of its own, because unit tests that run kernels would compile all of them again.

mod attention;

use std::cell::Cell;
use std::sync::Arc;

use meshwright_conformance::Target;
use meshwright_cpu::__internal::at_every_isa;
use meshwright_cpu::CpuBackend;

mod conformance {
    meshwright_conformance::tests!(crate::on_every_target);
}

/// Runs a test at every vector width, and asserts that results have the same bits for any number of threads, also if
/// operands are not aligned.
fn on_every_target(test: impl Fn(&Target)) {
    let target = |threads, skew| {
        let backend = Arc::new(CpuBackend::new(threads).expect("threads start"));
        Target::new(backend).with_skew(skew).with_large_cases()
    };
    let digest = |target: Target| {
        test(&target);
        target.digest()
    };
    let alone = Cell::new(0);
    at_every_isa(|| alone.set(digest(target(1, 0))));
    for (threads, skew) in [(2, 1), (5, 0)] {
        let digest = digest(target(threads, skew).with_digest_alone());
        assert_eq!(digest, alone.get(), "bits depend on threads: {threads} of them");
    }
}
