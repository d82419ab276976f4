//! Biases of the choice of experts: they change after each step, so that the experts are chosen equally often, without
//! a gradient.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::context::Rank;
use crate::fsdp::{ParamRef, Unit};
use crate::layout::AxisSet;

/// The numbers of tokens that have chosen experts since the last update of each bias.
#[derive(Default)]
struct ExpertLoads(RefCell<Vec<ExpertLoad>>);

struct ExpertLoad {
    bias: ParamRef,
    /// The axes whose ranks have other tokens.
    axes: AxisSet,
    rate: f32,
    counts: Vec<u64>,
}

/// Counts the `counts` of choices of each expert by the tokens of this rank, which vary over `axes`, for the update of
/// `bias` after the step. Evaluations and recomputations are not counted.
pub(crate) fn note_expert_loads(
    rank: &Rank,
    bias: &ParamRef,
    axes: AxisSet,
    rate: f32,
    counts: &[u32],
) {
    if !rank.is_recording() || rank.segments().is_recomputing() {
        return;
    }
    let mut loads = rank.session_state::<ExpertLoads>().0.borrow_mut();
    // Two models may have biases at one path.
    let is_of_bias = |load: &ExpertLoad| {
        load.bias.path() == bias.path() && Rc::ptr_eq(load.bias.unit(), bias.unit())
    };
    let index = loads.iter().position(is_of_bias).unwrap_or_else(|| {
        loads.push(ExpertLoad { bias: bias.clone(), axes, rate, counts: vec![0; counts.len()] });
        loads.len() - 1
    });
    let load = &mut loads[index];
    load.axes = load.axes.union(axes);
    load.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(*count));
}

/// Forgets the counts since the last update of the biases of the model that `unit` is part of.
pub(crate) fn forget_expert_loads(rank: &Rank, unit: &Unit) {
    let mut all = rank.session_state::<ExpertLoads>().0.borrow_mut();
    all.retain(|load| !load.bias.unit().is_of_model_of(unit));
}

/// Updates the biases of the model that `unit` is part of: `bias += rate sign(mean load - load)` for each expert, with
/// the loads of the whole step over all ranks and micro-batches (Wang et al., "Auxiliary-Loss-Free Load Balancing
/// Strategy for Mixture-of-Experts", 2024, algorithm 1). One small all-reduce for each set of axes.
#[track_caller]
pub(crate) fn update_choice_biases(rank: &Rank, unit: &Unit) {
    let mut all = rank.session_state::<ExpertLoads>().0.borrow_mut();
    let is_of_model = |load: &mut ExpertLoad| load.bias.unit().is_of_model_of(unit);
    let loads: Vec<ExpertLoad> = all.extract_if(.., is_of_model).collect();
    drop(all);
    let mut by_axes: BTreeMap<AxisSet, Vec<ExpertLoad>> = BTreeMap::new();
    for load in loads {
        by_axes.entry(load.axes).or_default().push(load);
    }
    for (axes, loads) in by_axes {
        // Exact: sums of integers below 2^53.
        let counts = loads.iter().flat_map(|load| &load.counts);
        let mut sums: Vec<f64> = counts.map(|count| *count as f64).collect();
        rank.all_reduce_f64(axes, loads[0].bias.site(), &mut sums);
        let mut rest = &sums[..];
        for ExpertLoad { bias, rate, counts, .. } in loads {
            let (loads, after) = rest.split_at(counts.len());
            rest = after;
            let mut values = bias.to_local_vec();
            move_biases(&mut values, loads, rate);
            bias.write(&values);
        }
    }
}

/// Raises the biases of experts with less than the mean load, and lowers those of experts with more.
fn move_biases(biases: &mut [f32], loads: &[f64], rate: f32) {
    let (total, experts) = (loads.iter().sum::<f64>(), loads.len() as f64);
    for (bias, load) in biases.iter_mut().zip(loads) {
        let missing = total - load * experts;
        if missing != 0.0 {
            *bias += rate.copysign(missing as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_move_toward_equal_loads() {
        let mut biases = [0.5, 0.0, -0.25, 0.0];
        move_biases(&mut biases, &[8.0, 2.0, 4.0, 2.0], 0.125);
        assert_eq!(biases, [0.375, 0.125, -0.25, 0.125]);
        move_biases(&mut biases, &[3.0; 4], 0.125);
        assert_eq!(biases, [0.375, 0.125, -0.25, 0.125], "equal loads change nothing");
    }
}
