//! The mesh axes as types, for use in the type of a tensor.

use super::{AxisId, AxisSet};

/// A single mesh axis as a type.
pub trait Axis: Home {
    /// The axis this type stands for.
    const ID: AxisId;
}

/// Where a dim lives when a model declares it: nowhere in particular ([`Here`]), or distributed over axes
/// (`Batch @ data`).
pub trait Home: 'static {
    /// The axes over which the dim is distributed.
    const AXES: AxisSet;
}

/// Not distributed: every rank sees all of the dim.
#[derive(Debug, Clone, Copy)]
pub struct Here;

impl Home for Here {
    const AXES: AxisSet = AxisSet::NONE;
}

/// The data axes together: `dp x fsdp x ep`.
#[derive(Debug, Clone, Copy)]
pub struct Data;

impl Home for Data {
    const AXES: AxisSet = AxisSet::DATA;
}

macro_rules! axes {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Axis for $name {
            const ID: AxisId = AxisId::$name;
        }

        impl Home for $name {
            const AXES: AxisSet = AxisSet::of(AxisId::$name);
        }
    )*};
}

axes! {
    /// Pipeline stages.
    Pp,
    /// Data parallelism with replicated parameters.
    Dp,
    /// Data parallelism with sharded parameters.
    Fsdp,
    /// Experts.
    Ep,
    /// Context parallelism.
    Cp,
    /// Tensor parallelism.
    Tp
}
