//! Invalid settings of launchers and users: one message, immediately.

use std::net::TcpListener;

use super::job::{End, Job};
use super::training::words;

/// Runs two ranks whose settings are refused, and returns their outcomes.
fn refused(mesh: &str, change: impl Fn(usize, &mut std::process::Command)) -> Vec<End> {
    let folder = tempfile::tempdir().unwrap();
    let words = words(folder.path(), &format!("--mesh {mesh} --steps 2"));
    let ends = Job::start(2, "train", &words, change).ends();
    assert!(ends.iter().all(|end| end.code == Some(2)), "{ends:#?}");
    assert!(ends.iter().all(|end| end.stderr.matches("error: ").count() == 1), "{ends:#?}");
    ends
}

#[test]
fn mesh_must_match_the_number_of_processes() {
    for end in refused("dp=4", |_, _| {}) {
        let text = "--mesh dp=4 has 4 ranks, but 2 processes were started; start 4";
        assert!(end.stderr.contains(text), "{}", end.stderr);
    }
}

#[test]
fn what_the_launcher_leaves_out_is_named() {
    let nowhere = refused("dp=2", |_, command| {
        command.env_remove("MASTER_ADDR").env_remove("LOCAL_WORLD_SIZE");
    });
    for end in nowhere {
        assert!(
            end.stderr.contains("the environment has RANK, but no MASTER_ADDR"),
            "{}",
            end.stderr
        );
    }
    let uncounted = refused("dp=2", |_, command| {
        command.env_remove("WORLD_SIZE");
    });
    for end in uncounted {
        assert!(
            end.stderr.contains("the environment has RANK, but no WORLD_SIZE"),
            "{}",
            end.stderr
        );
    }
}

#[test]
fn the_way_of_messages_is_known_and_the_same() {
    const VARIABLE: &str = "MESHWRIGHT_NCCL_P2P";
    let unknown = refused("pp=2", |_, command| {
        command.env(VARIABLE, "edges");
    });
    for end in unknown {
        let text = "MESHWRIGHT_NCCL_P2P: `edges` is not a message path: use `grouped` (in rounds, the default) or \
                    `pairs` (a communicator per pair of ranks)";
        assert!(end.stderr.contains(text), "{}", end.stderr);
    }
    let different = refused("pp=2", |rank, command| {
        command.env(VARIABLE, ["", "pairs"][rank]);
    });
    for end in different {
        let text = "MESHWRIGHT_NCCL_P2P is `grouped` on rank 0, but `pairs` on rank 1; set the same on all hosts";
        assert!(end.stderr.contains(text), "{}", end.stderr);
    }
}

#[test]
fn pipelines_whose_messages_would_wait_for_each_other_are_refused() {
    for variable in ["NCCL_COMM_SPLIT_SHARE_RESOURCES", "CUDA_DEVICE_MAX_CONNECTIONS"] {
        let ends = refused("pp=2", |_, command| {
            command.env(variable, "1").env("MESHWRIGHT_NCCL_P2P", "pairs");
        });
        for end in ends {
            let text = format!("with {variable}=1 and MESHWRIGHT_NCCL_P2P=pairs, messages ");
            assert!(end.stderr.contains(&text), "{}", end.stderr);
        }
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    // A server that closes every connection.
    std::thread::spawn(move || taken.incoming().for_each(drop));
    let ends = refused("dp=2", |_, command| {
        command.env("MASTER_PORT", &port);
    });
    let [first, second] = [&ends[0].stderr, &ends[1].stderr];
    assert!(first.contains("rank 0 cannot listen at") && first.contains(&port), "{first}");
    assert!(first.contains("choose another MASTER_PORT"), "{first}");
    assert!(second.contains("no other program uses MASTER_PORT"), "{second}");
}
