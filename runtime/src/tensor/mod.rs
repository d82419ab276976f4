//! Tensors whose types say what the global tensor is and how it is split; losses, metrics and gradients.

mod combine;
mod contract;
mod cuda_graphs;
mod gradients;
mod in_flight;
mod loss;
mod metric;
mod partial;
mod reduce;
mod scalar;
mod sharing;
mod softmax;
mod tokens;
mod typed;

pub use combine::{
    Accumulate, AfterParam, Combine, Moved, Product, Right, Scale, TakenByValue, TakesValues,
    Trailing,
};
pub use contract::{Contract, FromValue};
pub use gradients::{Accumulating, Applicable, Gradients, Pending, Reduced, Summed, Unsummed};
pub use in_flight::{Arrived, Awaited, InFlight, UsedBeforeWait};
pub use loss::{Loss, Losses, ScalesLoss};
pub use metric::{HasShape, HasValue, MadeOfTensor, Mean, Metric};
pub use partial::{NotAValue, Partial, StillPartial};
pub use reduce::SumState;
pub use scalar::{Divisor, OtherNumber};
pub use sharing::SharedBetweenRanks;
pub use softmax::LastLocal;
pub use tokens::{Targets, Tokens};
pub use typed::{Operand, Param, Tensor};

pub use crate::autograd::{Keep, Region, RegionData};
pub use crate::context::{Extent, Rank, Scope, Settings, ZeroLevel, scope};
pub use crate::fsdp::{Init, ParamRef, Stretch, Unit};

pub(crate) use combine::add_param;
pub(crate) use contract::{Contraction, Exit, Reads, contract, gradient_axes};
pub(crate) use cuda_graphs::{Pass, Passes, RecordedPass, Varies};

pub(crate) use crate::autograd::Gradients as TapeGradients;
pub(crate) use crate::autograd::region::{enter, leave};
pub(crate) use crate::autograd::{InBackward, ParamUse, Saved, Value, recompute};
pub(crate) use crate::context::{check_sizes, fail, local_len, shape_name};
pub(crate) use crate::fsdp::Role;
