//! Identities of messages: a swapped message of the same size is an error.

use crate::{CommError, FailureCause, MessageId, Site, launch};
use meshwright_backend::{View, ViewMut};

use super::messages::{buffer, room};
use super::{TP, failures_of, mesh};

fn message_id(micro_batch: usize) -> MessageId {
    MessageId { kind: "activation", from_stage: 0, to_stage: 1, micro_batch, part: 0 }
}

/// Messages of one size in another order, for each form of a send and a receive, and whichever comes first.
#[test]
fn swapped_messages_fail_on_both_sides() {
    for case in 0..8 {
        let [receiver_is_first, sends_start, receives_start] = [1, 2, 4].map(|bit| case & bit != 0);
        let error = failures_of(2, |comms| {
            let tp = comms.group(TP);
            let barrier = |when| if when { tp.barrier(&Site::new("order")) } else { Ok(()) };
            // A blocking receive that is first cannot reach a barrier.
            let receiver_is_first = receiver_is_first && receives_start;
            if comms.rank() == 0 {
                barrier(receiver_is_first)?;
                let site = Site::new("stage 0").with_message(message_id(1));
                if sends_start {
                    tp.start_send(&site, 1, buffer(&[1; 5])).wait()?;
                } else {
                    tp.send(&site, 1, View::from(&[1u32; 5][..]))?;
                }
                barrier(!receiver_is_first)?;
            } else {
                barrier(!receiver_is_first)?;
                let site = Site::new("stage 1").with_message(message_id(0));
                if receives_start {
                    let pending = tp.start_recv(&site, 0, room(5));
                    barrier(receiver_is_first)?;
                    pending.wait()?;
                } else {
                    tp.recv(&site, 0, ViewMut::from(&mut [0u32; 5][..]))?;
                }
            }
            tp.barrier(&Site::here("end"))
        });
        assert_eq!(error.failures.len(), 2, "{error}");
        for failure in &error.failures {
            let FailureCause::Error(CommError::Mismatch { .. }) = &failure.cause else {
                panic!("rank {}: {}", failure.rank, failure.cause);
            };
            let text = failure.cause.to_string();
            for part in [
                "stage 0, activation of micro-batch 1 from stage 0 to stage 1, part 0",
                "stage 1, activation of micro-batch 0 from stage 0 to stage 1, part 0",
                "sends in another order",
            ] {
                assert!(text.contains(part), "`{part}` is not in:\n{text}");
            }
        }
    }
}

/// Each field of an identity is compared, and a message without one matches any receive.
#[test]
fn equal_and_missing_identities_match() {
    let own = message_id(3);
    let others = [
        MessageId { kind: "gradient", ..own },
        MessageId { from_stage: 2, ..own },
        MessageId { to_stage: 2, ..own },
        MessageId { micro_batch: 4, ..own },
        MessageId { part: 1, ..own },
    ];
    let exchange = |sent: Option<MessageId>, expected: Option<MessageId>| {
        let site =
            |id: Option<MessageId>| id.map_or(Site::new("x"), |id| Site::new("x").with_message(id));
        launch(&mesh(2), |comms| {
            let tp = comms.group(TP);
            match comms.rank() {
                0 => tp.start_send(&site(sent), 1, buffer(&[1; 5])).wait(),
                _ => tp.start_recv(&site(expected), 0, room(5)).wait().map(drop),
            }
        })
    };
    for (sent, expected) in [(Some(own), Some(own)), (Some(own), None), (None, Some(own))] {
        exchange(sent, expected).unwrap_or_else(|error| panic!("{error}"));
    }
    for other in others {
        exchange(Some(own), Some(other)).expect_err("a mismatch");
    }
}
