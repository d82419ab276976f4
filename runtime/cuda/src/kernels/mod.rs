//! Sources of the CUDA kernels.

pub mod attention;

use super::KernelSource;

/// Declares the source in a sibling file, after the headers that it needs.
macro_rules! source {
    ($name:literal $(, $header:literal)*) => {
        $crate::KernelSource {
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

/// The header of generated updates of optimizers with bf16 state.
pub(super) const STATE_ROUNDING: &str =
    concat!(include_str!("philox.cuh"), include_str!("state_rounding.cuh"));

pub(super) static COMBINE: KernelSource = source!("combine");
pub(super) static CONVOLUTION: KernelSource = source!("convolution");
pub(super) static ELEMENTS: KernelSource = source!("elements");
pub(super) static EMBEDDING: KernelSource = source!("embedding");
pub(super) static HEAD: KernelSource = source!("head");
pub(super) static INDEX: KernelSource = source!("index");
pub(super) static LOSS: KernelSource = source!("loss", "row.cuh");
pub(super) static MIDDLE_DIM: KernelSource = source!("middle_dim");
pub(super) static NORM: KernelSource = source!("norm", "row.cuh");
pub(super) static OPTIM: KernelSource = source!("optim", "philox.cuh", "state_rounding.cuh");
pub(super) static PARTIALS: KernelSource = source!("partials");
pub(super) static RANDOM: KernelSource = source!("random", "philox.cuh");
pub(super) static REDUCE: KernelSource = source!("reduce");
pub(super) static ROPE: KernelSource = source!("rope");
pub(super) static ROUTER: KernelSource = source!("router", "score_rank.cuh");
pub(super) static ROUTING: KernelSource = source!("routing", "score_rank.cuh");
pub(super) static ROWS: KernelSource = source!("rows");
pub(super) static SOFTMAX: KernelSource = source!("softmax", "row.cuh");
pub(super) static SORT: KernelSource = source!("sort");
pub(super) static STRIDED_COPY: KernelSource = source!("strided_copy");
pub(super) static AUTOTUNE: KernelSource = source!("autotune", "philox.cuh");

/// All fixed (not generated) sources, without those that a run compiles on first use.
pub const SOURCES: &[&KernelSource] = &[
    &attention::PLAIN,
    &attention::BIAS,
    &attention::AUXILIARY,
    &COMBINE,
    &CONVOLUTION,
    &ELEMENTS,
    &EMBEDDING,
    &HEAD,
    &INDEX,
    &LOSS,
    &MIDDLE_DIM,
    &NORM,
    &OPTIM,
    &PARTIALS,
    &RANDOM,
    &REDUCE,
    &ROPE,
    &ROUTER,
    &ROUTING,
    &ROWS,
    &SOFTMAX,
    &SORT,
    &STRIDED_COPY,
    &AUTOTUNE,
];
