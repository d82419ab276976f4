//! Results with the same bits as on the CPU, so that a run continues on the other device as it began.

use meshwright_conformance::{Target, suite};

use crate::support::{devices, host};

/// Runs a test on the CPU and on every device, and compares the bits of all results.
fn assert_same_bits(test: fn(&Target)) {
    let digest = |target: &Target| {
        test(target);
        target.digest()
    };
    let expected = digest(&host());
    assert!(devices().iter().all(|device| digest(device) == expected));
}

#[test]
fn random_numbers() {
    assert_same_bits(suite::random::blocks);
    assert_same_bits(suite::random::large_indices);
}

#[test]
fn dropout_masks() {
    assert_same_bits(suite::map::blocks);
    assert_same_bits(suite::map::large_indices);
}

/// Occurrences of a token that are few enough for one segment.
#[test]
fn gradients_of_embeddings() {
    assert_same_bits(suite::embedding::gradient);
}

#[test]
fn quotients() {
    assert_same_bits(suite::map::quotients);
}

/// Both kernels use fused multiply-add.
#[test]
fn optimizer_steps() {
    if std::is_x86_feature_detected!("fma") {
        let rounded = [suite::rounded_states::adamw, suite::rounded_states::sgd];
        let wide = [suite::optim::adamw, suite::optim::adamw_groups, suite::optim::sgd];
        for test in wide.into_iter().chain(rounded) {
            assert_same_bits(test);
        }
    }
}
