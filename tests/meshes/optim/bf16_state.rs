//! Optimizer state and gradients in bf16: equal to the bit on every mesh and at every ZeRO stage, and right on average.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::{Category, DType};
use meshwright::nn::build;
use meshwright::optim::{
    AdamWOptions, FlatSlice, Group, MuonOptions, Optimizer, ParamGroups, SgdOptions, UnitState,
    UpdateRule, Updated,
};
use meshwright::prelude::*;
use meshwright::tensor::{ParamRef, Settings, ZeroStage};
use meshwright_examples::lion::Lion;
use meshwright_tests::run::on_mesh_with;

use super::meshes::levels;

dims! { Batch @ data, Point, Hidden, Height }

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Point, Hidden>,
    #[sharded(tp = "col")]
    bias: Bias<Hidden>,
    #[sharded(tp = "row")]
    down: Linear<Hidden, Height>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Point)>) -> Tensor<(Batch, Height)> {
        self.down.forward(&self.bias.forward(&self.up.forward(x)))
    }
}

const POINT: usize = 7;
const HIDDEN: usize = 26;

fn sizes() -> Sizes {
    let mut sizes = Sizes::new().with(Point, POINT).with(Hidden, HIDDEN).with(Height, 1);
    sizes.init_std = 0.5;
    sizes
}

/// Returns a loss of one row of the batch and one output: every gradient of a parameter is one product, and no sum, so
/// that it has the same bits on every mesh.
fn loss(rank: &Rank, model: &Mlp, step: u64) -> Loss<(Batch, Height)> {
    let of_row = |row: usize, number: f32| if row == 0 { number } else { 0.0 };
    let x = Tensor::from_fn(rank, &[12, POINT], |at| {
        of_row(at[0], if at[1] == step as usize { 0.7 } else { 0.0 })
    });
    let weights: Tensor<(Batch, Height)> = Tensor::from_fn(rank, &[12, 1], |at| of_row(at[0], 1.5));
    Loss::mean_of(&(&model.forward(&x) * &weights))
}

/// Bits of parameters and states by name and index in the whole parameter.
type Elements = BTreeMap<(String, usize), u32>;

/// Adds the elements that this rank owns.
fn add_elements(found: &mut Elements, kind: &str, param: &ParamRef, numbers: &[f32]) {
    let extents = param.local_extents();
    for (element, number) in param.owned().zip(numbers) {
        let (mut rest, mut index, mut stride) = (element, 0, 1);
        for extent in extents.iter().rev() {
            index += (extent.offset + rest % extent.local) * stride;
            rest /= extent.local;
            stride *= extent.global;
        }
        found.insert((format!("{kind}.{}", param.path()), index), number.to_bits());
    }
}

fn add_states(rank: &Rank, found: &mut Elements, states: &[UnitState]) {
    for state in states {
        for param in state.params() {
            for (kind, values) in state.states_of(&param) {
                assert_eq!(values.dtype(), DType::Bf16, "{kind} of {param:?}");
                let mut wide =
                    rank.allocator().zeros(DType::F32, values.len(), Category::Workspace);
                rank.backend().cast(values, wide.view_mut());
                add_elements(found, kind, &param, &wide.view().to_vec::<f32>());
            }
        }
    }
}

const STEPS: u64 = 3;

/// Trains with states in bf16, and returns the states, and parameters with the index of no element, of all ranks.
fn train(mesh: &str, settings: Settings, rule: &Arc<dyn UpdateRule>) -> Elements {
    let of_ranks = on_mesh_with(mesh, 1, settings, |rank| {
        let built = build::<Mlp>(rank, &sizes()).unwrap();
        let mut optimizer = Optimizer::new(rank, &built.units, Arc::clone(rule));
        for step in 0..STEPS {
            rank.set_step(step);
            let gradients = loss(rank, &built.model, step).backward().reduce();
            optimizer.step(0.02, gradients);
        }
        let mut found = Elements::new();
        add_states(rank, &mut found, optimizer.states());
        for param in built.params() {
            let whole = param.gather(rank).into_iter().enumerate();
            let name = format!("params.{}", param.path());
            found.extend(whole.map(|(index, x)| ((name.clone(), index), x.to_bits())));
        }
        found
    });
    let mut all = Elements::new();
    for (name, bits) in of_ranks.into_iter().flatten() {
        let known = all.insert(name.clone(), bits);
        assert!(known.is_none_or(|known| known == bits), "{name:?} differs between ranks");
    }
    all
}

const MESHES: [&str; 7] =
    ["dp=2", "tp=2", "fsdp=2", "fsdp=3", "fsdp=2,tp=2", "dp=2,fsdp=2", "dp=3,fsdp=2"];

#[test]
fn states_have_the_same_bits_on_every_mesh_and_stage() {
    let rules: [Arc<dyn UpdateRule>; 4] = [
        Arc::new(AdamWOptions::default()),
        Arc::new(SgdOptions { nesterov: true, ..SgdOptions::default() }),
        Arc::new(MuonOptions::default()),
        Arc::new(Lion::default()),
    ];
    for rule in rules {
        for gradients in [DType::F32, DType::Bf16] {
            let settings = Settings { state: DType::Bf16, gradients, ..Settings::new(5) };
            let expected = train("1", settings, &rule);
            let other_seed = train("1", Settings { seed: 6, ..settings }, &rule);
            assert_ne!(expected, other_seed, "{}", rule.name());
            for mesh in MESHES {
                for zero in levels(mesh) {
                    let found = train(mesh, Settings { zero: *zero, ..settings }, &rule);
                    assert_eq!(found.len(), expected.len(), "{} on {mesh}", rule.name());
                    let differs = found.iter().find(|(name, bits)| expected[*name] != **bits);
                    let what = format!("{} on {mesh}, {zero}, gradients {gradients}", rule.name());
                    assert_eq!(differs, None, "{what}");
                }
            }
        }
    }
}

/// The first step begins with zeros, which bf16 has, and parameters are updated before the moments are rounded.
#[test]
fn the_first_step_is_that_of_f32_states() {
    for rule in
        [Arc::new(AdamWOptions::default()) as Arc<dyn UpdateRule>, Arc::new(Lion::default())]
    {
        let params = |state| {
            let run = on_mesh_with("1", 1, Settings { state, ..Settings::new(5) }, |rank| {
                let built = build::<Mlp>(rank, &sizes()).unwrap();
                let mut optimizer = Optimizer::new(rank, &built.units, Arc::clone(&rule));
                optimizer.step(0.02, loss(rank, &built.model, 0).backward().reduce());
                built.params().iter().map(|param| param.gather(rank)).collect::<Vec<_>>()
            });
            run[0].clone()
        };
        assert_eq!(params(DType::Bf16), params(DType::F32), "{}", rule.name());
    }
}

/// Two states that become a third in every step, whatever the gradient.
#[derive(Debug)]
struct Thirds {
    by_views: bool,
}

impl UpdateRule for Thirds {
    fn name(&self) -> &str {
        "thirds"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &["one", "other"]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let kinds = ["one", "other"];
        if self.by_views {
            return slice.update_views(kinds, |mut views| {
                let gradient: Vec<f32> = views.gradient.to_vec();
                let third: Vec<f32> = gradient.iter().map(|_| 1.0 / 3.0).collect();
                views.states.iter_mut().for_each(|state| state.write(&third));
            });
        }
        slice.update_elementwise(kinds, |param, gradient, _| {
            let third = gradient * 0.0 + 1.0 / 3.0;
            (param, [third, third])
        })
    }
}

/// Bits differ between steps, parameters, elements and states; each state is right on average.
#[test]
fn bits_are_drawn_once_and_are_unbiased() {
    const STEPS: usize = 300;
    let neighbors = [0x3eaa_0000, 0x3eab_0000].map(f32::from_bits);
    let share = (1.0 / 3.0 - neighbors[0]) / (neighbors[1] - neighbors[0]);
    for by_views in [false, true] {
        // Whether each of the elements is rounded up, by name, in each step.
        let settings = Settings { state: DType::Bf16, gradients: DType::Bf16, ..Settings::new(1) };
        let runs = on_mesh_with("1", 1, settings, |rank| {
            let built = build::<Mlp>(rank, &sizes()).unwrap();
            let mut optimizer = Optimizer::with_groups(
                rank,
                &built.units,
                Thirds { by_views },
                &ParamGroups::default(),
            )
            .unwrap();
            let mut ups: BTreeMap<(String, usize), Vec<bool>> = BTreeMap::new();
            for step in 0..STEPS {
                rank.set_step(step as u64);
                optimizer.step(0.1, loss(rank, &built.model, 0).backward().reduce());
                let mut found = Elements::new();
                add_states(rank, &mut found, optimizer.states());
                for (name, bits) in found {
                    let number = f32::from_bits(bits);
                    assert!(neighbors.contains(&number), "{number} of {name:?}");
                    ups.entry(name).or_default().push(number == neighbors[1]);
                }
            }
            ups
        });
        let ups = &runs[0];
        assert_eq!(ups.len(), 2 * (POINT * HIDDEN + 2 * HIDDEN));
        let sequences: std::collections::BTreeSet<&Vec<bool>> = ups.values().collect();
        assert_eq!(sequences.len(), ups.len(), "two elements have the same bits in all steps");
        let count = ups.values().flatten().filter(|up| **up).count() as f64;
        let all = (ups.len() * STEPS) as f64;
        let share = f64::from(share);
        let deviation = (all * share * (1.0 - share)).sqrt();
        assert!((count - all * share).abs() < 5.0 * deviation, "{count} of {all}, {share}");
    }
}

/// Rounded to the nearest, a sum of equal numbers would stay at 256 of them.
#[test]
fn many_micro_batches_are_summed_on_average() {
    const MICRO_BATCHES: usize = 1200;
    let sums = |mesh: &str, zero, gradients| {
        let settings = Settings { gradients, zero, ..Settings::new(5) };
        let run = on_mesh_with(mesh, 1, settings, |rank| {
            let built = build::<Mlp>(rank, &sizes()).unwrap();
            let loss = || loss(rank, &built.model, 0);
            let first =
                (2..MICRO_BATCHES).fold(loss().accumulate(), |sum, _| sum.accumulate(loss()));
            let gradients = first.backward(loss()).reduce();
            built.params().iter().flat_map(|param| gradients.gather(param)).collect::<Vec<_>>()
        });
        run[0].clone()
    };
    for (mesh, zero) in [
        ("1", ZeroStage::Replicated),
        ("dp=2", ZeroStage::Replicated),
        ("fsdp=2", ZeroStage::Optimizer),
        ("fsdp=2", ZeroStage::Gradients),
    ] {
        let [exact, rounded] = [DType::F32, DType::Bf16].map(|dtype| sums(mesh, zero, dtype));
        let ratios: Vec<f32> =
            exact.iter().zip(&rounded).filter(|(x, _)| **x != 0.0).map(|(x, y)| y / x).collect();
        assert!(ratios.len() >= 3 * HIDDEN && rounded.len() > ratios.len());
        let mean = ratios.iter().sum::<f32>() / ratios.len() as f32;
        assert!((0.95..1.05).contains(&mean), "{mean} on {mesh}, {zero}");
        assert!(ratios.iter().all(|ratio| (0.6..1.5).contains(ratio)), "{ratios:?}");
        let zeros = exact.iter().zip(&rounded).filter(|(x, _)| **x == 0.0);
        assert!(zeros.into_iter().all(|(_, y)| *y == 0.0), "zeros stay on {mesh}");
    }
}
