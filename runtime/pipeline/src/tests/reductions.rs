//! Gradient reductions of a step: which computations of a schedule wait for them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use crate::schedule::{Schedule, ScheduleKind, verify};
use crate::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright_backend::{DType, DryRunBackend};
use meshwright_comm::__internal::CallObserver;
use meshwright_comm::{Call, CommError, CommOp, LaunchOptions, launch_rank};
use meshwright_core::nn::{Embedding, Layer, Layers, Linear, LmHead, Sizes, Stack};
use meshwright_core::tensor::{Rank, Settings, Targets, Tensor, Tokens, ZeroStage};
use meshwright_macros::{dims, forward, model};

dims! { crate = meshwright_core; Batch @ data, Seq, Vocab, Hidden }

#[model(crate = meshwright_core)]
struct Block {
    linear: Linear<Hidden, Hidden>,
}

#[forward(crate = meshwright_core)]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        x + self.linear.forward(x)
    }
}

/// Every block is a unit.
#[model(crate = meshwright_core)]
struct Net {
    #[pipeline_stage]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
    head: LmHead<Hidden, Vocab>,
}

#[forward(crate = meshwright_core)]
impl Net {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)>;
}

const BATCH: usize = 16;
const SEQ: usize = 4;
const MICRO_BATCHES: usize = 4;

/// An event of a rank, with the number of its computation of the schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    action: Option<u64>,
    kind: EventKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EventKind {
    Send,
    /// The start of the reduction of the gradient of a unit.
    Reduce(usize),
    /// The wait for a call.
    Wait(usize),
    Other,
}

thread_local! {
    /// The rank of this thread.
    static RANK: RefCell<Option<Rank>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Recorder(Mutex<(usize, Vec<Event>)>);

impl Recorder {
    fn record(&self, kind: impl FnOnce(usize) -> EventKind) -> usize {
        let action = RANK.with_borrow(|rank| rank.as_ref().and_then(Rank::running_action));
        let mut recorded = self.0.lock().unwrap();
        let number = recorded.0;
        recorded.0 += 1;
        recorded.1.push(Event { action, kind: kind(number) });
        number
    }
}

impl CallObserver for Recorder {
    fn call_issued(&self, call: &Call, _: Option<u32>) -> usize {
        let reduces = call.asynchronous && call.site.field().ends_with("(gradient)");
        self.record(|number| match call.op {
            CommOp::Send { .. } => EventKind::Send,
            _ if reduces => EventKind::Reduce(number),
            _ => EventKind::Other,
        })
    }

    fn call_awaited(&self, number: usize) {
        self.record(|_| EventKind::Wait(number));
    }
}

/// Returns what the rank at `position` along `pp` does in the second of two steps.
fn events_of_step(
    mesh: &str,
    settings: Settings,
    schedule: &Schedule,
    (position, layers): (usize, usize),
) -> Vec<Event> {
    let recorder = Arc::new(Recorder::default());
    let mesh = mesh.parse().unwrap();
    let schedule = Arc::new(verify(schedule).unwrap());
    let sizes = Sizes::new().with(Vocab, 32).with(Hidden, 16).with(Layers, layers);
    let body = |comms: meshwright_comm::RankComms| {
        let comms = comms.over_nothing(false).observed_by(recorder.clone());
        let rank = Rank::with_settings(comms, Box::new(DryRunBackend::cpu()), settings);
        RANK.set(Some(rank.clone()));
        let placement = &schedule.lowered().placement;
        let request = StageRequest { placement, cut: &StageCut::Auto, seq: SEQ };
        let plan = plan_stages::<Net>(&rank, &sizes, &request).unwrap();
        let built = build_stages::<Net>(&rank, &sizes, &plan).unwrap();
        let pipeline = Pipeline::new(&rank, &built, &sizes, &plan, &schedule).unwrap();
        for _ in 0..2 {
            recorder.0.lock().unwrap().1.clear();
            let ids = vec![0; BATCH / 4 / MICRO_BATCHES * SEQ];
            let inputs: Vec<Tokens<(Batch, Seq)>> = (0..MICRO_BATCHES)
                .map(|index| Tokens::from_rows(&rank, &[BATCH, SEQ], index, &ids))
                .collect();
            let targets =
                |index| Targets::<(Batch, Seq)>::from_rows(&rank, &[BATCH, SEQ], index, &ids);
            let step = pipeline.run_step(&built.model, &inputs, |model, output, index| {
                model.head.loss(output, &targets(index))
            });
            let _ = step.unwrap().gradients.reduce();
        }
        RANK.take();
        Ok::<_, CommError>(())
    };
    let rank = mesh_rank(&mesh, position);
    launch_rank(&LaunchOptions::default(), &mesh, rank, |_| 1, body)
        .unwrap_or_else(|e| panic!("{e}"));
    std::mem::take(&mut recorder.0.lock().unwrap().1)
}

/// Returns the last rank at a position along `pp`.
fn mesh_rank(mesh: &meshwright_mesh::MeshShape, position: usize) -> usize {
    let last = mesh.coordinates(mesh.world_size() - 1);
    mesh.rank_of(&last.with(meshwright_core::layout::AxisId::Pp, position))
}

/// The reductions that a computation has started itself, and waits for before its result is sent.
fn held_up(events: &[Event]) -> Vec<usize> {
    let mut held = Vec::new();
    for (start, event) in events.iter().enumerate() {
        let EventKind::Reduce(number) = event.kind else { continue };
        // All-reduces over replicas may start after the last computation.
        if event.action.is_none() {
            continue;
        }
        let later = &events[start..];
        let wait = later.iter().position(|later| later.kind == EventKind::Wait(number)).unwrap();
        // A send after the wait is of the same computation if no other one has begun.
        let rest = later[..]
            .iter()
            .enumerate()
            .take_while(|(_, later)| later.action.is_none() || later.action == event.action);
        let sent = rest.filter(|(_, later)| later.kind == EventKind::Send).map(|(at, _)| at).last();
        if later[wait].action == event.action || sent.is_some_and(|sent| wait < sent) {
            held.push(number);
        }
    }
    held
}

/// The most reductions that were in progress together.
fn most_in_progress(events: &[Event]) -> usize {
    let (mut open, mut most): (Vec<usize>, usize) = Default::default();
    for event in events {
        match event.kind {
            EventKind::Reduce(number) => open.push(number),
            EventKind::Wait(number) => open.retain(|open| *open != number),
            EventKind::Send | EventKind::Other => {}
        }
        most = most.max(open.len());
    }
    most
}

fn schedules() -> impl Iterator<Item = Schedule> {
    let generate = |kind: ScheduleKind| kind.generate(2, kind.default_chunks(), MICRO_BATCHES);
    ScheduleKind::ALL.into_iter().map(move |kind| generate(kind).unwrap())
}

/// Four data ranks, with and without replicas of shards.
const MESHES: [&str; 3] = ["pp=2,dp=4", "pp=2,fsdp=4", "pp=2,dp=2,fsdp=2"];

fn check(
    mesh: &str,
    settings: Settings,
    [position, blocks]: [usize; 2],
    expected: impl Fn(&[Event]),
) {
    for schedule in schedules() {
        let layers = schedule.stages() * blocks;
        let events = events_of_step(mesh, settings, &schedule, (position, layers));
        let count = |is_kind: fn(&EventKind) -> bool| {
            events.iter().filter(|event| is_kind(&event.kind)).count()
        };
        let reductions = count(|kind| matches!(kind, EventKind::Reduce(_)));
        let what = (mesh, settings.zero, settings.reduce, position, blocks);
        assert!(reductions >= blocks, "{what:?}: {reductions}");
        assert!(count(|kind| *kind == EventKind::Send) >= MICRO_BATCHES, "{what:?}");
        expected(&events);
    }
}

fn all_settings() -> impl Iterator<Item = (&'static str, Settings)> {
    MESHES.into_iter().flat_map(|mesh| {
        ZeroStage::ALL.into_iter().flat_map(move |zero| {
            [DType::F32, DType::Bf16]
                .map(|reduce| (mesh, Settings { zero, reduce, ..Settings::new(7) }))
        })
    })
}

/// Stages of one block, with the embedding or the head.
#[test]
fn no_computation_waits_for_reductions_that_it_has_started() {
    for (mesh, settings) in all_settings() {
        for position in 0..2 {
            check(mesh, settings, [position, 1], |events| {
                assert_eq!(held_up(events), [0; 0], "{mesh} {settings:?} {position}: {events:?}");
            });
        }
    }
}

/// Stages of many units: whole gradients that are freed after their reduction are two at most, so the last two are in
/// progress when the result is sent; others are never waited for.
#[test]
fn computations_wait_for_memory_only() {
    for (mesh, settings) in all_settings() {
        let frees = settings.zero >= ZeroStage::Gradients
            || settings.zero == ZeroStage::Optimizer && settings.reduce == DType::Bf16;
        let is_sharded = mesh.contains("fsdp");
        check(mesh, settings, [1, 4], |events| {
            let held = held_up(events);
            if !(frees && is_sharded) {
                assert_eq!(held, [0; 0], "{mesh} {settings:?}: {events:?}");
                return;
            }
            for number in held {
                let [start, wait] = [EventKind::Reduce(number), EventKind::Wait(number)]
                    .map(|kind| events.iter().position(|event| event.kind == kind).unwrap());
                let started = &events[start + 1..wait];
                let is_next = |next: &Event| matches!(next.kind, EventKind::Reduce(_));
                assert!(started.iter().any(is_next), "{mesh} {settings:?}: {events:?}");
            }
            if !mesh.contains("dp=2") {
                assert_eq!(most_in_progress(events), 2, "{mesh} {settings:?}: {events:?}");
            }
        });
    }
}
