//! Sources of the CUDA kernels.

pub mod attention;

use super::Source;

/// Declares the source in a sibling file, after the headers that it needs.
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

/// The common header that drivers prepend to every source.
pub const COMMON: &str = include_str!("device.cuh");

/// The header of generated elementwise kernels.
pub(super) const MAP: &str = concat!(include_str!("philox.cuh"), include_str!("map.cuh"));

pub(super) static COMBINE: Source = source!("combine");
pub(super) static ELEMENTS: Source = source!("elements");
pub(super) static EMBEDDING: Source = source!("embedding");
pub(super) static LOSS: Source = source!("loss", "row.cuh");
pub(super) static NORM: Source = source!("norm", "row.cuh");
pub(super) static OPTIM: Source = source!("optim");
pub(super) static PARTIALS: Source = source!("partials");
pub(super) static RANDOM: Source = source!("random", "philox.cuh");
pub(super) static REDUCE: Source = source!("reduce");
pub(super) static ROPE: Source = source!("rope");
pub(super) static ROUTING: Source = source!("routing");
pub(super) static ROWS: Source = source!("rows");
pub(super) static SOFTMAX: Source = source!("softmax", "row.cuh");
pub(super) static SORT: Source = source!("sort");
pub(super) static AUTOTUNE: Source = source!("autotune", "philox.cuh");

/// All fixed (not generated) sources.
pub const SOURCES: &[&Source] = &[
    &attention::PLAIN,
    &attention::BIAS,
    &attention::AUXILIARY,
    &COMBINE,
    &ELEMENTS,
    &EMBEDDING,
    &LOSS,
    &NORM,
    &OPTIM,
    &PARTIALS,
    &RANDOM,
    &REDUCE,
    &ROPE,
    &ROUTING,
    &ROWS,
    &SOFTMAX,
    &SORT,
    &AUTOTUNE,
];
