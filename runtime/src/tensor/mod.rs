//! Tensors: typed on the outside, a dynamic tape of untyped values inside.

mod combine;
mod contract;
mod gathering;
mod in_flight;
mod loss;
mod metric;
mod offload;
mod param;
mod partial;
mod pointwise;
mod rank;
mod recompute;
mod reduce;
mod region;
mod scalar;
pub(crate) mod scope;
mod softmax;
mod tape;
mod tokens;
mod typed;
mod unit;
mod value;

pub use combine::{Accumulate, Combine, Product, Right, Scale, TakesValues, Trailing};
pub use contract::{Contract, FromValue};
pub use in_flight::{Arrived, Awaited, InFlight, UsedBeforeWait};
pub use loss::{Accumulating, Gradients, Loss, Pending, Reduced, ScalesLoss, Summed, Unsummed};
pub use metric::{HasValue, Mean, Metric};
pub(crate) use param::Role;
pub use param::{Init, ParamRef};
pub use partial::{NotAValue, Partial, StillPartial};
pub use rank::{Rank, Settings};
pub use recompute::{Keep, Region, RegionData};
pub use reduce::SumState;
pub use scope::{Scope, scope};
pub use softmax::LastLocal;
pub use tokens::{Targets, Tokens};
pub use typed::{Operand, Param, Tensor};
pub use unit::{Stretch, Unit, ZeroLevel};
pub use value::Extent;

pub(crate) use combine::add_param;
pub(crate) use contract::{Contraction, Reads, contract, gradient_axes};
pub(crate) use rank::fail;
pub(crate) use recompute::recompute;
pub(crate) use region::{enter, leave};
pub(crate) use value::{InBackward, ParamUse, Saved, Value, local_len};
