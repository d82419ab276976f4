//! The sources of the kernels.

use super::Source;

/// What drivers put before every source.
pub const COMMON: &str = include_str!("device.cuh");

/// Every source that is not generated.
pub const SOURCES: &[&Source] = &[];

/// The source in a file beside this one.
macro_rules! source {
    ($name:literal) => {
        $crate::backend::cuda::Source {
            name: ::std::borrow::Cow::Borrowed($name),
            text: ::std::borrow::Cow::Borrowed(include_str!(concat!($name, ".cu"))),
        }
    };
}
