//! The order of plans: the fastest first, but of those that a prediction cannot tell apart, the simpler one.

use super::planned_run::PlannedRun;

/// Most GPUs of the smaller difference.
const FEW_GPUS: usize = 1024;
/// Relative difference of two figures that are the same under two names.
const SAME: f64 = 1e-3;

/// Returns the relative difference of step times below which two plans tie.
pub const fn tie(gpus: usize) -> f64 {
    if gpus > FEW_GPUS { 0.05 } else { 0.03 }
}

/// Fraction of the memory of a GPU above which a plan is less simple: little of it is free.
const TIGHT: f64 = 0.85;

/// Sorts plans: first those that tie with the fastest one, the simplest first, which has fewest axes, then least
/// recomputation, then free memory, then the lowest ZeRO stage; then the others by their time. Of plans that
/// differ only in the axes that share the tokens, and have the same time and memory, the first is kept.
pub fn rank(plans: &mut Vec<PlannedRun>, gpus: usize) {
    let fastest = plans.iter().map(|plan| plan.run.step_s).fold(f64::INFINITY, f64::min);
    let is_tie = |plan: &PlannedRun| plan.run.step_s <= fastest * (1.0 + tie(gpus));
    let simplicity = |plan: &PlannedRun| {
        let PlannedRun { candidate, run } = plan;
        let is_tight = run.memory_bytes as f64 > TIGHT * run.gpu_memory_bytes as f64;
        (candidate.axes(), candidate.recomputed(), is_tight, candidate.zero.number())
    };
    plans.sort_by(|a, b| {
        let by_time = a.run.step_s.total_cmp(&b.run.step_s);
        match (is_tie(a), is_tie(b)) {
            (true, true) => simplicity(a).cmp(&simplicity(b)).then(by_time),
            _ => by_time,
        }
    });
    let mut kept: Vec<PlannedRun> = Vec::new();
    for plan in plans.drain(..) {
        if !kept.iter().any(|other| is_same_split(other, &plan)) {
            kept.push(plan);
        }
    }
    *plans = kept;
}

/// Returns true if two plans are one split of the tokens under two names.
fn is_same_split(one: &PlannedRun, other: &PlannedRun) -> bool {
    let is_near = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs().max(b.abs());
    let within = |plan: &PlannedRun| {
        let candidate = plan.candidate;
        let inner = super::cell::CellKey::new(&candidate.mesh, 0, candidate.recompute);
        (inner, candidate.pp(), candidate.schedule, candidate.micro_batches)
    };
    within(one) == within(other)
        && is_near(one.run.step_s, other.run.step_s)
        && is_near(one.run.memory_bytes as f64, other.run.memory_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::RecomputeOverride;
    use crate::train::planner::candidate::Candidate;
    use crate::train::simulate::SimulatedRun;

    fn plan(
        mesh: &str,
        recompute: RecomputeOverride,
        step_s: f64,
        memory_bytes: u64,
    ) -> PlannedRun {
        let mesh = mesh.parse().unwrap();
        let (zero, schedule, micro_batches, is_eager) = Default::default();
        let candidate = Candidate { mesh, zero, schedule, micro_batches, recompute, is_eager };
        let gpu_memory_bytes = 21;
        let run =
            SimulatedRun { step_s, memory_bytes, gpu_memory_bytes, ..SimulatedRun::default() };
        PlannedRun { candidate, run }
    }

    #[track_caller]
    fn assert_order(
        gpus: usize,
        plans: &[(&str, RecomputeOverride, f64, u64)],
        expected: &[usize],
    ) {
        let all: Vec<_> = plans
            .iter()
            .map(|(mesh, kind, time, bytes)| plan(mesh, *kind, *time, *bytes))
            .collect();
        let mut ranked = all.clone();
        rank(&mut ranked, gpus);
        let found: Vec<_> = ranked
            .iter()
            .map(|plan| {
                all.iter()
                    .position(|one| {
                        one.candidate == plan.candidate && one.run.step_s == plan.run.step_s
                    })
                    .unwrap()
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn simpler_plans_win_ties() {
        use RecomputeOverride::{Attention, Full, Off};
        // Fewer axes, then less recomputation, then more free memory.
        let plans = [
            ("dp=2,cp=2,tp=2", Off, 1.0, 10),
            ("dp=4,tp=2", Full, 1.01, 10),
            ("dp=2,tp=4", Off, 1.02, 20),
            ("fsdp=2,tp=4", Off, 1.025, 15),
            ("dp=8", Attention, 1.04, 1),
        ];
        assert_order(8, &plans, &[3, 2, 1, 0, 4]);
        // Five percent above 1,024 GPUs.
        assert_order(2048, &plans, &[4, 3, 2, 1, 0]);
    }

    #[test]
    fn one_split_under_two_names_is_one_plan() {
        let off = RecomputeOverride::Off;
        let plans = [("dp=4,tp=2", off, 1.0, 1000), ("dp=2,fsdp=2,tp=2", off, 1.0001, 1000)];
        assert_order(8, &plans, &[0]);
        let plans = [("dp=4,tp=2", off, 1.0, 1000), ("dp=2,fsdp=2,tp=2", off, 1.01, 900)];
        assert_order(8, &plans, &[0, 1]);
    }
}
