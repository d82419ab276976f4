//! Tensors: typed on the outside, a dynamic tape of untyped values inside.

mod backward;
mod combine;
mod contract;
mod declared;
mod extent;
mod fusion;
mod gathering;
mod gradients;
mod in_flight;
mod loss;
mod metric;
mod offload;
mod param;
mod partial;
mod pointwise;
mod product;
mod rank;
mod recompute;
mod recording;
mod reduce;
mod region;
mod scalar;
pub(crate) mod scope;
mod sharing;
mod softmax;
mod tape;
mod tokens;
mod typed;
mod unit;
mod value;

pub use combine::{
    Accumulate, AfterParam, Combine, Moved, Product, Right, Scale, TakenByValue, TakesValues,
    Trailing,
};
pub use contract::{Contract, FromValue};
pub use extent::Extent;
pub use gradients::{Accumulating, Applicable, Gradients, Pending, Reduced, Summed, Unsummed};
pub use in_flight::{Arrived, Awaited, InFlight, UsedBeforeWait};
pub use loss::{Loss, Losses, ScalesLoss};
pub use metric::{HasShape, HasValue, MadeOfTensor, Mean, Metric};
pub(crate) use param::Role;
pub use param::{Init, ParamRef};
pub use partial::{NotAValue, Partial, StillPartial};
pub use rank::{Rank, Settings};
pub use recompute::{Keep, Region, RegionData};
pub use reduce::SumState;
pub use scalar::{Divisor, OtherNumber};
pub use scope::{Scope, scope};
pub use sharing::SharedBetweenRanks;
pub use softmax::LastLocal;
pub use tokens::{Targets, Tokens};
pub use typed::{Operand, Param, Tensor};
pub use unit::{Stretch, Unit, ZeroLevel};

pub(crate) use combine::add_param;
pub(crate) use contract::{Contraction, Reads, contract, gradient_axes};
pub(crate) use extent::{check_sizes, local_len, shape_name};
pub(crate) use rank::fail;
pub(crate) use recompute::recompute;
pub(crate) use recording::{Pass, Passes, RecordedPass, Varies};
pub(crate) use region::{enter, leave};
pub(crate) use tape::Gradients as TapeGradients;
pub(crate) use value::{InBackward, ParamUse, Saved, Value};
