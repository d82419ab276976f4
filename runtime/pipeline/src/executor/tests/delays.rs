//! Random delays of computations and messages do not change results.

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use crate::schedule::tests::{Numbers, named};
use crate::schedule::{ScheduleKind, lower_schedule};
use meshwright_comm::RankComms;

use super::check_step;
use super::hooked_engine::{Hook, hook_messages, hook_rounds};

/// Sleeps in about every second call.
fn sleep_randomly(numbers: &Mutex<Numbers>) {
    let micros = numbers.lock().unwrap().below(240).saturating_sub(120);
    if micros > 0 {
        sleep(Duration::from_micros(micros as u64));
    }
}

type Way = fn(RankComms, Hook) -> RankComms;

#[test]
fn results_do_not_depend_on_timing() {
    for (seed, way) in (0..200).flat_map(|seed| [(seed, hook_messages as Way), (seed, hook_rounds)])
    {
        let kind = ScheduleKind::ALL[seed % ScheduleKind::ALL.len()];
        let schedule = lower_schedule(&named(kind, 2 + seed % 3, 4), seed % 2);
        check_step(&schedule, |comms, stages| {
            let seed = 0x2545_f491_4f6c_dd1d ^ ((seed * 64 + comms.rank()) as u64 + 1);
            let numbers = Arc::new(Mutex::new(Numbers(seed)));
            let of_compute = Arc::clone(&numbers);
            stages.before_compute = Box::new(move |_| {
                sleep_randomly(&of_compute);
                Ok(())
            });
            way(
                comms,
                Arc::new(move |group, call, operands| {
                    sleep_randomly(&numbers);
                    let completion = group.issue(call, operands);
                    sleep_randomly(&numbers);
                    completion
                }),
            )
        });
    }
}
