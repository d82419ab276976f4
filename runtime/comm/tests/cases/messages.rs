//! Messages around a ring; a group of one sends to itself.

use std::sync::Arc;

use meshwright_backend::{View, ViewMut};
use meshwright_comm::{Communicator, Site};

use super::{CaseResult, buffer, tokens};

pub fn around_a_ring(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("ring"));
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    for len in [0, 3, 50_000] {
        for round in 0..4 {
            // All send first: would hang if a sender waited for its receiver.
            for turn in 0..2 {
                let sent = tokens(me * 100 + round * 10 + turn, len);
                group.send(&site, next, View::from(&sent[..]))?;
            }
            for turn in 0..2 {
                let mut received = vec![0; len];
                group.recv(&site, previous, ViewMut::from(&mut received[..]))?;
                assert_eq!(received, tokens(previous * 100 + round * 10 + turn, len));
            }
        }
    }
    Ok(())
}

pub fn in_both_forms(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("ring"));
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let room = |len| buffer(&vec![0u32; len]);
    for len in [0, 3, 50_000] {
        for round in 0..12 {
            let message = |from: usize, turn: usize| tokens(from * 1000 + turn, len);
            // Some receive before they send, some after.
            let is_early = (round + me) % 3 == 0;
            let mut started: Vec<_> = (0..if is_early { 4 } else { 0 })
                .map(|_| group.start_recv(&site, previous, room(len)))
                .collect();
            for turn in 0..6 {
                let sent = message(me, turn);
                if (round + turn) % 2 == 0 {
                    // The wait must not be for the receiver, which may send first as well.
                    group.start_send(&site, next, Arc::new(buffer(&sent))).wait()?;
                } else {
                    group.send(&site, next, View::from(&sent[..]))?;
                }
            }
            while started.len() < 5 {
                started.push(group.start_recv(&site, previous, room(len)));
            }
            let mut last = vec![0; len];
            group.recv(&site, previous, ViewMut::from(&mut last[..]))?;
            assert_eq!(last, message(previous, 5));
            for (turn, pending) in started.into_iter().enumerate() {
                assert_eq!(pending.wait()?.typed::<u32>(), message(previous, turn));
            }
        }
    }
    Ok(())
}
