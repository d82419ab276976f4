//! The sources of the kernels.

use super::Source;

/// The source in a file beside this one.
macro_rules! source {
    ($name:literal) => {
        $crate::backend::cuda::Source {
            name: ::std::borrow::Cow::Borrowed($name),
            text: ::std::borrow::Cow::Borrowed(include_str!(concat!($name, ".cu"))),
        }
    };
}

/// What drivers put before every source.
pub const COMMON: &str = include_str!("device.cuh");

pub(super) static COMBINE: Source = source!("combine");
pub(super) static EMBEDDING: Source = source!("embedding");
pub(super) static LOSS: Source = source!("loss");
pub(super) static OPTIM: Source = source!("optim");
pub(super) static RANDOM: Source = source!("random");
pub(super) static REDUCE: Source = source!("reduce");
pub(super) static SORT: Source = source!("sort");

/// Every source that is not generated.
pub static SOURCES: &[&Source] = &[&COMBINE, &EMBEDDING, &LOSS, &OPTIM, &RANDOM, &REDUCE, &SORT];
