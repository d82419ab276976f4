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
///The dim `Hidden`.
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
pub struct Ffn;
pub type Stream = Tensor<(Batch, Seq, Hidden)>;
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Block {
    norm: RmsNorm<Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl Block {
    fn forward(&self, x: &Tensor<(Batch, Seq, Ffn)>) -> Tensor<(Batch, Seq, Ffn)> {
        ::core::unreachable!()
    }
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Net {
    up: Linear<Hidden, Ffn>,
    #[cfg(any())]
    missing: Nothing,
    r#type: Block,
    down: Linear<Ffn, Hidden>,
    pub head: Linear<Hidden, Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl Net {
    /// Runs the stages.
    pub fn forward(&self, x: &Stream) -> Stream {
        ::core::unreachable!()
    }
}
