//! The origin of a loss or gradient norm that is infinite or NaN.

use crate::comm::Site;
use crate::tensor::Rank;
use crate::train::config::Config;

/// The flags of the learning rates of a run.
pub fn learning_rates(config: &Config) -> &'static str {
    if config.local_sgd.is_some() { "--lr or --outer-lr" } else { "--lr" }
}

/// Describes the ranks whose contribution `local` is not finite. Every rank calls it.
pub fn divergence_origin(rank: &Rank, local: f64) -> String {
    let world = rank.comms().shape().world_size();
    let mut bad = vec![0.0; world];
    bad[rank.index()] = if local.is_finite() { 0.0 } else { 1.0 };
    rank.sum_over_ranks(&Site::new("divergence"), &mut bad);
    let ranks: Vec<String> =
        (0..world).filter(|rank| bad[*rank] > 0.0).map(|rank| rank.to_string()).collect();
    match ranks.as_slice() {
        [] => "in the sum over all ranks".to_owned(),
        [rank] => format!("on rank {rank}"),
        ranks => format!("on ranks {}", ranks.join(", ")),
    }
}
