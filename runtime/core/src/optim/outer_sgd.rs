//! The outer optimizer of local SGD and DiLoCo: replicas that have trained apart are synchronized by a step of SGD with
//! Nesterov momentum, whose gradient is the mean of their movements.

use std::rc::Rc;

use crate::tensor::{Rank, Unit, fail};
use meshwright_backend::ops::optim::SgdArgs;
use meshwright_backend::{Buffer, Category, DType, SgdStep};
use meshwright_comm::{PendingCall, ReduceOp, Site};

use super::ranges::check_fraction;
use super::{ParamGroups, UnitState};

/// The kind of state, unless the momentum is 0.
const KINDS: [&str; 1] = [OuterSgd::KIND];

/// Hyperparameters of [`OuterSgd`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OuterSgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of the sum of outer gradients; with 0 there is no such sum, and no state.
    pub momentum: f64,
}

/// The outer optimizer of replicas along `dp` that train apart (Douillard et al., "DiLoCo: Distributed
/// Low-Communication Training of Language Models", 2023, arXiv 2311.08105, algorithm 1).
///
/// With the parameters `a` after the last synchronization and those of each replica now, `p`, the outer gradient is
/// the mean over the replicas, `g = mean(a - p)`. Then, as SGD with Nesterov momentum of PyTorch,
/// `m = momentum * m + g` and `a = a - lr * (g + momentum * m)`, and each replica goes on from `a`. All of it is in
/// f32, and sharded as the optimizer state is; the gradient is summed over `dp` in the reduce dtype. Buffers, which
/// have no gradient, become the mean of those of the replicas.
pub struct OuterSgd {
    rank: Rank,
    options: OuterSgdOptions,
    /// The sum of outer gradients of each trained unit.
    states: Vec<UnitState>,
    /// The shard of each trained unit after the last synchronization.
    anchors: Vec<Buffer>,
    /// Units of buffers.
    buffers: Vec<Rc<Unit>>,
    /// Number of synchronizations.
    steps: u64,
    /// The options, which ranks compare.
    compared: Rc<str>,
}

impl OuterSgd {
    /// The kind of state of each parameter, which names it in checkpoints.
    pub const KIND: &'static str = "outer_momentum";

    /// Creates the outer optimizer of the trained parameters of `units`, which are the same in all replicas. Every rank
    /// calls it.
    ///
    /// # Panics
    /// If the momentum is out of range: settings are checked before.
    #[track_caller]
    pub fn new(rank: &Rank, units: &[Rc<Unit>], options: OuterSgdOptions) -> OuterSgd {
        if let Err(message) = check_fraction("the outer momentum", options.momentum) {
            panic!("{message}");
        }
        let groups = ParamGroups::default();
        let kinds: &'static [&'static str] = if options.momentum == 0.0 { &[] } else { &KINDS };
        let trained = || units.iter().filter(|unit| !unit.is_frozen());
        let states = trained().map(|unit| UnitState::new(rank, unit, &groups, |_| kinds)).collect();
        let anchor = |unit: &Rc<Unit>| {
            rank.allocator().alloc(DType::F32, unit.shard().len(), Category::Optimizer)
        };
        let buffers = units.iter().filter(|unit| unit.has_buffers() && !unit.is_empty());
        let mut outer = OuterSgd {
            rank: rank.clone(),
            options,
            states,
            anchors: trained().map(anchor).collect(),
            buffers: buffers.cloned().collect(),
            steps: 0,
            compared: format!("outer {options:?}").into(),
        };
        outer.keep_params();
        outer
    }

    /// Begins from the present parameters, which are the same in all replicas: after they were loaded.
    pub fn keep_params(&mut self) {
        for (state, anchor) in self.states.iter().zip(&mut self.anchors) {
            let params = state.unit().master();
            self.rank.backend().cast(params.view(), anchor.view_mut());
        }
    }

    /// Synchronizes the replicas: a step of the outer optimizer. Every rank calls it, after its inner step.
    #[track_caller]
    pub fn synchronize(&mut self) {
        self.rank.compute_pending_reads();
        self.steps += 1;
        self.rank.note_update(&self.compared, self.options.lr, 1.0, self.steps);
        // A unit is updated while the gradient of the next one is summed.
        let mut before: Option<(usize, PendingCall)> = None;
        for index in 0..self.states.len() {
            let next = self.start_reduction(index);
            if let Some((index, pending)) = before.replace((index, next)) {
                self.update_unit(index, pending);
            }
        }
        if let Some((index, pending)) = before {
            self.update_unit(index, pending);
        }
        for unit in &self.buffers {
            self.average_buffers(unit);
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

    /// Starts the sum over the replicas of how far each has moved a unit.
    fn start_reduction(&self, index: usize) -> PendingCall {
        let (rank, unit, anchor) = (&self.rank, self.states[index].unit(), &self.anchors[index]);
        let backend = rank.backend();
        let mut moved = rank.copy_buffer(anchor, Category::Communication);
        let params = unit.master();
        let (p, g) = (moved.view_mut(), params.view());
        backend.sgd(&subtraction(1.0), SgdArgs { p, g, momentum: None, copy: None });
        let dtype = rank.reduce_dtype();
        let payload = if dtype == DType::F32 {
            moved
        } else {
            let mut payload = rank.allocator().alloc(dtype, moved.len(), Category::Communication);
            backend.cast(moved.view(), payload.view_mut());
            payload
        };
        let site = Site::new(format!("{} (outer gradient)", unit.name()));
        rank.replica_group().start_all_reduce(&site, ReduceOp::Sum, payload)
    }

    /// Updates a unit by the sum of its movements over the replicas, which is waited for.
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
                let [momentum] = state.state_views(KINDS, &part.in_shard);
                Some(momentum)
            };
            let mut anchor = anchor.view_mut().into_slice(part.in_shard.clone());
            let g = sum.view().slice(part.in_shard.clone());
            backend.sgd(&kernel, SgdArgs { p: anchor.reborrow(), g, momentum, copy: None });
            unit.change_values(part.range.clone(), |params, copy| {
                backend.cast(anchor.as_view(), params);
                if let Some(copy) = copy {
                    backend.cast(anchor.as_view(), copy);
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
        let sum = sum.unwrap_or_else(|error| fail(error));
        let mut mean = rank.allocator().zeros(DType::F32, sum.len(), Category::Communication);
        let (p, g) = (mean.view_mut(), sum.view());
        let kernel = subtraction(-1.0 / rank.replicas() as f32);
        rank.backend().sgd(&kernel, SgdArgs { p, g, momentum: None, copy: None });
        unit.write(0, mean.view());
    }
}

/// Returns the kernel of `p -= factor * g`.
fn subtraction(factor: f32) -> SgdStep {
    SgdStep { lr: factor, momentum: 0.0, nesterov: false, weight_decay: 0.0, grad_scale: 1.0 }
}
