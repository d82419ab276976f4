//! One rank as its own thread sees it: compute, communication, memory, tape.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Backend, Buffer, Category, DType, MemoryMeter};
use crate::comm::{Blocks, CommError, CommFailure, Communicator, RankComms, ReduceOp, Site};
use crate::layout::{AxisId, AxisSet};

use super::Unit;
use super::tape::Tape;

/// The rank that this thread is: cheap to clone, never leaves the thread.
#[derive(Clone)]
pub struct Rank(Rc<Inner>);

struct Inner {
    comms: RankComms,
    backend: Box<dyn Backend>,
    meter: Arc<MemoryMeter>,
    tape: RefCell<Tape>,
    units: RefCell<Vec<Rc<Unit>>>,
    recording: Cell<bool>,
    training: Cell<bool>,
    seed: u64,
    step: Cell<u64>,
}

impl Rank {
    /// A rank that talks through `comms`, computes on `backend` and draws its randomness from `seed`.
    pub fn new(comms: RankComms, backend: Box<dyn Backend>, seed: u64) -> Rank {
        Rank(Rc::new(Inner {
            comms,
            backend,
            meter: MemoryMeter::new(),
            tape: RefCell::default(),
            units: RefCell::default(),
            recording: Cell::new(true),
            training: Cell::new(true),
            seed,
            step: Cell::new(0),
        }))
    }

    /// Number of this rank in the world.
    pub fn index(&self) -> usize {
        self.0.comms.rank()
    }

    /// The communicators of this rank.
    pub fn comms(&self) -> &RankComms {
        &self.0.comms
    }

    /// The compute backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// What counts and recycles this rank's memory.
    pub fn meter(&self) -> &Arc<MemoryMeter> {
        &self.0.meter
    }

    /// Degree of one mesh axis.
    pub fn degree(&self, axis: AxisId) -> usize {
        self.0.comms.shape().degree(axis)
    }

    /// Number of ranks that differ from this one only along `axes`, itself included.
    pub fn degree_of(&self, axes: AxisSet) -> usize {
        self.0.comms.shape().degree_of(axes)
    }

    /// Position of this rank among the ranks that differ from it only along `axes`.
    pub fn position(&self, axes: AxisSet) -> usize {
        self.0.comms.shape().index_in_group(self.index(), axes)
    }

    /// The ranks that differ from this one only along `axes`; axes of degree 1 make no difference.
    pub fn group(&self, axes: AxisSet) -> Arc<dyn Communicator> {
        let single = axes.iter().filter(|axis| self.degree(*axis) == 1);
        self.0.comms.group(single.fold(axes, |axes, axis| axes.minus(AxisSet::of(axis))))
    }

    /// The seed of initialisation and dropout, the same on every rank.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The training step that runs now, which keys dropout.
    pub fn step(&self) -> u64 {
        self.0.step.get()
    }

    /// Says which training step runs now.
    pub fn set_step(&self, step: u64) {
        self.0.step.set(step);
    }

    /// Whether operations are recorded for backward.
    pub fn is_recording(&self) -> bool {
        self.0.recording.get()
    }

    /// Whether dropout is on.
    pub fn is_training(&self) -> bool {
        self.0.training.get()
    }

    /// Runs `body` without recording it for backward and without dropout.
    pub fn evaluate<T>(&self, body: impl FnOnce() -> T) -> T {
        let recording = self.0.recording.replace(false);
        let training = self.0.training.replace(false);
        let restore = Restore { rank: self, recording, training };
        let result = body();
        drop(restore);
        result
    }

    /// The units of parameters of the models built on this rank.
    pub fn units(&self) -> Ref<'_, [Rc<Unit>]> {
        Ref::map(self.0.units.borrow(), Vec::as_slice)
    }

    pub(crate) fn add_units(&self, units: &[Rc<Unit>]) {
        self.0.units.borrow_mut().extend_from_slice(units);
    }

    pub(crate) fn tape(&self) -> RefMut<'_, Tape> {
        self.0.tape.borrow_mut()
    }

    pub(crate) fn alloc(&self, len: usize) -> Buffer {
        self.0.meter.alloc(DType::F32, len, Category::Activations)
    }

    pub(crate) fn zeros(&self, len: usize) -> Buffer {
        self.0.meter.zeros(DType::F32, len, Category::Workspace)
    }

    pub(crate) fn scratch(&self, len: usize) -> Buffer {
        self.0.meter.alloc(DType::F32, len, Category::Workspace)
    }

    /// Sums `data` over the ranks along `axes`; nothing happens where there is only this one.
    pub(crate) fn all_reduce(&self, axes: AxisSet, site: &Site, op: ReduceOp, data: &mut [f32]) {
        let group = self.group(axes);
        if group.size() > 1 {
            group.all_reduce(site, op, data.into()).unwrap_or_else(|error| fail(error));
        }
    }

    /// Sums `values` over the ranks along `axes` in double precision, in the order of ranks.
    pub(crate) fn all_reduce_f64(&self, axes: AxisSet, site: &Site, values: &mut [f64]) {
        let group = self.group(axes);
        if group.size() == 1 {
            return;
        }
        let halves = |value: &f64| [(value.to_bits() >> 32) as u32, value.to_bits() as u32];
        let own: Vec<u32> = values.iter().flat_map(halves).collect();
        let mut all = vec![0u32; own.len() * group.size()];
        let blocks = Blocks::new(1, vec![own.len(); group.size()]);
        group
            .all_gather(site, own.as_slice().into(), all.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
        for (index, value) in values.iter_mut().enumerate() {
            let parts = all.chunks_exact(own.len()).map(|rank| {
                let [high, low] = [rank[2 * index], rank[2 * index + 1]];
                f64::from_bits(u64::from(high) << 32 | u64::from(low))
            });
            *value = parts.sum();
        }
    }
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rank({} of {})", self.index(), self.0.comms.shape().world_size())
    }
}

struct Restore<'a> {
    rank: &'a Rank,
    recording: bool,
    training: bool,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.rank.0.recording.set(self.recording);
        self.rank.0.training.set(self.training);
    }
}

/// Leaves model code, which returns tensors and not `Result`s, with a typed payload that
/// [`launch`](crate::comm::launch) and the trainer turn back into an error.
pub(crate) fn fail(error: CommError) -> ! {
    std::panic::resume_unwind(Box::new(CommFailure(error)))
}
