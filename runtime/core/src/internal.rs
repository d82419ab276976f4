//! Items for the other crates of Meshwright. Not part of the API.

pub use crate::autograd::{
    LossFactor, MicrobatchPass, PartGradients, TokenIds, data_of_parts, parts_of,
};
pub use crate::context::fail;
pub use crate::context::scope::{
    Location, Pass, RunningAction, begin_pass, begin_span, current_action, current_location,
    current_pass, end_span, run_action,
};
pub use crate::fsdp::{BackwardPass, CompletedUnits, StageAction, StageActionKind};
pub use crate::layout::sealed::Internal;
pub use crate::nn::builder::{declare, declare_again, declare_first};
pub use crate::nn::rope::with_unpadded_length;
pub use crate::optim::rule::check_rule;
pub use crate::promise::AppliedUpdates;
pub use crate::tensor::captured_input::{CapturedInput, InputCapture, InputPass};
pub use crate::tensor::cuda_graphs::{CapturedPass, PassGraphs, PassVariation};
