use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `dims! { crate = facade::meshwright; .. }`"
}
///The dim `Batch`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Batch;
///The dim `Seq`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Seq;
/// Width of the residual stream.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Hidden;
///The dim `Ffn`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub(crate) struct Ffn;
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
#[derive(Default)]
pub struct NoParameters {}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
/// The feed-forward part of a block.
pub struct Mlp {
    /// Up.
    pub gate: Linear<Hidden, Ffn>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl Mlp {
    pub fn forward(
        &self,
        x: &Tensor<(Batch, Seq, Hidden)>,
    ) -> Tensor<(Batch, Seq, Hidden)> {
        ::core::unreachable!()
    }
    fn is_linear(&self) -> bool {
        ::core::unreachable!()
    }
}
