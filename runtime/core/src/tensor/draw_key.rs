//! Keys of the random numbers of a training step.

use crate::context::Rank;
use crate::random;

/// Returns the key of the numbers that `name`, such as the field of a dropout, draws in the present step. Replicas that
/// train apart draw others, as their rows have the same indices.
pub(crate) fn draw_key(rank: &Rank, name: &str) -> u64 {
    let seed = match rank.replica() {
        0 => rank.seed(),
        replica => random::subkey(rank.seed(), replica as u64),
    };
    random::subkey(random::key(seed, name), rank.step())
}
