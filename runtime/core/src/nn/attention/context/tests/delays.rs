//! Ranks that are late at random change no bit, and hang nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::case::{Case, Style};
use meshwright_backend::{Band, CachingAllocator, DType};
use meshwright_comm::{
    Call, Completion, Engine, GroupMember, Operands, ProcessGroup, RankComms, RankExit,
};

/// An engine that issues each call of a rank after a random time.
struct Late {
    engine: Arc<dyn Engine>,
    random: Arc<AtomicU64>,
}

struct LateGroup {
    group: Arc<dyn ProcessGroup>,
    random: Arc<AtomicU64>,
}

impl Late {
    fn over(comms: RankComms, seed: u64) -> RankComms {
        let random = Arc::new(AtomicU64::new(seed * 1000 + comms.rank() as u64));
        let engine = Arc::clone(comms.engine());
        comms.over(Arc::new(Late { engine, random }))
    }
}

impl Engine for Late {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let group = self.engine.process_group(member);
        Arc::new(LateGroup { group, random: Arc::clone(&self.random) })
    }

    /// The engine below is notified by the launcher.
    fn leave(&self, _: &RankExit) {}

    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        self.engine.graph_pools()
    }
}

impl ProcessGroup for LateGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let next = |state: u64| {
            Some(state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407))
        };
        let state = self.random.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|state| state);
        std::thread::sleep(Duration::from_micros((state >> 33) % 3000));
        self.group.issue(call, operands)
    }
}

#[test]
fn late_ranks_change_no_bit() {
    let packing = [vec![5, 1, 17, 25], vec![48]];
    let causal = Case::causal(48, 4, 2);
    let packed = Case { documents: Some(packing), ..causal.clone() };
    let biased = Case { has_bias: true, has_sinks: true, bias_distance: 5, ..packed.clone() };
    for case in [causal, packed, Case { band: Band::ALL, ..biased }] {
        for (ranks, style) in [
            (3, Style::Ring),
            (8, Style::Ring),
            (4, Style::Gather),
            (4, Style::Exchange(4)),
            (8, Style::Exchange(2)),
        ] {
            let bits = |seed: Option<u64>| {
                let results = case.on_ranks_with(ranks, style, DType::F32, |comms| match seed {
                    Some(seed) => Late::over(comms, seed),
                    None => comms,
                });
                let has_all = results.arrays.iter().all(|array| !array.is_empty());
                assert_eq!(has_all, case.has_bias, "gradients of sinks and biases are compared");
                results.arrays.map(|array| array.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            };
            let in_time = bits(None);
            for seed in 1..=6 {
                assert!(bits(Some(seed)) == in_time, "{style:?} on {ranks} ranks, seed {seed}");
            }
        }
    }
}
