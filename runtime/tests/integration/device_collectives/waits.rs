//! Every wait is needed: where one is left out, some order of the queues gives another result.

use std::sync::atomic::Ordering;

use super::machine::Machine;
use super::{Script, bytes, on_device, on_host};

/// Number of waits of a script that can be left out without an error, and number of all its waits.
fn unnoticed(ranks: usize, script: Script<f32>) -> (usize, usize) {
    let expected = on_host(ranks, script);
    let machine = Machine::new(0, None);
    on_device(ranks, &machine, script);
    let waits = machine.waits.load(Ordering::Relaxed);
    let is_noticed = |wait: usize| {
        (0..400).any(|seed| {
            let recorded = on_device(ranks, &Machine::new(seed, Some(wait)), script);
            bytes(&recorded) != bytes(&expected)
        })
    };
    ((0..waits).filter(|wait| !is_noticed(*wait)).count(), waits)
}

#[test]
fn each_wait_of_an_all_reduce_is_needed() {
    assert_eq!(unnoticed(2, super::scenario::one_all_reduce).0, 0);
}

#[test]
fn each_wait_of_an_asynchronous_all_reduce_is_needed() {
    assert_eq!(unnoticed(2, super::scenario::one_started_all_reduce).0, 0);
}

#[test]
fn each_wait_of_a_message_is_needed() {
    assert_eq!(unnoticed(2, super::scenario::one_message).0, 0);
}
