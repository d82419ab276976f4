//! Searches of small models.

use std::ffi::OsString;

use super::bubbles::Bubbles;
use super::candidate::Candidate;
use super::cell::CellKey;
use super::communication::Collectives;
use super::effort::Effort;
use super::estimate::Estimator;
use super::left_out::LeftOut;
use super::parallel::map_on_cores;
use super::planned_run::PlannedRun;
use super::ranking::tie;
use super::search::{Found, open_model, search};
use super::simulated_candidate::simulate_candidate;
use super::space::{Frames, USABLE_MEMORY, frames, recomputations};
use super::*;
use crate::layout::AxisId;
use crate::models::llama::Llama;
use crate::models::mixtral::Mixtral;
use crate::nn::RecomputeOverride;
use crate::train::plan::OpenedModel;
use crate::train::{NextToken, Optimizers};

type LlamaTask = NextToken<Llama>;

/// A model of 1.2 B parameters.
const LARGE: &str =
    "--hidden 2048 --layers 24 --heads 16 --kv-heads 8 --vocab 32000 --seq 2048 --batch 64";
const TINY: &str = "--hidden 256 --layers 4 --heads 4 --seq 256 --batch 32";

fn settings(line: &str) -> (RunSettings, SizedCluster) {
    let words = format!("t {line}");
    let words = words.split_whitespace().map(OsString::from);
    let settings = RunSettings::read(words, &Optimizers::default()).unwrap();
    let on = settings.plan.clone().unwrap();
    (settings, on)
}

fn frames_of(line: &str) -> (Frames, LeftOut) {
    let (settings, on) = settings(line);
    let mut left_out = LeftOut::default();
    let model = open_model::<LlamaTask>(&settings, &on).unwrap();
    let frames = frames::<LlamaTask>(&settings, &on, &model, &mut left_out).unwrap();
    (frames, left_out)
}

fn found(line: &str) -> Found {
    let (settings, on) = settings(line);
    search::<LlamaTask>(&settings, &on, Effort { plans: 3, ..Effort::to_rank(3) }).unwrap()
}

fn refusal(line: &str) -> String {
    let (settings, on) = settings(line);
    plan_run::<LlamaTask>(&settings, &on).err().unwrap().to_string()
}

/// Estimates select candidates; what is printed is simulated. They have to be near it. Memory is largest, 1.54 times
/// that of the dry run, where stages have one or two layers: no rank has the largest of each part.
#[test]
fn estimates_are_near_simulations() {
    let (settings, on) = settings(&format!("--plan h100x16 {LARGE}"));
    let model = open_model::<LlamaTask>(&settings, &on).unwrap();
    let frames = frames::<LlamaTask>(&settings, &on, &model, &mut LeftOut::default()).unwrap();
    let collectives = Collectives::new(&on.cluster);
    let bubbles = Bubbles::default();
    let mut estimator = Estimator { model: &model, limit: f64::INFINITY, collectives, bubbles };
    let mut checked = 0;
    for frame in frames.fitting.iter().step_by(37) {
        let (rows, micro_batches) = frame.rows[0];
        for recompute in [RecomputeOverride::Off, RecomputeOverride::Full] {
            let candidate = Candidate { micro_batches, recompute, ..frame.candidate };
            let key = CellKey::new(&candidate.mesh, rows, recompute);
            let config = key.config(&settings, &on, 1).unwrap();
            let opened = OpenedModel::open(&config).unwrap();
            let Ok(cell) = key.measure::<LlamaTask>(&settings, &opened, &on) else { continue };
            let estimate = estimator.estimate(frame, &candidate, &cell).unwrap().unwrap();
            let run = simulate_candidate::<LlamaTask>(&settings, &on, &candidate).unwrap().run;
            let (time, memory) =
                (estimate.seconds / run.step_s, estimate.bytes / run.memory_bytes as f64);
            println!("{time:.2} {memory:.2} {candidate}");
            assert!((0.6..1.3).contains(&time), "{time:.2} of the time: {candidate}");
            assert!((0.75..1.6).contains(&memory), "{memory:.2} of the memory: {candidate}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}");
}

/// Without a pipeline, a cell is exact: the time of a step is linear in layers and micro-batches.
#[test]
fn cells_are_linear() {
    let (settings, on) = settings(&format!("--plan h100x8 {LARGE} --fix tp=8"));
    let found = |micro_batches| {
        let mut settings = settings.clone();
        settings.batch = 2 * micro_batches;
        let candidate = Candidate {
            mesh: "tp=8".parse().unwrap(),
            zero: Default::default(),
            schedule: None,
            micro_batches,
            recompute: RecomputeOverride::Off,
            is_eager: false,
        };
        simulate_candidate::<LlamaTask>(&settings, &on, &candidate).unwrap()
    };
    let (two, three) = (found(2), found(3));
    let key = CellKey::new(&two.candidate.mesh, 2, RecomputeOverride::Off);
    let opened = OpenedModel::open(&key.config(&settings, &on, 1).unwrap()).unwrap();
    let cell = key.measure::<LlamaTask>(&settings, &opened, &on).unwrap();
    let (expected, pass) = (three.run.step_s - two.run.step_s, 24.0 * cell.layer + cell.ends);
    assert!((pass / expected - 1.0).abs() < 0.02, "{pass} for {expected}");
    let kept = 24.0 * cell.kept + cell.transient;
    let state = 18.0 * (24.0 * cell.layer_elements + cell.end_elements);
    let memory = two.run.memory_bytes as f64;
    assert!(((kept + state) / memory - 1.0).abs() < 0.02, "{} for {memory}", kept + state);
}

#[test]
fn every_plan_fits_and_is_typed() {
    let found = found(&format!("--plan h100x8 {TINY}"));
    assert!(found.plans.len() >= 3);
    let simulated = found.plans.len();
    assert!(found.considered >= found.left_out.total() + simulated);
    for PlannedRun { candidate, run } in &found.plans {
        assert!(run.memory_bytes < run.gpu_memory_bytes);
        let flags = format!("--plan h100x8 {TINY}");
        let (settings, on) = settings(&flags);
        let again = simulate_candidate::<LlamaTask>(&settings, &on, candidate).unwrap();
        assert_eq!(again.run.step_s, run.step_s);
        let typed = format!("t --simulate h100x8 {TINY} {candidate}");
        crate::train::Config::parse(typed.split_whitespace()).unwrap();
    }
}

#[test]
fn given_settings_are_kept() {
    let flags = "--fix tp=2,pp=2 --zero 0 --schedule zb-h1 --micro-batches 4 --recompute none";
    let (frames, _) = frames_of(&format!("--plan h100x8 {TINY} {flags}"));
    assert!(!frames.fitting.is_empty());
    for frame in &frames.fitting {
        let Candidate { mesh, zero, schedule, .. } = frame.candidate;
        assert_eq!((mesh.degree(AxisId::Tp), mesh.degree(AxisId::Pp), zero.number()), (2, 2, 0));
        assert_eq!(schedule.unwrap().0.name(), "zb-h1");
        assert!(frame.rows.iter().all(|(_, micro_batches)| *micro_batches == 4));
    }
}

/// Each reason leaves something out.
#[test]
fn candidates_are_left_out_by_reason() {
    let (_, left_out) = frames_of(&format!("--plan h100x8 {TINY}").replace("32", "12"));
    assert!(left_out.batch > 0 && left_out.state == 0, "{left_out}");
    let (frames, left_out) =
        frames_of(&format!("--plan h100x16 {LARGE}").replace("--hidden 2048", "--hidden 16384"));
    assert!(left_out.state > 0 && frames.smallest.is_some(), "{left_out}");
    // A style of context-parallel attention needs its axis.
    let (_, left_out) = frames_of(&format!("--plan h100x8 {TINY} --cp ring"));
    assert!(left_out.refused > 0, "{left_out}");
    let found = found(&format!("--plan h100x8 {LARGE}").replace("--seq 2048", "--seq 16384"));
    let left_out = found.left_out;
    assert!(left_out.activations > 0 && left_out.slow > 0 && left_out.behind > 0, "{left_out}");
}

#[test]
fn experts_are_split_only_where_there_are_some() {
    let line = format!("--plan h100x8 {TINY}");
    let (frames, _) = frames_of(&line);
    let has_ep = |frames: &Frames| {
        frames.fitting.iter().any(|frame| frame.candidate.mesh.degree(AxisId::Ep) > 1)
    };
    assert!(!has_ep(&frames));
    let (settings, on) = settings(&line);
    let model = open_model::<NextToken<Mixtral>>(&settings, &on).unwrap();
    let mixtral =
        super::space::frames::<NextToken<Mixtral>>(&settings, &on, &model, &mut LeftOut::default())
            .unwrap();
    assert!(has_ep(&mixtral));
}

#[test]
fn refusals_name_the_fix() {
    for (line, expected) in [
        ("--plan h100x8 --mesh dp=8", "--mesh: --plan chooses the mesh"),
        ("--plan h100x8 --simulate h100x8", "leave one of them out"),
        ("--plan h100x8 --resume there", "--resume: --plan plans new runs"),
        ("--plan h100x8 --device cpu", "--device: --plan plans runs on GPUs"),
        ("--plan h100x8 --fix tp=3", "--fix: tp=3 does not divide a node of 8 GPUs"),
        ("--plan h100x8 --fix tp=8,dp=2", "--fix: 16 fixed ranks do not divide 8 GPUs"),
        ("--plan h100x8 --fix dp=2,fsdp=1,ep=1,cp=1,tp=2,pp=1", "all axes are 4, and not 8 GPUs"),
        ("--plan h100x8 --fix dp=8 --batch 7", "--batch 7 does not divide"),
    ] {
        let text = refusal(&format!("{line} --hidden 64 --layers 2"));
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert!(refusal("--plan h100x8 --fix dp=8 --batch 7").contains("a multiple of 8"));
}

#[test]
fn a_misfit_is_answered_by_what_fits() {
    let text = refusal(&format!("--plan h100x1 {LARGE}").replace("--layers 24", "--layers 200"));
    for expected in [
        "nothing fits on 1 GPU of `h100-dgx`",
        "too much:\n  parameters",
        "these fit, by a dry run of each:\n  --plan h100-dgxx",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(text.matches("with --mesh").count(), 3, "{text}");
}

/// The settings of `--mesh auto=N` on GPUs of a known cluster come from a plan that the machine accepts.
#[test]
fn a_run_is_planned() {
    let (mut settings, on) = settings(&format!("--plan h100x4 {TINY} --recompute full --cp ring"));
    settings.plan = None;
    let mut refused = 0;
    let chosen = choose_planned::<LlamaTask>(&settings, &on, |config| {
        assert!(config.simulate.is_none() && config.mesh.world_size() == 4);
        assert_eq!(config.recompute, Some(RecomputeOverride::Full));
        assert!(config.mesh.degree(AxisId::Cp) > 1);
        refused += 1;
        if refused == 1 { Err(Error::Input("too large".into())) } else { Ok(()) }
    });
    let chosen = chosen.unwrap();
    assert_eq!(refused, 2);
    let expected = format!("--mesh auto: --mesh {} --zero", chosen.config.mesh);
    assert!(chosen.reason.starts_with(&expected), "{}", chosen.reason);
    assert!(chosen.reason.ends_with("--plan h100-dgxx4 explains it"), "{}", chosen.reason);
    assert!(
        choose_planned::<LlamaTask>(&settings, &on, |_| Err(Error::Input("no".into()))).is_none()
    );
}

/// No candidate, simulated in full, is faster than the plans of a search by more than a tie.
#[test]
fn no_candidate_is_faster() {
    let sizes =
        "--hidden 2048 --layers 3 --heads 16 --kv-heads 8 --seq 8192 --batch 4 --vocab 32000";
    let (settings, on) = settings(&format!("--plan h100x4 {sizes}"));
    let model = open_model::<LlamaTask>(&settings, &on).unwrap();
    let frames = frames::<LlamaTask>(&settings, &on, &model, &mut LeftOut::default()).unwrap();
    let mut candidates = Vec::new();
    for frame in &frames.fitting {
        for (_, micro_batches) in &frame.rows {
            for recompute in recomputations(&settings, &frame.candidate) {
                let micro_batches = *micro_batches;
                candidates.push(Candidate { micro_batches, recompute, ..frame.candidate });
            }
        }
    }
    assert!(candidates.len() > 100, "{}", candidates.len());
    let simulate = |(): &mut (), candidate: &Candidate| {
        let run = simulate_candidate::<LlamaTask>(&settings, &on, candidate).ok()?.run;
        let fits = run.memory_bytes as f64 <= USABLE_MEMORY * run.gpu_memory_bytes as f64;
        fits.then_some(run.step_s)
    };
    let steps = map_on_cores(&candidates, || (), simulate);
    let fastest = steps.into_iter().flatten().fold(f64::INFINITY, f64::min);
    let plans = search::<LlamaTask>(&settings, &on, Effort::to_rank(5)).unwrap().plans;
    let found = plans.iter().map(|plan| plan.run.step_s).fold(f64::INFINITY, f64::min);
    assert!(found <= fastest * (1.0 + tie(on.gpus)), "{found} s instead of {fastest}");
}
