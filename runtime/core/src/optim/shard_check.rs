//! The check of an update rule: it updates an element of a parameter alike in every shard.
//!
//! A made-up parameter is updated as a whole, and as two shards. A rule that reads the index or the length within a
//! shard, or a norm of it, gives other numbers, on any mesh.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::tensor::Rank;

use super::made_up_shard::{CUT, MadeUpShard, SIZE};
use super::unit_state::GroupRange;
use super::{FlatSlices, Group, OptimizerStep, UpdateRule, Updated};

/// Numbers of the steps of the check: rules may begin with something else.
const STEPS: [u64; 3] = [1, 2, 1000];

/// Checks `rule` for parameters in `groups`. A rule that refuses the made-up parameter by a panic, such as one that has
/// settings for the paths of a model, is not checked.
///
/// # Errors
/// The first group whose shards are updated otherwise than the whole parameter.
pub(super) fn check_shards(
    rank: &Rank,
    rule: &dyn UpdateRule,
    groups: &[Group],
) -> Result<(), String> {
    if rank.backend().is_dry_run() {
        return Ok(());
    }
    let check = || check_groups(rank, rule, groups);
    catch_unwind(AssertUnwindSafe(check)).unwrap_or(Ok(()))
}

fn check_groups(rank: &Rank, rule: &dyn UpdateRule, groups: &[Group]) -> Result<(), String> {
    for group in groups {
        for number in STEPS {
            let step = OptimizerStep::made_up(rank, number);
            let updated = |start: usize, end: usize| {
                let kinds = rule.state_kinds(*group);
                let mut shard = MadeUpShard::new(rank, start, end - start, kinds, number);
                let range = 0..shard.len();
                let range = GroupRange { group: *group, in_shard: range.clone(), range };
                let Updated { .. } = rule.update_all(FlatSlices::made_up(&step, &mut shard, range));
                shard
            };
            let [whole, first, second] =
                [(0, SIZE), (0, CUT), (CUT, SIZE)].map(|(start, end)| updated(start, end));
            let shards = first.numbers().zip(second.numbers());
            for ((name, whole), ((_, first), (_, second))) in whole.numbers().zip(shards) {
                let shards = [first, second].concat();
                if !are_near(&whole, &shards) {
                    let what =
                        if name == "parameter" { "" } else { &format!(" with state `{name}`") };
                    return Err(describe_difference(what));
                }
            }
        }
    }
    Ok(())
}

fn describe_difference(what: &str) -> String {
    format!(
        "a parameter{what} is updated otherwise if its elements are in two shards instead of one, as they are on other \
         meshes and ZeRO stages: `update` gets some elements of a parameter, so nothing may follow from their number, \
         their index in the slice, a sum or norm of the slice, or a count of calls; `FlatSlice::params` has the index \
         of each element in the whole parameter and the size of that, `OptimizerStep::number` the step, and \
         `UpdateRule::model_update` sums over the ranks that share a parameter"
    )
}

/// Returns true if the numbers differ by rounding only.
fn are_near(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| {
        one == other
            || (one.is_nan() && other.is_nan())
            || (one - other).abs() <= 1e-5 * one.abs().max(other.abs())
    })
}
