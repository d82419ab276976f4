//! Stages of one stage-cut point each, to measure them one by one.

use crate::schedule::Schedule;

use super::StagePlan;

/// Splits every stage of a plan and of its schedule into stages of one stage-cut point each, on the same rank; a stage
/// without layers stays as it is. Ranks compute the same in the same order, and exchange the same messages: losses,
/// gradients and parameters keep their bits.
///
/// # Panics
/// If the schedule places other stages than the plan.
pub fn split_at_cut_points(plan: &StagePlan, schedule: &Schedule) -> (StagePlan, Schedule) {
    assert_eq!(schedule.placement, plan.placement(), "the stages of the schedule and the plan");
    let parts: Vec<usize> = plan.counts().iter().map(|count| (*count).max(1)).collect();
    let schedule = schedule.split_stages(&parts);
    let split = |count: &usize| if *count == 0 { vec![0] } else { vec![1; *count] };
    let counts: Vec<usize> = plan.counts().iter().flat_map(split).collect();
    let costs = vec![1.0; counts.len()];
    (StagePlan::of_counts(plan.chain(), &schedule.placement, counts, costs), schedule)
}
