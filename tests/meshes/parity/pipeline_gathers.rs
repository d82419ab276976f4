//! FSDP units at ZeRO stage 3 are gathered in the order of the pipeline schedule, each before it is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Backend, DType};
use meshwright::comm::{
    Call, CommOp, Completion, Engine, GroupMember, Operands, ProcessGroup, RankComms, RankExit,
};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::models::llama::Llama;
use meshwright::pipeline::StageCut;
use meshwright::schedule::{Compute, ScheduleKind, Work};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::{Machine, Result};
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::Setup;

use super::llama::{Case, EVEN};

/// A call of a rank, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
enum Logged {
    /// The gather of the parameters of a unit.
    Gather(String),
    /// Losses and norms, which end a step.
    EndOfStep,
}

/// The calls of the first rank along `fsdp`, by position along `pp`.
type Log = Arc<Mutex<BTreeMap<usize, Vec<Logged>>>>;

/// CPU ranks, whose calls are logged.
struct Recorder(Log);

impl Machine for Recorder {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        Ok(Box::new(CpuBackend::new(1).expect("threads start")))
    }

    fn connect(&self, comms: RankComms, _: &dyn Backend) -> Result<RankComms> {
        let [position, replica] =
            [AxisId::Pp, AxisId::Fsdp].map(|axis| comms.group(AxisSet::of(axis)).rank());
        let log = (replica == 0).then(|| Arc::clone(&self.0));
        let inner = Arc::clone(comms.engine());
        Ok(comms.over(Arc::new(RecordingEngine { inner, log, position })))
    }

    fn describe(&self) -> String {
        "a recorder".to_owned()
    }

    fn memory(&self) -> Option<f64> {
        None
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

#[derive(Clone)]
struct RecordingEngine {
    inner: Arc<dyn Engine>,
    log: Option<Log>,
    position: usize,
}

struct RecordingGroup {
    engine: RecordingEngine,
    inner: Arc<dyn ProcessGroup>,
}

impl Engine for RecordingEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let inner = self.inner.process_group(member);
        Arc::new(RecordingGroup { engine: self.clone(), inner })
    }

    fn leave(&self, exit: &RankExit) {
        self.inner.leave(exit);
    }
}

impl ProcessGroup for RecordingGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let unit = call.site.field().strip_suffix(" (parameters)");
        let entry = match (&call.op, unit) {
            (CommOp::AllGather { .. }, Some(unit)) if call.asynchronous => {
                Some(Logged::Gather(unit.to_owned()))
            }
            (op, _) if !op.is_point_to_point() && call.axes.contains(AxisId::Pp) => {
                Some(Logged::EndOfStep)
            }
            _ => None,
        };
        if let (Some(entry), Some(log)) = (entry, &self.engine.log) {
            log.lock().unwrap().entry(self.engine.position).or_default().push(entry);
        }
        self.inner.issue(call, operands)
    }
}

/// The units that a computation of a stage reads, in order. Eight layers in four stages; backward does not read the
/// weights of the embedding and the head.
fn reads(compute: &Compute) -> Vec<String> {
    let Compute { work, stage, .. } = *compute;
    let layers = [2 * stage, 2 * stage + 1].map(|layer| format!("blocks.{layer}"));
    let (first, last) = (stage == 0, stage == 3);
    let named = |name: &str, is_read: bool| is_read.then(|| name.to_owned());
    match work {
        Work::Forward => {
            named("embed", first).into_iter().chain(layers).chain(named("norm", last)).collect()
        }
        Work::Backward | Work::BackwardInput => {
            let [head, norm] = [named("head", last), named("norm", last)];
            head.into_iter().chain(norm).chain(layers.into_iter().rev()).collect()
        }
        // Nothing is deferred at ZeRO stage 3.
        Work::BackwardWeight => Vec::new(),
    }
}

/// The units that stay unsharded from the forward pass of a stage until this computation, its backward, has read them:
/// the last layer, and the norm behind it.
fn kept(compute: &Compute) -> Vec<String> {
    let is_backward = matches!(compute.work, Work::Backward | Work::BackwardInput);
    match (is_backward, compute.stage) {
        (false, _) => vec![],
        (true, 3) => vec!["norm".to_owned(), "blocks.7".to_owned()],
        (true, stage) => vec![format!("blocks.{}", 2 * stage + 1)],
    }
}

/// The gathers of a step of a rank with these computations: of a unit when it is read, and of the next one, at the end
/// of a computation the first one of the next computation. All others are freed then, but those that a backward pass
/// will read first. The first unit is gathered after the update of the step before.
fn expected_gathers(actions: &[&Compute]) -> Vec<String> {
    let first = reads(actions[0])[0].clone();
    let mut gathered = vec![first.clone()];
    let mut held = HashSet::from([first]);
    for (index, action) in actions.iter().enumerate() {
        let (mut kept_now, units) = (kept(action), reads(action));
        let kept_for_later: Vec<String> =
            actions[index + 1..].iter().flat_map(|later| kept(later)).collect();
        for (at, unit) in units.iter().enumerate() {
            kept_now.retain(|kept| kept != unit || matches!(action.work, Work::Forward));
            let next = units.get(at + 1).cloned();
            let next = next.or_else(|| reads(actions.get(index + 1)?).first().cloned());
            let wanted: Vec<String> = [Some(unit.clone()), next].into_iter().flatten().collect();
            let all = || wanted.iter().chain(&kept_now).chain(&kept_for_later);
            held.retain(|unit| all().any(|needed| needed == unit));
            for unit in wanted {
                if held.insert(unit.clone()) {
                    gathered.push(unit);
                }
            }
        }
    }
    gathered
}

#[test]
fn units_are_gathered_in_the_order_of_the_schedule() {
    let case = Case { layers: 8, batch: 8, seq: 8, ..EVEN };
    let setup = case.setup::<Llama>();
    let settings = Settings { zero: ZeroStage::Parameters, ..setup.settings };
    let setup = Setup { settings, steps: 4, micro_batches: 4, ..setup };
    for kind in [ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleV, ScheduleKind::OneFOneB] {
        let chunks = 2;
        let schedule = match kind {
            // Two stages per rank are one stage of four layers.
            ScheduleKind::OneFOneB => kind.generate(2, 1, 4).unwrap().split_stages(&[2, 2]),
            _ => kind.generate(2, chunks, 4).unwrap(),
        };
        let log = Log::default();
        let machine: Arc<dyn Machine> = Arc::new(Recorder(Arc::clone(&log)));
        let setup = Setup { machine: Some(machine), ..setup.clone() };
        let cut = StageCut::Counts(vec![2; 4]);
        train_stages::<Llama>("fsdp=2,pp=2", &setup, &schedule, &cut, case.data());
        for (position, calls) in &*log.lock().unwrap() {
            let steps = calls.split(|call| *call == Logged::EndOfStep);
            let gathers = |step: &[Logged]| -> Vec<String> {
                let unit = |call: &Logged| match call {
                    Logged::Gather(unit) => unit.clone(),
                    Logged::EndOfStep => unreachable!("a separator"),
                };
                step.iter().map(unit).collect()
            };
            let steps: Vec<Vec<String>> =
                steps.filter(|step| !step.is_empty()).map(gathers).collect();
            let computes: Vec<&Compute> =
                schedule.ranks[*position].iter().flat_map(|action| action.computes()).collect();
            let actions = computes.into_iter().filter(|compute| !reads(compute).is_empty());
            let actions: Vec<&Compute> = actions.collect();
            let each_on_its_own: usize = actions.iter().map(|action| reads(action).len()).sum();
            let expected = expected_gathers(&actions);
            // Units at hand from one computation to the next are not gathered again.
            assert!(expected.len() < each_on_its_own, "{kind}, rank {position}");
            // The last layer of each stage is gathered once in a step.
            for stage in (0..4).filter(|stage| schedule.placement[*stage] == *position) {
                let last = format!("blocks.{}", 2 * stage + 1);
                let gathers = expected.iter().filter(|unit| **unit == last).count();
                assert_eq!(gathers, 1, "{kind}, rank {position}: {expected:?}");
            }
            for step in [1, 2, 3] {
                assert_eq!(steps[step], expected, "{kind}, rank {position}, step {step}");
            }
            // In the first step the order is not known yet.
            assert!(steps[0].len() <= each_on_its_own, "{kind}, rank {position}: {steps:?}");
        }
    }
}
