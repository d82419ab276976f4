//! The outer optimizer of local SGD and DiLoCo: replicas that have trained apart are synchronized by a step of SGD with
//! Nesterov momentum, whose gradient is the mean of their movements.

use std::rc::Rc;

use crate::tensor::{Rank, Unit, fail};
use meshwright_backend::ops::optim::SgdArgs;
use meshwright_backend::{Category, DType, SgdStep};
use meshwright_comm::{PendingCall, ReduceOp, Site};

use super::ranges::check_fraction;
use super::swapped_values::{SwappedValues, swap_values};
use super::{ParamGroups, UnitState};

/// Hyperparameters of [`OuterSgd`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OuterSgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of the sum of outer gradients; with 0 there is no such sum, and no state.
    pub momentum: f64,
    /// Number of fragments of the model, at least 1, which are synchronized in turn.
    pub fragments: usize,
    /// Share of a replica's own parameters in those that it goes on from, in `[0, 1)`; 0 in DiLoCo.
    pub alpha: f64,
}

/// The outer optimizer of replicas along `dp` that train apart (Douillard et al., "DiLoCo: Distributed
/// Low-Communication Training of Language Models", 2023, arXiv 2311.08105, algorithm 1), also in fragments, whose sums
/// are computed while training goes on (Douillard et al., "Streaming DiLoCo with overlapping communication", 2025,
/// arXiv 2501.18512, algorithm 2).
///
/// With the parameters `a` after the last synchronization and those of each replica now, `p`, the outer gradient is
/// the mean over the replicas, `g = mean(a - p)`. Then, as SGD with Nesterov momentum of PyTorch,
/// `m = momentum * m + g` and `a = a - lr * (g + momentum * m)`, and each replica goes on from `a`; or, if it has
/// trained on to `p'` while the gradient was summed, from `alpha * p' + (1 - alpha) * a`. All of it is in f32, and
/// sharded as the optimizer state is; the gradient is summed over `dp` in the reduce dtype.
///
/// The parameters of layer `l` of a stack are in the fragment `l mod fragments`, and those outside of stacks in the
/// first one. Buffers have no gradient: each synchronization replaces them by their mean over the replicas.
pub struct OuterSgd {
    rank: Rank,
    options: OuterSgdOptions,
    /// The sum of outer gradients of each trained unit.
    states: Vec<UnitState>,
    /// The parameters of each trained unit after its last synchronization.
    anchors: Vec<UnitState>,
    /// The fragment of each trained unit.
    fragments: Vec<usize>,
    /// Units of buffers.
    buffers: Vec<Rc<Unit>>,
    /// Sums that have started, with the index of their unit.
    pending: Vec<(usize, PendingCall)>,
    /// Set while the parameters are those after the last synchronization.
    swapped: Option<SwappedValues>,
    /// Number of synchronizations.
    steps: u64,
    /// The options, which ranks compare.
    compared: Rc<str>,
}

impl OuterSgd {
    /// The kind of state of each parameter, which names it in checkpoints.
    pub const KIND: &'static str = "outer_momentum";
    /// The kind of the replica's own parameters, in checkpoints of replicas that differ.
    pub const OWN_PARAMS: &'static str = "replica_params";

    /// Creates the outer optimizer of the trained parameters of `units`, which are the same in all replicas. Every rank
    /// calls it.
    ///
    /// # Panics
    /// If an option is out of range: settings are checked before.
    #[track_caller]
    pub fn new(rank: &Rank, units: &[Rc<Unit>], options: OuterSgdOptions) -> OuterSgd {
        let is_in_range = check_fraction("the outer momentum", options.momentum)
            .and_then(|()| check_fraction("alpha", options.alpha));
        if let Err(message) = is_in_range {
            panic!("{message}");
        }
        assert!(options.fragments > 0, "a model has at least one fragment");
        let groups = ParamGroups::default();
        let kinds: &'static [&'static str] =
            if options.momentum == 0.0 { &[] } else { &[OuterSgd::KIND] };
        let state_of = |unit, kinds| UnitState::new(rank, unit, &groups, DType::F32, |_| kinds);
        let trained = || units.iter().filter(|unit| !unit.is_frozen());
        let buffers = units.iter().filter(|unit| unit.has_buffers() && !unit.is_empty());
        let mut outer = OuterSgd {
            rank: rank.clone(),
            options,
            states: trained().map(|unit| state_of(unit, kinds)).collect(),
            anchors: trained().map(|unit| state_of(unit, &[OuterSgd::OWN_PARAMS])).collect(),
            fragments: trained().map(|unit| fragment_of(unit.name(), options.fragments)).collect(),
            buffers: buffers.cloned().collect(),
            pending: Vec::new(),
            swapped: None,
            steps: 0,
            compared: format!("outer {options:?}").into(),
        };
        outer.keep_params();
        outer
    }

    /// Begins from the present parameters, which are the same in all replicas: after they were loaded.
    pub fn keep_params(&mut self) {
        let backend = self.rank.backend();
        for anchor in &mut self.anchors {
            let unit = Rc::clone(anchor.unit());
            backend.cast(unit.master().view(), anchor.whole_mut(OuterSgd::OWN_PARAMS));
        }
    }

    /// Begins from the present parameters, which are the same in all replicas, and from the
    /// [own ones](Self::own_params_mut) of this replica: after both were loaded.
    pub fn keep_own_params(&mut self) {
        swap_values(&self.rank, &mut self.anchors, OuterSgd::OWN_PARAMS);
    }

    /// Synchronizes a fragment: a step of the outer optimizer. Every rank calls it, after its inner step.
    #[track_caller]
    pub fn synchronize(&mut self, fragment: usize) {
        // A unit is updated while the gradient of the next one is summed.
        for index in self.units_of(fragment) {
            let next = self.start_sum(index);
            self.update_by_sums();
            self.pending.push(next);
        }
        self.finish();
    }

    /// Starts to synchronize a fragment, which [`finish`](Self::finish) does after further inner steps. Every rank
    /// calls it.
    pub fn start(&mut self, fragment: usize) {
        for index in self.units_of(fragment) {
            let sum = self.start_sum(index);
            self.pending.push(sum);
        }
    }

    /// Finishes the synchronization that has [started](Self::start): a step of the outer optimizer. Every rank calls
    /// it.
    #[track_caller]
    pub fn finish(&mut self) {
        self.steps += 1;
        self.rank.note_update(&self.compared, self.options.lr, 1.0, self.steps);
        self.update_by_sums();
        for unit in &self.buffers {
            self.average_buffers(unit);
        }
    }

    /// Returns the fragment with the most parameters on this rank.
    pub fn largest_fragment(&self) -> usize {
        let elements = |fragment: &usize| -> usize {
            self.units_of(*fragment).map(|index| self.anchors[index].unit().shard().len()).sum()
        };
        (0..self.options.fragments).rev().max_by_key(elements).unwrap_or(0)
    }

    /// Replaces the parameters by those that all replicas have, of each fragment after its last synchronization, until
    /// [`show_own_params`](Self::show_own_params). Nothing trains meanwhile.
    ///
    /// # Panics
    /// If ranks have applied different updates.
    #[track_caller]
    pub fn show_shared_params(&mut self) {
        if self.options.differs_always() {
            let OuterSgd { rank, anchors, .. } = self;
            self.swapped = Some(SwappedValues::swap(rank, anchors, OuterSgd::OWN_PARAMS));
        }
    }

    /// Brings the replica's own parameters back.
    pub fn show_own_params(&mut self) {
        if let Some(swapped) = self.swapped.take() {
            swapped.swap_back(&self.rank, &mut self.anchors, OuterSgd::OWN_PARAMS);
        }
    }

    /// Returns the state of each unit.
    pub fn states(&self) -> &[UnitState] {
        &self.states
    }

    /// Returns mutable access to the state of each unit.
    pub fn states_mut(&mut self) -> &mut [UnitState] {
        &mut self.states
    }

    /// Returns the replica's own parameters of each unit, while those that all replicas have are
    /// [shown](Self::show_shared_params); none if replicas are the same after a synchronization.
    pub fn own_params(&self) -> &[UnitState] {
        if self.options.differs_always() { &self.anchors } else { &[] }
    }

    /// Returns mutable access to the [own parameters](Self::own_params), to load them.
    pub fn own_params_mut(&mut self) -> &mut [UnitState] {
        if self.options.differs_always() { &mut self.anchors } else { &mut [] }
    }

    /// Returns the indices of the units of a fragment.
    fn units_of(&self, fragment: usize) -> impl Iterator<Item = usize> + use<> {
        let indices = self.fragments.iter().enumerate();
        let own = indices.filter(|(_, of_unit)| **of_unit == fragment).map(|(index, _)| index);
        own.collect::<Vec<_>>().into_iter()
    }

    /// Starts the sum over the replicas of how far each has moved a unit.
    fn start_sum(&self, index: usize) -> (usize, PendingCall) {
        let (rank, anchor) = (&self.rank, &self.anchors[index]);
        let (backend, unit) = (rank.backend(), anchor.unit());
        let anchor = anchor.whole(OuterSgd::OWN_PARAMS);
        let mut moved = rank.allocator().alloc(DType::F32, anchor.len(), Category::Communication);
        backend.cast(anchor, moved.view_mut());
        let params = unit.master();
        let (p, g) = (moved.view_mut(), params.view());
        backend.sgd(&subtraction(1.0), SgdArgs { p, g, momentum: None, copy: None, rounding: &[] });
        let dtype = rank.reduce_dtype();
        let payload = if dtype == DType::F32 {
            moved
        } else {
            let mut payload = rank.allocator().alloc(dtype, moved.len(), Category::Communication);
            backend.cast(moved.view(), payload.view_mut());
            payload
        };
        let site = Site::new(format!("{} (outer gradient)", unit.name()));
        (index, rank.replica_group().start_all_reduce(&site, ReduceOp::Sum, payload))
    }

    /// Updates units by the sums of their movements over the replicas, which are waited for.
    fn update_by_sums(&mut self) {
        self.rank.compute_pending_reads();
        for (index, pending) in std::mem::take(&mut self.pending) {
            self.update_unit(index, pending);
        }
    }

    fn update_unit(&mut self, index: usize, pending: PendingCall) {
        let sum = pending.wait().unwrap_or_else(|error| fail(error));
        let OuterSgd { rank, options, states, anchors, .. } = self;
        let (state, anchor) = (&mut states[index], &mut anchors[index]);
        let (backend, unit) = (rank.backend(), Rc::clone(state.unit()));
        let kernel = SgdStep {
            lr: options.lr as f32,
            momentum: options.momentum as f32,
            nesterov: true,
            weight_decay: 0.0,
            grad_scale: 1.0 / rank.replicas() as f32,
        };
        for part in state.group_ranges().iter() {
            let momentum = if options.momentum == 0.0 {
                None
            } else {
                let [momentum] = state.state_views([OuterSgd::KIND], &part.in_shard);
                Some(momentum)
            };
            let [mut anchor] = anchor.state_views([OuterSgd::OWN_PARAMS], &part.in_shard);
            let (p, g) = (anchor.reborrow(), sum.view().slice(part.in_shard.clone()));
            backend.sgd(&kernel, SgdArgs { p, g, momentum, copy: None, rounding: &[] });
            unit.change_values(part.range.clone(), |mut params, copy| {
                if options.alpha == 0.0 {
                    backend.cast(anchor.as_view(), params.reborrow());
                } else {
                    let weight = (1.0 - options.alpha) as f32;
                    backend.lerp(params.reborrow(), anchor.as_view(), weight);
                }
                if let Some(copy) = copy {
                    backend.cast(params.as_view(), copy);
                }
            });
        }
        unit.publish_values();
    }

    /// Replaces the buffers of a unit by their mean over the replicas.
    fn average_buffers(&self, unit: &Unit) {
        let (rank, group) = (&self.rank, self.rank.replica_group());
        let own = {
            let stored = unit.stored_shard();
            let mut own =
                rank.allocator().alloc(DType::F32, stored.view().len(), Category::Communication);
            rank.backend().cast(stored.view(), own.view_mut());
            own
        };
        let site = Site::new(format!("{} (mean)", unit.name()));
        let sum = group.start_all_reduce(&site, ReduceOp::Sum, own).wait();
        let mut mean = sum.unwrap_or_else(|error| fail(error));
        rank.backend().scale(mean.view_mut(), 1.0 / rank.replicas() as f32);
        unit.write(0, mean.view());
    }
}

impl OuterSgdOptions {
    /// Returns true if the replicas have parameters of their own also right after a synchronization.
    fn differs_always(&self) -> bool {
        self.fragments > 1 || self.alpha > 0.0
    }
}

/// Returns the fragment of the parameters of a field, which is the same on every mesh.
pub fn fragment_of(path: &str, fragments: usize) -> usize {
    let layer = path.split(['.', ' ']).find_map(|part| part.parse::<usize>().ok());
    layer.map_or(0, |layer| layer % fragments)
}

/// Returns the kernel of `p -= factor * g`.
fn subtraction(factor: f32) -> SgdStep {
    SgdStep { lr: factor, momentum: 0.0, nesterov: false, weight_decay: 0.0, grad_scale: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_take_turns() {
        let fragments = |names: &[&str]| -> Vec<usize> {
            names.iter().map(|name| fragment_of(name, 3)).collect()
        };
        assert_eq!(fragments(&["embed", "head (frozen)", "norm"]), [0, 0, 0]);
        assert_eq!(fragments(&["blocks.0", "blocks.4", "blocks.5 (split over ep)"]), [0, 1, 2]);
        assert_eq!(fragments(&["encoder.layers.7.kinds.1", "decoder.layers.8"]), [1, 2]);
    }
}
