//! PyTorch's CSV files.

use super::all_schedules;
use crate::schedule::{Action, CsvError, LOOKAHEAD, Schedule, csv, lower_schedule, verify};

#[test]
fn schedules_survive_a_round_trip() {
    for schedule in all_schedules() {
        let read = csv::read(&csv::write(&schedule)).unwrap();
        assert_eq!(read, Schedule { kind: None, ..schedule.clone() });
        let lowered = lower_schedule(&schedule, LOOKAHEAD);
        let read = csv::read(&csv::write(&lowered)).unwrap();
        assert_eq!(read, Schedule { kind: None, ..lowered });
        verify(&read).unwrap();
    }
}

/// 1F1B of two ranks as PyTorch writes it, with idle cells.
#[test]
fn idle_cells_are_skipped() {
    let text = "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n";
    let read = csv::read(text).unwrap();
    assert_eq!((read.placement.as_slice(), read.micro_batches), ([0, 1].as_slice(), 2));
    verify(&read).unwrap();
}

/// Waits follow from the schedule; text that only resembles one is no action.
#[test]
fn waits_are_skipped() {
    let text = "0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n\
                1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0\n";
    let read = csv::read(text).unwrap();
    assert_eq!(read.ranks.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5]);
    verify(&read).unwrap();
    for wait in ["WAIT_SEND_F0", "0WAIT_SEND_F", "0WAIT_SEND_W0", "0WAIT_REDUCE_GRAD1"] {
        let error = csv::read(&format!("0F0,{wait},0B0\n")).unwrap_err().to_string();
        assert!(error.starts_with("rank 0, action 1: "), "{error}");
    }
}

#[test]
fn every_action_is_read_as_written() {
    let texts = [
        "2F0",
        "12B3",
        "0I7",
        "3W1",
        "(0F1;3B0)OVERLAP_F_B",
        "2SEND_F0",
        "3RECV_F0",
        "3SEND_B0",
        "2RECV_B0",
        "2UNSHARD",
        "2RESHARD",
        "2REDUCE_GRAD",
    ];
    for text in texts {
        assert_eq!(text.parse::<Action>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "F0",
        "2F",
        "2X0",
        "0SEND_B0",
        "0RECV_F1",
        "2F0x",
        "2UNSHARD1",
        "(0F1)OVERLAP_F_B",
        "(0F1;2UNSHARD)OVERLAP_F_B",
        "99999999999999999999F0",
        "-1F0",
    ] {
        let error = text.parse::<Action>().unwrap_err().to_string();
        assert!(error.contains("is not an action"), "{text}: {error}");
    }
}

#[test]
fn broken_files_are_refused() {
    let refused = |text: &str| csv::read(text).unwrap_err();
    assert_eq!(refused("\n"), CsvError::Empty);
    let text = refused("0F0,0Q0\n").to_string();
    assert!(text.starts_with("rank 0, action 1: `0Q0` is not an action"), "{text}");
    let text = refused("0F0,0B0\n0F1,0B1\n").to_string();
    assert_eq!(text, "rank 1, action 0, `0F1`: stage 0 is on rank 0, too");
    let missing = CsvError::NoForward { stage: 1, last: 18446744073709551615 };
    assert_eq!(refused("0F0,0B0,18446744073709551615F0\n"), missing);
    let huge = csv::read("0F0,0B18446744073709551615\n").unwrap();
    let findings = verify(&huge).unwrap_err();
    assert!(findings[0].to_string().contains("micro-batch"), "{findings:?}");
    let large = csv::read("0F0,0B1000000000000\n").unwrap();
    let text = verify(&large).unwrap_err()[0].to_string();
    let expected = "1 stages and 1000000000001 micro-batches need a forward pass each: there are 1";
    assert_eq!(text, expected);
}
