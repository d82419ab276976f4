//! Makespans, bubbles and peaks against closed formulas.

use super::named;
use crate::schedule::generate::group_sizes;
use crate::schedule::{Costs, LOOKAHEAD, Schedule, ScheduleKind, lower_schedule, peaks, simulate};

const RANKS: [usize; 3] = [2, 4, 8];

fn micro_batches(ranks: usize) -> [usize; 6] {
    [1, ranks - 1, ranks, 2 * ranks, 2 * ranks + 1, 4 * ranks]
}

fn makespan(schedule: &Schedule) -> f64 {
    simulate(&lower_schedule(schedule, LOOKAHEAD), Costs::default()).unwrap().makespan()
}

fn live(schedule: &Schedule) -> Vec<usize> {
    peaks(schedule).iter().map(|peak| peak.live).collect()
}

fn most_pending(schedule: &Schedule) -> usize {
    peaks(schedule).iter().map(|peak| peak.with_pending_weights).max().unwrap()
}

#[test]
fn gpipe_and_1f1b_follow_their_formulas() {
    for p in RANKS {
        for m in micro_batches(p) {
            let gpipe = named(ScheduleKind::GPipe, p, m);
            let one_f_one_b = named(ScheduleKind::OneFOneB, p, m);
            let expected = 3.0 * (m + p - 1) as f64;
            assert_eq!((makespan(&gpipe), makespan(&one_f_one_b)), (expected, expected));
            assert_eq!(live(&gpipe), vec![m; p]);
            assert_eq!(live(&one_f_one_b), (0..p).map(|r| m.min(p - r)).collect::<Vec<_>>());
        }
    }
}

/// 4 stages and 4 micro-batches use 16 of 28 time slots of each forward and backward pass.
#[test]
fn four_by_four_uses_57_percent() {
    let lowered = lower_schedule(&named(ScheduleKind::OneFOneB, 4, 4), LOOKAHEAD);
    let costs = Costs { forward: 1.0, input: 0.5, weight: 0.5, message: 0.0 };
    let simulation = simulate(&lowered, costs).unwrap();
    assert!((1.0 - simulation.bubble() - 16.0 / 28.0).abs() < 1e-12, "{}", simulation.bubble());
}

#[test]
fn interleaving_divides_the_bubble() {
    for p in RANKS {
        for (v, m) in [2, 3, 4].into_iter().flat_map(|v| micro_batches(p).map(|m| (v, m))) {
            let schedule = ScheduleKind::Interleaved.generate(p, v, m).unwrap();
            let group = group_sizes(p, m)[0];
            let expected = (0..p).map(|r| (v * m).min(2 * (p - 1 - r) + (v - 1) * group + 1));
            assert_eq!(live(&schedule), expected.collect::<Vec<_>>(), "{p} {v} {m}");
            if m >= p {
                assert_eq!(makespan(&schedule), 3.0 * (v * m + p - 1) as f64, "{p} {v} {m}");
            }
        }
    }
}

#[test]
fn zero_bubble_h1_keeps_the_memory_of_1f1b() {
    for p in RANKS {
        for m in micro_batches(p) {
            let schedule = named(ScheduleKind::ZeroBubbleH1, p, m);
            assert_eq!(live(&schedule), (0..p).map(|r| m.min(p - r)).collect::<Vec<_>>());
            assert!(most_pending(&schedule) <= p);
            if m >= p {
                assert_eq!(makespan(&schedule), (3 * m + p - 1) as f64);
            }
        }
    }
}

#[test]
fn the_v_schedules_have_almost_no_bubble() {
    for p in RANKS {
        for m in micro_batches(p) {
            let v = named(ScheduleKind::ZeroBubbleV, p, m);
            let dual = named(ScheduleKind::DualPipeV, p, m);
            assert!(most_pending(&v) <= 2 * p && most_pending(&dual) <= 2 * p + 1, "{p} {m}");
            let expected = (6 * m + p - 1) as f64;
            if m >= 2 * p - 1 {
                let simulation =
                    simulate(&lower_schedule(&v, LOOKAHEAD), Costs::default()).unwrap();
                assert_eq!(simulation.makespan(), expected);
                let spans = (0..p).map(|rank| simulation.span(rank));
                assert_eq!(spans.fold(0.0, f64::max), (6 * m) as f64, "no idle time within a rank");
            }
            if m >= 2 * p {
                assert_eq!(makespan(&dual), expected, "{p} {m}");
            }
        }
    }
}
