//! The sources of the kernels.

use super::Source;

/// What drivers put before every source.
pub const COMMON: &str = include_str!("device.cuh");

/// Every source that is not generated.
pub const SOURCES: &[&Source] = &[&ELEMENTS, &NORM, &PARTIALS, &ROPE, &SOFTMAX];

/// What generated kernels of element-wise expressions begin with.
pub(super) const MAP: &str = include_str!("map.cuh");

/// The source in a file beside this one, after the headers in other files that it needs.
macro_rules! source {
    ($name:literal $(, $header:literal)*) => {
        $crate::backend::cuda::Source {
            name: ::std::borrow::Cow::Borrowed($name),
            text: ::std::borrow::Cow::Borrowed(concat!(
                $(include_str!($header),)*
                include_str!(concat!($name, ".cu"))
            )),
        }
    };
}

pub(super) static ELEMENTS: Source = source!("elements");
pub(super) static NORM: Source = source!("norm", "row.cuh");
pub(super) static PARTIALS: Source = source!("partials");
pub(super) static ROPE: Source = source!("rope");
pub(super) static SOFTMAX: Source = source!("softmax", "row.cuh");
