//! The sources of the kernels.

pub mod attention;

use super::Source;

/// What drivers put before every source.
pub const COMMON: &str = include_str!("device.cuh");

/// Every source that is not generated.
pub static SOURCES: &[&Source] = &[&attention::PLAIN];

/// The source in a file beside this one.
macro_rules! source {
    ($name:literal) => {
        $crate::backend::cuda::Source {
            name: ::std::borrow::Cow::Borrowed($name),
            text: ::std::borrow::Cow::Borrowed(include_str!(concat!($name, ".cu"))),
        }
    };
}
