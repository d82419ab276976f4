//! Fully sharded data parallelism: parameters in units that are sharded, reduced and gathered together.

mod backward_pass;
mod param;
mod prefetch;
mod unit;

pub use param::{Init, ParamRef};
pub use unit::{Stretch, Unit};

pub(crate) use backward_pass::Backward;
pub(crate) use param::Role;
pub(crate) use prefetch::{Gathering, Phase};
pub(crate) use unit::Inputs;
