//! The message for tensors, parameters and models that would be sent to another thread, or shared with it.

use crate::context::Rank;
use crate::fsdp::ParamRef;
use crate::layout::Dims;

use super::{Gradients, InFlight, Loss, Metric, Objective, Param, Partial, Tensor, Tokens};

/// Never implemented: a value that several ranks could use. Each rank is a thread.
#[diagnostic::on_unimplemented(
    message = "tensors, parameters and models belong to one rank: they cannot be sent to another thread, or shared \
               with it",
    label = "this would leave its rank",
    note = "each rank runs the closure of `run_on`: make tensors and models inside of it, from its `rank`",
    note = "numbers leave a rank as a `Vec`, and enter it as one: `.to_local_vec()`, `.gather_to_vec()`, \
            `Tensor::from_block(rank, ..)`"
)]
pub trait SharedBetweenRanks {}

macro_rules! of_one_rank {
    ($($name:ident$(<$($param:ident $(: $bound:ident)?),+>)?;)*) => {$(
        // SAFETY: it never applies, as nothing implements the bound.
        unsafe impl$(<$($param $(: $bound)?),+>)? Send for $name$(<$($param),+>)?
        where for<'a> (): SharedBetweenRanks
        {}
        // SAFETY: it never applies, as nothing implements the bound.
        unsafe impl$(<$($param $(: $bound)?),+>)? Sync for $name$(<$($param),+>)?
        where for<'a> (): SharedBetweenRanks
        {}
    )*};
}

of_one_rank! {
    Gradients<State>;
    InFlight<T>;
    Loss<S>;
    Metric<S>;
    Objective<Of>;
    Param<S>;
    ParamRef;
    Partial<S, A>;
    Rank;
    Tensor<S: Dims>;
    Tokens<S: Dims>;
}
