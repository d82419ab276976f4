//! Update rules from outside of the library: other ways to write an update, and rules that are refused.

use std::rc::Rc;
use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::comm::{ReduceOp, Site};
use meshwright::nn::build;
use meshwright::optim::{
    FlatSlice, Group, ModelUpdate, Optimizer, OptimizerStep, ParamGroups, UnitState, UpdateRule,
    Updated,
};
use meshwright::tensor::{ParamRef, Rank, Settings, Unit, ZeroStage};
use meshwright_examples::lion::Lion;
use meshwright_tests::compare::{assert_same_bits, distance};
use meshwright_tests::run::on_mesh;

use super::net::{Case, Net, first, first_loss, sizes};

const MOMENTUM: f64 = 0.9;

/// `v = 0.9 v + g` and `p = p - lr v`, written in three ways.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HeavyBall {
    /// An expression.
    Elementwise,
    /// Code that reads and writes the flat slices on the host.
    Views,
    /// Parameter by parameter, as an update of the complete model.
    Model,
}

impl UpdateRule for HeavyBall {
    fn name(&self) -> &str {
        "heavy-ball"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &["velocity"]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        match self {
            HeavyBall::Views => update_on_host(slice),
            HeavyBall::Elementwise => update_elementwise(slice),
            HeavyBall::Model => panic!("the update of the model takes all groups"),
        }
    }

    fn model_update(
        &self,
        _: &Rank,
        units: &[Rc<Unit>],
        groups: &ParamGroups,
    ) -> Option<Box<dyn ModelUpdate>> {
        let params = units.iter().enumerate();
        let of_unit = |(index, unit): (usize, &Rc<Unit>)| {
            unit.params().into_iter().map(move |param| (index, param)).collect::<Vec<_>>()
        };
        let params = params.flat_map(of_unit).map(|(index, param)| {
            let group = groups.of(&param);
            (index, param, group)
        });
        let update = HeavyModel { params: params.collect() };
        (*self == HeavyBall::Model).then(|| Box::new(update) as Box<dyn ModelUpdate>)
    }
}

fn update_elementwise(slice: FlatSlice<'_>) -> Updated {
    let lr = slice.lr();
    slice.update_elementwise(["velocity"], |param, gradient, [velocity]| {
        let velocity = MOMENTUM * velocity + gradient;
        (param - lr * velocity, [velocity])
    })
}

fn update_on_host(slice: FlatSlice<'_>) -> Updated {
    let (lr, scale) = (slice.lr() as f32, slice.step().grad_scale());
    slice.update_views(["velocity"], |mut views| {
        let [velocity] = &mut views.states;
        let mut params: Vec<f32> = views.params.as_view().to_vec();
        let mut velocities: Vec<f32> = velocity.as_view().to_vec();
        let gradients: Vec<f32> = views.gradient.to_vec();
        for ((p, v), g) in params.iter_mut().zip(&mut velocities).zip(&gradients) {
            *v = MOMENTUM as f32 * *v + g * scale;
            *p -= lr * *v;
        }
        views.params.write(&params);
        velocity.write(&velocities);
    })
}

/// The parameters with the index of their unit and their group.
struct HeavyModel {
    params: Vec<(usize, ParamRef, Group)>,
}

impl ModelUpdate for HeavyModel {
    fn takes(&self, _: Group) -> bool {
        true
    }

    fn update(&mut self, step: &OptimizerStep<'_>, states: &mut [UnitState]) {
        for (unit, param, group) in &self.params {
            if let Some(slice) = states[*unit].param_slice(step, param, *group) {
                let _updated = update_elementwise(slice);
            }
        }
    }
}

#[test]
fn three_ways_to_write_an_update_give_the_same_bits() {
    for (mesh, zero, compute) in [
        ("1", ZeroStage::Replicated, DType::F32),
        ("fsdp=2,tp=2", ZeroStage::Parameters, DType::Bf16),
        ("dp=2,fsdp=2", ZeroStage::Optimizer, DType::Bf16),
    ] {
        let [expected, views, model] = [HeavyBall::Elementwise, HeavyBall::Views, HeavyBall::Model]
            .map(|rule| {
                let mut case = Case::new(rule);
                case.settings = Settings { zero, compute, ..case.settings };
                first(mesh, &case)
            });
        for (way, run) in [("views", views), ("model", model)] {
            let label = format!("{way} on {mesh}");
            assert_eq!(run.losses, expected.losses, "{label}");
            let (last, expected) = (run.params.last(), expected.params.last());
            assert_same_bits(&label, last.unwrap(), expected.unwrap());
        }
    }
}

/// Moves each parameter by its gradient, divided by the norm of the gradient of the whole parameter.
#[derive(Debug)]
struct Normalized;

impl UpdateRule for Normalized {
    fn name(&self) -> &str {
        "normalized"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, _: FlatSlice<'_>) -> Updated {
        panic!("the update of the model takes all groups")
    }

    fn model_update(
        &self,
        _: &Rank,
        _: &[Rc<Unit>],
        groups: &ParamGroups,
    ) -> Option<Box<dyn ModelUpdate>> {
        Some(Box::new(NormalizedModel { groups: groups.clone() }))
    }
}

struct NormalizedModel {
    groups: ParamGroups,
}

impl ModelUpdate for NormalizedModel {
    fn takes(&self, _: Group) -> bool {
        true
    }

    fn update(&mut self, step: &OptimizerStep<'_>, states: &mut [UnitState]) {
        for state in states {
            for param in state.params() {
                let group = self.groups.of(&param);
                let mut squares = [0.0f32];
                if let Some(slice) = state.param_slice(step, &param, group) {
                    let _unchanged = slice.update_views([], |views| {
                        let gradient: Vec<f32> = views.gradient.to_vec();
                        squares[0] = gradient.iter().map(|g| (g * step.grad_scale()).powi(2)).sum();
                    });
                }
                let owners = step.rank().group(param.owner_axes());
                let sum = owners.all_reduce(
                    &Site::new("norm"),
                    ReduceOp::Sum,
                    squares.as_mut_slice().into(),
                );
                sum.unwrap_or_else(|error| panic!("{error}"));
                if let Some(slice) = state.param_slice(step, &param, group) {
                    let factor = slice.lr() / f64::from(squares[0].sqrt());
                    let _updated = slice.update_elementwise([], |param, gradient, []| {
                        (param - factor * gradient, [])
                    });
                }
            }
        }
    }
}

#[test]
fn norms_of_whole_parameters_are_the_same_on_every_mesh() {
    let run = |mesh, zero| {
        let mut case = Case::new(Normalized);
        case.settings = Settings { zero, ..case.settings };
        first(mesh, &case)
    };
    let one = run("1", ZeroStage::Replicated);
    for mesh in ["tp=2", "dp=2", "fsdp=4", "fsdp=2,tp=2", "dp=2,fsdp=2"] {
        for zero in ZeroStage::ALL
            .into_iter()
            .filter(|zero| mesh.contains("fsdp") || *zero == ZeroStage::Replicated)
        {
            let (found, expected) = (run(mesh, zero), one.params.last().unwrap());
            for (path, found) in found.params.last().unwrap() {
                let distance = distance(found, &expected[path]);
                assert!(distance < 1e-5, "`{path}` on {mesh} with {zero}: {distance:.1e}");
            }
        }
    }
}

/// A rule that is wrong in one way.
#[derive(Debug)]
struct Wrong {
    declared: &'static [&'static str],
    updated: &'static str,
}

impl UpdateRule for Wrong {
    fn name(&self) -> &str {
        "wrong"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        self.declared
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        slice.update_elementwise([self.updated], |param, gradient, [state]| {
            (param - gradient, [state])
        })
    }
}

#[test]
fn rules_out_of_range_are_refused() {
    let error = |rule: Arc<dyn UpdateRule>| {
        let messages = on_mesh("1", 1, |rank| {
            let built = build::<Net>(rank, &sizes()).unwrap();
            let groups = ParamGroups::default();
            let optimizer = Optimizer::with_groups(rank, &built.units, Arc::clone(&rule), &groups);
            optimizer.err().unwrap().to_string()
        });
        messages[0].clone()
    };
    let lion = Lion { betas: (0.9, 1.0), ..Lion::default() };
    let expected = "optimizer lion: the second beta must be at least 0 and below 1, not 1";
    assert_eq!(error(Arc::new(lion)), expected);
    let wrong = |declared| Arc::new(Wrong { declared, updated: "" });
    let expected = "optimizer wrong: two states are named `m`; each kind needs a name of its own";
    assert_eq!(error(wrong(&["m", "m"])), expected);
    assert!(error(wrong(&["ema"])).contains("`ema` is reserved"));
}

#[test]
fn updates_of_undeclared_states_are_refused() {
    for (declared, updated, kinds) in
        [(&["m"][..], "n", "[m]"), (&["m", "n"], "m", "[m, n]"), (&[], "m", "[]")]
    {
        let failure = meshwright::run_on("1", 0, |rank| {
            let built = build::<Net>(rank, &sizes())?;
            let mut optimizer = Optimizer::new(rank, &built.units, Wrong { declared, updated });
            let gradients = first_loss(rank, &built.model).backward().reduce();
            optimizer.step(0.1, gradients);
            Ok(())
        });
        let message = failure.unwrap_err().to_string();
        let expected = format!(
            "an update of the states [{updated}], but the rule's `state_kinds` of these parameters are {kinds}"
        );
        assert!(message.contains(&expected), "{message}");
    }
}
