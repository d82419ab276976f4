//! Rules that update an element otherwise in another shard: each is refused in the first step, on one rank too. Rules
//! that know the position of an element in the whole parameter are right on every mesh.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::distance;

use super::net::{Case, first};

/// A rule that adds `terms` of a slice to its parameters, in a way of writing it.
#[derive(Debug, Clone)]
struct Added<const WAY: usize> {
    terms: Terms,
    calls: Arc<AtomicUsize>,
}

/// Terms that a slice adds to its elements.
type Terms = fn(&FlatSlice<'_>, &[f32], usize) -> Vec<f32>;

const DIRECT: usize = 0;
const GENERIC: usize = 1;
const FIELD: usize = 2;
const CLOSURE: usize = 3;

impl<const WAY: usize> UpdateRule for Added<WAY> {
    fn name(&self) -> &str {
        "added"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        if WAY == FIELD { &["sum"] } else { &[] }
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match WAY {
            DIRECT => add(slice, self.terms, call),
            GENERIC => add_by(slice, |slice, gradient| (self.terms)(slice, gradient, call)),
            FIELD => add_to_state(slice, self.terms, call),
            _ => {
                let terms = self.terms;
                let update = move |slice: FlatSlice<'_>| add(slice, terms, call);
                update(slice)
            }
        }
    }
}

fn gradient_of(slice: FlatSlice<'_>, change: impl FnOnce(&[f32], &mut [f32])) -> Updated {
    let (lr, scale) = (slice.lr() as f32, slice.step().grad_scale());
    slice.update_views([], |mut views| {
        let gradient: Vec<f32> = views.gradient.to_vec::<f32>().iter().map(|g| g * scale).collect();
        let mut params: Vec<f32> = views.params.as_view().to_vec();
        params.iter_mut().zip(&gradient).for_each(|(p, g)| *p -= lr * g);
        change(&gradient, &mut params);
        views.params.write(&params);
    })
}

/// Terms of a slice need it before it is updated, so they are of the gradient of zeros and its positions.
fn add(slice: FlatSlice<'_>, terms: Terms, call: usize) -> Updated {
    add_by(slice, |slice, gradient| terms(slice, gradient, call))
}

fn add_by(
    slice: FlatSlice<'_>,
    terms: impl for<'a> Fn(&FlatSlice<'a>, &[f32]) -> Vec<f32>,
) -> Updated {
    let zeros = vec![0.0; slice.len()];
    let lr = slice.lr() as f32;
    let added = terms(&slice, &zeros);
    gradient_of(slice, |_, params| {
        params.iter_mut().zip(added).for_each(|(p, term)| *p += lr * term);
    })
}

fn add_to_state(slice: FlatSlice<'_>, terms: Terms, call: usize) -> Updated {
    let added = terms(&slice, &vec![0.0; slice.len()], call);
    slice.update_views(["sum"], |mut views| {
        let [state] = &mut views.states;
        let mut sums: Vec<f32> = state.as_view().to_vec();
        sums.iter_mut().zip(added).for_each(|(sum, term)| *sum += term);
        state.write(&sums);
    })
}

/// Rules that depend on the shard.
const WRONG: [Terms; 4] = [
    |slice, _, _| (0..slice.len()).map(|index| (index as f32).sin()).collect(),
    |slice, _, _| vec![1.0 / slice.len() as f32; slice.len()],
    |slice, _, _| {
        let first = slice.range_in_shard().start;
        (0..slice.len()).map(|index| ((first + index) as f32).cos()).collect()
    },
    |slice, _, call| vec![call as f32; slice.len()],
];

fn refusal<R: UpdateRule + Clone + 'static>(mesh: &str, zero: ZeroStage, rule: R) -> String {
    let mut case = Case::new(rule);
    case.settings = Settings { zero, ..case.settings };
    let run = || drop(first(mesh, &case));
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("the rule is refused");
    payload.downcast::<String>().map(|text| *text).expect("a message")
}

const MESHES: [(&str, ZeroStage); 3] = [
    ("1", ZeroStage::Replicated),
    ("tp=2", ZeroStage::Replicated),
    ("fsdp=2", ZeroStage::Parameters),
];

#[test]
fn rules_that_depend_on_the_shard_are_refused() {
    fn check<const WAY: usize>() {
        for terms in WRONG {
            for (mesh, zero) in MESHES {
                let text = refusal(mesh, zero, Added::<WAY> { terms, calls: Arc::default() });
                for part in ["optimizer added: a parameter", "in two shards", "FlatSlice::params"] {
                    assert!(text.contains(part), "{WAY} on {mesh}: {text}");
                }
            }
        }
    }
    check::<DIRECT>();
    check::<GENERIC>();
    check::<FIELD>();
    check::<CLOSURE>();
}

/// Divides by the norm of a slice, or subtracts its mean.
#[derive(Debug, Clone, Copy)]
enum OfSlice {
    Norm,
    Mean,
    /// Only after some steps.
    LateNorm,
}

impl UpdateRule for OfSlice {
    fn name(&self) -> &str {
        "of-slice"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let is_late = slice.step().number() > 100;
        gradient_of(slice, |gradient, params| {
            let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
            let mean = gradient.iter().sum::<f32>() / gradient.len() as f32;
            for (p, g) in params.iter_mut().zip(gradient) {
                *p -= match self {
                    OfSlice::Norm => 0.01 * g / norm,
                    OfSlice::Mean => 0.01 * (g - mean),
                    OfSlice::LateNorm => 0.01 * if is_late { g / norm } else { *g },
                };
            }
        })
    }
}

#[test]
fn norms_and_means_of_a_slice_are_refused() {
    for rule in [OfSlice::Norm, OfSlice::Mean, OfSlice::LateNorm] {
        for (mesh, zero) in MESHES {
            let text = refusal(mesh, zero, rule);
            assert!(text.contains("UpdateRule::model_update"), "{rule:?} on {mesh}: {text}");
        }
    }
}

/// Noise by the position of each element in the whole parameter, and a factor by the size of that.
const RIGHT: Terms = |slice, _, _| {
    let step = slice.step().number() as f32;
    let mut terms = vec![0.0; slice.len()];
    for param in slice.params() {
        let scale = 1.0 / (param.global_len() as f32).sqrt();
        for element in param.range() {
            let index = param.global_index(element) as f32;
            terms[element] = scale * (step * index + param.path().len() as f32).sin();
        }
    }
    terms
};

#[test]
fn rules_that_know_global_positions_are_right() {
    let rule = || Added::<DIRECT> { terms: RIGHT, calls: Arc::default() };
    let trained = |mesh: &str, zero: ZeroStage| {
        let mut case = Case::new(rule());
        case.settings = Settings { zero, ..case.settings };
        first(mesh, &case)
    };
    let expected = trained("1", ZeroStage::Replicated);
    for (mesh, zero) in [
        ("tp=2", ZeroStage::Replicated),
        ("fsdp=2", ZeroStage::Optimizer),
        ("fsdp=3", ZeroStage::Parameters),
        ("fsdp=2,tp=2", ZeroStage::Parameters),
    ] {
        let found = trained(mesh, zero);
        let (last, expected) = (found.params.last().unwrap(), expected.params.last().unwrap());
        for (path, values) in expected {
            let distance = distance(&last[path], values);
            assert!(distance < 1e-4, "`{path}` on {mesh}: {distance}");
        }
    }
}
