//! The numbers that a rank observes in a run, to be compared between meshes.

use std::hash::{DefaultHasher, Hasher};

use serde::{Deserialize, Serialize};

use crate::layout::{AxisId, AxisSet};
use crate::nn::Built;
use crate::tensor::{Gradients, ParamRef, Rank, Reduced};

/// The numbers of a run on one rank that must not depend on the mesh: losses, gradients, parameters, and others by
/// name.
///
/// A loss, gradients or a value that the current step already has begin the next step; the first ones begin step 1.
#[derive(Debug)]
pub struct Observed {
    pub(super) rank: usize,
    /// True if this rank returns the numbers themselves: it is the first one of its pipeline stage.
    pub(super) keeps: bool,
    pub(super) step: u64,
    pub(super) records: Vec<Record>,
}

/// The kind of an observed number, in the order of computation in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Loss,
    Value,
    Gradient,
    Parameter,
}

/// Identity of observed numbers: the numbers of one kind in one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub(crate) step: u64,
    pub(crate) kind: Kind,
    /// Path of the parameter, or name of the value; empty for a loss.
    pub(crate) name: String,
}

/// Observed numbers.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) field: Field,
    /// Position of the parameter in the model.
    pub(super) index: usize,
    /// Hash of the bits of all numbers.
    pub(super) hash: u64,
    pub(super) numbers: Option<Vec<f32>>,
}

impl Observed {
    /// Creates an empty observation of a run on `rank`.
    pub fn new(rank: &Rank) -> Observed {
        let within_stage = AxisSet::ALL.difference(AxisSet::of(AxisId::Pp));
        let keeps = rank.position(within_stage) == 0;
        Observed { rank: rank.index(), keeps, step: 0, records: Vec::new() }
    }

    /// Records the loss of a step, over all ranks and micro-batches: [`Loss::reduce`](crate::tensor::Loss::reduce).
    pub fn loss(&mut self, loss: f64) {
        self.begin_step_if_known(Kind::Loss, "");
        self.push(Kind::Loss, "", 0, vec![loss as f32]);
    }

    /// Records the gradient of every trained parameter of `built`, before or after clipping. Every rank calls it.
    #[track_caller]
    pub fn gradients<M>(&mut self, built: &Built<M>, gradients: &Gradients<Reduced>) {
        let mut params = owned_params(built);
        params.retain(|(_, param)| !param.is_frozen());
        if let Some((_, first)) = params.first() {
            self.begin_step_if_known(Kind::Gradient, first.path());
        }
        for (index, param) in params {
            self.push(Kind::Gradient, param.path(), index, gradients.gather(&param));
        }
    }

    /// Records every parameter of `built`: before the first step, or after the update of the current one. Every rank
    /// calls it.
    #[track_caller]
    pub fn parameters<M>(&mut self, built: &Built<M>) {
        for (index, param) in owned_params(built) {
            self.push(Kind::Parameter, param.path(), index, param.gather(param.rank()));
        }
    }

    /// Records numbers that are the same on every rank, such as a metric over all ranks, or a
    /// [gathered](crate::tensor::Tensor::gather_to_vec) tensor.
    pub fn value(&mut self, name: &str, numbers: &[f32]) {
        self.begin_step_if_known(Kind::Value, name);
        self.push(Kind::Value, name, 0, numbers.to_vec());
    }

    fn begin_step_if_known(&mut self, kind: Kind, name: &str) {
        let is_known = |record: &Record| {
            let Field { step, kind: known, name: of_known } = &record.field;
            (*step, *known, of_known.as_str()) == (self.step, kind, name)
        };
        if self.step == 0 || self.records.iter().rev().any(is_known) {
            self.step += 1;
        }
    }

    fn push(&mut self, kind: Kind, name: &str, index: usize, numbers: Vec<f32>) {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(numbers.len());
        hasher.write(bytemuck::cast_slice(&numbers));
        let field = Field { step: self.step, kind, name: name.to_owned() };
        let numbers = self.keeps.then_some(numbers);
        self.records.push(Record { field, index, hash: hasher.finish(), numbers });
    }
}

/// Returns the parameters that this rank owns, each with its position in the model.
fn owned_params<M>(built: &Built<M>) -> Vec<(usize, ParamRef)> {
    built.params().into_iter().enumerate().filter(|(_, param)| param.is_owned()).collect()
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Field { step, kind, name } = self;
        match (kind, step) {
            (Kind::Loss, _) => f.write_str("loss"),
            (Kind::Value, _) => write!(f, "value `{name}`"),
            (Kind::Gradient, _) => write!(f, "gradient of `{name}`"),
            (Kind::Parameter, 0) => write!(f, "initial `{name}`"),
            (Kind::Parameter, _) => write!(f, "`{name}` after the update"),
        }
    }
}
