//! Settings of a rank: seed, dtypes, ZeRO stage, limits.

use meshwright_backend::DType;

use super::zero_stage::ZeroStage;

/// Numeric and sharding settings of a rank, the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Seed of initialization and dropout, the same on every rank.
    pub seed: u64,
    /// Dtype of activations and of the values that layers read: `F32`, or `Bf16` with f32 master weights. Activations
    /// are also summed over ranks in this dtype, with the partial sums of all ranks accumulated in f32.
    pub compute: DType,
    /// Dtype of gradient reductions over the data axes and `cp`. They are accumulated in f32 before and after.
    pub reduce: DType,
    /// ZeRO stage: which state is sharded over the `fsdp`, `ep` and `cp` axes.
    pub zero: ZeroStage,
    /// Limit in bytes of all buffers of the rank together; `None` for the memory of the machine.
    pub memory_limit: Option<usize>,
    /// Limit of logits that a fused head holds at the same time on a device, the same on every rank; `None` for a
    /// default that fits small devices. The trainer derives it from the memory plan. The order of summation of the
    /// head's weight gradient depends on it.
    pub logits_limit: Option<usize>,
    /// True to keep the units that backward reads first unsharded from the forward pass on, at ZeRO stage 3: one layer,
    /// and what is smaller behind it; in a pipeline, of each stage. The same on every rank. The trainer turns it off if
    /// the memory plan does not fit otherwise.
    pub keeps_last_units: bool,
    /// Steps in which the ranks check what no type can express; the same on every rank.
    pub checks: Checks,
    /// True to keep the sum of the losses of each row of a batch, which cross-entropies compute beside their loss: the
    /// trainer reports the loss of each source of its data. The same on every rank.
    pub row_losses: bool,
    /// True to train the replicas along `dp` apart from each other, as in local SGD: nothing that a step computes is
    /// reduced over `dp`, and each replica computes on its rows what it would compute alone. The same on every rank.
    /// The trainer sets it for `--local-steps`, and synchronizes the replicas.
    #[doc(hidden)]
    pub local_replicas: bool,
    /// True to sum the squares of the gradient of each data rank's first micro-batch in a step, for the gradient noise
    /// scale: a pass over the gradients, and small reductions over the tensor-parallel ranks. Steps cannot be captured
    /// as CUDA graphs. The same on every rank.
    pub first_squares: bool,
}

/// Steps in which the ranks check what no type can express: that they train one model on one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checks {
    /// None: for a program that has passed the checks before.
    Off,
    /// The first step, up to its `Gradients::reduce`.
    FirstStep,
    /// All steps.
    #[default]
    EveryStep,
}

impl Settings {
    /// Creates settings with everything in f32, no state sharded, and no limits.
    pub fn new(seed: u64) -> Settings {
        Settings {
            seed,
            compute: DType::F32,
            reduce: DType::F32,
            zero: ZeroStage::Replicated,
            memory_limit: None,
            logits_limit: None,
            keeps_last_units: true,
            checks: Checks::EveryStep,
            row_losses: false,
            local_replicas: false,
            first_squares: false,
        }
    }
}
