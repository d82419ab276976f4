//! The suite that all backends have to pass.

use meshwright_conformance::Target;

use crate::support::devices;

meshwright_conformance::tests!(crate::conformance::on_every_device);

/// Runs a test on every device, and asserts that results with aligned operands have the same bits for any order of
/// threads.
fn on_every_device(test: impl Fn(&Target)) {
    let digests = devices().into_iter().map(|device| {
        test(&device);
        device.digest()
    });
    let digests: Vec<u64> = digests.collect();
    assert_eq!(
        digests[0], digests[1],
        "bits depend on the order of threads, or on an aligned offset"
    );
}
