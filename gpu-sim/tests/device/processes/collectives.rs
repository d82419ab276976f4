//! Collectives between processes, which compare their results with those between threads.

use super::job::Job;

#[test]
fn collectives_match_those_between_threads() {
    for ranks in [2, 4] {
        Job::start(ranks, "primitives", &format!("pp={ranks}"), |_, _| {}).succeed();
    }
}
