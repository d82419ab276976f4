//! Pipelines whose ranks have a GPU each: messages through the NCCL engine, each on the stream of its channel.

use std::sync::Arc;

use meshwright::models::llama::Llama;
use meshwright::schedule::{Action, Schedule, ScheduleKind, verify};
use meshwright::train::{LanguageModel, Machine};
use meshwright_gpu_sim::not_checked_on_gpu;
use meshwright_tests::compare::{Report, assert_same_bits};
use meshwright_tests::run::train;

use super::llama::DATA;
use super::nccl::Cluster;
use super::nccl_grouped::{check_groups, generate, setup_for, train_on};
use super::{F32, compare, device};

/// The library only moves messages, so a pipeline has the bits of ranks that share a device, and messages one by one
/// have the bits of groups.
#[test]
fn every_schedule_trains_over_nccl() {
    if not_checked_on_gpu() {
        return;
    }
    let on_cpu = train("1", &setup_for(2), |model: &Llama, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    });
    let mut report = Report::default();
    for kind in ScheduleKind::ALL {
        let got = train_on(("pp=2", 2), kind, Arc::new(Cluster::new(2)));
        compare(&mut report, &format!("{kind} on pp=2"), &got, &on_cpu, F32);
        let shared = train_on(("pp=2", 2), kind, device(1));
        assert_eq!(got.losses, shared.losses, "{kind}");
        assert_same_bits(&format!("{kind}: gradients"), &got.gradients, &shared.gradients);
        assert_same_bits(&format!("{kind}: parameters"), &got.trained, &shared.trained);
        check_groups(("pp=2", 2), 2, kind, &got);
    }
    for (mesh, kind) in [
        ("pp=2,tp=2", ScheduleKind::ZeroBubbleH1),
        ("fsdp=2,pp=2", ScheduleKind::Interleaved),
        ("dp=2,pp=2", ScheduleKind::ZeroBubbleV),
    ] {
        let got = train_on((mesh, 2), kind, Arc::new(Cluster::new(4)));
        compare(&mut report, &format!("{kind} on {mesh}"), &got, &on_cpu, F32);
    }
    report.print();
}

/// Receives of the first two steps have no lookahead: in these, the host may wait for the device.
#[test]
fn first_steps_post_receives_late() {
    if not_checked_on_gpu() {
        return;
    }
    let kind = ScheduleKind::OneFOneB;
    let cluster = Arc::new(Cluster::new(2));
    train_on(("pp=2", 2), kind, Arc::clone(&cluster) as Arc<dyn Machine>);
    let verified = verify(&generate(2, kind)).unwrap();
    assert_ne!(verified.without_lookahead(), verified.lowered());
    for rank in 0..2 {
        let calls = |schedule: &Schedule| -> Vec<&str> {
            let actions = schedule.ranks[rank].iter();
            let messages = actions.filter_map(|action| match action {
                Action::Send(_) => Some("send"),
                Action::Recv(_) => Some("recv"),
                _ => None,
            });
            messages.collect()
        };
        let log = cluster.hub.take_log(rank);
        let kind_of = |text: &str| {
            let kind = text.split(' ').next().unwrap_or_default();
            ["send", "recv"].into_iter().find(|known| *known == kind)
        };
        let found: Vec<&str> = log.iter().filter_map(|text| kind_of(text)).collect();
        let late = calls(verified.without_lookahead());
        // One message in each direction when the engine connects the ranks.
        let connects = vec!["send", "recv"];
        let mut found = found.into_iter();
        let mut connected: Vec<&str> = found.by_ref().take(2).collect();
        connected.sort_by_key(|call| *call != "send");
        assert_eq!(connected, connects, "rank {rank}");
        let found: Vec<&str> = found.collect();
        let expected = [late.clone(), late, calls(verified.lowered())].concat();
        assert_eq!(found, expected, "rank {rank}");
    }
}
