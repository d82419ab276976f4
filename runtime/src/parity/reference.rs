//! The run on one rank, and the differences to it that rounding explains.
//!
//! Two runs on one rank with [rounding noise](Rank::add_rounding_noise) show how far each number depends on rounding.
//! So a gradient that is zero but for rounding, as that of a bias of keys under softmax, allows differences of its own
//! size, and so do the later steps of a run that amplifies them.

use std::collections::{BTreeMap, HashMap};

use super::difference::Difference;
use super::observed::{Field, Kind};
use super::run::Run;

/// Allowed multiple of the differences that noise makes.
const NOISE_FACTOR: f64 = 3.0;
/// Allowed difference relative to the norm of the numbers, for sums whose order noise does not change.
const RELATIVE: f64 = 3e-6;
/// Allowed difference of a gradient relative to the norm of all gradients.
const OF_ALL_GRADIENTS: f64 = 1e-8;
/// Allowed difference of a parameter relative to its norm: two roundings by f32.
const OF_PARAMETER: f64 = 2.4e-7;
/// Largest fraction of the norm of all gradients, or without gradients of a loss, that noise may change in a step that
/// is compared.
const COMPARABLE: f64 = 0.02;

/// Largest allowed difference, relative to the norm, of numbers that are more than rounding.
const MORE_THAN_ROUNDING: f64 = 0.01;

/// The numbers of a run on one rank, with the differences that are allowed.
pub(super) struct Reference {
    fields: Vec<(Field, Vec<f32>)>,
    /// Allowed difference of each field.
    allowed: Vec<f64>,
    /// The first step whose numbers follow from rounding, if there is one.
    pub(super) chaotic_step: Option<u64>,
}

/// The largest differences of a kind of numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// Relative to the norm, of numbers that are more than rounding.
    pub(super) relative: f64,
    /// Relative to the difference that is allowed.
    pub(super) of_allowed: f64,
}

/// The comparison of a mesh with one rank.
pub(crate) struct Comparison {
    /// In the order of computation in a step: gradients from the loss backward.
    pub(super) differences: Vec<Difference>,
    /// The largest differences of each kind.
    pub(super) largest: BTreeMap<Kind, Largest>,
}

impl Comparison {
    /// Returns the comparison of a mesh whose ranks differ from each other.
    pub(super) fn of_ranks(difference: Difference) -> Comparison {
        Comparison { differences: vec![difference], largest: BTreeMap::new() }
    }
}

impl Reference {
    /// Compares the run `one` with runs of the same program with noise.
    ///
    /// # Errors
    /// Numbers that are not finite.
    pub(super) fn new(one: Run, noisy: &[Run]) -> Result<Reference, Difference> {
        if let Some((field, _)) =
            one.fields.iter().find(|(_, numbers)| numbers.iter().any(|x| !x.is_finite()))
        {
            return Err(Difference::not_finite(field.clone()));
        }
        let noise: Vec<f64> = (0..one.fields.len())
            .map(|index| {
                let (field, numbers) = &one.fields[index];
                let of_run = |run: &Run| match run.fields.get(index) {
                    Some((same, noisy)) if same == field => error_norm(field, noisy, numbers),
                    _ => f64::INFINITY,
                };
                noisy.iter().map(of_run).fold(0.0, f64::max)
            })
            .collect();
        let all_gradients = norms_by_step(&one, one.fields.iter().map(|(_, x)| norm(x)));
        let gradient_noise = norms_by_step(&one, noise.iter().copied());
        let mut last_values: HashMap<&str, &[f32]> = HashMap::new();
        let mut allowed = Vec::with_capacity(noise.len());
        let mut chaotic_step: Option<u64> = None;
        for ((field, numbers), noise) in one.fields.iter().zip(&noise) {
            let all = all_gradients.get(&field.step).copied().unwrap_or_default();
            let own = norm(numbers);
            // A loss may be zero but for rounding; gradients say whether a step follows from it.
            let (changed, size) = match (field.kind, gradient_noise.get(&field.step)) {
                (Kind::Gradient, Some(changed)) => (*changed, all),
                (Kind::Loss, None) => (*noise, own),
                _ => (0.0, own),
            };
            if changed > COMPARABLE * size {
                chaotic_step = chaotic_step.or(Some(field.step));
            }
            let floor = match field.kind {
                Kind::Loss | Kind::Value => RELATIVE * own,
                Kind::Gradient => RELATIVE * own + OF_ALL_GRADIENTS * all,
                Kind::Parameter => {
                    let before = last_values.insert(&field.name, numbers);
                    let change = before.map_or(own, |before| error_norm(field, numbers, before));
                    RELATIVE * change + OF_PARAMETER * own
                }
            };
            allowed.push(NOISE_FACTOR * noise + floor);
        }
        Ok(Reference { fields: one.fields, allowed, chaotic_step })
    }

    /// Returns the number of steps that are compared.
    pub(super) fn compared_steps(&self) -> u64 {
        let last = self.fields.iter().map(|(field, _)| field.step).max().unwrap_or_default();
        self.chaotic_step.map_or(last, |chaotic| chaotic - 1)
    }

    /// Compares a run on a mesh with the run on one rank, up to the first step that rounding decides.
    pub(super) fn compare(&self, run: &Run) -> Comparison {
        let mut comparison = Comparison { differences: Vec::new(), largest: BTreeMap::new() };
        let is_compared =
            |field: &Field| self.chaotic_step.is_none_or(|chaotic| field.step < chaotic);
        let mut found: HashMap<&Field, Vec<&Vec<f32>>> = HashMap::new();
        for (field, numbers) in run.fields.iter().rev() {
            found.entry(field).or_default().push(numbers);
        }
        for ((field, expected), allowed) in self.fields.iter().zip(&self.allowed) {
            let Some(numbers) = found.get_mut(field).and_then(Vec::pop) else {
                comparison.differences.push(Difference::only_on(field.clone(), "one rank"));
                continue;
            };
            if !is_compared(field) {
                continue;
            }
            let (distance, norm) = (error_norm(field, numbers, expected), norm(expected));
            let relative = |size: f64| if size == 0.0 { 0.0 } else { size / norm };
            if distance > *allowed || !distance.is_finite() {
                let (distance, allowed) = (relative(distance), relative(*allowed));
                comparison.differences.push(Difference::distance(field.clone(), distance, allowed));
            }
            let largest = comparison.largest.entry(field.kind).or_default();
            if *allowed <= MORE_THAN_ROUNDING * norm {
                largest.relative = largest.relative.max(relative(distance));
            }
            if distance > 0.0 {
                largest.of_allowed = largest.of_allowed.max(distance / allowed);
            }
        }
        for (field, _) in &run.fields {
            if found.get_mut(field).is_some_and(|left| left.pop().is_some()) {
                comparison.differences.push(Difference::only_on(field.clone(), "the mesh"));
            }
        }
        // Stable: gradients from the last parameter, in which backward begins, to the first.
        comparison.differences.reverse();
        comparison.differences.sort_by_key(|difference| {
            let Field { step, kind, .. } = difference.field;
            (step, kind)
        });
        comparison
    }
}

/// Returns the norms of the gradients of all parameters, by step, from the norms of all fields.
fn norms_by_step(run: &Run, norms: impl Iterator<Item = f64>) -> HashMap<u64, f64> {
    let mut squares: HashMap<u64, f64> = HashMap::new();
    for ((field, _), norm) in run.fields.iter().zip(norms) {
        if field.kind == Kind::Gradient {
            *squares.entry(field.step).or_default() += norm * norm;
        }
    }
    squares.into_iter().map(|(step, squares)| (step, squares.sqrt())).collect()
}

fn norm(numbers: &[f32]) -> f64 {
    numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// Returns the norm of the difference; infinite if it is not finite or the lengths differ.
///
/// Of large parameters it leaves the largest differences out: an optimizer that follows signs turns the rounding of a
/// gradient next to zero into a whole step of one element.
fn error_norm(field: &Field, got: &[f32], expected: &[f32]) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let difference = |(got, expected): (&f32, &f32)| f64::from(*got) - f64::from(*expected);
    let mut squares: Vec<f64> =
        got.iter().zip(expected).map(|pair| difference(pair).powi(2)).collect();
    let left_out = match field.kind {
        Kind::Parameter if field.step > 0 && squares.len() >= 1000 => 1 + squares.len() / 100_000,
        _ => 0,
    };
    if !squares.iter().all(|x| x.is_finite()) {
        return f64::INFINITY;
    }
    if left_out > 0 {
        let kept = squares.len() - left_out;
        squares.select_nth_unstable_by(kept, f64::total_cmp);
        squares.truncate(kept);
    }
    squares.iter().sum::<f64>().sqrt()
}
