//! Handles of parameters whose model is not built: declared for a plan of pipeline stages, or still being built.

use std::cell::RefCell;

use meshwright::nn::build;
use meshwright::pipeline::{StageCut, StageRequest, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::ParamRef;

use super::harness::{MeshCase, mesh, on, stage3};

dims! { Batch @ data, Hidden }

type Stream = Tensor<(Batch, Hidden)>;

thread_local! {
    static KEPT: RefCell<Vec<ParamRef>> = const { RefCell::new(Vec::new()) };
}

/// A gain that keeps its handle beside the model, and reads it immediately if `reads` is set.
struct Gain(Param<(Hidden,)>);

impl Build for Gain {
    fn build(builder: &mut Builder<'_>) -> Self {
        let gain: Param<(Hidden,)> = builder.param("gain", Init::Ones);
        if builder.sizes().flag("reads") {
            let _ = gain.handle().to_local_vec();
        }
        KEPT.with_borrow_mut(|kept| kept.push(gain.handle().clone()));
        Gain(gain)
    }
}

#[model]
struct Scale {
    gain: Gain,
}

#[forward]
impl Scale {
    fn forward(&self, x: &Stream) -> Stream {
        x * &self.gain.0
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    first: Scale,
    #[pipeline_stage]
    second: Scale,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream;
}

fn assert_refused(case: MeshCase, body: impl Fn(&Rank) + Sync) {
    let message = on(case, body).unwrap_err();
    for part in ["`first.gain.gain` has no values", "`build` or `build_stages`"] {
        assert!(message.contains(part), "{}: {message}", case.mesh);
    }
}

fn kept_by_plan(rank: &Rank) -> ParamRef {
    let ranks = rank.degree(meshwright::layout::AxisId::Pp);
    let schedule = ScheduleKind::OneFOneB.generate(ranks, 2 / ranks, 2);
    let schedule = verify(&schedule.unwrap()).unwrap();
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: 1 };
    plan_stages::<Net>(rank, &Sizes::new().with(Hidden, 4), &request).unwrap();
    KEPT.with_borrow(|kept| kept[0].clone())
}

#[test]
fn handles_kept_from_a_plan_are_refused() {
    assert_refused(mesh("pp=2"), |rank| drop(kept_by_plan(rank).gather(rank)));
    assert_refused(mesh("pp=2"), |rank| drop(kept_by_plan(rank).to_local_vec()));
    assert_refused(stage3("pp=2,fsdp=2"), |rank| kept_by_plan(rank).write_global(&[1.0; 4]));
    assert_refused(mesh("pp=2"), |rank| kept_by_plan(rank).write(&[1.0; 4]));
    assert_refused(mesh("pp=2"), |rank| drop(kept_by_plan(rank).owned_values()));
}

#[test]
fn handles_of_a_model_that_is_being_built_are_refused() {
    for case in [mesh("1"), mesh("dp=2"), stage3("fsdp=2")] {
        assert_refused(case, |rank| {
            let sizes = Sizes::new().with(Hidden, 4).with_flag("reads", true);
            build::<Net>(rank, &sizes).unwrap();
        });
    }
}
